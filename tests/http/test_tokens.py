"""Tokens made at run time: shown once, good at once, void at once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.http.doors import READER, House, opened


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
