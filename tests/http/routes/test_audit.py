"""The audit log: which requests are recorded, with whom, and failed logins."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator
from typing import Any

import pytest

from ductile.engine.control import ControlRequest
from ductile.engine.ingress.login_limiter import MAX_FAILURES
from ductile.errors import LedgerFull
from ductile.http.middleware.audit import HIDDEN
from ductile.http.models.fields import AnyJson, Payload, PresentJson
from ductile.http.requests import request_model
from ductile.http.route_table import ENDPOINTS
from ductile.store.access import audit
from tests.http.client import Client
from tests.http.harness import ADMIN, CONFIG, READER, ApiHarness, running_api
from tests.waiting import until

USER = f"user:{pwd.getpwuid(os.getuid()).pw_name}"
NOT_RECORDED = {
    "/plugin/{plugin}/{command}",
    "/pipeline/{name}",
    "/gateway/heartbeat",
    "/gateway/messages",
    "/gateway/cron",
    "/gateway/cron/{reminder_id}/forget",
    "/gateway/deliveries",
    "/gateway/webhooks/{webhook_id}",
}
"""The work of agents and callers: jobs name their submitter, the others have rows of their own."""
SHORT = "abc-def"
SCHEDULES = """\
plugins:
  echo: {schedules: [{id: hourly, every: 1h}]}
