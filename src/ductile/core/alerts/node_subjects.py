"""Subjects that describe one node: its disk, and the parts of its gateway.

Where several nodes share a ledger, the subject contains the name of the node: `disk:NODE` and
`part:NODE/NAME`. A gateway alone has the subjects `disk` and `part:NAME`.
"""

from __future__ import annotations

from collections.abc import Iterator

from ductile.core.alerts.causes import Cause
from ductile.core.alerts.conditions import Condition

DISK, PART = "disk", "part"
OF_NODE = frozenset({Condition.DISK_FREE, Condition.HEALTH})
"""Conditions that each node can observe only of itself."""


def disk_subject(node: str) -> str:
    """The disk of the node; the name is empty for a gateway alone."""
    return f"{DISK}:{node}" if node else DISK


def part_subject(node: str, part: str) -> str:
    """A part of the node's gateway; the name is empty for a gateway alone."""
    return f"{PART}:{node}/{part}" if node else f"{PART}:{part}"


def find_node(cause: Cause) -> str | None:
    """The node that the subject names; None if it names none."""
    if cause.condition not in OF_NODE:
        return None
    kind, _, name = cause.subject.partition(":")
    node, slash, _ = name.partition("/")
    return node if node and (slash or kind == DISK) else None


def list_names(subject: str) -> Iterator[str]:
    """The names by which a rule selects a subject; those of one node also without the node."""
    kind, _, name = subject.partition(":")
    yield name or kind
    if kind == DISK:
        yield DISK
    elif kind == PART:
        yield name.rpartition("/")[2]
