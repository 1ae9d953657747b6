"""SSRF protection: which URLs and addresses a request may go to.

Allowed are globally routable unicast addresses, and the networks that the operator allows. A host
is a name or a canonical address literal; every other spelling of an address is refused. This file
imports only the standard library, because plugins contain a copy of it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import (
    AddressValueError,
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_network,
)

PORTS = {"http": 80, "https": 443}
LONGEST_URL = 8192
LONGEST_HOST = 253

NOT_PUBLIC_4 = tuple(
    map(
        IPv4Network,
        (
            "0.0.0.0/8",  # this network
            "10.0.0.0/8",
            "100.64.0.0/10",  # shared by a provider's customers
            "127.0.0.0/8",
            "169.254.0.0/16",  # link-local; metadata services of clouds
            "172.16.0.0/12",
            "192.0.0.0/24",  # protocol assignments
            "192.0.2.0/24",  # documentation
            "192.88.99.0/24",  # relays of 6to4
            "192.168.0.0/16",
            "198.18.0.0/15",  # benchmarks
            "198.51.100.0/24",  # documentation
            "203.0.113.0/24",  # documentation
            "224.0.0.0/4",  # multicast
            "240.0.0.0/4",  # reserved, and broadcast
        ),
    )
)
PUBLIC_6 = IPv6Network("2000::/3")
"""Outside of it are loopback, IPv4 in IPv6, NAT64, discard, unique local, link-local, site-local,
multicast and unassigned addresses."""
NOT_PUBLIC_6 = tuple(
    map(
        IPv6Network,
        (
            "2001::/23",  # protocol assignments: Teredo, ORCHID, benchmarks
            "2001:db8::/32",  # documentation
            "2002::/16",  # 6to4: an IPv4 address inside
            "3fff::/20",  # documentation
        ),
    )
)
LOCAL_NAMES = frozenset(
    {"localhost", "localdomain", "local", "internal", "intranet", "lan", "home"}
)
"""Last labels of names that refer to this machine or its local network."""
LOCAL_HOSTS = frozenset({"ip6-localhost", "ip6-loopback", "ip6-localnet", "broadcasthost"})

_URL = re.compile(
    r"(https?)://(\[[0-9a-f:.]{2,45}\]|[a-z0-9_.-]{1,253})(?::([0-9]{1,5}))?"
    r"([/?][!$-\[\]-~]*)?",
    re.IGNORECASE | re.ASCII,
)
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?", re.ASCII)
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*", re.ASCII)

Address = IPv4Address | IPv6Address


class Forbidden(ValueError):
    """The request is refused; the text gives the reason without revealing the address."""


@dataclass(frozen=True, slots=True)
class ParsedUrl:
    """The parts of an allowed URL."""

    secure: bool
    host: str
    """A name in lower case, or an address without brackets."""
    port: int
    path: str
    """With the query, as in the request line."""
    literal: bool
    """Whether the host is an address, so that no DNS lookup is needed."""

    @property
    def authority(self) -> str:
        """The value of the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        usual = PORTS["https" if self.secure else "http"]
        return host if self.port == usual else f"{host}:{self.port}"


def parse_url(url: str, networks: Sequence[str] = ()) -> ParsedUrl:
    """The parts of a URL; `Forbidden` unless it is a plain http(s) URL of another host.

    Names of this machine or its local network are allowed only if `networks` is not empty.
    """
    found = _URL.fullmatch(url) if len(url) <= LONGEST_URL else None
    if found is None:
        raise Forbidden("the URL is not http(s)://HOST[:PORT]/PATH in plain ASCII")
    scheme, host, port, path = found.groups()
    scheme, host = scheme.lower(), host.lower()
    number = int(port) if port else PORTS[scheme]
    if not 0 < number < 65536:
        raise Forbidden("the URL's port is out of range")
    address = _parse_literal(host)
    if address is None:
        _check_name(host, local=bool(networks))
    place = path or "/"
    return ParsedUrl(
        secure=scheme == "https",
        host=host if address is None else str(address),
        port=number,
        path=place if place.startswith("/") else f"/{place}",
        literal=address is not None,
    )


def _parse_literal(host: str) -> Address | None:
    """The address if the host is one; None if it is a name."""
    try:
        if host.startswith("["):
            return IPv6Address(host[1:-1])
        last = host.rpartition(".")[2]
        return IPv4Address(host) if _NUMBER.fullmatch(last) or not last else None
    except AddressValueError:
        raise Forbidden("the URL's host is not a canonical address or a name") from None


def _check_name(host: str, *, local: bool) -> None:
    labels = host.split(".")
    if len(host) > LONGEST_HOST or not all(_LABEL.fullmatch(label) for label in labels):
        raise Forbidden("the URL's host is not a valid name")
    own = labels[-1] in LOCAL_NAMES or labels[-2:] == ["home", "arpa"] or host in LOCAL_HOSTS
    if own and not local:
        raise Forbidden("the URL's host is a name of this machine or its local network")


def check_addresses(
    target: ParsedUrl,
    addresses: Sequence[str],
    networks: Sequence[str] = (),
    *,
    plain: bool = False,
    setting: str = "gateway.allowed_networks",
) -> tuple[str, ...]:
    """The addresses of the target's host, all of which are allowed.

    One forbidden address makes the whole target `Forbidden`: its name server is not trustworthy.
    Without TLS only addresses in `networks` are allowed, unless `plain` is set. `setting` names
    where the operator lists the networks.
    """
    if not addresses:
        raise Forbidden("the URL's host has no address")
    for address in addresses:
        if not is_allowed(address, networks):
            raise Forbidden(
                "the URL's host has a forbidden address: "
                f"it is not public, and not in a network of {setting}"
            )
        if not (target.secure or plain or _is_in(_parse_address(address), networks)):
            raise Forbidden(f"without TLS (http:) only addresses in {setting} are allowed")
    return tuple(addresses)


def is_allowed(address: str, networks: Sequence[str] = ()) -> bool:
    """Whether the address is public or in one of `networks`."""
    parsed = _parse_address(address)
    return parsed is not None and (_is_public(parsed) or _is_in(parsed, networks))


def _parse_address(address: str) -> Address | None:
    try:
        return IPv6Address(address) if ":" in address else IPv4Address(address)
    except AddressValueError:
        return None


def _is_public(address: Address) -> bool:
    if isinstance(address, IPv4Address):
        return not any(address in network for network in NOT_PUBLIC_4)
    if address.scope_id is not None or address not in PUBLIC_6:
        return False
    return not any(address in network for network in NOT_PUBLIC_6)


def _is_in(address: Address | None, networks: Sequence[str]) -> bool:
    """An address with a scope (an interface) is in no network."""
    if address is None or getattr(address, "scope_id", None) is not None:
        return False
    return any(address in _parse_network(text) for text in networks)


@lru_cache(256)
def _parse_network(text: str) -> IPv4Network | IPv6Network:
    return ip_network(text)
