"""Tokens made at run time: shown once, good at once, void at once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from ductile.errors import LedgerError
from ductile.http.middleware import context
from tests.http.doors import READER, House, opened
from tests.waiting import WAIT_LIMIT


@pytest.fixture(scope="module")
def house() -> Iterator[House]:
    with opened(working=False) as house:
        yield house


def create(house: House, name: str, *scopes: str, **more: str) -> str:
    answer = house.ask("POST", "/tokens", {"name": name, "scopes": list(scopes), **more})
    assert answer.status == 201, answer.raw
    token: str = answer.json["token"]
    return token


def test_a_token_from_its_making_to_its_end(house: House) -> None:
    token = create(house, "ci", "jobs:ro")
    assert token.startswith("dtk_")
    assert house.ask("GET", "/jobs", token=token).status == 200
    assert house.ask("POST", "/system/reload", token=token).status == 403
    other = house.ask("POST", "/token/ci/rotate").json["token"]
    assert house.ask("GET", "/jobs", token=token).status == 401
    assert house.ask("GET", "/jobs", token=other).status == 200
    assert house.ask("POST", "/token/ci/revoke").status == 200
    assert house.ask("GET", "/jobs", token=other).status == 401


def test_it_is_shown_once(house: House) -> None:
    token = create(house, "secret", "*")
    listed = house.ask("GET", "/tokens")
    assert "secret" in [row["name"] for row in listed.json["tokens"]]
    assert token.encode() not in listed.raw
    ledger = (house.root / "data" / "state.db").read_bytes()
    wal = house.root / "data" / "state.db-wal"
    assert token.encode() not in ledger + (wal.read_bytes() if wal.exists() else b"")


def test_a_token_ends_when_it_should(house: House) -> None:
    token = create(house, "short", "jobs:ro", expires_in="1ms")
    assert house.ask("GET", "/jobs", token=token).status == 401


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
def test_what_is_no_token(house: House, body: dict[str, object]) -> None:
    assert house.ask("POST", "/tokens", body).status == 400


def test_a_name_is_taken_once(house: House) -> None:
    create(house, "twice", "jobs:ro")
    again = house.ask("POST", "/tokens", {"name": "twice", "scopes": ["jobs:ro"]})
    assert again.status == 409
    assert house.ask("POST", "/token/nobody/revoke").status == 404


def test_only_those_who_may_do_everything_make_tokens(house: House) -> None:
    token = create(house, "admin2", "system:rw", "plugin:rw", "jobs:rw", "events:rw", "agents:rw")
    for who in (token, READER):
        body = {"name": "y", "scopes": ["*"]}
        assert house.ask("POST", "/tokens", body, token=who).status == 403


class TestALedgerThatDoesNotAnswer:
    @pytest.fixture
    def token(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[House, str]]:
        with opened(working=False) as house:
            token = create(house, "ci", "*")

            def broken(*_: object) -> None:
                raise LedgerError("the database is frozen")

            monkeypatch.setattr(house.gateway.ledger, "read", broken)
            yield house, token

    @pytest.mark.parametrize("path", ["/jobs", "/plugins", "/nosuch"])
    def test_refuses_who_cannot_be_known(self, token: tuple[House, str], path: str) -> None:
        house, bearer = token
        answer = house.ask("GET", path, token=bearer)
        assert (answer.status, answer.json["code"]) == (503, "ledger")
        assert answer.json["error"] == "the database is frozen"

    def test_leaves_open_what_is_open_to_all(self, token: tuple[House, str]) -> None:
        house, bearer = token
        assert house.ask("GET", "/", token=bearer).status == 200
        health = house.ask("GET", "/healthz", token=bearer)
        assert (health.status, health.json["status"]) == (503, "error")

    def test_is_not_waited_for_without_end(
        self, monkeypatch: pytest.MonkeyPatch, token: tuple[House, str]
    ) -> None:
        """And one question is enough for all who come."""
        house, bearer = token
        frozen, asked = threading.Event(), []

        def ask(*_: object) -> None:
            asked.append(1)
            assert frozen.wait(WAIT_LIMIT)
            raise LedgerError("the database is frozen")

        monkeypatch.setattr(house.gateway.ledger, "read", ask)
        monkeypatch.setattr(context, "TOKEN_READ_TIMEOUT", 0.3)
        try:
            with ThreadPoolExecutor(12) as threads:
                answers = list(
                    threads.map(lambda _: house.ask("GET", "/jobs", token=bearer), range(12))
                )
        finally:
            frozen.set()
        assert {(a.status, a.json["error"]) for a in answers} == {
            (503, "the ledger does not answer")
        }
        assert len(asked) == 1


def test_a_token_that_is_made_while_the_tokens_are_read_is_good_at_once(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was read before it was made does not count as what there is."""
    early = create(house, "early", "jobs:ro")
    authenticator = next(
        d.app._access._app_context.authenticator for d in house.server.listeners if d.name == "api"
    )
    authenticator.invalidate()
    read, reached, go_on = house.gateway.ledger.read, threading.Event(), threading.Event()

    def slow(work: Any) -> Any:
        found = read(work)
        if threading.current_thread() is reader:
            reached.set()
            assert go_on.wait(WAIT_LIMIT)
        return found

    monkeypatch.setattr(house.gateway.ledger, "read", slow)
    reader = threading.Thread(target=authenticator.refresh)
    reader.start()
    assert reached.wait(WAIT_LIMIT)
    late = create(house, "late", "jobs:ro")
    go_on.set()
    reader.join(WAIT_LIMIT)
    assert house.ask("GET", "/jobs", token=late).status == 200
    assert house.ask("GET", "/jobs", token=early).status == 200


def test_an_expired_token_is_rotated_only_with_a_new_end(house: House) -> None:
    create(house, "over", "jobs:ro", expires_in="1ms")
    refused = house.ask("POST", "/token/over/rotate")
    assert (refused.status, refused.json["code"]) == (409, "refused")
    assert "expires_in" in refused.json["error"]
    dry = house.ask("POST", "/token/over/rotate", {"dry_run": True})
    assert dry.status == 409
    renewed = house.ask("POST", "/token/over/rotate", {"expires_in": "1h"}).json["token"]
    assert house.ask("GET", "/jobs", token=renewed).status == 200
