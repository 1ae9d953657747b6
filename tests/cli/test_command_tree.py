"""The tree of commands: options and help of every command, short forms, imports."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path

import click
import pytest

import ductile
from ductile.cli import main
from ductile.cli.command import Action
from ductile.cli.main import NOUNS, SHORT, root
from ductile.cli.options import DELIVERY_STATUS
from ductile.core.delivery.retry_policy import DeliveryStatus
from tests.cli.runner import run_process

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


def test_commands_that_the_dashboard_names_exist() -> None:
    known = {" ".join(path) for path, _ in ALL}
    sources = Path(__file__).parents[2] / "web" / "src"
    text = "".join(path.read_text() for path in sources.rglob("*.tsx"))
    named = {words.strip() for words in re.findall(r"<code>ductile ([a-z -]+)", text)}
    assert named
    assert named <= known


def flags(command: click.Command) -> set[str]:
    return {flag for param in command.params for flag in param.opts}


def test_every_command_has_help_and_shared_options(capsys: pytest.CaptureFixture[str]) -> None:
    for path, command in ALL:
        assert {"-v", "--verbose", "--config", "--json"} <= flags(command), path
        assert main([*path, "--help"]) == 0, path
        assert command.help, path
        assert command.help.split("\n")[0] in " ".join(capsys.readouterr().out.split()), path


def test_every_write_has_dry_run() -> None:
    assert [
        path for path, command in ALL if ("--dry-run" in flags(command)) is not command.writes
    ] == []


def test_every_option_has_help() -> None:
    without_help = [
        (path, param.opts)
        for path, command in ALL
        for param in command.params
        if isinstance(param, click.Option) and not param.help
    ]
    assert without_help == []


def test_the_commands_that_write() -> None:
    """A new command that writes must be added here."""
    assert {" ".join(path) for path, command in ALL if command.writes} == {
        "agent forget",
        "agent remind",
        "alert silence",
        "alert test",
        "alert unsilence",
        "api",
        "approval approve",
        "approval reject",
        "config apply",
        "config init",
        "config restore",
        "config revert",
        "config lock",
        "config set",
        "job acknowledge",
        "job bundle",
        "job cancel",
        "job replay",
        "job retry",
        "mcp",
        "node drain",
        "node forget",
        "node resume",
        "pipeline cancel",
        "pipeline pause",
        "pipeline resume",
        "pipeline retry",
        "pipeline run",
        "plugin install",
        "plugin new",
        "plugin pause",
        "plugin reset-breaker",
        "plugin resume",
        "plugin run",
        "plugin state set",
        "plugin state unset",
        "plugin sync",
        "plugin update",
        "relay discard",
        "relay retry",
        "relay send",
        "reload",
        "reset",
        "run",
        "schedule pause",
        "schedule resume",
        "skills export",
        "start",
        "system backup",
        "system demo",
        "system doctor",
        "system import",
        "system pause",
        "system reload",
        "system restore",
        "system resume",
        "system start",
        "system stop",
        "system ui",
        "token create",
        "token revoke",
        "token rotate",
        "ui",
        "webhook config add",
        "webhook config remove",
        "webhook discard",
        "webhook retry",
        "webhook send",
    }


def test_every_help_line_is_one_sentence_of_60_characters() -> None:
    lines = [(command.help or "").split("\n")[0] for _, command in ALL]
    lines += [line for _, line in NOUNS.values()]
    wrong = [line for line in lines if not (line[:1].isupper() and line.endswith("."))]
    assert [line for line in lines if len(line) > 60] + wrong == []


def test_the_root_help_matches_the_help_of_the_noun() -> None:
    for name, (_, line) in NOUNS.items():
        noun = root.get_command(click.Context(root), name)
        assert noun is not None
        assert noun.help == line


def test_a_short_form_is_the_same_command() -> None:
    for name, (_, meaning) in SHORT.items():
        noun, action = meaning.split()[:2]
        short, group = (root.get_command(click.Context(root), word) for word in (name, noun))
        assert isinstance(group, click.Group)
        assert name == "logs" or short is group.get_command(click.Context(group), action)


def test_both_programs_are_installed() -> None:
    scripts = entry_points(group="console_scripts")
    assert {scripts[name].value for name in ("ductile", "senechal-gw")} == {"ductile.cli:main"}


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"ductile {ductile.__version__}\n"


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        (["statsu"], "status"),
        (["job", "inspekt"], "inspect"),
        (["queue", "lst"], "list"),
        (["doctor"], "system doctor"),
        (["why", "x"], "job why"),
    ],
)
def test_an_unknown_command_gives_a_suggestion(
    line: list[str], meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(line) == 2
    assert f"did you mean {meant!r}?" in capsys.readouterr().err


def test_delivery_states_match_the_core() -> None:
    assert tuple(DELIVERY_STATUS.choices) == tuple(DeliveryStatus)


def test_wrong_usage_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["job", "list", "--status", "lost", "--json"]) == 2
    out, err = capsys.readouterr()
    assert json.loads(out)["code"] == "usage"
    assert err == ""


@pytest.mark.parametrize("line", [["--help"], ["job", "--help"], ["plugin", "run", "--help"]])
def test_help_imports_no_expensive_modules(line: list[str]) -> None:
    probe = (
        "import sys; from ductile.cli import main; main(sys.argv[1:]);"
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    )
    done = run_process(*line, command=("-c", probe))
    assert done.stderr.strip() == "[]"
