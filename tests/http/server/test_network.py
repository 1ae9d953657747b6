"""A hostile network: slow, large and broken requests, and others who do not notice."""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest

from ductile.errors import Refused
from ductile.http.server import connection
from ductile.http.server.connection_limit import ConnectionState
from ductile.http.server.listeners import bind_tcp
from tests.http.doors import ADMIN, CONFIG, House, opened, read_all
from tests.http.following import following
from tests.waiting import WAIT_LIMIT, until

AUTH = f"Authorization: Bearer {ADMIN}\r\n"


@pytest.fixture(scope="module")
def house() -> Iterator[House]:
    with opened(working=False) as house:
        yield house


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "HEAD_TIMEOUT", 0.05)
    monkeypatch.setattr(connection, "BODY_TIMEOUT", 0.05)


def said(house: House, *parts: str | bytes, door: str = "api") -> bytes:
    """What comes back until the connection is closed."""
    with house.connect(door) as raw:
        for part in parts:
            raw.sendall(part if isinstance(part, bytes) else part.encode())
        return read_all(raw)


def pour(raw: socket.socket, what: bytes = b"x") -> None:
    for _ in range(10_000):
        raw.sendall(what * (65536 // len(what)))


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize("sent", ["", "GET /jobs HT", "GET / HTTP/1.1\r\nHost: localhost\r\nX: "])
def test_a_head_that_does_not_end_is_cut_off(house: House, sent: str) -> None:
    assert said(house, sent).startswith(b"HTTP/1.1 408 ")


@pytest.mark.usefixtures("hurried")
def test_a_body_that_does_not_end_is_cut_off(house: House) -> None:
    head = f"POST /plugin/echo/poll HTTP/1.1\r\nHost: localhost\r\n{AUTH}Content-Length: 9\r\n\r\n"
    assert said(house, head, "{").startswith(b"HTTP/1.1 408 ")


@pytest.mark.usefixtures("hurried")
def test_a_body_that_does_not_end_after_its_refusal_is_cut_off(house: House) -> None:
    head = "POST /plugin/echo/poll HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n"
    assert said(house, head, "{").startswith(b"HTTP/1.1 401 ")


def test_a_refused_body_is_not_read_for_ever(house: House) -> None:
    head = "POST /plugin/echo/poll HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999\r\n\r\n"
    with house.connect() as raw:
        raw.sendall(head.encode())
        assert raw.recv(100).startswith(b"HTTP/1.1 401 ")
        with pytest.raises(OSError, match=r"reset|pipe"):
            pour(raw)


@pytest.mark.parametrize(
    "line",
    ["X: " + "x" * 40_000, "\r\n".join(f"X-{n}: {n}" for n in range(101)), f"X-{'x' * 40_000}: 1"],
)
def test_heads_are_bounded(house: House, line: str) -> None:
    answer = said(house, f"GET / HTTP/1.1\r\nHost: localhost\r\n{line}\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 431 ")


def test_urls_are_bounded(house: House) -> None:
    assert b"HTTP/1.1 4" in said(house, f"GET /{'x' * 40_000} HTTP/1.1\r\nHost: localhost\r\n\r\n")


def test_a_header_that_never_ends_is_cut_off_while_it_comes(house: House) -> None:
    with house.connect() as raw:
        raw.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ")
        with pytest.raises(OSError, match=r"reset|pipe"):
            pour(raw)


@pytest.mark.parametrize("chunked", [False, True])
def test_bodies_are_bounded_while_they_stream(house: House, chunked: bool) -> None:
    head = f"POST /plugin/echo/poll HTTP/1.1\r\nHost: localhost\r\n{AUTH}"
    size = 1024 * 1024 + 1
    with house.connect() as raw:
        if chunked:
            raw.sendall(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode())
            raw.sendall((b"10000\r\n" + b" " * 65536 + b"\r\n") * 17)
        else:
            raw.sendall(f"{head}Content-Length: {size}\r\n\r\n".encode() + b" " * size)
        assert raw.recv(100).startswith(b"HTTP/1.1 413 ")


CHUNKED = (
    f"POST /plugin/echo/poll HTTP/1.1\r\nHost: localhost\r\n{AUTH}"
    "Transfer-Encoding: chunked\r\n\r\n"
)


@pytest.mark.parametrize(
    ("begin", "more"),
    [
        (f"{CHUNKED}1;", "x"),
        (CHUNKED, f"1;{'x' * 40}\r\n \r\n"),
        (CHUNKED, "1\r\n \r\n"),
        (f"{CHUNKED}0\r\nX: ", "x"),
        ("", "\r\n"),
    ],
    ids=["an extension", "extensions", "tiny chunks", "a trailer", "blank lines"],
)
def test_what_is_neither_head_nor_body_is_cut_off_while_it_comes(
    house: House, begin: str, more: str
) -> None:
    with house.connect() as raw:
        raw.sendall(begin.encode())
        with pytest.raises(OSError, match=r"reset|pipe"):
            pour(raw, more.encode())


def test_more_around_a_body_than_in_it_is_refused(house: House) -> None:
    with house.connect() as raw:
        raw.sendall(CHUNKED.encode())
        until(
            lambda: any(guest.state is ConnectionState.AWAITING_BODY for guest in house.limiter())
        )
        raw.sendall(b"2;" + b"x" * connection.MAX_FRAMING_BYTES)
        answer = read_all(raw)
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b'"code":"too_much_framing"' in answer


@pytest.mark.parametrize(
    "sent",
    [b"2;" + b"x" * 20_000 + b"\r\n{}\r\n", b"8\r\n        \r\n" * 100_000 + b"2\r\n{}\r\n"],
    ids=["a long extension", "small chunks"],
)
def test_a_body_may_have_a_little_around_it(house: House, sent: bytes) -> None:
    with house.connect() as raw:
        raw.sendall(CHUNKED.encode() + sent + b"0\r\n\r\n")
        assert raw.recv(100).startswith(b"HTTP/1.1 202 ")


def test_requests_in_one_piece_are_no_large_head(house: House) -> None:
    wanted = f"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: {'x' * 1000}\r\n\r\n".encode()
    with house.connect() as raw:
        raw.sendall(wanted * 100 + b"GET /healthz HT")
        raw.sendall(b"TP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert read_all(raw).count(b"HTTP/1.1 200 ") == 101


@pytest.mark.parametrize(
    "sent",
    [
        "hello\r\n\r\n",
        "GET /\xff HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        "POST / HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ],
)
def test_what_is_no_request_is_refused_in_the_shape_of_all_errors(house: House, sent: str) -> None:
    answer = said(house, sent.encode("latin-1"))
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b'"code":"bad_request"' in answer


def test_slow_clients_delay_nobody(house: House) -> None:
    with ExitStack() as stack:
        for _ in range(200):
            raw = stack.enter_context(house.connect())
            raw.sendall(b"GET /jobs HTTP/1.1\r\nHost: local")
        assert house.ask("GET", "/jobs").status == 200


def test_an_idle_connection_gives_way_to_a_new_one(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(house.limiter(), "max_connections", 1)
    kept = http.client.HTTPConnection(*house.address("api"), timeout=WAIT_LIMIT)
    kept.request("GET", "/")
    kept.getresponse().read()
    assert house.ask("GET", "/jobs").status == 200
    assert kept.sock.recv(1) == b""
    kept.close()


HEAD = "POST /plugin/echo/poll HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n"


@pytest.mark.parametrize(
    "sent", ["", "POST /plu", HEAD, f"{HEAD}{AUTH}\r\n", f"{HEAD}\r\n{{"], ids=repr
)
def test_the_oldest_that_is_not_complete_gives_way_to_a_new_one(
    house: House, monkeypatch: pytest.MonkeyPatch, sent: str
) -> None:
    monkeypatch.setattr(house.limiter(), "max_connections", 2)
    with house.connect() as first, house.connect() as second:
        first.sendall(sent.encode())
        second.sendall(f"{HEAD}{AUTH}Expect: 100-continue\r\n\r\n".encode())
        assert second.recv(100).startswith(b"HTTP/1.1 100 ")
        assert house.ask("GET", "/jobs").status == 200
        with suppress(ConnectionResetError):
            assert b"HTTP/1.1 408 " not in read_all(first)
        second.sendall(b"{      } ")
        assert b"HTTP/1.1 2" in second.recv(65536)


def test_who_is_at_work_gives_way_to_nobody(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    with following(house) as follower:
        monkeypatch.setattr(house.limiter(), "max_connections", 1)
        with house.connect() as second, suppress(OSError):
            second.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert read_all(second) == b""
        monkeypatch.undo()
        house.ask("POST", "/plugin/echo/poll", "{}")
        assert follower.next()["event"] == "job.queued"


def test_whoever_fills_a_door_shuts_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    webhooks = """\
webhooks:
  listen: 127.0.0.1:0
  endpoints: [{path: /hook/a, plugin: echo, secret: a-secret-of-the-test}]
"""
    with opened(CONFIG + webhooks, working=False) as own, ExitStack() as stack:
        for door in ("api", "webhooks"):
            monkeypatch.setattr(own.limiter(door), "max_connections", 3)
        for _ in range(9):
            stack.enter_context(own.connect("webhooks")).sendall(b"POST /hook/a HTTP/1.1\r\nHo")
        kept = stack.enter_context(own.connect())
        for _ in range(5):
            assert own.ask("GET", "/healthz").status == 200
            assert own.ask("GET", "/healthz", door="webhooks").status == 200
        kept.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert kept.recv(100).startswith(b"HTTP/1.1 200 ")


def test_what_is_closed_and_not_read_is_cut_off(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "WRITE_TIMEOUT", 0.05)
    listener = next(door.socket for door in house.server.listeners if door.name == "api")
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    with socket.socket() as raw:
        raw.settimeout(WAIT_LIMIT)
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        raw.connect(house.address("api"))
        wanted = "GET /plugin/echo/openapi.json HTTP/1.1\r\nHost: localhost\r\n"
        raw.sendall(f"{wanted}{AUTH}Connection: close\r\n\r\n".encode())
        assert raw.recv(1)
        until(lambda: not len(house.limiter()))


def test_a_burst_is_kept_for_a_loop_that_is_busy(house: House) -> None:
    assert house.ask("GET", "/jobs").status == 200
    busy, free = threading.Event(), threading.Event()

    def hold() -> None:
        busy.set()
        free.wait()

    with ExitStack() as stack:
        stack.callback(free.set)
        house.server.ping(hold)
        assert busy.wait(WAIT_LIMIT)
        for _ in range(64):
            stack.enter_context(house.connect())
    assert house.ask("GET", "/jobs").status == 200


def test_an_address_in_use_is_refused() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(Refused, match="cannot listen on"),
    ):
        bind_tcp(taken.getsockname())
