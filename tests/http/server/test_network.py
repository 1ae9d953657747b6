"""Slow, large and invalid requests are refused and do not affect other clients."""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from ductile.engine.ingress.rejection_limiter import MAX_PER_MINUTE
from ductile.errors import Refused
from ductile.http.server import connection, listeners
from ductile.http.server.connection_limit import ConnectionLimiter, ConnectionState
from ductile.http.server.listeners import HttpServer, Listener, bind_local, bind_tcp
from tests.http.harness import ADMIN, CONFIG, ApiHarness, read_all, running_api
from tests.http.subscriber import subscribed
from tests.waiting import WAIT_LIMIT, until

AUTH = f"Authorization: Bearer {ADMIN}\r\n"


@pytest.fixture(scope="module")
def api() -> Iterator[ApiHarness]:
    with running_api(working=False) as api:
        yield api


@pytest.fixture
def short_timeouts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "HEAD_TIMEOUT", 0.05)
    monkeypatch.setattr(connection, "BODY_TIMEOUT", 0.05)
    monkeypatch.setattr(listeners, "TICK", 0.05)


def exchange(api: ApiHarness, *parts: str | bytes, listener: str = "api") -> bytes:
    """Send the parts and return everything until the connection is closed."""
    with api.connect(listener) as raw:
        for part in parts:
            raw.sendall(part if isinstance(part, bytes) else part.encode())
        return read_all(raw)


