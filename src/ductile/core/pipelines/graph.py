"""The compiled form of a step: every decision at run time is a look-up here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from enum import StrEnum

from ductile._fast_dataclass import dataclass
from ductile.core.jobs.commands import HANDLE
from ductile.core.pipelines.baggage import Claims
from ductile.core.pipelines.compiler.parse import Relay
from ductile.core.pipelines.conditions import Condition
from ductile.core.pipelines.templates import Template
from ductile.core.waits.parse import WaitStep
from ductile.errors import Path
from ductile.model import CORE_PREFIX

SWITCH_PLUGIN = f"{CORE_PREFIX}switch"
SWITCH_SUFFIX = "__switch"
"""Ends the path of the node that evaluates the `if` of the step with the path before it."""
RELAY_PLUGIN = f"{CORE_PREFIX}relay"
WAIT_PLUGIN = f"{CORE_PREFIX}wait"


class NodeKind(StrEnum):
    USES = "uses"
    SWITCH = "switch"
    """Evaluates an `if` without a process: true leads to `next`, false to `otherwise`."""
    RELAY = "relay"
    WAIT = "wait"
    """Has a job that is parked until a decision, an event or a time ends it."""
    SPLIT = "split"
    """Has no job: it opens a scope, and `next` is its join."""


@dataclass(frozen=True, slots=True)
class Branch:
    label: str
    """The branch's id, or its number from 0."""
    entry: str


@dataclass(frozen=True, slots=True)
class Target:
    """A target of `on_events`: a node, or without a path the first node of a pipeline."""

    pipeline: str
    path: str | None


@dataclass(frozen=True, slots=True)
class Node:
    """A step in a compiled pipeline. The chain ends where `next` is None."""

    pipeline: str
    path: str
    """Unique in its pipeline: inlined steps are prefixed by their caller's id (`a.0.step_1`)."""
    kind: NodeKind
    at: Path
    """Its path in the configuration."""
    plugin: str = ""
    command: str = HANDLE
    next: str | None = None
    otherwise: str | None = None
    condition: Condition | None = None
    config_of: str | None = None
    """The plugin whose config the expressions may read, if any."""
    with_: Template | None = None
    baggage: Claims | None = None
    relay: Relay | None = None
    wait: WaitStep | None = None
    on_events: Mapping[str, tuple[Target, ...]] = field(default_factory=dict)
    branches: tuple[Branch, ...] = ()
    join_always: bool = False
    id: str = ""
    """The id as it is written, or `step_1`, without the ids of its callers."""

    def follows(self) -> Iterator[Target]:
        """All nodes that can follow this one."""
        paths = [branch.entry for branch in self.branches]
        for path in (*paths, self.next, self.otherwise):
            if path is not None:
                yield Target(self.pipeline, path)
        for targets in self.on_events.values():
            yield from targets
