"""A subscriber of `GET /events` over a real connection."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.http.harness import ADMIN, ApiHarness
from tests.waiting import WAIT_LIMIT


class Subscriber:
    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.response = response
        assert self.line() == ": following"
        self.start = self.line().removeprefix("id: ")
        assert self.line() == ""

    def line(self) -> str:
        return self.response.readline().decode().rstrip("\n")

    def rest(self) -> bytes:
        """The comments until the gateway ends the stream, which has to be without another event."""
        deadline = time.monotonic() + WAIT_LIMIT
        lines = []
        for line in iter(self.response.readline, b""):
            assert not line.startswith(b"event:"), "the stream continues with an event"
            assert time.monotonic() < deadline, "the stream does not end"
            lines.append(line)
        return b"".join(lines)

    def next(self) -> dict[str, Any]:
        """The next event, with its fields and its parsed data."""
        found: dict[str, Any] = {}
        while True:
            line = self.line()
            if not line and "data" in found:
                return {**found, "data": json.loads(found["data"])}
            name, _, value = line.partition(": ")
            found[name] = value


@contextmanager
def subscribed(
    api: ApiHarness, query: str = "", *, token: str | None = ADMIN, **headers: str
) -> Iterator[Subscriber]:
    connection = http.client.HTTPConnection(*api.address("api"), timeout=WAIT_LIMIT)
    sent = {} if token is None else {"Authorization": f"Bearer {token}"}
    sent |= {name.replace("_", "-"): value for name, value in headers.items()}
    try:
        connection.request("GET", f"/events{query}", headers=sent)
        response = connection.getresponse()
        assert response.status == 200, response.read()
        assert response.headers["content-type"].startswith("text/event-stream")
        yield Subscriber(response)
    finally:
        connection.close()