def send_endlessly(raw: socket.socket, what: bytes = b"x") -> None:
    for _ in range(10_000):
        raw.sendall(what * (65536 // len(what)))


@pytest.mark.usefixtures("short_timeouts")
@pytest.mark.parametrize("sent", ["", "GET /jobs HT", "GET / HTTP/1.1\r\nHost: localhost\r\nX: "])
def test_incomplete_head_times_out(api: ApiHarness, sent: str) -> None:
    assert exchange(api, sent).startswith(b"HTTP/1.1 408 ")


@pytest.mark.usefixtures("short_timeouts")
def test_incomplete_body_times_out(api: ApiHarness) -> None:
    head = f"POST /plugin/echo/poll HTTP/1.1\r\nHost: localhost\r\n{AUTH}Content-Length: 9\r\n\r\n"
    assert exchange(api, head, "{").startswith(b"HTTP/1.1 408 ")


@pytest.mark.usefixtures("short_timeouts")
def test_incomplete_body_of_a_refused_request_times_out(api: ApiHarness) -> None:
    head = "POST /plugin/echo/poll HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n"
    assert exchange(api, head, "{").startswith(b"HTTP/1.1 401 ")


def test_body_of_a_refused_request_is_read_up_to_a_limit(api: ApiHarness) -> None:
    head = "POST /plugin/echo/poll HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999\r\n\r\n"
    with api.connect() as raw:
        raw.sendall(head.encode())
        assert raw.recv(100).startswith(b"HTTP/1.1 401 ")
        with pytest.raises(OSError, match=r"reset|pipe"):
            send_endlessly(raw)


@pytest.mark.parametrize(
    "line",
    ["X: " + "x" * 40_000, "\r\n".join(f"X-{n}: {n}" for n in range(101)), f"X-{'x' * 40_000}: 1"],
)
def test_too_large_head_returns_431(api: ApiHarness, line: str) -> None:
    answer = exchange(api, f"GET / HTTP/1.1\r\nHost: localhost\r\n{line}\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 431 ")


@pytest.mark.parametrize("tail", ["\r\n\r\n", "\r\nTransfer-Encoding: chunked\r\n\r\n1;"])
def test_client_that_sends_on_after_a_refusal_reads_the_reason(api: ApiHarness, tail: str) -> None:
    is_chunked = "chunked" in tail
    line = "X: 1" if is_chunked else "X: " + "x" * 40_000
    with api.connect() as raw:
        raw.sendall(f"POST / HTTP/1.1\r\nHost: localhost\r\n{line}{tail}".encode())
        for _ in range(40):
            raw.sendall(b"x" * 50_000)
        raw.shutdown(socket.SHUT_WR)
        answer = b"".join(iter(lambda: raw.recv(65536), b""))
    assert answer.startswith(b"HTTP/1.1 4")
    assert b'"code":' in answer


def test_too_long_url_is_refused(api: ApiHarness) -> None:
    assert b"HTTP/1.1 4" in exchange(
        api, f"GET /{'x' * 40_000} HTTP/1.1\r\nHost: localhost\r\n\r\n"
    )


def test_endless_header_closes_the_connection(api: ApiHarness) -> None:
    with api.connect() as raw:
        raw.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ")
        with pytest.raises(OSError, match=r"reset|pipe"):
            send_endlessly(raw)


@pytest.mark.parametrize("chunked", [False, True])
def test_too_large_body_returns_413_while_it_arrives(api: ApiHarness, chunked: bool) -> None:
    head = f"POST /plugin/echo/poll HTTP/1.1\r\nHost: localhost\r\n{AUTH}"
    size = 1024 * 1024 + 1
    with api.connect() as raw:
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
def test_endless_framing_closes_the_connection(api: ApiHarness, begin: str, more: str) -> None:
    with api.connect() as raw:
        raw.sendall(begin.encode())
        with pytest.raises(OSError, match=r"reset|pipe"):
            send_endlessly(raw, more.encode())


def test_too_much_framing_returns_413(api: ApiHarness) -> None:
    with api.connect() as raw:
        raw.sendall(CHUNKED.encode())
        until(lambda: any(each.state is ConnectionState.AWAITING_BODY for each in api.limiter()))
        raw.sendall(b"2;" + b"x" * connection.MAX_FRAMING_BYTES)
        answer = read_all(raw)
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b'"code":"too_much_framing"' in answer


@pytest.mark.parametrize(
    "sent",
    [b"2;" + b"x" * 20_000 + b"\r\n{}\r\n", b"8\r\n        \r\n" * 100_000 + b"2\r\n{}\r\n"],
    ids=["a long extension", "small chunks"],
)
def test_some_framing_is_accepted(api: ApiHarness, sent: bytes) -> None:
    with api.connect() as raw:
        raw.sendall(CHUNKED.encode() + sent + b"0\r\n\r\n")
        assert raw.recv(100).startswith(b"HTTP/1.1 202 ")


def test_pipelined_requests_are_not_one_large_head(api: ApiHarness) -> None:
    wanted = f"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: {'x' * 1000}\r\n\r\n".encode()
    with api.connect() as raw:
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
def test_invalid_request_returns_400_as_json(api: ApiHarness, sent: str) -> None:
    answer = exchange(api, sent.encode("latin-1"))
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b'"code":"bad_request"' in answer


TARGETS = ["CONNECT a:1", "CONNECT /", "GET http://:80/", "GET http://u@localhost/", "GET x"]


@pytest.mark.parametrize("line", TARGETS)
def test_invalid_target_of_the_first_request_returns_400(
    api: ApiHarness, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = exchange(api, f"{line} HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b'"code":"bad_request"' in answer
    assert "trace" not in capsys.readouterr().out


@pytest.mark.parametrize("line", TARGETS)
def test_invalid_target_of_a_later_request_returns_400(api: ApiHarness, line: str) -> None:
    with api.connect() as raw:
        raw.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert raw.recv(65536).startswith(b"HTTP/1.1 200 ")
        raw.sendall(f"{line} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        assert b"HTTP/1.1 400 " in read_all(raw)


@pytest.mark.parametrize("line", [*TARGETS, "hello", f"GET /{'x' * 40_000}"])
def test_invalid_request_behind_others_is_answered_after_them(api: ApiHarness, line: str) -> None:
    earlier = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n" * 2
    answer = exchange(api, f"{earlier}{line} HTTP/1.1\r\nHost: localhost\r\n\r\n")
    statuses = [head[:3] for head in answer.split(b"HTTP/1.1 ")[1:]]
    assert statuses == [b"200", b"200", b"414" if len(line) > 1000 else b"400"]


def test_request_for_an_upgrade_is_the_last_one_of_its_connection(api: ApiHarness) -> None:
    plain = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n"
    answer = exchange(api, f"{plain}Connection: Upgrade\r\nUpgrade: h2c\r\n\r\n{plain}\r\n")
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert b"connection: close" in answer.lower()


@pytest.mark.usefixtures("short_timeouts")
def test_time_limit_of_a_body_begins_when_it_is_read(api: ApiHarness) -> None:
    """The connection is not read while a request before it is executed."""
    job = api.ask("POST", "/plugin/echo/poll", {}).json
    path = f"/job/{job['job_id']}?wait=1"
    with api.connect() as raw:
        raw.sendall(
            f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{AUTH}\r\n"
            f"POST /plugin/echo/poll HTTP/1.1\r\nHost: localhost\r\n{AUTH}"
            "Connection: close\r\nContent-Length: 2\r\n\r\n{".encode()
        )
        raw.sendall(b"}")
        answer = read_all(raw)
    assert [head[:3] for head in answer.split(b"HTTP/1.1 ")[1:]] == [b"200", b"202"]


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("http://localhost/jobs", 200),
        ("HTTP://127.0.0.1:9/jobs?limit=1", 200),
        ("http://localhost", 200),
        ("http://evil.example/jobs", 421),
        ("http://evil.example", 421),
    ],
)
def test_authority_of_an_absolute_target_replaces_the_host(
    api: ApiHarness, target: str, status: int
) -> None:
    answer = exchange(
        api, f"GET {target} HTTP/1.1\r\nHost: localhost\r\n{AUTH}Connection: close\r\n\r\n"
    )
    assert answer.startswith(b"HTTP/1.1 %d " % status)


def test_absolute_target_does_not_excuse_a_repeated_host(api: ApiHarness) -> None:
    lines = f"Host: localhost\r\nHost: localhost\r\n{AUTH}Connection: close\r\n\r\n"
    answer = exchange(api, f"GET http://localhost/jobs HTTP/1.1\r\n{lines}")
    assert answer.startswith(b"HTTP/1.1 421 ")


@pytest.mark.parametrize("path", ["/plugin/echo/poll", "/gateway/heartbeat", "/jobs/cancel"])
def test_trailer_is_not_a_header(api: ApiHarness, path: str) -> None:
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n"
    trailer = f"0\r\n{AUTH}\r\n"
    answer = exchange(api, f"{head}Connection: close\r\n\r\n2\r\n{{}}\r\n{trailer}")
    assert answer.startswith(b"HTTP/1.1 401 ")
    late = f"{head}{AUTH}Connection: close\r\n\r\n2\r\n{{}}\r\n{trailer}"
    assert b"HTTP/1.1 401" not in exchange(api, late)


@pytest.mark.parametrize("closing", ["", "Connection: close\r\n"])
def test_refusal_reaches_a_client_that_sends_its_whole_body_first(
    api: ApiHarness, closing: str
) -> None:
    size = 8 * 1024 * 1024
    head = f"POST /plugin/echo/poll HTTP/1.1\r\nHost: localhost\r\n{AUTH}{closing}"
    for _ in range(5):
        with api.connect() as raw:
            raw.sendall(f"{head}Content-Length: {size}\r\n\r\n".encode() + b" " * size)
            assert raw.recv(65536).startswith(b"HTTP/1.1 413 ")
            if closing:
                assert read_all(raw).count(b"HTTP/1.1") == 0


def test_repeated_bug_is_logged_a_few_times_per_minute(
    api: ApiHarness, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def crash(*_: object) -> None:
        raise ZeroDivisionError("planted")

    monkeypatch.setattr(connection.HttpConnection, "on_message_begin", crash)
    monkeypatch.setattr(connection.HttpConnection, "send_400_response", crash)
    for _ in range(3 * MAX_PER_MINUTE):
        assert exchange(api, "GET / HTTP/1.1\r\n\r\n") == b""
    lines = capsys.readouterr().out.splitlines()
    assert sum("planted" in line for line in lines) == MAX_PER_MINUTE


def test_slow_clients_do_not_delay_others(api: ApiHarness) -> None:
    with ExitStack() as stack:
        for _ in range(200):
            raw = stack.enter_context(api.connect())
            raw.sendall(b"GET /jobs HTTP/1.1\r\nHost: local")
        assert api.ask("GET", "/jobs").status == 200


def test_idle_connection_is_evicted_for_a_new_one(
    api: ApiHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api.limiter(), "max_connections", 1)
    kept = http.client.HTTPConnection(*api.address("api"), timeout=WAIT_LIMIT)
    kept.request("GET", "/")
    kept.getresponse().read()
    assert api.ask("GET", "/jobs").status == 200
    assert kept.sock.recv(1) == b""
    kept.close()


HEAD = "POST /plugin/echo/poll HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n"


@pytest.mark.parametrize(
    "sent", ["", "POST /plu", HEAD, f"{HEAD}{AUTH}\r\n", f"{HEAD}\r\n{{"], ids=repr
)
def test_oldest_incomplete_request_is_evicted_for_a_new_connection(
    api: ApiHarness, monkeypatch: pytest.MonkeyPatch, sent: str
) -> None:
    monkeypatch.setattr(api.limiter(), "max_connections", 2)
    with api.connect() as first, api.connect() as second:
        first.sendall(sent.encode())
        second.sendall(f"{HEAD}{AUTH}Expect: 100-continue\r\n\r\n".encode())
        assert second.recv(100).startswith(b"HTTP/1.1 100 ")
        assert api.ask("GET", "/jobs").status == 200
        with suppress(ConnectionResetError):
            assert b"HTTP/1.1 408 " not in read_all(first)
        second.sendall(b"{      } ")
        assert b"HTTP/1.1 2" in second.recv(65536)


def test_active_connection_is_not_evicted(api: ApiHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    with subscribed(api) as subscriber:
        monkeypatch.setattr(api.limiter(), "max_connections", 1)
        with api.connect() as second, suppress(OSError):
            second.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert read_all(second) == b""
        monkeypatch.undo()
        api.ask("POST", "/plugin/echo/poll", "{}")
        assert subscriber.next()["event"] == "job.queued"


def test_full_listener_does_not_affect_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    webhooks = """\
webhooks:
  listen: 127.0.0.1:0
  endpoints: [{path: /hook/a, plugin: echo, secret: a-secret-of-the-test}]
"""
    with running_api(CONFIG + webhooks, working=False) as own, ExitStack() as stack:
        for listener in ("api", "webhooks"):
            monkeypatch.setattr(own.limiter(listener), "max_connections", 3)
        for _ in range(9):
            stack.enter_context(own.connect("webhooks")).sendall(b"POST /hook/a HTTP/1.1\r\nHo")
        kept = stack.enter_context(own.connect())
        for _ in range(5):
            assert own.ask("GET", "/healthz").status == 200
            assert own.ask("GET", "/healthz", listener="webhooks").status == 200
        kept.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert kept.recv(100).startswith(b"HTTP/1.1 200 ")


def test_closed_connection_with_unread_data_times_out(
    api: ApiHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "WRITE_TIMEOUT", 0.05)
    listener = next(listener.socket for listener in api.server.listeners if listener.name == "api")
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    with socket.socket() as raw:
        raw.settimeout(WAIT_LIMIT)
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        raw.connect(api.address("api"))
        wanted = "GET /plugin/echo/openapi.json HTTP/1.1\r\nHost: localhost\r\n"
        raw.sendall(f"{wanted}{AUTH}Connection: close\r\n\r\n".encode())
        assert raw.recv(1)
        until(lambda: not len(api.limiter()))


def test_burst_is_queued_while_the_loop_is_busy(api: ApiHarness) -> None:
    assert api.ask("GET", "/jobs").status == 200
    busy, free = threading.Event(), threading.Event()

    def hold() -> None:
        busy.set()
        free.wait()

    with ExitStack() as stack:
        stack.callback(free.set)
        api.server.ping(hold)
        assert busy.wait(WAIT_LIMIT)
        for _ in range(64):
            stack.enter_context(api.connect())
    assert api.ask("GET", "/jobs").status == 200


def test_address_in_use_is_refused() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(Refused, match="cannot listen on"),
    ):
        bind_tcp(taken.getsockname())


def test_stop_does_not_wait_for_the_next_tick(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listeners, "TICK", 3600.0)
    stopped = threading.Event()
    limiter = ConnectionLimiter()
    listener = Listener("local", refuse_requests, bind_local(tmp_path / "s"), limiter)
    server = HttpServer([listener], on_stop=stopped.set)
    server.start()
    with socket.socket(socket.AF_UNIX) as raw:
        raw.settimeout(WAIT_LIMIT)
        raw.connect(str(tmp_path / "s"))
        raw.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"\r\ndate: " in raw.recv(1000)
    stopping = threading.Thread(target=server.stop, daemon=True)
    stopping.start()
    stopping.join(WAIT_LIMIT)
    assert not stopping.is_alive()
    assert stopped.is_set()


async def refuse_requests(_scope: Any, _receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 404, "headers": []})
    await send({"type": "http.response.body", "body": b""})
