"""The HTTP client of the outbox: addresses, deadlines, sizes, and what receivers can do."""

from __future__ import annotations

import queue
import socket
import ssl
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ductile.clock import SystemClock
from ductile.engine.outbox import http_client
from ductile.engine.outbox.http_client import MAX_BODY, HttpClient
from ductile.engine.outbox.policy import OutboundRequest, SendResult
from tests.conftest import FakeClock
from tests.engine.outbox.private_urls import PRIVATE_URLS
from tests.engine.receiver import (
    CertificateAuthority,
    read_request,
    receiving,
    serve_connections,
    stay_silent,
)
from tests.waiting import WAIT_LIMIT

HERE = ("127.0.0.0/8",)
BODY = b'{"text": "gr\xc3\xbc\xc3\x9fe", "n": 1}\n'
PATIENT = 20.0
"""A deadline that no test reaches."""
SHORT = 0.4
"""A deadline that passes; `IN_TIME` is one that an answer meets and what follows it does not."""
IN_TIME = 3.0


def request(url: str, **more: Any) -> OutboundRequest:
    given = {"networks": HERE, "timeout": PATIENT, "body": BODY, "headers": {}, **more}
    return OutboundRequest(url, **given)


def send(url: str, *, trust: Any = None, names: dict[str, list[str]] | None = None, **more: Any):
    options: dict[str, Any] = {}
    if trust is not None:
        options["trust"] = lambda: trust
    if names is not None:
        options["look_up"] = lambda host, _port, _seconds: names[host]
    return HttpClient(SystemClock(), **options)(request(url, **more))


def answered_by(talk: Callable[[socket.socket], None], **more: Any) -> SendResult:
    """What is made of a receiver that talks so."""
    with serve_connections(talk) as port:
        return send(f"http://127.0.0.1:{port}/", **more)


