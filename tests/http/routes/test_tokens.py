"""Tokens of the ledger: created, rotated, revoked; effective at once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from ductile.errors import LedgerError
from ductile.http.middleware import context
from tests.http.harness import READER, ApiHarness, running_api
from tests.waiting import WAIT_LIMIT


@pytest.fixture(scope="module")
def api() -> Iterator[ApiHarness]:
    with running_api(working=False) as api:
        yield api


def create(api: ApiHarness, name: str, *scopes: str, **more: str) -> str:
    answer = api.ask("POST", "/tokens", {"name": name, "scopes": list(scopes), **more})
    assert answer.status == 201, answer.raw
    token: str = answer.json["token"]
    return token


def test_token_is_created_rotated_and_revoked(api: ApiHarness) -> None:
    token = create(api, "ci", "jobs:ro")
    assert token.startswith("dtk_")
    assert api.ask("GET", "/jobs", token=token).status == 200
    assert api.ask("POST", "/system/reload", token=token).status == 403
    other = api.ask("POST", "/token/ci/rotate").json["token"]
    assert api.ask("GET", "/jobs", token=token).status == 401
    assert api.ask("GET", "/jobs", token=other).status == 200
    assert api.ask("POST", "/token/ci/revoke").status == 200
    assert api.ask("GET", "/jobs", token=other).status == 401


def test_secret_is_shown_once(api: ApiHarness) -> None:
    token = create(api, "secret", "*")
    listed = api.ask("GET", "/tokens")
    assert "secret" in [row["name"] for row in listed.json["tokens"]]
    assert token.encode() not in listed.raw
    ledger = (api.root / "data" / "state.db").read_bytes()
    wal = api.root / "data" / "state.db-wal"
    assert token.encode() not in ledger + (wal.read_bytes() if wal.exists() else b"")


def test_token_expires(api: ApiHarness) -> None:
    token = create(api, "short", "jobs:ro", expires_in="1ms")
    assert api.ask("GET", "/jobs", token=token).status == 401


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"name": "x"},
        {"name": "x", "scopes": []},
        {"name": "x", "scopes": "*"},
        {"name": "x", "scopes": ["jobs"]},
        {"name": "x", "scopes": [1]},
        {"name": "", "scopes": ["*"]},
        {"name": "x", "scopes": ["*"], "expires_in": "never"},
        {"name": "x", "scopes": ["*"], "expires_in": "999999999w"},
    ],
)
def test_invalid_token_request_is_refused(api: ApiHarness, body: dict[str, object]) -> None:
    assert api.ask("POST", "/tokens", body).status == 400


def test_name_must_be_unique(api: ApiHarness) -> None:
    create(api, "twice", "jobs:ro")
    again = api.ask("POST", "/tokens", {"name": "twice", "scopes": ["jobs:ro"]})
    assert again.status == 409
    assert api.ask("POST", "/token/nobody/revoke").status == 404


def test_creating_tokens_requires_every_scope(api: ApiHarness) -> None:
    token = create(api, "admin2", "system:rw", "plugin:rw", "jobs:rw", "events:rw", "agents:rw")
    for who in (token, READER):
        body = {"name": "y", "scopes": ["*"]}
        assert api.ask("POST", "/tokens", body, token=who).status == 403


class TestUnresponsiveLedger:
    @pytest.fixture
    def token(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[ApiHarness, str]]:
        with running_api(working=False) as api:
            token = create(api, "ci", "*")

            def broken(*_: object) -> None:
                raise LedgerError("the database is frozen")

            monkeypatch.setattr(api.gateway.ledger, "read", broken)
            yield api, token

    @pytest.mark.parametrize("path", ["/jobs", "/plugins", "/nosuch"])
    def test_unverifiable_token_returns_503(self, token: tuple[ApiHarness, str], path: str) -> None:
        api, bearer = token
        answer = api.ask("GET", path, token=bearer)
        assert (answer.status, answer.json["code"]) == (503, "ledger")
        assert answer.json["error"] == "the database is frozen"

    def test_public_routes_stay_available(self, token: tuple[ApiHarness, str]) -> None:
        api, bearer = token
        assert api.ask("GET", "/", token=bearer).status == 200
        health = api.ask("GET", "/healthz", token=bearer)
        assert (health.status, health.json["status"]) == (503, "error")

    def test_requests_share_one_read_with_a_timeout(
        self, monkeypatch: pytest.MonkeyPatch, token: tuple[ApiHarness, str]
    ) -> None:
        """Concurrent requests share one read of the ledger."""
        api, bearer = token
        frozen, asked = threading.Event(), []

        def ask(*_: object) -> None:
            asked.append(1)
            assert frozen.wait(WAIT_LIMIT)
            raise LedgerError("the database is frozen")

        monkeypatch.setattr(api.gateway.ledger, "read", ask)
        monkeypatch.setattr(context, "TOKEN_READ_TIMEOUT", 0.3)
        try:
            with ThreadPoolExecutor(12) as threads:
                answers = list(
                    threads.map(lambda _: api.ask("GET", "/jobs", token=bearer), range(12))
                )
        finally:
            frozen.set()
        assert {(a.status, a.json["error"]) for a in answers} == {
            (503, "the ledger does not answer")
        }
        assert len(asked) == 1


def test_token_created_during_a_read_is_accepted_at_once(
    api: ApiHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read that began before the token was created must not count as current."""
    early = create(api, "early", "jobs:ro")
    authenticator = next(
        d.app._access._app_context.authenticator for d in api.server.listeners if d.name == "api"
    )
    authenticator.invalidate()
    read, reached, go_on = api.gateway.ledger.read, threading.Event(), threading.Event()

    def slow(work: Any) -> Any:
        found = read(work)
        if threading.current_thread() is reader:
            reached.set()
            assert go_on.wait(WAIT_LIMIT)
        return found

    monkeypatch.setattr(api.gateway.ledger, "read", slow)
    reader = threading.Thread(target=authenticator.refresh)
    reader.start()
    assert reached.wait(WAIT_LIMIT)
    late = create(api, "late", "jobs:ro")
    go_on.set()
    reader.join(WAIT_LIMIT)
    assert api.ask("GET", "/jobs", token=late).status == 200
    assert api.ask("GET", "/jobs", token=early).status == 200


def test_expired_token_is_rotated_only_with_a_new_expiry(api: ApiHarness) -> None:
    create(api, "over", "jobs:ro", expires_in="1ms")
    refused = api.ask("POST", "/token/over/rotate")
    assert (refused.status, refused.json["code"]) == (409, "refused")
    assert "expires_in" in refused.json["error"]
    dry = api.ask("POST", "/token/over/rotate", {"dry_run": True})
    assert dry.status == 409
    renewed = api.ask("POST", "/token/over/rotate", {"expires_in": "1h"}).json["token"]
    assert api.ask("GET", "/jobs", token=renewed).status == 200
