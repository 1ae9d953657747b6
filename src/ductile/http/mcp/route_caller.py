"""How a tool reaches the gateway: by the rows of the route table, as any other caller."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, MutableMapping
from typing import Any, Protocol
from urllib.parse import quote, unquote, urlencode

from starlette.requests import Request

from ductile._fast_dataclass import dataclass
from ductile.errors import DuctileError, UsageError
from ductile.http.middleware.auth import PRINCIPAL, SESSION
from ductile.http.middleware.caller import PEER_UID

KEPT_HEADERS = frozenset({b"authorization", b"cookie", b"host", b"origin", b"x-ductile-ui"})
"""Headers of the caller that its inner requests have too: access is checked again after a wait."""
KEPT_SCOPE = ("asgi", "http_version", "scheme", "client", "server", PRINCIPAL, SESSION, PEER_UID)
Message = MutableMapping[str, Any]


class RouteError(DuctileError):
    """An error response of a route."""

    def __init__(self, status: int, body: Mapping[str, Any]) -> None:
        text = body.get("error") or body.get("detail") or body.get("reason") or "refused"
        known = ("error", "code", "status", "reason", "detail")
        super().__init__(str(text), **{k: v for k, v in body.items() if k not in known})
        self.code = str(body.get("code") or body.get("reason") or "error")
        self.http_status = status


@dataclass(frozen=True, slots=True)
class RouteRequest:
    method: str
    template: str
    """A path of the route table: `/job/{job_id}`."""
    path: str
    query: str
    body: bytes
    headers: Mapping[str, str]

    @property
    def target(self) -> str:
        return f"{self.path}?{self.query}" if self.query else self.path


def route_request(
    method: str,
    template: str,
    params: Mapping[str, str],
    query: Mapping[str, Any],
    body: Mapping[str, Any] | None,
    key: str | None,
) -> RouteRequest:
    for name, value in params.items():
        # It must not lead to another route than the tool declares.
        if not value or "/" in value:
            fix = f"pass {name} as it is listed"
            raise UsageError(f"{name} must not be empty or contain a slash", fix=fix)
    parts = [
        quote(params[part[1:-1]], safe="") if part.startswith("{") else part
        for part in template.split("/")
    ]
    given = {name: _query_text(value) for name, value in query.items() if value is not None}
    headers = {"content-type": "application/json"}
    if key is not None:
        headers["idempotency-key"] = key
    raw = b"" if body is None else json.dumps(body).encode()
    return RouteRequest(method, template, "/".join(parts), urlencode(given), raw, headers)


def _query_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


class RouteCaller(Protocol):
    """Sends a request to a gateway, with the caller's own rights."""

    async def send(self, request: RouteRequest) -> tuple[int, bytes]: ...


def read_body(status: int, raw: bytes) -> dict[str, Any]:
    """Return the JSON object of a response; raises `RouteError`."""
    try:
        document = json.loads(raw)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise RouteError(status, {"error": f"the gateway returned status {status}"})
    if status >= 400:
        raise RouteError(status, document)
    return document


class InnerRequests:
    """Requests to the application that serves the caller, without leaving the process.

    The scope has the caller's identity, so that authentication, scopes, limits, audit log and
    redaction are those of the same request over HTTP.
    """

    def __init__(self, outer: Request) -> None:
        self._outer = outer

    async def send(self, request: RouteRequest) -> tuple[int, bytes]:
        outer = self._outer.scope
        headers = [(name, value) for name, value in outer["headers"] if name in KEPT_HEADERS]
        headers += [(name.encode(), value.encode()) for name, value in request.headers.items()]
        scope = {
            "type": "http",
            "method": request.method,
            "path": unquote(request.path),
            "raw_path": request.path.encode(),
            "root_path": "",
            "query_string": request.query.encode(),
            "headers": headers,
            **{key: outer[key] for key in KEPT_SCOPE if key in outer},
        }
        messages: list[Message] = [{"type": "http.request", "body": request.body}]
        sent: list[Message] = []

        async def receive() -> Message:
            return messages.pop() if messages else await asyncio.Future()

        async def send(message: Message) -> None:
            sent.append(message)

        await self._outer.app(scope, receive, send)
        return sent[0]["status"], b"".join(message.get("body", b"") for message in sent)
