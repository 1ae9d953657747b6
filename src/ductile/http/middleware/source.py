"""Where a request comes from: its Host, its Origin, its address, and the headers of its caller."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from typing import Any

from ductile._fast_dataclass import dataclass
from ductile.errors import DuctileError

LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
HOST = re.compile(r"(?:\[(?P<address>[^\]%]+)\]|(?P<name>[A-Za-z0-9._-]+))(?::[0-9]{0,5})?")
UI_HEADER = b"x-ductile-ui"
"""Pages of other sites cannot send this header without the gateway's permission."""
SECURE_SESSION_COOKIE = "__Host-ductile_session"
"""The session's cookie over TLS, where browsers bind the prefix to the host."""


class WrongHost(DuctileError):
    code = "wrong_host"
    http_status = 421


class ForeignOrigin(DuctileError):
    code = "foreign_origin"
    http_status = 403


class CrossSiteRequest(DuctileError):
    code = "cross_site_request"
    http_status = 403


@dataclass(frozen=True, slots=True)
class RequestIdentity:
    """The headers that access depends on; None if a header is absent or repeated."""

    host: str | None
    origin: str | None
    """A repeated Origin is the empty string, which no configuration allows."""
    token: str | None
    has_authorization: bool = False
    """Whether there is any Authorization header: it rules the session cookie out."""
    cookies: bytes = b""

    def session_cookies(self, names: Collection[str]) -> list[str]:
        """The cookies of these names, if there is no Authorization header.

        A browser that used the page over HTTP and TLS has both; a repeated name is void.
        """
        if self.has_authorization or not self.cookies:
            return []
        found: dict[str, list[str]] = {name: [] for name in names}
        for part in self.cookies.decode("latin-1").split(";"):
            name, _, value = part.strip().partition("=")
            if name in found:
                found[name].append(value)
        return [values[0] for values in found.values() if len(values) == 1 and values[0]]


def read_identity(headers: Iterable[tuple[bytes, bytes]]) -> RequestIdentity:
    host = origin = token = None
    hosts = origins = tokens = 0
    cookies = b""
    for name, value in headers:
        if name == b"host":
            host, hosts = value.decode("latin-1"), hosts + 1
        elif name == b"origin":
            origin, origins = value.decode("latin-1"), origins + 1
        elif name == b"authorization":
            token, tokens = _bearer_token(value), tokens + 1
        elif name == b"cookie":
            cookies = cookies + b";" + value if cookies else value
    return RequestIdentity(
        host if hosts == 1 else None,
        origin if origins <= 1 else "",
        token if tokens == 1 else None,
        tokens > 0,
        cookies,
    )


def _bearer_token(value: bytes) -> str | None:
    scheme, _, token = value.decode("latin-1").strip().partition(" ")
    return token.strip() or None if scheme.lower() == "bearer" else None


def plain_session_cookie(scope: Any) -> str:
    """Return the name of the session's cookie over HTTP.

    It contains the listener's port, because the gateways of one host share its cookies.
    """
    _, port = scope.get("server") or ("", 0)
    return f"ductile_session_{port}"


def check_same_site(scope: Any) -> None:
    """Raise `CrossSiteRequest` unless the dashboard's own page sends the request."""
    headers = scope["headers"]
    identity = read_identity(headers)
    own = {f"{scheme}://{(identity.host or '').lower()}" for scheme in ("http", "https")}
    if identity.origin is None or identity.origin.lower() not in own:
        raise CrossSiteRequest("this request must come from the gateway's own page")
    if [value for name, value in headers if name == UI_HEADER] != [b"1"]:
        raise CrossSiteRequest("this request must have the header X-Ductile-UI: 1")


def check_host(
    identity: RequestIdentity, scope: Any, listen: str, allowed: Collection[str]
) -> None:
    """Raise `WrongHost` unless the Host is the listener's own address or an allowed one.

    This stops DNS rebinding: a page whose own name resolves to this address sends that name.
    """
    name = _host_name(identity.host or "")
    server = scope.get("server") or ("", 0)
    own = {listen, str(server[0])} - {"0.0.0.0", "::", ""}
    if is_loopback(str(server[0])):
        own |= LOOPBACK_NAMES
    if not name or not (name in own or _is_listed(name, allowed)):
        raise WrongHost("this gateway does not serve the requested host; see allowed_hosts")


@lru_cache(maxsize=1024)
def _host_name(host: str) -> str:
    """Return the name without port, brackets and final dot; empty if the syntax is not valid."""
    found = HOST.fullmatch(host)
    if found is None:
        return ""
    if found["name"] is not None:
        return found["name"].rstrip(".").lower()
    try:
        return str(IPv6Address(found["address"]))
    except ValueError:
        return ""


def _is_listed(name: str, allowed: Collection[str]) -> bool:
    for entry in map(str.lower, allowed):
        if entry == "*" or _host_name(entry) == name:
            return True
        if entry.startswith("*.") and name.endswith(entry[1:]):
            return True
    return False


def check_origin(identity: RequestIdentity, allowed: Collection[str]) -> bool:
    """Return whether the request is from a page of an allowed origin.

    Raises `ForeignOrigin` for a page of any other origin but the listener's own.
    """
    if identity.origin is None:
        return False
    if identity.origin in allowed or (identity.origin and "*" in allowed):
        return True
    scheme, _, place = identity.origin.partition("://")
    if scheme in ("http", "https") and place and place.lower() == (identity.host or "").lower():
        return False
    raise ForeignOrigin("pages of this origin may not call the gateway; see allowed_origins")


@lru_cache(maxsize=1024)
def is_loopback(address: str) -> bool:
    try:
        found = ip_address(address)
    except ValueError:
        return False
    mapped = getattr(found, "ipv4_mapped", None)
    return (mapped or found).is_loopback


def is_from_this_machine(scope: Any) -> bool:
    client = scope.get("client")
    return client is None or is_loopback(str(client[0]))
