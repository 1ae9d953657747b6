"""Which sandbox a plugin gets: what its author says it needs, and what the operator grants."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from ductile._fast_dataclass import dataclass
from ductile.model import Json

OFF, BEST_EFFORT, ENFORCE = LEVELS = ("off", "best_effort", "enforce")
"""From the least strict to the strictest."""
NO_NETWORK, WHOLE_NETWORK = "none", "all"

Number = TypeVar("Number", int, float)
Paths = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SandboxSpec:
    """One statement about a sandbox; None in a field: it says nothing about that."""

    level: str | None = None
    read: Paths | None = None
    write: Paths | None = None
    network: str | tuple[int, ...] | None = None
    """`none`, `all`, or the TCP ports that can be connected to."""
    memory: int | None = None
    processes: int | None = None
    cpu_time: float | None = None
    file_size: int | None = None


@dataclass(frozen=True, slots=True)
class SandboxPlan:
    """The sandbox of a plugin on this machine, computed once when the configuration is loaded."""

    spec: SandboxSpec
    policy: bytes
    """What a slot applies."""
    held: tuple[str, ...]
    gaps: Mapping[str, str]
    """What this kernel cannot enforce, and why."""

    @property
    def refusal(self) -> str | None:
        """Why the plugin must not run; None if it may."""
        if not self.gaps or self.spec.level != ENFORCE:
            return None
        return f"its sandbox cannot be enforced here: {self._describe_gaps()}"

    @property
    def summary(self) -> str:
        """The level, and what is enforced, in one line."""
        held = f"{self.spec.level}; enforced: {', '.join(self.held) or 'nothing'}"
        return f"{held}; not enforced: {self._describe_gaps()}" if self.gaps else held

    def _describe_gaps(self) -> str:
        return "; ".join(f"{name} ({reason})" for name, reason in self.gaps.items())

    def to_document(self) -> dict[str, Json]:
        spec = self.spec
        network = list(spec.network) if isinstance(spec.network, tuple) else spec.network
        return {
            "level": spec.level,
            "held": list(self.held),
            "not_held": dict(self.gaps),
            "read": list(spec.read or ()),
            "write": list(spec.write or ()),
            "network": network,
            "memory": spec.memory,
            "processes": spec.processes,
            "cpu_time": spec.cpu_time,
            "file_size": spec.file_size,
        }


def narrow(author: SandboxSpec | None, operator: SandboxSpec | None, rule: str) -> SandboxSpec:
    """The narrower of two statements. The operator chooses the level, at least that of the rule.

    Without a statement about the network there is none.
    """
    own, granted = author or SandboxSpec(), operator or SandboxSpec()
    default = OFF if author is None and operator is None else BEST_EFFORT
    level = granted.level or own.level or default
    return SandboxSpec(
        level=max(level, rule, key=LEVELS.index),
        read=_common_paths(own.read, granted.read),
        write=_common_paths(own.write, granted.write),
        network=_common_network(own.network, granted.network),
        memory=_smaller(own.memory, granted.memory),
        processes=_smaller(own.processes, granted.processes),
        cpu_time=_smaller(own.cpu_time, granted.cpu_time),
        file_size=_smaller(own.file_size, granted.file_size),
    )


def is_inside(path: str, folder: str) -> bool:
    """Whether a path is a folder or below it; both are absolute and normalized."""
    return path == folder or path.startswith(f"{folder.rstrip('/')}/")


def _common_paths(one: Paths | None, other: Paths | None) -> Paths | None:
    if one is None or other is None:
        return other if one is None else one
    inner = [path for path in one if any(is_inside(path, folder) for folder in other)]
    inner += [path for path in other if any(is_inside(path, folder) for folder in one)]
    return tuple(dict.fromkeys(inner))


def _common_network(
    one: str | tuple[int, ...] | None, other: str | tuple[int, ...] | None
) -> str | tuple[int, ...]:
    given = [network for network in (one, other) if network is not None]
    if not given or NO_NETWORK in given:
        return NO_NETWORK
    listed = [ports for ports in given if isinstance(ports, tuple)]
    if not listed:
        return WHOLE_NETWORK
    ports = tuple(port for port in listed[0] if all(port in others for others in listed))
    return ports or NO_NETWORK


def _smaller(one: Number | None, other: Number | None) -> Number | None:
    given = [limit for limit in (one, other) if limit is not None]
    return min(given) if given else None
