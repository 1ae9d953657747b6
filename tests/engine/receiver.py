"""HTTP receivers on loopback: well-behaved ones, with TLS, and misbehaving ones."""

from __future__ import annotations

import contextlib
import http.server
import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.waiting import WAIT_LIMIT


@dataclass(frozen=True)
class Received:
    path: str
    headers: dict[str, str]
    body: bytes
    at: float


class Receiver:
    """Responds to each POST with the next of `answers` (then always the last), and records it."""

    def __init__(self, *answers: int, tls: ssl.SSLContext | None = None) -> None:
        self.answers = list(answers or (200,))
        self.headers: dict[str, str] = {}
        self.received: list[Received] = []
        self._news = threading.Condition()
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                size = int(self.headers.get("Content-Length", "0"))
                body = self.rfile.read(size)
                status = receiver.take(Received(self.path, dict(self.headers), body, time.time()))
                self.send_response(status)
                for name, value in receiver.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"ok")

            def log_message(self, *_: object) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        if tls is not None:
            self.server.socket = tls.wrap_socket(self.server.socket, server_side=True)
            # The client reports a failed handshake.
            self.server.handle_error = lambda *_: None  # type: ignore[method-assign]
        self.port = self.server.server_address[1]
        scheme = "https" if tls else "http"
        self.url = f"{scheme}://127.0.0.1:{self.port}/hook"
        self._thread = threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def take(self, request: Received) -> int:
        with self._news:
            self.received.append(request)
            self._news.notify_all()
            return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    def wait(self, count: int = 1) -> list[Received]:
        """Wait for this many requests, and return them."""
        with self._news:
            enough = self._news.wait_for(lambda: len(self.received) >= count, WAIT_LIMIT)
            assert enough, f"{len(self.received)} of {count} requests came"
            return list(self.received)

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self._thread.join()


@contextmanager
def receiving(*answers: int, tls: ssl.SSLContext | None = None) -> Iterator[Receiver]:
    receiver = Receiver(*answers, tls=tls)
    try:
        yield receiver
    finally:
        receiver.close()


@contextmanager
def serve_connections(talk: Callable[[socket.socket], None]) -> Iterator[int]:
    """A port that calls `talk` with every connection."""
    listener = socket.create_server(("127.0.0.1", 0))
    over = threading.Event()

    def one(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            talk(connection)

    def serve() -> None:
        threads = []
        while not over.is_set():
            connection, _ = listener.accept()
            if over.is_set():
                connection.close()
                break
            threads.append(threading.Thread(target=one, args=(connection,), daemon=True))
            threads[-1].start()
        for thread in threads:
            thread.join(WAIT_LIMIT)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        over.set()
        socket.create_connection(listener.getsockname()).close()
        thread.join(WAIT_LIMIT)
        listener.close()


def read_request(connection: socket.socket) -> bytes:
    """Read a request to the end of its body."""
    raw = b""
    while b"\r\n\r\n" not in raw:
        part = connection.recv(65536)
        if not part:
            return raw
        raw += part
    head, _, body = raw.partition(b"\r\n\r\n")
    lines = head.lower().split(b"\r\n")
    size = next((int(line[15:]) for line in lines if line.startswith(b"content-length:")), 0)
    while len(body) < size:
        body += connection.recv(65536)
    return head + b"\r\n\r\n" + body


def stay_silent(connection: socket.socket) -> None:
    """Send nothing until the client disconnects."""
    while connection.recv(65536):
        pass


class CertificateAuthority:
    """A self-signed certificate, and the TLS contexts of its server and clients."""

    def __init__(self, folder: Path, *names: str) -> None:
        if shutil.which("openssl") is None:
            pytest.skip("openssl, which makes the certificate, is not installed")
        self.certificate, self.key = folder / "cert.pem", folder / "key.pem"
        subprocess.run(
            [
                *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt"),
                *("ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=test"),
                *("-addext", "subjectAltName=" + ",".join(names)),
                *("-keyout", str(self.key), "-out", str(self.certificate)),
            ],
            check=True,
            capture_output=True,
        )

    def server(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate, self.key)
        return context

    def client(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.certificate))