def saying(text: bytes) -> Callable[[socket.socket], None]:
    def talk(connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(text)

    return talk


# What is sent


def test_exactly_the_bytes_and_headers_of_the_request_are_sent() -> None:
    with receiving(202) as receiver:
        url = f"http://127.0.0.1:{receiver.port}/a/b?c=%20d"
        answer = send(url, headers={"Content-Type": "application/json", "X-One": "two; three"})
    (request,) = receiver.received
    assert answer == SendResult(202, None, b"ok")
    assert answer.is_success
    assert request.path == "/a/b?c=%20d"
    assert request.body == BODY
    assert request.headers["Host"] == f"127.0.0.1:{receiver.port}"
    assert request.headers["X-One"] == "two; three"
    assert request.headers["Content-Length"] == str(len(BODY))
    assert request.headers["User-Agent"].startswith("ductile/")


def test_large_body_arrives_complete() -> None:
    body = b"x" * 3_000_000
    with receiving() as receiver:
        assert send(receiver.url, body=body).is_success
    assert receiver.received[0].body == body


def test_host_is_looked_up_once_and_sent_in_the_host_header() -> None:
    asked = []

    def look_up(host: str, port: int, _seconds: float) -> list[str]:
        asked.append((host, port))
        return ["127.0.0.1"]

    with receiving() as receiver:
        url = f"http://receiver.example:{receiver.port}/"
        assert HttpClient(SystemClock(), look_up=look_up)(request(url)).is_success
    assert asked == [("receiver.example", receiver.port)]
    assert receiver.received[0].headers["Host"] == f"receiver.example:{receiver.port}"


def test_next_address_is_tried_if_one_does_not_respond() -> None:
    with receiving() as receiver:
        url = f"http://receiver.example:{receiver.port}/"
        names = {"receiver.example": ["127.0.0.9", "127.0.0.1"]}
        assert send(url, names=names).is_success


def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with receiving() as proxy, receiving() as receiver:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY", "https_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        assert send(receiver.url).is_success
    assert proxy.received == []
    assert len(receiver.received) == 1


@pytest.mark.parametrize(
    "headers",
    [
        {"X-A": "b\r\nX-C: d"},
        {"X-A": "b\nX-C: d"},
        {"X-A\r\nX-C": "b"},
        {"X A": "b"},
        {"": "b"},
        {"X-A": "ä"},
        {"X-A": "\0"},
        {"Host": "other.example"},
        {"content-length": "1"},
        {"Transfer-Encoding": "chunked"},
    ],
)
def test_invalid_or_reserved_header_is_refused(headers: dict[str, str]) -> None:
    with receiving() as receiver:
        answer = send(receiver.url, headers=headers)
    assert answer.status is None
    assert "is not allowed" in str(answer.error)
    assert receiver.received == []


# To whom


def test_no_spelling_of_a_private_address_is_connected_to() -> None:
    """Every name resolves to whatever the spelling hides, as the worst resolver would have it."""
    connected: list[tuple[str, int]] = []
    looked_up: list[str] = []

    def connect(address: str, port: int, _seconds: float) -> socket.socket:
        connected.append((address, port))
        raise ConnectionRefusedError

    for url, hidden in PRIVATE_URLS.items():

        def look_up(host: str, _port: int, _seconds: float, hidden: str = hidden) -> list[str]:
            looked_up.append(host)
            return [hidden]

        sender = HttpClient(SystemClock(), look_up=look_up, connect=connect)
        answer = sender(request(url, networks=(), plain_http=True))
        assert connected == [], url
        assert answer.status is None, url
        assert str(answer.error).startswith("not sent: "), url
    assert all(host.rpartition(".")[2][0].isalpha() for host in looked_up)


def test_number_of_spellings() -> None:
    assert len(PRIVATE_URLS) >= 300


def test_checked_public_address_is_connected_to() -> None:
    connected = []

    def connect(address: str, port: int, _seconds: float) -> socket.socket:
        connected.append((address, port))
        raise ConnectionRefusedError

    sender = HttpClient(SystemClock(), look_up=lambda *_: ["93.184.215.14"], connect=connect)
    answer = sender(request("https://example.com/", networks=()))
    assert connected == [("93.184.215.14", 443)]
    assert answer == SendResult(None, "the connection was refused")


def test_one_private_address_among_public_ones_is_refused() -> None:
    def connect(*_: object) -> socket.socket:
        raise AssertionError("it connects")

    sender = HttpClient(
        SystemClock(), look_up=lambda *_: ["93.184.215.14", "10.0.0.1"], connect=connect
    )
    answer = sender(request("https://example.com/", networks=()))
    assert "forbidden address" in str(answer.error)
    assert "10.0.0.1" not in str(answer.error)


def test_plain_http_only_to_allowed_networks() -> None:
    with receiving() as receiver:
        assert send(receiver.url).is_success
        refused = send(
            f"http://example.com:{receiver.port}/", names={"example.com": ["93.184.215.14"]}
        )
    assert "without TLS" in str(refused.error)


# TLS


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> CertificateAuthority:
    folder: Path = tmp_path_factory.mktemp("tls")
    return CertificateAuthority(folder, "DNS:receiver.example", "IP:127.0.0.1")


NAMES = {"receiver.example": ["127.0.0.1"], "other.example": ["127.0.0.1"]}


def test_tls_to_a_host_name(authority: CertificateAuthority) -> None:
    asked: list[str | None] = []
    context = authority.server()
    context.sni_callback = lambda _socket, name, _context: asked.append(name)
    with receiving(tls=context) as receiver:
        url = f"https://receiver.example:{receiver.port}/"
        answer = send(url, names=NAMES, trust=authority.client())
    assert answer.is_success
    assert asked == ["receiver.example"]


def test_tls_to_an_address(authority: CertificateAuthority) -> None:
    with receiving(tls=authority.server()) as receiver:
        assert send(receiver.url, trust=authority.client()).is_success


def test_untrusted_certificate_is_refused(authority: CertificateAuthority) -> None:
    with receiving(tls=authority.server()) as receiver:
        answer = send(receiver.url)
    assert str(answer.error).startswith("the certificate is not trusted")
    assert receiver.received == []


def test_certificate_of_another_host_is_refused(authority: CertificateAuthority) -> None:
    with receiving(tls=authority.server()) as receiver:
        url = f"https://other.example:{receiver.port}/"
        answer = send(url, names=NAMES, trust=authority.client())
    assert str(answer.error).startswith("the certificate is not trusted")
    assert receiver.received == []


def test_https_to_a_receiver_without_tls_sends_nothing() -> None:
    with receiving() as receiver:
        answer = send(receiver.url.replace("http:", "https:"))
    assert answer == SendResult(None, "the TLS handshake failed")
    assert receiver.received == []


def test_default_trust_is_the_systems() -> None:
    context = http_client._load_trust()
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
    assert context.minimum_version >= ssl.TLSVersion.TLSv1_2
    assert http_client._load_trust() is context


# What receivers do


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects_are_not_followed(status: int) -> None:
    with receiving() as other, receiving(status) as receiver:
        receiver.headers["Location"] = other.url
        answer = send(receiver.url)
    assert not answer.is_success
    assert "redirects are not followed" in str(answer.error)
    assert other.received == []


@pytest.mark.parametrize(
    ("status", "text"),
    [(400, "HTTP 400 Bad Request"), (503, "HTTP 503 Service Unavailable"), (599, "HTTP 599")],
)
def test_error_status_is_described_without_response_text(status: int, text: str) -> None:
    answer = answered_by(saying(f"HTTP/1.1 {status} <script>secret</script>\r\n\r\nno".encode()))
    assert (answer.status, answer.error) == (status, text)
    assert not answer.is_success


def test_interim_responses_are_skipped() -> None:
    talk = saying(
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
        b"HTTP/1.1 204 No Content\r\n\r\n"
    )
    assert answered_by(talk) == SendResult(204)


def test_endless_interim_responses_are_an_error() -> None:
    answer = answered_by(saying(b"HTTP/1.1 103 Early Hints\r\n\r\n" * 100))
    assert answer.error == "the response is not HTTP or too large"


def test_chunked_response() -> None:
    chunks = (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
    )
    assert answered_by(saying(chunks)) == SendResult(200, None, b"abcde")


@pytest.mark.parametrize(
    "rest",
    [
        b"Content-Length: 100\r\n\r\nonly this",
        b"Transfer-Encoding: chunked\r\n\r\n9\r\nonly this\r\n",
        b"Transfer-Encoding: chunked\r\n\r\nnonsense\r\n",
        b"Content-Length: -5\r\n\r\n",
    ],
)
def test_status_counts_although_the_body_is_incomplete(rest: bytes) -> None:
    answer = answered_by(saying(b"HTTP/1.1 200 OK\r\n" + rest))
    assert answer.is_success


def drip(connection: socket.socket, part: bytes) -> None:
    """Until the other side hangs up."""
    while True:
        connection.sendall(part)
        time.sleep(0.02)


def test_slow_headers_do_not_extend_the_deadline() -> None:
    def talk(connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\nX-Drip: ")
        drip(connection, b"x")

    answer = answered_by(talk, timeout=SHORT)
    assert answer == SendResult(None, "no response within 0.4 s")


def test_slow_body_does_not_extend_the_deadline() -> None:
    def talk(connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
        drip(connection, b"x")

    assert answered_by(talk, timeout=IN_TIME).is_success


def test_silent_receiver() -> None:
    answer = answered_by(stay_silent, timeout=SHORT)
    assert answer == SendResult(None, "no response within 0.4 s")


def test_receiver_that_does_not_read() -> None:
    over = threading.Event()

    def talk(_connection: socket.socket) -> None:
        over.wait(WAIT_LIMIT)

    with serve_connections(talk) as port:
        url = f"http://127.0.0.1:{port}/"
        answer = send(url, body=b"x" * 50_000_000, timeout=SHORT)
        over.set()
    assert answer == SendResult(None, "no response within 0.4 s")


def test_receiver_that_hangs_in_the_tls_handshake() -> None:
    with serve_connections(stay_silent) as port:
        answer = send(f"https://127.0.0.1:{port}/", timeout=SHORT)
    assert answer == SendResult(None, "no response within 0.4 s")


def flood(head: bytes, part: bytes) -> Callable[[socket.socket], None]:
    def talk(connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(head)
        while True:
            connection.sendall(part * 100)

    return talk


def test_endless_body_is_read_up_to_a_limit() -> None:
    answer = answered_by(flood(b"HTTP/1.1 200 OK\r\n\r\n", b"x" * 1000))
    assert answer.is_success
    assert len(answer.body) == MAX_BODY


@pytest.mark.parametrize(
    ("head", "part"),
    [
        (b"HTTP/1.1 200 OK\r\n", b"X-A: b\r\n"),
        (b"HTTP/1.1 200 OK\r\nX-A: ", b"x" * 1000),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        (b"", b"x" * 1000),
    ],
)
def test_endless_head_is_an_error(head: bytes, part: bytes) -> None:
    answer = answered_by(flood(head, part))
    assert answer == SendResult(None, "the response is not HTTP or too large")


@pytest.mark.parametrize(
    "text",
    [b"SSH-2.0-OpenSSH_9.2\r\n", b"220 mail.example ESMTP\r\n", b"\0\1\2", b"HTTP/1.1 abc\r\n"],
)
def test_response_that_is_not_http(text: bytes) -> None:
    assert answered_by(saying(text)) == SendResult(None, "the response is not HTTP or too large")


def test_receiver_that_closes_at_once() -> None:
    answer = answered_by(lambda connection: None)
    assert answer == SendResult(None, "the connection was closed before a response")


def test_receiver_that_closes_after_the_request() -> None:
    answer = answered_by(saying(b""))
    assert answer == SendResult(None, "the connection was closed before a response")


def test_receiver_that_responds_before_reading_everything() -> None:
    def talk(connection: socket.socket) -> None:
        connection.recv(1000)
        connection.sendall(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
        connection.shutdown(socket.SHUT_WR)
        stay_silent(connection)

    answer = answered_by(talk, body=b"x" * 5_000_000)
    assert answer.status == 413


def test_refused_connection() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    assert send(f"http://127.0.0.1:{port}/") == SendResult(None, "the connection was refused")


# Looking up


@pytest.fixture
def resolver(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], None]:
    """Puts a function in the place of the system's."""
    return lambda instead: monkeypatch.setattr(socket, "getaddrinfo", instead)


def test_unknown_host(resolver: Callable[[Any], None]) -> None:
    def unknown(*_: object, **__: object) -> object:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    resolver(unknown)
    assert send("https://nowhere.example/") == SendResult(None, "the URL's host is unknown")


def test_hanging_resolver_does_not_extend_the_deadline(
    resolver: Callable[[Any], None],
) -> None:
    over = threading.Event()

    def hangs(*_: object, **__: object) -> object:
        over.wait(WAIT_LIMIT)
        raise socket.gaierror

    resolver(hangs)
    answer = send("https://slow.example/", timeout=SHORT)
    over.set()
    assert answer == SendResult(None, "no response within 0.4 s")


def test_concurrent_lookups_are_limited(
    resolver: Callable[[Any], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    over, asked = threading.Event(), []

    def hangs(host: str, *_: object, **__: object) -> object:
        asked.append(host)
        over.wait(WAIT_LIMIT)
        raise socket.gaierror

    resolver(hangs)
    monkeypatch.setattr(http_client, "_lookups", threading.BoundedSemaphore(2))
    for index in range(4):
        assert send(f"https://slow{index}.example/", timeout=SHORT).status is None
    over.set()
    assert len(asked) == 2


def test_lookup_without_a_thread_releases_its_permit(
    resolver: Callable[[Any], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_thread(_self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    resolver(lambda *_, **__: [LOCAL])
    monkeypatch.setattr(http_client, "_lookups", threading.BoundedSemaphore(1))
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_thread)
        for _ in range(2):
            answer = send("https://a.example/", timeout=SHORT)
            assert answer == SendResult(None, "no response within 0.4 s")
    assert http_client.look_up("a.example", 1, lambda: SHORT) == ["127.0.0.1"]


def test_wait_for_a_permit_counts_towards_the_deadline(
    resolver: Callable[[Any], None], clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A place is had after 4 of the 5 seconds; the resolver gets what is left of them."""
    over, asked = threading.Event(), []

    class Slow(threading.BoundedSemaphore):
        def acquire(self, blocking: bool = True, timeout: float | None = None) -> bool:
            clock.advance(4)
            return super().acquire(blocking, timeout)

    class Patience(queue.SimpleQueue[Any]):
        def get(self, block: bool = True, timeout: float | None = None) -> Any:
            asked.append(timeout)
            raise queue.Empty

    def hangs(*_: object, **__: object) -> object:
        over.wait(WAIT_LIMIT)
        raise socket.gaierror

    resolver(hangs)
    monkeypatch.setattr(http_client, "_lookups", Slow(1))
    monkeypatch.setattr(http_client.queue, "SimpleQueue", Patience)
    answer = HttpClient(clock)(request("https://slow.example/", timeout=5.0))
    over.set()
    assert answer == SendResult(None, "no response within 5 s")
    assert asked == [1.0]


LOCAL = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 1))


def test_duplicate_addresses_are_merged(resolver: Callable[[Any], None]) -> None:
    resolver(lambda *_, **__: [LOCAL, LOCAL])
    assert http_client.look_up("a.example", 1, lambda: PATIENT) == ["127.0.0.1"]
