"""Hints for incomplete and wrong command lines."""

from __future__ import annotations

import click
import pytest

import ductile
from ductile.cli import main, reference
from ductile.cli.main import root
from tests.cli.pipelines import add_pipelines
from tests.cli.runner import CliRunner, run_process


@pytest.mark.parametrize("line", [[], ["job"]], ids=["ductile", "ductile job"])
def test_an_incomplete_command_shows_the_help(
    line: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(line) == 2
    out, err = capsys.readouterr()
    assert (out, err.startswith("Usage: ")) == ("", True)
    assert "error" not in err.splitlines()[0]
    assert main([*line, "--json"]) == 2


@pytest.mark.parametrize("line", [["-h"], ["help"], ["--help"]], ids=str)
def test_help_options_and_the_word_help(
    line: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(line) == 0
    assert capsys.readouterr().out.startswith("Usage: ")


def test_the_help_options_do_not_depend_on_the_first_caller(
    capsys: pytest.CaptureFixture[str],
) -> None:
    root._help_option = None
    root.get_help_option(click.Context(root))
    assert main(["-h"]) == 0
    assert capsys.readouterr().out.startswith("Usage: ")


@pytest.mark.parametrize("line", [["help", "job", "list"], ["job", "list", "-h"]], ids=str)
def test_help_of_a_command(line: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(line) == 0
    assert "List jobs, newest first." in capsys.readouterr().out


def test_the_word_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version"]) == 0
    assert capsys.readouterr().out == f"ductile {ductile.__version__}\n"


def test_stop_suggests_the_command_that_stops_a_gateway(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["stop"]) == 2
    assert "did you mean 'system stop'?" in capsys.readouterr().err


def test_an_option_before_the_action_is_refused_with_a_hint(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["job", "--config", "x", "list"]) == 2
    assert " job ACTION --config" in capsys.readouterr().err
    assert main(["job", "--nonsense"]) == 2


@pytest.mark.parametrize("value", ["x", "0", "1001", "1.5"])
def test_an_invalid_limit_is_explained(value: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["job", "list", "--limit", value]) == 2
    assert f"'{value}' is not a whole number from 1 to 1000" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        (["job", "list", "--sinc", "1h"], "Did you mean '--since'?"),
        (["plugin", "list", "--jsno"], "Did you mean '--json'?"),
    ],
)
def test_an_unknown_option_suggests_a_similar_one(
    line: list[str], hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(line) == 2
    assert hint in capsys.readouterr().err


def test_an_option_that_resembles_no_other_gets_no_suggestion(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["plugin", "list", "--since", "1h"]) == 2
    assert "mean" not in capsys.readouterr().err


def test_unconfigured_bundled_plugin_is_reported_with_the_lines_to_add(
    cli: CliRunner,
) -> None:
    for line in (("run", "echo"), ("job", "list", "--plugin", "echo")):
        refused = cli(*line)
        assert refused.code == 2
        assert 'add "bundled:" to plugin_roots and `echo: {}` under plugins' in refused.err
    config = cli.root / "config.yaml"
    config.write_text(config.read_text().replace("./plugins", './plugins, "bundled:"'))
    assert "add `echo: {}` under plugins" in cli("run", "echo").err


def test_the_reference_has_the_help_of_options() -> None:
    text = reference.markdown()
    assert "how many." not in text
    assert "- `--lang` python|sh|node: Language of the program." in text


def test_run_that_exceeds_its_timeout_reports_it(cli: CliRunner) -> None:
    add_pipelines(cli)
    with cli.gateway():
        done = cli("plugin", "run", "slow", "--timeout", "300ms")
        assert done.code == 1
        assert "not finished yet; it continues without this command\n" in done.out


def test_an_unusable_state_directory_is_reported(cli: CliRunner) -> None:
    cli.write("data", "a file where the directory is to be")
    done = cli.process("system", "start")
    assert done.code == 1
    assert done.err.startswith(f"error: the state directory {cli.root}/data cannot be used: ")
    assert "state.path" in done.err


def test_a_missing_configuration_gives_a_hint(
    cli: CliRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = {"HOME": str(cli.root), "DUCTILE_CONFIG_DIR": ""}
    done = run_process("status", env=env)
    assert done.returncode == 78
    assert "create one with: ductile config init" in done.stderr


def test_a_tab_in_the_configuration_is_reported(cli: CliRunner) -> None:
    cli.write("config.yaml", "service:\n\tname: x\n")
    done = cli("config", "check")
    assert done.code == 78
    message = "config.yaml:2:1: the file is not valid YAML: found a tab; indent with spaces"
    assert message in done.err + done.out
