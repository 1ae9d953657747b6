"""`ductile api` and `--api-url`: a local and a remote gateway."""

from __future__ import annotations

import json

import pytest

from ductile.cli import main
from ductile.cli.client import RemoteClient
from tests.cli.runner import CliRunner
from tests.http.harness import ADMIN, running_api


def test_api_calls_any_route_of_the_local_gateway(
    cli: CliRunner, capsys: pytest.CaptureFixture[str]
) -> None:
    with running_api() as own:

        def api(*line: str) -> tuple[int, str]:
            code = main(["api", *line, "--config", str(own.root)])
            return code, capsys.readouterr().out

        capsys.readouterr()
        assert '"status": "ok"' in api("/healthz")[1]
        assert api("healthz")[0] == 0
        code, out = api("/plugin/echo/poll", "-f", 'payload={"a": 1}', "-f", "dedupe_key=x")
        assert code == 0
        assert '"job_id"' in out
        assert '"jobs": []' in api("/jobs", "-X", "get", "-f", "plugin=nobody")[1]
        code, out = api("/job/x")
        assert (code, '"code": "not_found"' in out) == (1, True)
        assert api("/jobs", "--dry-run")[0] == 0
        assert api("/x", "-f", "novalue")[0] == 2
        assert api("/x", "-d", "{")[0] == 2


def test_api_url_uses_a_remote_gateway(cli: CliRunner, capsys: pytest.CaptureFixture[str]) -> None:
    with running_api() as own:
        url = "http://{}:{}".format(*own.address("api"))
        remote = ("--api-url", url, "--api-key", ADMIN)
        assert cli("job", "list", *remote).code == 0
        assert cli("token", "create", "far", "--scope", "jobs:ro", *remote).code == 0
        assert cli("token", "list", "--json", *remote).json["tokens"][0]["name"] == "far"
        wrong = cli("job", "list", "--json", "--api-url", url, "--api-key", "wrong")
        # The gateway runs in this process and logs the failed login first.
        refused = json.loads(wrong.out[wrong.out.index("{\n") :])
        assert (wrong.code, refused["code"]) == (1, "unauthorized")


@pytest.mark.parametrize("url", ["localhost:1", "ftp://x", "http://", "http://x:port"])
def test_an_invalid_api_url_exits_2(cli: CliRunner, url: str) -> None:
    assert cli("job", "list", "--api-url", url).code == 2


def test_api_without_a_running_gateway(cli: CliRunner) -> None:
    answer = cli("api", "/healthz", "--json")
    assert (answer.code, answer.json["code"]) == (1, "not_running")


@pytest.mark.parametrize("body", ['{"a": "\x9b2J \u202egnp.exe"}', "no JSON: \x9b2J \u202egnp.exe"])
def test_control_characters_of_a_response_are_escaped(
    cli: CliRunner, monkeypatch: pytest.MonkeyPatch, body: str
) -> None:
    monkeypatch.setattr(RemoteClient, "request", lambda *_: (200, body.encode()))
    shown = cli("api", "/healthz", "--api-url", "http://127.0.0.1:1").out
    assert all(character.isprintable() for character in shown if character != "\n")
    assert "202egnp.exe" in shown
