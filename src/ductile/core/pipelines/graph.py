"""The compiled form of a step: all that the runtime decides there is a look-up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from enum import StrEnum

from ductile.core.jobs.commands import HANDLE
from ductile.core.pipelines.baggage import Claims
from ductile.core.pipelines.conditions import Condition
from ductile.core.pipelines.parse import Relay
from ductile.core.pipelines.templates import Template
from ductile.errors import Path
from ductile.model import CORE_PREFIX
from ductile.record import dataclass

SWITCH_PLUGIN = f"{CORE_PREFIX}switch"
RELAY_PLUGIN = f"{CORE_PREFIX}relay"


class NodeKind(StrEnum):
    USES = "uses"
    SWITCH = "switch"
    """Judges an `if` without a process: true goes to `next`, false to `otherwise`."""
    RELAY = "relay"
    SPLIT = "split"
    """No job of its own: it opens a scope, and `next` is its join."""


@dataclass(frozen=True, slots=True)
class Branch:
    label: str
    """The branch's id, or its number from 0."""
    entry: str


@dataclass(frozen=True, slots=True)
class Target:
    """Where `on_events` leads: a node, or with no path a pipeline's first."""

    pipeline: str
    path: str | None


@dataclass(frozen=True, slots=True)
class Node:
    """A step's place in a compiled pipeline. `next` of None is where the chain ends."""

    pipeline: str
    path: str
    """Unique in its pipeline: what is inlined is prefixed by its caller's (`a.0.step_1`)."""
    kind: NodeKind
    at: Path
    """Where the config says it."""
    plugin: str = ""
    command: str = HANDLE
    next: str | None = None
    otherwise: str | None = None
    condition: Condition | None = None
    config_of: str | None = None
    """The plugin whose config the expressions may read; None is none."""
    with_: Template | None = None
    baggage: Claims | None = None
    relay: Relay | None = None
    on_events: Mapping[str, tuple[Target, ...]] = field(default_factory=dict)
    branches: tuple[Branch, ...] = ()
    join_always: bool = False

    def follows(self) -> Iterator[Target]:
        """Everywhere that a chain can go from here."""
        paths = [branch.entry for branch in self.branches]
        for path in (*paths, self.next, self.otherwise):
            if path is not None:
                yield Target(self.pipeline, path)
        for targets in self.on_events.values():
            yield from targets
