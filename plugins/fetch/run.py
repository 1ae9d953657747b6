#!/usr/bin/env python3
"""Gets a resource over HTTP; a poll emits it only when it has changed. See README.md."""

from __future__ import annotations

import sys

sys.path.insert(0, __file__.rpartition("/")[0] + "/../lib")
from protocol import Answer, Failure, Misconfigured, Request, serve
from quantities import flag, seconds, size, texts, whole
from template import as_text, has_place, render, scope_of, whole_place

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from client import Client, Reply

AGENT = "ductile-fetch/1.0"
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
NOT_IDEMPOTENT = ("POST", "PATCH")
BUSY = (408, 425, 429)
NOTHING_DONE = (429, 503)
"""Statuses by which a server says that it has not acted on the request."""
RESERVE = 3.0
REMEMBERED = 200
SHORTEST_SECRET = 8
SHORTEST_SECRET_PART = 16
"""Of a URL's path: most of its parts are words, some are keys."""
SHOWN_TO_ANYBODY = frozenset({"accept", "accept-encoding", "accept-language", "user-agent"})
"""Headers that may go to a host that an event names."""
OWN_HEADERS = ("host", "content-length", "transfer-encoding", "connection", "accept-encoding")


class Resource:
    """What the config says, checked."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.method = str(config.get("method", "GET")).upper()
        if self.method not in METHODS:
            raise Misconfigured(f"method must be one of {', '.join(METHODS)}")
        self.url = _url(config)
        self.name = config.get("name")
        if self.name is not None and not isinstance(self.name, str):
            raise Misconfigured("name must be text")
        self.headers = _headers(config)
        self.credentials = config.get("bearer_token"), config.get("password")
        if whole_place(self.url) and not SHOWN_TO_ANYBODY.issuperset(map(str.lower, self.headers)):
            raise Misconfigured("headers and credentials need a host that is written out")
        self.body, self.json = config.get("body"), config.get("json")
        if self.body is not None and not isinstance(self.body, str):
            raise Misconfigured("body must be text; an object goes under json")
        if (self.body is not None or self.json is not None) and self.method == "GET":
            raise Misconfigured("GET takes no body")
        self.parse = config.get("parse", "auto")
        if self.parse not in ("auto", "json", "text"):
            raise Misconfigured("parse must be auto, json or text")
        self.timeout = seconds(config, "timeout", 20.0, least=0.1, most=600)
        self.max_body = size(config, "max_body", 256 * 1024, least=1, most=4 << 20)
        self.redirects = whole(config, "max_redirects", 0, least=0, most=10)
        self.networks = _networks(config)
        self.plain = flag(config, "allow_plain")
        self.idempotent = flag(config, "idempotent", self.method not in NOT_IDEMPOTENT)
        self.ca_file = config.get("ca_file")

    @property
    def varies(self) -> bool:
        """Whether an event's values are part of the URL."""
        return has_place(self.url)

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
        """Changes when what is asked for does; what was remembered is then forgotten."""
        return digest(self.method, url, sorted(self.headers.items()), self.json, self.body)


def digest(*parts: Any) -> str:
    import hashlib
    import json

    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


def _url(config: dict[str, Any]) -> str:
    url = config.get("url")
    if not isinstance(url, str):
        raise Misconfigured("url must be text")
    if whole_place(url) is None and has_place("/".join(url.split("/")[:3])):
        raise Misconfigured("the URL's host must be written out, or the whole URL be one place")
    return url


def _headers(config: dict[str, Any]) -> dict[str, str]:
    headers = config.get("headers") or {}
    plain = isinstance(headers, dict) and all(
        isinstance(value, str | int) and str(value).isprintable() for value in headers.values()
    )
    if not plain or any(name.lower() in OWN_HEADERS for name in headers):
        raise Misconfigured(f"headers must be names and values, and none of {OWN_HEADERS}")
    sent = {"User-Agent": AGENT, "Accept": "*/*", **{k: str(v) for k, v in headers.items()}}
    token, username = config.get("bearer_token"), config.get("username")
    if token is not None:
        sent["Authorization"] = f"Bearer {token}"
    elif username is not None:
        from base64 import b64encode

        pair = f"{username}:{config.get('password') or ''}".encode()
        sent["Authorization"] = f"Basic {b64encode(pair).decode()}"
    return {**sent, "Accept-Encoding": "identity"}


def _networks(config: dict[str, Any]) -> list[str]:
    from ipaddress import ip_network

    found = texts(config, "allowed_networks")
    for text in found:
        try:
            ip_network(text)
        except ValueError:
            raise Misconfigured(f"allowed_networks: {text!r} is no network") from None
    return found


def poll(request: Request) -> Answer:
    resource = Resource(request.config)
    if resource.method != "GET":
        return act(request, resource, resource.url)
    if resource.varies:
        raise Misconfigured("a URL with {payload...} in it can only be fetched for an event")
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
    reply = ask(request, resource, resource.url, headers, None)
    if reply.status == 304:
        return Answer("unchanged")
    payload = told(resource, resource.url, reply)
    remembered = {
        "identity": identity,
        "etag": reply.header("etag"),
        "last_modified": reply.header("last-modified"),
        "sha256": payload["sha256"],
    }
    answer = Answer("unchanged", state={"resource": remembered})
    if known.get("sha256") != payload["sha256"]:
        answer.result = f"changed: {payload['size']} bytes"
        answer.emit("fetch.changed", payload)
    return answer


