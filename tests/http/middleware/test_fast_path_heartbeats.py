"""Plain heartbeats take the fast path, other ones the normal route, with equal responses."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from ductile.errors import LedgerFull
from ductile.http.middleware.fast_path import HeartbeatRoute
from ductile.http.server import connection
from ductile.store import agents
from tests.http.harness import ADMIN, CONFIG, ApiHarness, read_all, record_taken, running_api

TOKENS = '      - {token: watcher-token-0123456789, scopes: ["agents:ro"], name: watcher}\n'


@pytest.fixture(scope="module")
def api() -> Iterator[ApiHarness]:
    with running_api(CONFIG + TOKENS) as api:
        yield api


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether the fast path took each request."""
    return record_taken(monkeypatch, HeartbeatRoute)


def beat(agent_id: str = "agent-1") -> bytes:
    body = {"type": "heartbeat", "agent_id": agent_id, "cluster_id": "west"}
    return json.dumps(body).encode()


def head(*more: str, method: str = "POST", version: str = "1.1", token: str = ADMIN) -> str:
    lines = [
        f"{method} /gateway/heartbeat HTTP/{version}",
        "Host: localhost",
        f"Authorization: Bearer {token}",
        *more,
    ]
    return "\r\n".join(lines) + "\r\n"


def request(body: bytes, *more: str, **which: str) -> bytes:
    return f"{head(*more, **which)}Content-Length: {len(body)}\r\n\r\n".encode() + body


def last(body: bytes, **which: str) -> bytes:
    """A request after which the connection ends."""
    return request(body, "Connection: close", **which)


def said(api: ApiHarness, *parts: bytes) -> list[tuple[int, bytes]]:
    """Send the parts one after another; return the status and body of each response."""
    with api.connect() as line:
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for part in parts:
            line.sendall(part)
        return answers(read_all(line))


def answers(raw: bytes) -> list[tuple[int, bytes]]:
    found = []
    while raw:
        start, _, rest = raw.partition(b"\r\n\r\n")
        status = int(start.split(b" ", 2)[1])
        if status == 100:
            raw = rest
            continue
        fields = dict(line.lower().split(b": ", 1) for line in start.split(b"\r\n")[1:])
        size = int(fields[b"content-length"])
        found.append((status, rest[:size]))
        raw = rest[size:]
    return found


OK = (200, b'{"status":"ok"}\n')


def row(api: ApiHarness, agent_id: str) -> dict[str, Any] | None:
    return api.gateway.ledger.read(lambda tx: agents.find_agent(tx, agent_id))


def test_plain_heartbeat_is_taken_and_durable(api: ApiHarness, taken: list[bool]) -> None:
    assert said(api, last(beat("short"))) == [OK]
    assert taken == [True]
    assert row(api, "short") is not None


def test_heartbeat_that_arrives_in_pieces_is_taken(api: ApiHarness, taken: list[bool]) -> None:
    raw = last(beat("pieces"))
    assert said(api, *(raw[at : at + 9] for at in range(0, len(raw), 9))) == [OK]
    assert taken == [True]


def test_chunked_heartbeat_is_taken(api: ApiHarness, taken: list[bool]) -> None:
    body = beat("chunks")
    chunked = f"{head('Connection: close')}Transfer-Encoding: chunked\r\n\r\n".encode()
    parts = [b"%x\r\n%s\r\n" % (len(part), part) for part in (body[:10], body[10:])]
    assert said(api, chunked, *parts, b"0\r\n\r\n") == [OK]
    assert taken == [True]


def test_pipelined_heartbeats_are_answered_in_order(api: ApiHarness, taken: list[bool]) -> None:
    bad = b'{"type": "other"}'
    raw = request(beat("p1")) + request(bad) + request(beat("p2")) + last(beat("p3"))
    statuses = [status for status, _ in said(api, raw)]
    assert statuses == [200, 422, 200, 200]
    assert all(row(api, name) for name in ("p1", "p2", "p3"))


def test_other_requests_may_be_pipelined_between_heartbeats(api: ApiHarness) -> None:
    other = f"GET /healthz HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {ADMIN}\r\n\r\n"
    found = said(api, request(beat()), other.encode(), last(beat()))
    assert [status for status, _ in found] == [200, 200, 200]
    assert json.loads(found[1][1])["status"] == "ok"


