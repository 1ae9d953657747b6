"""What every stand-in shares: a real HTTP server on loopback that can also misbehave."""

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
class Asked:
    """One request, as it came."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes

    @property
    def form(self) -> dict[str, str]:
        """The fields of a form; a body of any other kind has none."""
        kind = self.headers.get("content-type", "").partition(";")[0].strip().lower()
        return dict(parse_qsl(self.body.decode(), keep_blank_values=True)) if kind == FORM else {}

    @property
    def bearer(self) -> str | None:
        scheme, _, token = self.headers.get("authorization", "").partition(" ")
        return token if scheme == "Bearer" and token else None


@dataclass(frozen=True)
class Told:
    """One answer."""

    body: Any = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    hangs: bool = False
    """Nothing more is sent once the head is out, until the stand-in lets go or closes."""
    drips: bool = False
    """A byte of the body at a time, for as long as the stand-in is open."""

    @property
    def raw(self) -> bytes:
        if isinstance(self.body, bytes):
            return self.body or (b"{}" if self.hangs else b"")
        return json.dumps(self.body).encode()


class Standin:
    """A provider. Subclasses say in `answer` what it does with a request."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.refusals: list[str] = []
        """Why requests were refused, in order: empty as long as a client keeps the rules."""
        self.ahead = 0.0
        """Seconds by which the provider's clock is ahead of ours."""
        self._mischief: deque[tuple[str, Told | Callable[[Asked], Told]]] = deque()
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self.letting_go = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def now(self) -> float:
        return time.time() + self.ahead

    def answer(self, asked: Asked) -> Told:
        raise NotImplementedError

    def refuse(self, reason: str, told: Told) -> Told:
        self.refusals.append(reason)
        return told

    def next(self, path: str, *told: Told | Callable[[Asked], Told]) -> None:
        """The next requests for a path are answered so, whatever they ask."""
        self._mischief.extend((path, one) for one in told)

    def paths(self) -> list[str]:
        return [asked.path for asked in self.asked]

    def handle(self, asked: Asked) -> Told:
        with self._lock:
            self.asked.append(asked)
            for index, (path, told) in enumerate(self._mischief):
                if path == asked.path:
                    del self._mischief[index]
                    return told if isinstance(told, Told) else told(asked)
            return self.answer(asked)

    def wait(self, seconds: float) -> bool:
        """Whether the stand-in closes within so long."""
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
        self.letting_go.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def _handler(standin: Standin) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _any(self) -> None:
            parts = urlsplit(self.path)
            length = min(int(self.headers.get("Content-Length") or 0), LONGEST_BODY)
            asked = Asked(
                self.command,
                parts.path,
                dict(parse_qsl(parts.query, keep_blank_values=True)),
                {name.lower(): value for name, value in self.headers.items()},
                self.rfile.read(length),
            )
            try:
                self._tell(standin.handle(asked))
            except (BrokenPipeError, ConnectionResetError):
                self.close_connection = True

        def _tell(self, told: Told) -> None:
            self.close_connection = True
            self.send_response(told.status)
            self.send_header("Connection", "close")
            for name, value in {"Content-Type": "application/json", **told.headers}.items():
                self.send_header(name, value)
            if not told.drips:
                self.send_header("Content-Length", str(len(told.raw)))
            self.end_headers()
            self.wfile.flush()
            if told.hangs:
                standin.letting_go.wait(WAIT_LIMIT)
            while told.drips and not standin.wait(0.05):
                self.wfile.write(b" ")
            self.wfile.write(told.raw)

        do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = _any  # noqa: N815

        def date_time_string(self, timestamp: float | None = None) -> str:
            return formatdate(standin.now() if timestamp is None else timestamp, usegmt=True)

        def log_message(self, format: str, *args: Any) -> None:
            """Requests are kept in `asked`, not printed."""

    return Handler
