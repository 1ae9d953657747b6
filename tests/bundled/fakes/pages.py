"""A web server with conditional requests, redirects and methods of RFC 9110.

- §13.1.2 If-None-Match, §13.1.3 If-Modified-Since (ignored where the former is there), §15.4.5
  304 without content; §15.4 redirects; §10.2.3 Retry-After.
- draft-ietf-httpapi-idempotency-key-header: a request with a key that was seen is not acted on
  again.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field

from tests.bundled.fakes.server import FakeReply, FakeServer, ReceivedRequest


@dataclass
class Page:
    body: bytes
    kind: str = "text/plain; charset=utf-8"
    etag: str | None = None
    modified: str | None = None
    headers: dict[str, str] = field(default_factory=dict)


class Pages(FakeServer):
    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        super().__init__()
        self.pages: dict[str, Page] = {}
        self.done: list[tuple[str, bytes]] = []
        """Processed POST, PUT, PATCH and DELETE requests, without repeated idempotency keys."""
        self._keys: set[str] = set()
        self._scheme = "http"
        if context is not None:
            self._scheme = "https"
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def at(self, path: str, host: str = "127.0.0.1") -> str:
        return f"{self._scheme}://{host}:{self.port}{path}"

    def reply_to(self, request: ReceivedRequest) -> FakeReply:
        page = self.pages.get(request.path)
        if page is None:
            return self.refuse("no such page", FakeReply(b"gone", 404))
        if request.method != "GET":
            return self._act(request)
        reply = {"Content-Type": page.kind, **page.headers}
        if page.etag:
            reply["ETag"] = page.etag
        if page.modified:
            reply["Last-Modified"] = page.modified
        if self._unchanged(request, page):
            return FakeReply(b"", 304, reply)
        return FakeReply(page.body, 200, reply)

    def _act(self, request: ReceivedRequest) -> FakeReply:
        key = request.headers.get("idempotency-key")
        if key is None or key not in self._keys:
            self.done.append((request.method, request.body))
        if key is not None:
            self._keys.add(key)
        return FakeReply({"ok": True}, 201)

    def _unchanged(self, request: ReceivedRequest, page: Page) -> bool:
        match = request.headers.get("if-none-match")
        if match is not None:
            return match == page.etag
        since = request.headers.get("if-modified-since")
        return since is not None and since == page.modified
