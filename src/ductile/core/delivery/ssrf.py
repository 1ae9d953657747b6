"""May this address be connected to? What decides before anything is sent to a URL of others.

Only globally routable unicast addresses may be, and what the operator names besides. A host
is a name or one canonical literal: other spellings of an address are refused, not understood.
Standard library alone, and nothing of ours: plugins carry copies of this file.
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
"""Outside of it: loopback, IPv4 in IPv6, NAT64, discard, unique local, link- and site-local,
multicast, and what nobody has been given yet."""
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
"""Last labels of names that mean this machine or its own network."""
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
    """Nothing may be sent there; the text says why, and nothing of what is there."""


@dataclass(frozen=True, slots=True)
class Target:
    """A URL, taken apart in the one way that is allowed."""

    secure: bool
    host: str
    """A name in lower case, or an address without brackets."""
    port: int
    path: str
    """With the query; what stands in the request's first line."""
    literal: bool
    """Whether the host is an address: nothing has to be looked up."""

    @property
    def authority(self) -> str:
        """As the Host header has it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        usual = PORTS["https" if self.secure else "http"]
        return host if self.port == usual else f"{host}:{self.port}"


def parse(url: str, networks: Sequence[str] = ()) -> Target:
    """The target of a URL; `Forbidden` for what is no plain http(s) URL of a host elsewhere.

    Names of this machine or its own network are looked up only where `networks` allows any.
    """
    found = _URL.fullmatch(url) if len(url) <= LONGEST_URL else None
    if found is None:
        raise Forbidden("the URL is not http(s)://HOST[:PORT]/PATH in plain ASCII")
    scheme, host, port, path = found.groups()
    scheme, host = scheme.lower(), host.lower()
    number = int(port) if port else PORTS[scheme]
    if not 0 < number < 65536:
        raise Forbidden("the URL's port is out of range")
    address = _literal(host)
    if address is None:
        _check_name(host, local=bool(networks))
    place = path or "/"
    return Target(
        secure=scheme == "https",
        host=host if address is None else str(address),
        port=number,
        path=place if place.startswith("/") else f"/{place}",
        literal=address is not None,
    )


def _literal(host: str) -> Address | None:
    """The address that the host is; None where it is a name."""
    try:
        if host.startswith("["):
            return IPv6Address(host[1:-1])
        last = host.rpartition(".")[2]
        return IPv4Address(host) if _NUMBER.fullmatch(last) or not last else None
    except AddressValueError:
        raise Forbidden("the URL's host is no canonical address and no name") from None


def _check_name(host: str, *, local: bool) -> None:
    labels = host.split(".")
    if len(host) > LONGEST_HOST or not all(_LABEL.fullmatch(label) for label in labels):
        raise Forbidden("the URL's host is no name")
    own = labels[-1] in LOCAL_NAMES or labels[-2:] == ["home", "arpa"] or host in LOCAL_HOSTS
    if own and not local:
        raise Forbidden("the URL's host is a name of this machine or its own network")


def admit(
    target: Target, addresses: Sequence[str], networks: Sequence[str] = (), *, plain: bool = False
) -> tuple[str, ...]:
    """The addresses of the target's host, each of which may be connected to.

    One that may not be makes all of them `Forbidden`: whoever answers for the name is not to
    be trusted. Without TLS only what `networks` names may be reached, unless `plain` allows it.
    """
    if not addresses:
        raise Forbidden("the URL's host has no address")
    for address in addresses:
        if not may_connect(address, networks):
            raise Forbidden(
                "the URL's host has an address that may not be connected to: "
                "it is not public, and in no network of allowed_networks"
            )
        if not (target.secure or plain or _named(_parsed(address), networks)):
            raise Forbidden("without TLS (http:) only networks that are named may be reached")
    return tuple(addresses)


def may_connect(address: str, networks: Sequence[str] = ()) -> bool:
    """Whether it is public, or inside one of `networks`."""
    parsed = _parsed(address)
    return parsed is not None and (_is_public(parsed) or _named(parsed, networks))


def _parsed(address: str) -> Address | None:
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


def _named(address: Address | None, networks: Sequence[str]) -> bool:
    """A scope would say through which interface: no network has one."""
    if address is None or getattr(address, "scope_id", None) is not None:
        return False
    return any(address in _network(text) for text in networks)


@lru_cache(256)
def _network(text: str) -> IPv4Network | IPv6Network:
    return ip_network(text)
