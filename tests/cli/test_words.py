"""What newcomers type, and what they are told."""

from __future__ import annotations

import click
import pytest

import ductile
from ductile.cli import main, reference
from tests.cli.flows import furnish
from tests.cli.running import House, run
from tests.cli.test_tree import ALL

STOP = "stop a gateway with Ctrl-C, or send SIGTERM to the process id in ductile.lock"


@pytest.mark.parametrize("line", [[], ["job"]], ids=["ductile", "ductile job"])
def test_a_command_that_is_not_whole_shows_the_help(
    line: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(line) == 2
    out, err = capsys.readouterr()
    assert (out, err.startswith("Usage: ")) == ("", True)
    assert "error" not in err.splitlines()[0]
    assert main([*line, "--json"]) == 2


@pytest.mark.parametrize("line", [["-h"], ["help"], ["--help"]], ids=str)
def test_help_by_every_name(line: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(line) == 0
    assert capsys.readouterr().out.startswith("Usage: ")


@pytest.mark.parametrize("line", [["help", "job", "list"], ["job", "list", "-h"]], ids=str)
def test_help_on_a_command(line: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(line) == 0
    assert "List jobs, newest first." in capsys.readouterr().out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version"]) == 0
    assert capsys.readouterr().out == f"ductile {ductile.__version__}\n"


@pytest.mark.parametrize("line", [["stop"], ["system", "stop"]], ids=str)
def test_stop_says_how_a_gateway_stops(line: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(line) == 2
    assert STOP in capsys.readouterr().err


def test_an_option_before_the_action_is_told_its_place(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["job", "--config", "x", "list"]) == 2
    assert " job ACTION --config" in capsys.readouterr().err
    assert main(["job", "--nonsense"]) == 2


@pytest.mark.parametrize("value", ["x", "0", "1001", "1.5"])
def test_a_limit_that_is_none_says_what_one_is(
    value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["job", "list", "--limit", value]) == 2
    assert f"'{value}' is not a whole number from 1 to 1000" in capsys.readouterr().err


@pytest.mark.parametrize(("path", "command"), ALL, ids=[" ".join(path) for path, _ in ALL])
def test_every_option_says_what_it_is_for(path: tuple[str, ...], command: click.Command) -> None:
    mute = [p.opts for p in command.params if isinstance(p, click.Option) and not p.help]
    assert mute == []


def test_the_reference_says_of_each_option_what_the_help_says() -> None:
    text = reference.markdown()
    assert "how many." not in text
    assert "- `--lang` python|sh|node: Language of the program." in text


def test_a_run_that_is_not_waited_for_to_its_end_says_so(house: House) -> None:
    furnish(house)
    with house.gateway():
        done = house("plugin", "run", "slow", "--timeout", "300ms")
        assert done.code == 1
        assert "not finished yet; it continues without this command\n" in done.out


def test_a_state_directory_that_cannot_be_used_is_named_as_such(house: House) -> None:
    house.write("data", "a file where the directory is to be")
    done = house("system", "start")
    assert done.code == 1
    assert done.err.startswith(f"error: the state directory {house.root}/data cannot be used: ")
    assert "state.path" in done.err


def test_without_a_configuration_the_way_to_one_is_told(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = {"HOME": str(house.root), "DUCTILE_CONFIG_DIR": ""}
    done = run("status", env=env)
    assert done.returncode == 78
    assert "create one with: ductile config init" in done.stderr


def test_a_tab_in_the_configuration_is_called_one(house: House) -> None:
    house.write("config.yaml", "service:\n\tname: x\n")
    done = house("config", "check")
    assert done.code == 78
    message = "config.yaml:2:1: the file is not valid YAML: found a tab; indent with spaces"
    assert message in done.err + done.out
