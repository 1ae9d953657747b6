"""What a request says of where it comes from: Host, Origin, peer, bearer token."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import lru_cache
from ipaddress import ip_address
from typing import Any

from ductile.errors import DuctileError
from ductile.record import dataclass

AsgiScope = Any
"""What an ASGI server tells of a request; a token's scopes are something else."""
PRINCIPAL = "ductile.principal"
"""Where the ASGI scope says who was let in."""
UNKNOWN = "ductile.unknown"
"""Where it keeps the reason for which nobody can say whose token it is."""
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})


class Misdirected(DuctileError):
    code = "wrong_host"
    http_status = 421


class ForeignOrigin(DuctileError):
    code = "foreign_origin"
    http_status = 403


class Unauthorized(DuctileError):
    code = "unauthorized"
    http_status = 401


def stranger(scope: AsgiScope) -> DuctileError:
    """Why somebody without a good token is sent away."""
    unknown: DuctileError | None = scope.get(UNKNOWN)
    return unknown or Unauthorized("a good bearer token is needed")


@dataclass(frozen=True, slots=True)
class RequestIdentity:
    """The headers that decide whether somebody may come in; None is absent or doubled."""

    host: str | None
    origin: str | None
    token: str | None


def read(headers: Iterable[tuple[bytes, bytes]]) -> RequestIdentity:
    host = origin = token = None
    hosts = origins = tokens = 0
    for name, value in headers:
        if name == b"host":
            host, hosts = value.decode("latin-1"), hosts + 1
        elif name == b"origin":
            origin, origins = value.decode("latin-1"), origins + 1
        elif name == b"authorization":
            token, tokens = _bearer(value), tokens + 1
    return RequestIdentity(
        host if hosts == 1 else None,
        origin if origins <= 1 else "",
        token if tokens == 1 else None,
    )


def _bearer(value: bytes) -> str | None:
    scheme, _, token = value.decode("latin-1").strip().partition(" ")
    return token.strip() or None if scheme.lower() == "bearer" else None


def check_host(
    knock: RequestIdentity, scope: AsgiScope, listen: str, allowed: Collection[str]
) -> None:
    """`Misdirected` unless the Host is our own address or one that the config names.

    A page on a name of its own that resolves to us sends that name: it is refused.
    """
    name = _host_name(knock.host or "")
    server = scope.get("server") or ("", 0)
    own = {listen, str(server[0])} - {"0.0.0.0", "::", ""}
    if is_loopback(str(server[0])):
        own |= LOOPBACK_NAMES
    if not name or not (name in own or _listed(name, allowed)):
        raise Misdirected("this is not the host you are looking for; see allowed_hosts")


def _host_name(host: str) -> str:
    """Without the port, the brackets and the final dot."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].rstrip(".").lower()


def _listed(name: str, allowed: Collection[str]) -> bool:
    for entry in map(str.lower, allowed):
        if entry == "*" or _host_name(entry) == name:
            return True
        if entry.startswith("*.") and name.endswith(entry[1:]):
            return True
    return False


def check_origin(knock: RequestIdentity, allowed: Collection[str]) -> bool:
    """`ForeignOrigin` for another site's page; whether it is one that the config names."""
    if knock.origin is None:
        return False
    if knock.origin in allowed or (knock.origin and "*" in allowed):
        return True
    scheme, _, place = knock.origin.partition("://")
    if scheme in ("http", "https") and place and place.lower() == (knock.host or "").lower():
        return False
    raise ForeignOrigin("pages of other origins may not call this; see allowed_origins")


@lru_cache(maxsize=1024)
def is_loopback(address: str) -> bool:
    try:
        found = ip_address(address)
    except ValueError:
        return False
    mapped = getattr(found, "ipv4_mapped", None)
    return (mapped or found).is_loopback


def is_near(scope: AsgiScope) -> bool:
    """Whether the peer is on this machine."""
    client = scope.get("client")
    return client is None or is_loopback(str(client[0]))
