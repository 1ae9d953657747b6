"""A collector of OTLP traces over HTTP with JSON, for tests."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Collector:
    """Stores the spans that it receives; `status` and `body` are what it answers."""

    def __init__(self) -> None:
        self.status, self.body = 200, b"{}"
        self.documents: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                assert self.path == "/v1/traces"
                if outer.status == 200:
                    outer.headers.append({k.lower(): v for k, v in self.headers.items()})
                    outer.documents.append(json.loads(body))
                self.send_response(outer.status)
                self.send_header("Content-Length", str(len(outer.body)))
                self.end_headers()
                self.wfile.write(outer.body)

            def log_message(self, *_: object) -> None:
                """Tests print nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    @property
    def environ(self) -> dict[str, str]:
        """The variables by which a gateway sends its spans here."""
        return {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{self._server.server_port}"}

    @property
    def spans(self) -> list[dict[str, Any]]:
        return [
            span
            for document in self.documents
            for resource in document["resourceSpans"]
            for scope in resource["scopeSpans"]
            for span in scope["spans"]
        ]

    def named(self, name: str) -> list[dict[str, Any]]:
        return [span for span in self.spans if span["name"] == name]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@contextmanager
def running_collector() -> Iterator[Collector]:
    collector = Collector()
    try:
        yield collector
    finally:
        collector.close()
