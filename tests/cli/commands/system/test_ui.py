"""`ductile ui`: prints an address that logs in once."""

from __future__ import annotations

import json

import pytest

from ductile.cli import main
from tests.cli.runner import CliRunner
from tests.http.harness import ADMIN, CONFIG, running_api
from tests.http.routes.pages.test_ui import log_in


def test_address_logs_in_once(capsys: pytest.CaptureFixture[str]) -> None:
    with running_api(working=False) as api:
        assert main(["ui", "--no-browser", "--config", str(api.root)]) == 0
        code = capsys.readouterr().out.strip().partition("#code=")[2]
        assert log_in(api, code=code).status == 200
        assert log_in(api, code=code).status == 401


def test_all_sessions_are_ended(capsys: pytest.CaptureFixture[str]) -> None:
    with running_api(working=False) as api:
        assert log_in(api, token=ADMIN).status == 200
        assert main(["ui", "--end-sessions", "--config", str(api.root)]) == 0
        assert capsys.readouterr().out.endswith("\nsessions ended: 1\n")


def test_browser_is_opened_on_a_desktop_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    with running_api(working=False) as api:
        for display in ("", ":0"):
            monkeypatch.setenv("DISPLAY", display)
            assert main(["ui", "--config", str(api.root)]) == 0
    assert opened == [capsys.readouterr().out.split()[-1]]


def test_disabled_api_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    config = CONFIG.replace("enabled: true", "enabled: false")
    with running_api(config, working=False) as api:
        capsys.readouterr()
        assert main(["ui", "--json", "--config", str(api.root)]) == 1
        assert "api.enabled: true" in json.loads(capsys.readouterr().out)["error"]


def test_without_a_running_gateway(cli: CliRunner) -> None:
    answer = cli("ui", "--json")
    assert (answer.code, answer.json["code"]) == (1, "not_running")
