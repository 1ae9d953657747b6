"""The tree of commands: rules that every command follows, and the cost of loading it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.metadata import entry_points

import click
import pytest

import ductile
from ductile.cli import main
from ductile.cli.command import Action
from ductile.cli.main import NOUNS, SHORT, root
from ductile.cli.options import DELIVERY_STATUS
from ductile.core.delivery.retry_policy import DeliveryStatus
from tests.cli.running import run

HEAVY = ("pydantic", "starlette", "uvicorn", "apsw", "rich", "yaml", "orjson", "asyncio", "blake3")


def commands(
    group: click.Group = root, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Action]]:
    ctx = click.Context(group)
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))
        else:
            assert isinstance(command, Action), f"{path} {name} was not made by read or write"
            yield (*path, name), command


ALL = list(commands())
every = pytest.mark.parametrize(("path", "command"), ALL, ids=[" ".join(path) for path, _ in ALL])


def flags(command: click.Command) -> set[str]:
    return {flag for param in command.params for flag in param.opts}


@every
def test_every_command_says_what_it_does_and_has_verbose(
    path: tuple[str, ...], command: Action, capsys: pytest.CaptureFixture[str]
) -> None:
    assert {"-v", "--verbose", "--config"} <= flags(command)
    assert main([*path, "--help"]) == 0
    assert command.help
    assert command.help.split("\n")[0] in " ".join(capsys.readouterr().out.split())


@every
def test_every_read_has_json_and_every_write_dry_run(
    path: tuple[str, ...], command: Action
) -> None:
    assert "--json" in flags(command)
    assert ("--dry-run" in flags(command)) is command.writes


def test_who_writes_is_known() -> None:
    """A new command that writes has to be added here, on purpose."""
    assert {" ".join(path) for path, command in ALL if command.writes} == {
        "agent forget",
        "agent remind",
        "api",
        "config init",
        "config lock",
        "config set",
        "job cancel",
        "job replay",
        "job retry",
        "pipeline run",
        "plugin new",
        "plugin reset-breaker",
        "plugin run",
        "relay retry",
        "reload",
        "reset",
        "run",
        "schedule pause",
        "schedule resume",
        "skills export",
        "start",
        "system backup",
        "system demo",
        "system import",
        "system reload",
        "system restore",
        "system start",
        "token create",
        "token revoke",
        "token rotate",
        "webhook config add",
        "webhook config remove",
        "webhook retry",
        "webhook send",
    }


@every
def test_the_first_line_of_a_help_text_is_one_sentence_of_60_characters(
    path: tuple[str, ...], command: Action
) -> None:
    line = (command.help or "").split("\n")[0]
    assert len(line) <= 60
    assert line.endswith(".")
    assert line[0].isupper()


@pytest.mark.parametrize("name", NOUNS)
def test_the_root_describes_a_noun_as_the_noun_does(name: str) -> None:
    noun = root.get_command(click.Context(root), name)
    assert noun is not None
    assert noun.help == NOUNS[name][1]


@pytest.mark.parametrize("name", SHORT)
def test_a_short_form_is_its_long_form(name: str) -> None:
    noun, action = SHORT[name][1].split()[:2]
    short, group = (root.get_command(click.Context(root), word) for word in (name, noun))
    assert isinstance(group, click.Group)
    if name != "logs":
        assert short is group.commands[action]


def test_both_names_are_installed() -> None:
    scripts = entry_points(group="console_scripts")
    assert {scripts[name].value for name in ("ductile", "senechal-gw")} == {"ductile.cli:main"}


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"ductile {ductile.__version__}\n"


@pytest.mark.parametrize(
    ("line", "meant"),
    [(["statsu"], "status"), (["job", "inspekt"], "inspect"), (["queue", "lst"], "list")],
)
def test_an_unknown_command_is_answered_with_the_nearest(
    line: list[str], meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(line) == 2
    assert f"did you mean {meant!r}?" in capsys.readouterr().err


def test_deliveries_are_asked_for_by_every_state_that_they_have() -> None:
    assert tuple(DELIVERY_STATUS.choices) == tuple(DeliveryStatus)


def test_wrong_usage_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["job", "list", "--status", "lost", "--json"]) == 2
    out, err = capsys.readouterr()
    assert json.loads(out)["code"] == "usage"
    assert err == ""


@pytest.mark.parametrize("line", [["--help"], ["job", "--help"], ["plugin", "run", "--help"]])
def test_help_imports_nothing_heavy(line: list[str]) -> None:
    probe = (
        "import sys; from ductile.cli import main; main(sys.argv[1:]);"
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    )
    done = run(*line, command=("-c", probe))
    assert done.stderr.strip() == "[]"