def handle(request: Request) -> Answer:
    resource = Resource(request.config)
    return act(request, resource, filled(request, resource))


def filled(request: Request, resource: Resource) -> str:
    """The URL with the event's values in it: each one segment or value, whatever it holds."""
    from urllib.parse import quote

    def segment(value: Any) -> str:
        text = as_text(value)
        if text in (".", ".."):
            raise Failure(
                "a value of the event would lead out of its place in the URL", retry=False
            )
        return quote(text, safe="")

    scope = scope_of(request)
    if whole_place(resource.url):
        return render(resource.url, scope)
    return render(resource.url, scope, segment)


def act(request: Request, resource: Resource, url: str) -> Answer:
    """Make the request for its own sake, and tell what came of it."""
    done = request.state.get("done")
    done = [one for one in done if isinstance(one, str)] if isinstance(done, list) else []
    if request.job_id in done:
        return Answer("this job made its request already")
    body, kind = content(request, resource)
    headers = {**resource.headers, **({"Content-Type": kind} if kind else {})}
    if not resource.idempotent:
        headers.setdefault("Idempotency-Key", digest(request.job_id, url))
    reply = ask(request, resource, url, headers, body)
    payload = told(resource, url, reply)
    state = None if resource.idempotent else {"done": [*done, request.job_id][-REMEMBERED:]}
    answer = Answer(f"{resource.method}: {reply.status}", state=state)
    answer.emit("fetch.done", payload, key=f"fetch:{request.job_id}")
    return answer


def content(request: Request, resource: Resource) -> tuple[bytes | None, str | None]:
    scope = scope_of(request)
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


def ask(
    request: Request, resource: Resource, url: str, headers: dict[str, str], body: bytes | None
) -> Reply:
    """The reply of a request that went well. Raises `Failure`, to be retried or not."""
    from client import Trouble

    limit = min(resource.timeout, request.remaining() - RESERVE)
    if limit <= 0:
        raise Failure("no time is left for the request")
    try:
        reply = resource.client().exchange(resource.method, url, headers, body, limit)
    except Trouble as trouble:
        if trouble.sent and not resource.idempotent:
            reason = f"{trouble}; it may have been acted on, so it is not sent again"
            raise Failure(reason, retry=False) from None
        raise
    conditional = "If-None-Match" in headers or "If-Modified-Since" in headers
    if 200 <= reply.status < 300 or (reply.status == 304 and conditional):
        return reply
    again = reply.status in BUSY or reply.status >= 500
    if not resource.idempotent:
        again = reply.status in NOTHING_DONE
    wait = reply.header("retry-after")
    asked = f", asking us to wait {wait} s" if wait and wait.isdecimal() else ""
    said = quoted(resource, url, reply)
    raise Failure(f"the server answered {reply.status}{asked}", retry=again, said=said)


def quoted(resource: Resource, url: str, reply: Reply) -> str:
    """The beginning of a body, without what only the server and we should know."""
    from urllib.parse import parse_qsl, urlsplit

    from quoting import excerpt

    address = urlsplit(url)
    secrets = {text for text in address.path.split("/") if len(text) >= SHORTEST_SECRET_PART}
    secrets |= {value for _, value in parse_qsl(address.query)}
    for name, value in resource.headers.items():
        if name.lower() not in SHOWN_TO_ANYBODY:
            secrets |= {value, value.rpartition(" ")[2]}
    secrets |= {text for text in resource.credentials if isinstance(text, str)}
    return excerpt(reply.body, [one for one in secrets if len(one) >= SHORTEST_SECRET])


def told(resource: Resource, url: str, reply: Reply) -> dict[str, Any]:
    """The payload of the event. Of the URL only the host is told: the rest may be secret."""
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
        return {**payload, "json": _parsed(resource, url, reply)}
    return {**payload, **_readable(reply.body, parameters)}


def _parsed(resource: Resource, url: str, reply: Reply) -> Any:
    from document import parse

    try:
        return parse(reply.body)
    except ValueError as error:
        said = quoted(resource, url, reply)
        raise Failure(f"the server answered with broken JSON: {error}", said=said) from None


def _readable(body: bytes, parameters: str) -> dict[str, str]:
    charset = parameters.partition("charset=")[2].partition(";")[0].strip(" \"'") or "utf-8"
    try:
        return {"body": body.decode(charset)}
    except (LookupError, ValueError):
        from base64 import b64encode

        return {"body_base64": b64encode(body).decode()}


def health(request: Request) -> Answer:
    import address

    resource = Resource(request.config)
    if not resource.varies:
        try:
            address.parse_url(resource.url, resource.networks)
        except address.Forbidden as error:
            raise Misconfigured(str(error)) from None
    return Answer("the configuration is good")


if __name__ == "__main__":
    serve({"poll": poll, "handle": handle, "health": health})