def test_connection_is_kept_alive(api: ApiHarness) -> None:
    with api.connect() as line:
        for _ in range(3):
            line.sendall(request(beat()))
            assert answers(line.recv(65536)) == [OK]


def test_http_1_0_request_closes_the_connection(api: ApiHarness) -> None:
    assert said(api, request(beat(), version="1.0")) == [OK]


def test_expect_100_continue_is_answered(api: ApiHarness, taken: list[bool]) -> None:
    body = beat("waits")
    start = (
        f"{head('Connection: close', 'Expect: 100-continue')}Content-Length: {len(body)}\r\n\r\n"
    )
    with api.connect() as line:
        line.sendall(start.encode())
        assert line.recv(100).startswith(b"HTTP/1.1 100 ")
        line.sendall(body)
        assert answers(read_all(line)) == [OK]
    assert taken == []


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"{", 400),
        (b"", 400),
        (b"[]", 422),
        (b'{"type": "heartbeat"}', 422),
        (b"x" * 16_000, 400),
        (b"x" * 17_000, 413),
        (b"x" * 500_000, 413),
    ],
)
def test_invalid_heartbeat_is_refused_by_the_normal_route(
    api: ApiHarness, body: bytes, status: int
) -> None:
    ((code, raw), after) = said(api, request(body), last(beat()))
    assert code == status
    assert json.loads(raw)["status"] == "error"
    assert after == OK


@pytest.mark.parametrize(
    ("token", "more", "status"),
    [
        ("wrong", (), 401),
        ("dtk_wrong", (), 401),
        ("watcher-token-0123456789", (), 403),
        (ADMIN, ("Origin: https://evil.example",), 403),
        (ADMIN, ("Authorization: Bearer x",), 401),
        (ADMIN, ("Host: evil.example",), 421),
    ],
)
def test_unauthorized_heartbeat_is_refused_by_the_normal_route(
    api: ApiHarness, taken: list[bool], token: str, more: tuple[str, ...], status: int
) -> None:
    raw = request(beat("intruder"), "Connection: close", *more, token=token)
    assert [code for code, _ in said(api, raw)] == [status]
    assert taken == []
    assert row(api, "intruder") is None


def test_ledger_token_is_accepted_until_it_is_revoked(api: ApiHarness, taken: list[bool]) -> None:
    made = api.ask("POST", "/tokens", {"name": "bot", "scopes": ["agents:rw"]}).json
    for _ in range(2):
        assert said(api, last(beat(), token=made["token"])) == [OK]
    assert taken == [True]
    assert api.ask("POST", "/token/bot/revoke").status == 200
    assert [code for code, _ in said(api, last(beat(), token=made["token"]))] == [401]


def test_full_ledger_returns_507(
    api: ApiHarness, taken: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise LedgerFull("no space")

    with monkeypatch.context() as patch:
        patch.setattr(agents, "record_heartbeats", full)
        ((code, raw),) = said(api, last(beat("full")))
    assert (code, json.loads(raw)["reason"]) == (507, "ledger_full")
    assert taken == [True]
    assert said(api, last(beat("full"))) == [OK]


def test_client_that_disconnects_early_affects_no_other(api: ApiHarness) -> None:
    for raw in (request(beat("left")), request(beat("left"))[:-5], head().encode()):
        with api.connect() as line:
            line.sendall(raw)
    assert said(api, last(beat())) == [OK]


def test_body_that_does_not_arrive_times_out(
    api: ApiHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "BODY_TIMEOUT", 0.05)
    with api.connect() as line:
        line.sendall(request(beat())[:-5])
        assert answers(read_all(line))[0][0] == 408


def test_fast_path_requests_are_counted(api: ApiHarness) -> None:
    def count() -> int:
        text = api.ask("GET", "/metrics").raw.decode()
        start = 'ductile_http_requests_total{method="POST",route="/gateway/heartbeat",status="200"}'
        return next((int(x.split()[-1]) for x in text.splitlines() if x.startswith(start)), 0)

    before = count()
    said(api, last(beat()))
    assert count() == before + 1


def test_requests_in_progress_complete_when_the_server_stops() -> None:
    with running_api() as own, own.connect() as line:
        line.sendall(request(beat()))
        assert answers(line.recv(65536)) == [OK]
        own.server.stop()
        assert line.recv(1) == b""
