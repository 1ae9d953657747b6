"""A gateway elsewhere: HTTP to its API, with a token."""

from __future__ import annotations

from http.client import HTTPConnection, HTTPSConnection
from urllib.parse import urlsplit

from ductile.cli.client import ANSWER_WITHIN, Client
from ductile.errors import UsageError


class Remote(Client):
    def __init__(self, url: str, token: str | None) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError(
                f"{url!r} is not a valid gateway URL; use http://HOST:PORT or https://HOST"
            )
        try:
            self._port = parts.port
        except ValueError:
            raise UsageError(f"{url!r} has an invalid port") from None
        super().__init__(f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}")
        self._host, self._secure = parts.hostname, parts.scheme == "https"
        self.headers = {"Content-Type": "application/json"}
        if token is not None:
            if not token.isascii() or not token.isprintable():
                raise UsageError("the token must be printable ASCII text")
            self.headers["Authorization"] = f"Bearer {token}"

    def connect(self) -> HTTPConnection:
        kind = HTTPSConnection if self._secure else HTTPConnection
        return kind(self._host, self._port, timeout=ANSWER_WITHIN)