"""
TOKENS = f"      - {{token: {SHORT}, scopes: ['jobs:ro'], name: short}}\n"


@pytest.fixture(scope="module")
def api() -> Iterator[ApiHarness]:
    with running_api(CONFIG + TOKENS + SCHEDULES, working=False) as api:
        yield api


def entries(api: ApiHarness, query: str = "") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = api.ask("GET", f"/audit{query}").json["entries"]
    return found


def test_every_route_that_changes_something_is_recorded() -> None:
    changing = [endpoint for endpoint in ENDPOINTS if endpoint.method != "GET"]
    assert {e.path for e in changing if e.audit is None} == NOT_RECORDED
    assert [e.path for e in ENDPOINTS if e.method == "GET" and e.audit] == []


def test_actions_are_recorded_with_token_and_address(api: ApiHarness) -> None:
    body = {"name": "made", "scopes": ["jobs:ro"], "expires_in": "1d"}
    assert api.ask("POST", "/tokens", body).status == 201
    assert api.ask("POST", "/token/made/rotate").status == 200
    assert api.ask("POST", "/token/made/revoke").status == 200
    assert api.ask("POST", "/scheduler/echo/hourly/pause").status == 200
    assert api.ask("POST", "/system/reset/echo").status == 200
    job_id = api.ask("POST", "/plugin/echo/poll", "{}").json["job_id"]
    assert api.ask("POST", f"/job/{job_id}/cancel").status == 202
    found = entries(api, "?limit=6")
    assert [(e["action"], e["target"]) for e in reversed(found)] == [
        ("token.create", "made"),
        ("token.rotate", "made"),
        ("token.revoke", "made"),
        ("schedule.pause", "echo/hourly"),
        ("breaker.reset", "echo"),
        ("job.cancel", job_id),
    ]
    assert {(e["actor"], e["source"]) for e in found} == {("token:admin", "127.0.0.1")}
    assert found[-1]["details"] == {"scopes": ["jobs:ro"], "expires_in": "1d"}


def test_action_on_the_local_socket_is_recorded_with_the_user(api: ApiHarness) -> None:
    assert Client(api.gateway.socket_path).post("/system/reset/echo", {}).status == 200
    [newest] = entries(api, "?limit=1")
    assert (newest["actor"], newest["source"]) == (USER, "local socket")


def test_secrets_are_not_recorded(api: ApiHarness) -> None:
    secret = "a-secret-0123456789"
    new = {"source_identifier": "a", "event_type": "e", "target_session": "s", "secret": secret}
    assert api.ask("POST", "/gateway/webhook-configs", new).status == 201
    [newest] = entries(api, "?limit=1")
    assert newest["action"] == "webhook.create"
    assert newest["details"]["source_identifier"] == "a"
    assert secret not in str(newest)


def test_data_of_a_caller_is_not_recorded() -> None:
    """Payloads, headers and values may hold anything, and an entry cannot be changed."""
    for endpoint in ENDPOINTS:
        if endpoint.audit is not None and endpoint.body is not None:
            for name, field in request_model(endpoint.body).model_fields.items():
                is_free = any(
                    isinstance(kind, Payload | PresentJson)
                    or (isinstance(kind, AnyJson) and kind.schema.get("type") in (None, "object"))
                    for kind in field.metadata
                )
                assert not is_free or name in HIDDEN, (endpoint.path, name)


def test_credential_in_a_target_is_not_recorded(api: ApiHarness) -> None:
    url = "https://hooks.example.org/services/T0/B0/credential"
    new = {"source_identifier": "a", "event_type": "t", "target_session": "s", "target_url": url}
    assert api.ask("POST", "/gateway/webhook-configs", new).status == 201
    [newest] = entries(api, "?limit=1")
    assert newest["details"]["target_url"] == "https://hooks.example.org/[REDACTED]"


def test_reads_dry_runs_and_refusals_are_not_recorded(api: ApiHarness) -> None:
    before = entries(api, "?limit=1")
    planned = {"name": "planned", "scopes": ["*"], "dry_run": True}
    assert api.ask("POST", "/tokens", planned).status == 200
    assert api.ask("POST", "/token/nobody/revoke").status == 404
    assert api.ask("POST", "/token/nobody/revoke", token=READER).status == 403
    assert api.ask("GET", "/jobs").status == 200
    assert entries(api, "?limit=1") == before


def test_change_and_entry_are_one_transaction(
    api: ApiHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("planted")

    monkeypatch.setattr(audit, "append", fail)
    assert api.ask("POST", "/tokens", {"name": "lost", "scopes": ["*"]}).status == 500
    assert "lost" not in {token["name"] for token in api.ask("GET", "/tokens").json["tokens"]}


def test_entries_are_paged_and_need_a_scope(api: ApiHarness) -> None:
    first = api.ask("GET", "/audit?limit=1").json
    second = api.ask("GET", f"/audit?limit=1&before={first['cursor']}").json
    assert first["entries"][0]["id"] > second["entries"][0]["id"]
    assert api.ask("GET", "/audit", token=READER).status == 403


def test_reload_by_signal_is_recorded() -> None:
    with running_api() as api:
        api.gateway.requests.put(ControlRequest.RELOAD)
        api.gateway.requests.put(ControlRequest.STOP)
        api.gateway.run()
        [newest] = entries(api)
        assert (newest["actor"], newest["action"]) == ("signal", "config.reload")
        assert api.ask("POST", "/system/reload").status == 200
        assert entries(api)[0]["actor"] == "token:admin"


def test_failed_logins_are_recorded_and_limited(capsys: pytest.CaptureFixture[str]) -> None:
    with running_api(CONFIG + TOKENS, working=False) as api:
        assert api.ask("GET", "/jobs", token=SHORT).status == 200
        assert api.ask("GET", "/jobs", token=None).status == 401
        for _ in range(MAX_FAILURES):
            assert api.ask("GET", "/jobs", token="wrong").status == 401
        answer = api.ask("GET", "/jobs", token="wrong")
        assert (answer.status, answer.slug) == (429, "too_many_failed_logins")
        assert 1 <= int(answer.headers["retry-after"]) <= 60
        assert api.ask("GET", "/jobs", token=SHORT).status == 429
        assert api.ask("GET", "/jobs", token=ADMIN).status == 200
        assert api.ask("GET", "/healthz", token="wrong").status == 200
        until(lambda: entries(api, "?action=login"))
        newest = entries(api, "?action=login.fail")[0]
        assert (newest["actor"], newest["source"]) == ("anonymous", "127.0.0.1")
    assert '"message":"login failed","source":"127.0.0.1"' in capsys.readouterr().out


def test_guessed_token_does_not_pass_the_fast_path() -> None:
    tokens = f"      - {{token: {SHORT}, scopes: ['*'], name: short}}\n"
    with running_api(CONFIG + tokens, working=False) as api:
        for _ in range(MAX_FAILURES):
            assert api.ask("POST", "/plugin/echo/poll", "{}", token="wrong").status == 401
        assert api.ask("POST", "/plugin/echo/poll", "{}", token=SHORT).status == 429
        assert api.ask("POST", "/plugin/echo/poll", "{}").status == 202


def test_reload_whose_audit_entry_fails_is_not_reported_as_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise LedgerFull("the disk is full; nothing was written")

    with running_api() as api:
        monkeypatch.setattr(audit, "append", fail)
        api.gateway.requests.put(ControlRequest.RELOAD)
        api.gateway.requests.put(ControlRequest.STOP)
        api.gateway.run()
    text = capsys.readouterr().out
    assert "reload refused" not in text
    assert "reloaded, but the audit entry is missing" in text
