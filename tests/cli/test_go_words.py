"""Command lines of the Go program: translated, or refused with what replaces them."""

from __future__ import annotations

import pytest

import ductile
from ductile.cli import main
from ductile.cli.go_words import UNAVAILABLE, translate_go
from tests.cli.runner import CliRunner


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("system scheduler --json", "schedule list --json"),
        ("config token list --format json", "token list --json"),
        ("config token delete ci", "token revoke ci"),
        (
            "config token create --name ci --scopes jobs:ro,echo:rw",
            "token create ci --scope jobs:ro --scope echo:rw",
        ),
        ("config token create -name=ci -scopes=*", "token create ci --scope *"),
        ("config check --format json --strict", "config check --strict --json"),
        ("config check --format=human", "config check"),
        ("config backup --to /x", "system backup /x --with-config"),
        (
            "config scope set ci jobs:ro,echo:rw --dry-run",
            'config set tokens[ci].scopes ["jobs:ro","echo:rw"] --lock --dry-run',
        ),
        ("job list --format json", "job list --format json"),
        ("plugin list", "plugin list"),
    ],
)
def test_translation(theirs: str, ours: str) -> None:
    assert translate_go(theirs.split()) == ours.split()


def test_no_arguments_are_translated_to_none() -> None:
    assert translate_go([]) == []


@pytest.mark.parametrize("words", UNAVAILABLE)
def test_unavailable_command_names_its_replacement(cli: CliRunner, words: tuple[str, ...]) -> None:
    refused = cli(*words, "x")
    assert refused.code == 2
    assert f"here, {UNAVAILABLE[words]}" in refused.err


def test_version_as_json(cli: CliRunner) -> None:
    for option in ("--json", "-json"):
        cli.capsys.readouterr()
        assert main(["version", option]) == 0
        assert f'"version": "{ductile.__version__}"' in cli.capsys.readouterr().out


@pytest.mark.parametrize("noun", ["job", "system", "queue", "skills", "config"])
def test_noun_help(noun: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([noun, "--help"]) == 0
    help = capsys.readouterr().out
    assert main([noun, "help"]) == 0
    assert capsys.readouterr().out == help


def test_help_of_an_action(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["job", "help", "list"]) == 0
    assert "List jobs, newest first." in capsys.readouterr().out


def test_route_and_webhook_are_added_to_the_configuration(cli: CliRunner) -> None:
    route = ("config", "route", "add", "--from", "hello", "--event", "x.y", "--to", "hello")
    assert cli(*route, "--dry-run").code == 0
    assert cli("config", "route", "list", "--json").json == []
    assert cli(*route).code == 0
    [added] = cli("config", "route", "list", "--json").json
    assert (added["from"], added["event_type"], added["to"]) == ("hello", "x.y", "hello")


@pytest.mark.parametrize("noun", ["route", "webhook"])
def test_addition_without_options_shows_them(cli: CliRunner, noun: str) -> None:
    for options in ((), ("--help",)):
        refused = cli("config", noun, "add", *options)
        assert refused.code == 2
        assert f"use: ductile config {noun} add --" in refused.err


def test_token_is_created_with_the_options_of_the_go_program(cli: CliRunner) -> None:
    line = ("config", "token", "create", "--name", "ci", "--scopes", "jobs:ro,events:ro")
    done = cli(*line, "--format", "json")
    assert done.json["scopes"] == ["jobs:ro", "events:ro"]
    assert cli("config", "token", "delete", "ci").code == 0


def test_check_has_the_keys_of_the_go_program(cli: CliRunner) -> None:
    good = cli("config", "check", "--format", "json").json
    assert (good["valid"], good["errors"], good["warnings"]) == (True, [], [])
    cli.write("config.yaml", "servce: {}\n")
    bad = cli("config", "check", "--format", "json")
    assert (bad.code, bad.json["valid"]) == (78, False)
    assert bad.json["errors"] == bad.json["problems"] != []


def test_status_has_the_keys_of_the_go_program(cli: CliRunner) -> None:
    good = cli("system", "status", "--json").json
    names = {check["name"] for check in good["checks"]}
    assert {"config_load", "state_db", "pid_lock"} <= names
    assert good["healthy"] is all(check["ok"] for check in good["checks"])


def test_status_reports_what_fails_in_the_gateway(cli: CliRunner) -> None:
    with cli.gateway():
        ledger, elsewhere = cli.state / "state.db", cli.state / "elsewhere.db"
        assert cli("status", "--json").json["failing"] == []
        ledger.rename(elsewhere)
        shown = cli("status", "--json").json
        [check] = [check for check in shown["checks"] if check["name"] == "state_db"]
        assert (shown["healthy"], check["ok"]) == (False, False)
        assert "was moved to" in check["detail"]
        assert "its ledger file fails: " in cli("status").out
        elsewhere.rename(ledger)


def test_attempts_have_the_id_of_the_go_program(cli: CliRunner) -> None:
    cli("run", "hello")
    [row] = cli("job", "logs", "--json").json["logs"]
    assert row["log_id"] == row["id"]


def test_init_with_force_keeps_the_replaced_files(cli: CliRunner) -> None:
    before = (cli.root / "config.yaml").read_text()
    line = ("config", "init", str(cli.root))
    assert cli(*line).code == 1
    assert cli(*line, "--force", "--dry-run").code == 0
    assert (cli.root / "config.yaml").read_text() == before
    assert cli(*line, "--force").code == 0
    assert (cli.root / "config.yaml").read_text() != before
    [kept] = cli.root.glob("config.yaml.bak-*")
    assert kept.read_text() == before
