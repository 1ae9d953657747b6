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
from tests.waiting import WAIT_LIMIT, until


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


def test_token_with_a_slash_in_its_name_can_be_revoked(api: ApiHarness) -> None:
    secret = create(api, "team/ci", "jobs:ro")
    assert api.ask("GET", "/jobs", token=secret).status == 200
    assert api.ask("POST", "/token/team%2Fci/revoke").status == 200
    assert api.ask("GET", "/jobs", token=secret).status == 401


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
    until(lambda: api.ask("GET", "/jobs", token=token).status == 401)


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
    token = create(api, "over", "jobs:ro", expires_in="1ms")
    until(lambda: api.ask("GET", "/jobs", token=token).status == 401)
    refused = api.ask("POST", "/token/over/rotate")
    assert (refused.status, refused.json["code"]) == (409, "refused")
    assert "expires_in" in refused.json["error"]
    dry = api.ask("POST", "/token/over/rotate", {"dry_run": True})
    assert dry.status == 409
    renewed = api.ask("POST", "/token/over/rotate", {"expires_in": "1h"}).json["token"]
    assert api.ask("GET", "/jobs", token=renewed).status == 200


def test_old_secret_works_until_the_overlap_ends(api: ApiHarness) -> None:
    old = create(api, "gradual", "jobs:ro")
    new = api.ask("POST", "/token/gradual/rotate", {"overlap": "1h"}).json["token"]
    for body in ({"overlap": "1h"}, {"overlap": "1h", "dry_run": True}):
        again = api.ask("POST", "/token/gradual/rotate", body)
        assert (again.status, "would end it now" in again.json["error"]) == (409, True)
    assert [api.ask("GET", "/jobs", token=token).status for token in (old, new)] == [200, 200]
    newer = api.ask("POST", "/token/gradual/rotate").json["token"]
    statuses = [api.ask("GET", "/jobs", token=token).status for token in (old, new, newer)]
    assert statuses == [401, 401, 200]
    refused = api.ask("POST", "/token/gradual/rotate", {"overlap": "never"})
    assert (refused.status, "overlap" in refused.json["error"]) == (400, True)


def lease(api: ApiHarness, name: str, *scopes: str, **limits: int) -> str:
    body = {"name": name, "scopes": list(scopes), "expires_in": "1h", "budget": limits}
    answer = api.ask("POST", "/tokens", body)
    assert answer.status == 201, answer.raw
    token: str = answer.json["token"]
    return token


def left(api: ApiHarness, name: str) -> tuple[int | None, int | None]:
    [row] = [t for t in api.ask("GET", "/tokens").json["tokens"] if t["name"] == name]
    return row["budget"]["runs"]["left"], row["budget"]["retries"]["left"]


def test_lease_ends_by_use_and_its_runs_are_recorded(api: ApiHarness) -> None:
    token = lease(api, "agent", "echo:rw", "jobs:ro", runs=2)
    first = api.ask("POST", "/plugin/echo/poll", {}, token=token)
    assert (first.status, left(api, "agent")) == (202, (1, None))
    key = {"Idempotency-Key": "once"}
    for _ in range(2):
        assert api.ask("POST", "/plugin/echo/poll", {}, token=token, headers=key).status == 202
    assert left(api, "agent") == (0, None)
    before = len(api.ask("GET", "/jobs").json["jobs"])
    refused = api.ask("POST", "/plugin/echo/poll", {}, token=token)
    assert (refused.status, refused.slug, refused.json["left"]) == (403, "budget_spent", 0)
    assert len(api.ask("GET", "/jobs").json["jobs"]) == before
    assert api.ask("GET", "/jobs", token=token).status == 200
    entries = api.ask("GET", "/audit?actor=token:agent").json["entries"]
    assert [row["action"] for row in entries] == ["plugin.run"] * 2
    assert entries[-1]["details"]["job_id"] == first.json["job_id"]


def test_bulk_retry_that_exceeds_the_budget_changes_nothing(api: ApiHarness) -> None:
    token = lease(api, "retrier", "jobs:rw", retries=1)
    ids = [
        api.ask("POST", "/plugin/echo/peek", {"payload": {"n": n}}).json["job_id"] for n in range(2)
    ]
    for id in ids:
        assert api.ask("POST", f"/job/{id}/cancel").status == 202
    body = {"filter": {"command": "peek", "status": "dead", "acknowledged": True}}
    planned = api.ask("POST", "/jobs/retry", {**body, "dry_run": True}, token=token)
    assert planned.json["count"] == 2
    refused = api.ask("POST", "/jobs/retry", body, token=token)
    assert (refused.slug, left(api, "retrier")) == ("budget_spent", (None, 1))
    assert {api.ask("GET", f"/job/{id}").json["status"] for id in ids} == {"dead"}
    changed = api.ask("POST", "/jobs/retry", {**body, "expected": 1})
    assert (changed.status, changed.slug, changed.json["count"]) == (409, "count_changed", 2)
    assert api.ask("POST", f"/job/{ids[0]}/retry", token=token).status == 202
    assert left(api, "retrier") == (None, 0)
    assert api.ask("POST", f"/job/{ids[1]}/retry", token=token).slug == "budget_spent"


@pytest.mark.parametrize(
    "more",
    [
        {"scopes": ["*"], "budget": {"runs": 1}},
        {"budget": {}},
        {"budget": {"runs": -1}},
        {"budget": {"jobs": 1}},
        {"lease": True},
    ],
)
def test_invalid_lease_is_refused(api: ApiHarness, more: dict[str, object]) -> None:
    assert api.ask("POST", "/tokens", {"name": "x", "scopes": ["jobs:ro"], **more}).status == 400
