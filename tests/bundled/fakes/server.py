"""An HTTP server on loopback that fakes a provider, with scripted errors."""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qsl, urlsplit

from tests.waiting import WAIT_LIMIT

FORM = "application/x-www-form-urlencoded"
LONGEST_BODY = 1024 * 1024


@dataclass(frozen=True)
class ReceivedRequest:
    """A received request."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes

    @property
    def form(self) -> dict[str, str]:
        """The fields of a form; empty for other content types."""
        kind = self.headers.get("content-type", "").partition(";")[0].strip().lower()
        return dict(parse_qsl(self.body.decode(), keep_blank_values=True)) if kind == FORM else {}

    @property
    def bearer(self) -> str | None:
        scheme, _, token = self.headers.get("authorization", "").partition(" ")
        return token if scheme == "Bearer" and token else None


@dataclass(frozen=True)
class FakeReply:
    """A reply to send."""

    body: Any = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    hangs: bool = False
    """Send only the headers until the server is released or closed."""
    drips: bool = False
    """Send single bytes until the server is closed."""

    @property
    def raw(self) -> bytes:
        if isinstance(self.body, bytes):
            return self.body or (b"{}" if self.hangs else b"")
        return json.dumps(self.body).encode()


class FakeServer:
    """A fake provider. Subclasses implement `reply_to`."""

    def __init__(self) -> None:
        self.requests: list[ReceivedRequest] = []
        self.refusals: list[str] = []
        """Reasons of rejected requests, in order; empty if all were valid."""
        self.ahead = 0.0
        """Seconds by which the provider's clock is ahead."""
        self._scripted: deque[tuple[str, FakeReply | Callable[[ReceivedRequest], FakeReply]]] = (
            deque()
        )
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self.released = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def now(self) -> float:
        return time.time() + self.ahead

    def reply_to(self, request: ReceivedRequest) -> FakeReply:
        raise NotImplementedError

    def refuse(self, reason: str, reply: FakeReply) -> FakeReply:
        self.refusals.append(reason)
        return reply

    def next(self, path: str, *reply: FakeReply | Callable[[ReceivedRequest], FakeReply]) -> None:
        """Script the replies to the next requests for a path."""
        self._scripted.extend((path, one) for one in reply)

    def paths(self) -> list[str]:
        return [request.path for request in self.requests]

    def handle(self, request: ReceivedRequest) -> FakeReply:
        with self._lock:
            self.requests.append(request)
            for index, (path, reply) in enumerate(self._scripted):
                if path == request.path:
                    del self._scripted[index]
                    return reply if isinstance(reply, FakeReply) else reply(request)
            return self.reply_to(request)

    def wait(self, seconds: float) -> bool:
        """Whether the server is closed within `seconds`."""
        return self._closing.wait(seconds)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._closing.set()
        self.released.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def _handler(fake: FakeServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _any(self) -> None:
            parts = urlsplit(self.path)
            length = min(int(self.headers.get("Content-Length") or 0), LONGEST_BODY)
            request = ReceivedRequest(
                self.command,
                parts.path,
                dict(parse_qsl(parts.query, keep_blank_values=True)),
                {name.lower(): value for name, value in self.headers.items()},
                self.rfile.read(length),
            )
            try:
                self._send(fake.handle(request))
            except (BrokenPipeError, ConnectionResetError):
                self.close_connection = True

        def _send(self, reply: FakeReply) -> None:
            self.close_connection = True
            self.send_response(reply.status)
            self.send_header("Connection", "close")
            for name, value in {"Content-Type": "application/json", **reply.headers}.items():
                self.send_header(name, value)
            if not reply.drips:
                self.send_header("Content-Length", str(len(reply.raw)))
            self.end_headers()
            self.wfile.flush()
            if reply.hangs:
                fake.released.wait(WAIT_LIMIT)
            while reply.drips and not fake.wait(0.05):
                self.wfile.write(b" ")
            self.wfile.write(reply.raw)

        do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = _any  # noqa: N815

        def date_time_string(self, timestamp: float | None = None) -> str:
            return formatdate(fake.now() if timestamp is None else timestamp, usegmt=True)

        def log_message(self, format: str, *args: Any) -> None:
            """Requests are stored in `requests`, not printed."""

    return Handler
