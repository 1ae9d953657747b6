#!/usr/bin/env python3
"""Sends HTTP requests; a poll emits the reply only if it has changed. See README.md."""

from __future__ import annotations

import sys

sys.path.insert(0, __file__.rpartition("/")[0] + "/../lib")
from protocol import ConfigError, Failure, Request, Response, serve
from settings import read_flag, read_integer, read_seconds, read_size, read_texts
from template import collect_values, has_placeholder, parse_placeholder, render, to_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from client import Client, Reply

AGENT = "ductile-fetch/1.0"
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
NOT_IDEMPOTENT = ("POST", "PATCH")
BUSY = (408, 425, 429)
NOTHING_DONE = (429, 503)
"""Statuses which mean that the server has not processed the request."""
RESERVE = 3.0
MAX_REMEMBERED = 200
SHORTEST_SECRET = 8
SHORTEST_SECRET_PART = 16
"""Shortest part of a URL's path that is redacted; shorter parts are usually words."""
PUBLIC_HEADERS = frozenset({"accept", "accept-encoding", "accept-language", "user-agent"})
"""Headers that may be sent to a host from an event."""
OWN_HEADERS = ("host", "content-length", "transfer-encoding", "connection", "accept-encoding")


class Resource:
    """The validated settings."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.method = str(config.get("method", "GET")).upper()
        if self.method not in METHODS:
            raise ConfigError(f"method must be one of {', '.join(METHODS)}")
        self.url = _read_url(config)
        self.name = config.get("name")
        if self.name is not None and not isinstance(self.name, str):
            raise ConfigError("name must be text")
        self.headers = _read_headers(config)
        self.credentials = config.get("bearer_token"), config.get("password")
        if parse_placeholder(self.url) and not PUBLIC_HEADERS.issuperset(
            map(str.lower, self.headers)
        ):
            raise ConfigError(
                "headers and credentials are not allowed if an event chooses the host"
            )
        self.body, self.json = config.get("body"), config.get("json")
        if self.body is not None and not isinstance(self.body, str):
            raise ConfigError("body must be text; use json for an object")
        if (self.body is not None or self.json is not None) and self.method == "GET":
            raise ConfigError("body and json are not allowed with GET")
        self.parse = config.get("parse", "auto")
        if self.parse not in ("auto", "json", "text"):
            raise ConfigError("parse must be auto, json or text")
        self.timeout = read_seconds(config, "timeout", 20.0, minimum=0.1, maximum=600)
        self.max_body = read_size(config, "max_body", 256 * 1024, minimum=1, maximum=4 << 20)
        self.redirects = read_integer(config, "max_redirects", 0, minimum=0, maximum=10)
        self.networks = _read_networks(config)
        self.plain = read_flag(config, "allow_plain")
        self.idempotent = read_flag(config, "idempotent", self.method not in NOT_IDEMPOTENT)
        self.ca_file = config.get("ca_file")

    @property
    def varies(self) -> bool:
        """Whether the URL has placeholders."""
        return has_placeholder(self.url)

    def client(self) -> Client:
        from client import Client

        return Client(
            networks=self.networks,
            plain=self.plain,
            max_body=self.max_body,
            max_redirects=self.redirects,
            ca_file=self.ca_file,
        )

    def identity(self, url: str) -> str:
        """Identifies the request; if it changes, the stored state is discarded."""
        return digest(self.method, url, sorted(self.headers.items()), self.json, self.body)


def digest(*parts: Any) -> str:
    import hashlib
    import json

    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


def _read_url(config: dict[str, Any]) -> str:
    url = config.get("url")
    if not isinstance(url, str):
        raise ConfigError("url must be text")
    if parse_placeholder(url) is None and has_placeholder("/".join(url.split("/")[:3])):
        raise ConfigError(
            "the host of the URL must not contain placeholders, unless the whole URL is one"
        )
    return url


def _read_headers(config: dict[str, Any]) -> dict[str, str]:
    headers = config.get("headers") or {}
    plain = isinstance(headers, dict) and all(
        isinstance(value, str | int) and str(value).isprintable() for value in headers.values()
    )
    if not plain or any(name.lower() in OWN_HEADERS for name in headers):
        raise ConfigError(
            f"headers must map names to printable values, without {', '.join(OWN_HEADERS)}"
        )
    sent = {"User-Agent": AGENT, "Accept": "*/*", **{k: str(v) for k, v in headers.items()}}
    token, username = config.get("bearer_token"), config.get("username")
    if token is not None:
        sent["Authorization"] = f"Bearer {token}"
    elif username is not None:
        from base64 import b64encode

        pair = f"{username}:{config.get('password') or ''}".encode()
        sent["Authorization"] = f"Basic {b64encode(pair).decode()}"
    return {**sent, "Accept-Encoding": "identity"}


def _read_networks(config: dict[str, Any]) -> list[str]:
    from ipaddress import ip_network

    found = read_texts(config, "allowed_networks")
    for text in found:
        try:
            ip_network(text)
        except ValueError:
            raise ConfigError(f"allowed_networks: {text!r} is not a valid network") from None
    return found


def poll(request: Request) -> Response:
    resource = Resource(request.config)
    if resource.method != "GET":
        return send_and_emit(request, resource, resource.url)
    if resource.varies:
        raise ConfigError("a URL with placeholders can only be used by `handle`")
    known = request.state.get("resource")
    known = known if isinstance(known, dict) else {}
    identity = resource.identity(resource.url)
    if known.get("identity") != identity:
        known = {}
    asked = {
        "If-None-Match": known.get("etag"),
        "If-Modified-Since": None if known.get("etag") else known.get("last_modified"),
    }
    headers = {**resource.headers, **{k: v for k, v in asked.items() if v}}
    reply = send_request(request, resource, resource.url, headers, None)
    if reply.status == 304:
        return Response("unchanged")
    payload = build_payload(resource, resource.url, reply)
    remembered = {
        "identity": identity,
        "etag": reply.header("etag"),
        "last_modified": reply.header("last-modified"),
        "sha256": payload["sha256"],
    }
    response = Response("unchanged", state={"resource": remembered})
    if known.get("sha256") != payload["sha256"]:
        response.result = f"changed: {payload['size']} bytes"
        response.emit("fetch.changed", payload)
    return response


def handle(request: Request) -> Response:
    resource = Resource(request.config)
    return send_and_emit(request, resource, fill_url(request, resource))


def fill_url(request: Request, resource: Resource) -> str:
    """The URL with values of the event, each quoted as one path segment or query value."""
    from urllib.parse import quote

    def segment(value: Any) -> str:
        text = to_text(value)
        if text in (".", ".."):
            raise Failure("a value of the event must not be . or .. in the URL", retry=False)
        return quote(text, safe="")

    scope = collect_values(request)
    if parse_placeholder(resource.url):
        return render(resource.url, scope)
    return render(resource.url, scope, segment)


def send_and_emit(request: Request, resource: Resource, url: str) -> Response:
    """Send the request and emit the reply, whether it has changed or not."""
    done = request.state.get("done")
    done = [one for one in done if isinstance(one, str)] if isinstance(done, list) else []
    if request.job_id in done:
        return Response("skipped: this job has already sent its request")
    body, kind = render_body(request, resource)
    headers = {**resource.headers, **({"Content-Type": kind} if kind else {})}
    if not resource.idempotent:
        headers.setdefault("Idempotency-Key", digest(request.job_id, url))
    reply = send_request(request, resource, url, headers, body)
    payload = build_payload(resource, url, reply)
    state = None if resource.idempotent else {"done": [*done, request.job_id][-MAX_REMEMBERED:]}
    response = Response(f"{resource.method}: {reply.status}", state=state)
    response.emit("fetch.done", payload, key=f"fetch:{request.job_id}")
    return response


def render_body(request: Request, resource: Resource) -> tuple[bytes | None, str | None]:
    scope = collect_values(request)
    if resource.json is not None:
        import json

        def fill(value: Any) -> Any:
            if isinstance(value, dict):
                return {key: fill(item) for key, item in value.items()}
            if isinstance(value, list):
                return [fill(item) for item in value]
            return render(value, scope) if isinstance(value, str) else value

        return json.dumps(fill(resource.json)).encode(), "application/json; charset=utf-8"
    if resource.body is not None:
        return render(resource.body, scope).encode("utf-8", "replace"), "text/plain; charset=utf-8"
    return None if resource.method == "GET" else b"", None


def send_request(
    request: Request, resource: Resource, url: str, headers: dict[str, str], body: bytes | None
) -> Reply:
    """The reply of a successful request. Raises `Failure`."""
    from client import ExchangeError

    limit = min(resource.timeout, request.remaining() - RESERVE)
    if limit <= 0:
        raise Failure("there is no time left for the request")
    try:
        reply = resource.client().exchange(resource.method, url, headers, body, limit)
    except ExchangeError as error:
        if error.sent and not resource.idempotent:
            reason = f"{error}; it is not sent again, because the server may have processed it"
            raise Failure(reason, retry=False) from None
        raise
    conditional = "If-None-Match" in headers or "If-Modified-Since" in headers
    if 200 <= reply.status < 300 or (reply.status == 304 and conditional):
        return reply
    again = reply.status in BUSY or reply.status >= 500
    if not resource.idempotent:
        again = reply.status in NOTHING_DONE
    wait = reply.header("retry-after")
    asked = f" and asks to wait for {wait} s" if wait and wait.isdecimal() else ""
    details = quote_body(resource, url, reply)
    raise Failure(f"the server returned status {reply.status}{asked}", retry=again, details=details)


def quote_body(resource: Resource, url: str, reply: Reply) -> str:
    """The start of a body without secrets of the request."""
    from urllib.parse import parse_qsl, urlsplit

    from redact import quote_start

    address = urlsplit(url)
    secrets = {text for text in address.path.split("/") if len(text) >= SHORTEST_SECRET_PART}
    secrets |= {value for _, value in parse_qsl(address.query)}
    for name, value in resource.headers.items():
        if name.lower() not in PUBLIC_HEADERS:
            secrets |= {value, value.rpartition(" ")[2]}
    secrets |= {text for text in resource.credentials if isinstance(text, str)}
    return quote_start(reply.body, [one for one in secrets if len(one) >= SHORTEST_SECRET])


def build_payload(resource: Resource, url: str, reply: Reply) -> dict[str, Any]:
    """The payload of the event; it has only the host of the URL, the rest may be secret."""
    import hashlib
    from urllib.parse import urlsplit

    payload: dict[str, Any] = {
        "name": resource.name,
        "host": urlsplit(url).netloc,
        "status": reply.status,
        "content_type": reply.header("content-type"),
        "etag": reply.header("etag"),
        "last_modified": reply.header("last-modified"),
        "sha256": hashlib.sha256(reply.body).hexdigest(),
        "size": len(reply.body),
    }
    kind, _, parameters = (payload["content_type"] or "").lower().partition(";")
    as_json = resource.parse == "json" or (
        resource.parse == "auto" and (kind.strip().endswith(("/json", "+json")))
    )
    if as_json and reply.body:
        return {**payload, "json": _parse_body(resource, url, reply)}
    return {**payload, **_decode_body(reply.body, parameters)}


def _parse_body(resource: Resource, url: str, reply: Reply) -> Any:
    from strict_json import parse

    try:
        return parse(reply.body)
    except ValueError as error:
        details = quote_body(resource, url, reply)
        raise Failure(f"the body is not valid JSON: {error}", details=details) from None


def _decode_body(body: bytes, parameters: str) -> dict[str, str]:
    charset = parameters.partition("charset=")[2].partition(";")[0].strip(" \"'") or "utf-8"
    try:
        return {"body": body.decode(charset)}
    except (LookupError, ValueError):
        from base64 import b64encode

        return {"body_base64": b64encode(body).decode()}


def health(request: Request) -> Response:
    import ssrf

    resource = Resource(request.config)
    if not resource.varies:
        try:
            ssrf.parse_url(resource.url, resource.networks)
        except ssrf.Forbidden as error:
            raise ConfigError(str(error)) from None
    return Response("the configuration is valid")


if __name__ == "__main__":
    serve({"poll": poll, "handle": handle, "health": health})
