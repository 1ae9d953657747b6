"""Links parsed steps to nodes that know their successors.

`call` and `steps` leave no trace except the prefix of the paths inside. A step that an `on_events`
names is removed from its sequence: it is reached by name, and the chain ends after it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ductile._fast_dataclass import dataclass
from ductile.core.jobs.commands import HANDLE
from ductile.core.jobs.limits import LONGEST_STEP_PATH, fits, size
from ductile.core.pipelines.compiler.parse import Known, Step, StepKind, walk
from ductile.core.pipelines.graph import (
    RELAY_PLUGIN,
    SWITCH_PLUGIN,
    SWITCH_SUFFIX,
    WAIT_PLUGIN,
    Branch,
    Node,
    NodeKind,
    Target,
)
from ductile.errors import Path, Problem

MAX_NODES = 10_000
MAX_NESTING = 60
_CORE_PLUGINS = {NodeKind.RELAY: RELAY_PLUGIN, NodeKind.WAIT: WAIT_PLUGIN}
"""The plugins of the steps that run without a process."""


@dataclass(frozen=True, slots=True)
class Authored:
    """A pipeline's parsed steps, and the ids that its own `on_events` name."""

    name: str
    at: Path
    steps: tuple[Step, ...]
    ids: frozenset[str]
    targets: frozenset[str]

    @classmethod
    def of(cls, name: str, at: Path, steps: tuple[Step, ...]) -> Authored:
        ids = frozenset(step.id for step in walk(steps) if step.named)
        named = (
            name for step in walk(steps) for names in step.on_events.values() for name in names
        )
        return cls(name, at, steps, ids, ids.intersection(named))


@dataclass(frozen=True, slots=True)
class Linked:
    entry: str
    nodes: Mapping[str, Node]


@dataclass(frozen=True, slots=True)
class _Frame:
    """One inlining of an authored pipeline; ids are looked up in their own."""

    prefix: str
    pipeline: Authored


@dataclass(frozen=True, slots=True)
class _Named:
    """A target by id; its first node is known only after all steps are linked."""

    frame: str
    id: str


_Exits = Mapping[str, tuple[Target | _Named, ...]]


class _TooLarge(Exception):
    pass


def link(
    pipeline: Authored, pipelines: Mapping[str, Authored], known: Known
) -> Linked | list[Problem]:
    """Link one pipeline. Every `call` and `on_events` must have a target, without cycles."""
    linker = _Linker(pipeline, pipelines, known)
    try:
        entry = linker.sequence(_Frame("", pipeline), pipeline.steps, "", None, {})
    except _TooLarge as error:
        return [Problem(str(error), pipeline.at)]
    if entry is None:
        message = "there is no first step: each is reached only through on_events"
        return [*linker.problems, Problem(message, (*pipeline.at, "steps"))]
    nodes = linker.resolved()
    return linker.problems or _unreached(entry, nodes) or Linked(entry, nodes)


class _Linker:
    def __init__(self, pipeline: Authored, pipelines: Mapping[str, Authored], known: Known) -> None:
        self.name = pipeline.name
        self.pipelines = pipelines
        self.known = known
        self.problems: list[Problem] = []
        self.nodes: dict[str, Node] = {}
        self.exits: dict[str, _Exits] = {}
        self.entries: dict[_Named, str | None] = {}
        self.nesting = 0

    def sequence(
        self, frame: _Frame, steps: Sequence[Step], prefix: str, after: str | None, exits: _Exits
    ) -> str | None:
        """Link a list of steps followed by `after`; the first node, or `after` if there is none."""
        ordered = []
        for step in steps:
            if step.named and step.id in frame.pipeline.targets:
                entry = self.step(frame, step, prefix, None, {})
                self.entries[_Named(frame.prefix, step.id)] = entry
            else:
                ordered.append(step)
        entry = after
        for step in reversed(ordered):
            entry = self.step(frame, step, prefix, entry, exits if step is ordered[-1] else {})
        return entry

    def step(
        self, frame: _Frame, step: Step, prefix: str, after: str | None, exits: _Exits
    ) -> str | None:
        path = prefix + step.id
        own = {
            event: tuple(self.target(frame, name, path, step.at) for name in names)
            for event, names in step.on_events.items()
        }
        self.nesting += 1
        if self.nesting > MAX_NESTING:
            raise _TooLarge(f"steps and calls are nested deeper than {MAX_NESTING} levels")
        entry = self.body(frame, step, path, after, {**exits, **own})
        self.nesting -= 1
        if step.condition is None:
            return entry
        switch = Node(
            self.name,
            f"{path}{SWITCH_SUFFIX}",
            NodeKind.SWITCH,
            (*step.at, "if"),
            plugin=SWITCH_PLUGIN,
            next=entry,
            otherwise=after,
            condition=step.condition,
            config_of=step.plugin or None,
            id=step.id,
        )
        return self.add(switch)

    def body(
        self, frame: _Frame, step: Step, path: str, after: str | None, exits: _Exits
    ) -> str | None:
        match step.kind:
            case StepKind.STEPS:
                return self.sequence(frame, step.steps, f"{path}.", after, exits)
            case StepKind.CALL:
                return self.call(step, path, after, exits)
            case StepKind.SPLIT:
                return self.split(frame, step, path, after)
            case _:
                kind = NodeKind(step.kind.value)
                node = Node(
                    self.name,
                    path,
                    kind,
                    step.at,
                    plugin=_CORE_PLUGINS.get(kind, step.plugin),
                    command=HANDLE if kind in _CORE_PLUGINS else step.command,
                    next=after,
                    config_of=step.plugin or None,
                    with_=step.with_,
                    baggage=step.baggage,
                    relay=step.relay,
                    wait=step.wait,
                    id=step.id,
                )
                self.exits[path] = exits
                return self.add(node)

    def call(self, step: Step, path: str, after: str | None, exits: _Exits) -> str | None:
        frame = _Frame(f"{path}.", self.pipelines[step.call])
        return self.sequence(frame, frame.pipeline.steps, frame.prefix, after, exits)

    def split(self, frame: _Frame, step: Step, path: str, after: str | None) -> str:
        branches = []
        for number, branch in enumerate(step.steps):
            steps = branch.steps if _is_bare_group(branch) else (branch,)
            entry = self.sequence(frame, steps, f"{path}.{number}.", None, {})
            if entry is not None:
                branches.append(Branch(branch.id if branch.named else str(number), entry))
        return self.add(
            Node(
                self.name,
                path,
                NodeKind.SPLIT,
                step.at,
                next=after,
                branches=tuple(branches),
                join_always=step.join_always,
                id=step.id,
            )
        )

    def target(self, frame: _Frame, name: str, path: str, at: Path) -> Target | _Named:
        if name in frame.pipeline.ids:
            return _Named(frame.prefix, name)
        if name in self.pipelines:
            return Target(name, None)
        path = f"{path}@{name}"
        if path not in self.nodes:
            plugin, command = self.known.command(name)
            where = (*at, "on_events")
            self.add(
                Node(
                    self.name,
                    path,
                    NodeKind.USES,
                    where,
                    plugin=plugin,
                    command=command,
                    config_of=plugin,
                    id=name,
                )
            )
        return Target(self.name, path)

    def add(self, node: Node) -> str:
        if node.path in self.nodes:
            message = f"another step has the path {node.path!r}; use another id"
            self.problems.append(Problem(message, node.at))
        if not fits(node.path, LONGEST_STEP_PATH):
            message = "the path of the step, including the ids of its parents, is too long"
            found, allowed = f"{size(node.path)} bytes", f"at most {LONGEST_STEP_PATH} bytes"
            self.problems.append(Problem(message, node.at, found=found, allowed=allowed))
        self.nodes[node.path] = node
        if len(self.nodes) > MAX_NODES:
            raise _TooLarge(f"including its calls, the pipeline has more than {MAX_NODES} steps")
        return node.path

    def resolved(self) -> dict[str, Node]:
        """The nodes with their `on_events` resolved; a target without a node is dropped."""
        nodes = dict(self.nodes)
        for path, exits in self.exits.items():
            found = {
                event: tuple(target for pending in targets if (target := self.found(pending)))
                for event, targets in exits.items()
            }
            nodes[path] = replace(nodes[path], on_events=found)
        return nodes

    def found(self, pending: Target | _Named) -> Target | None:
        if isinstance(pending, Target):
            return pending
        entry = self.entries.get(pending)
        return None if entry is None else Target(self.name, entry)


def _is_bare_group(step: Step) -> bool:
    """Whether the step only groups: then a branch consists of its steps (`split.1.step_1`)."""
    plain = not (step.named or step.condition or step.on_events)
    return plain and step.kind is StepKind.STEPS


def _unreached(entry: str, nodes: Mapping[str, Node]) -> list[Problem]:
    seen, open_ = {entry}, [entry]
    while open_:
        for target in nodes[open_.pop()].follows():
            if target.path is not None and target.path not in seen:
                seen.add(target.path)
                open_.append(target.path)
    lost = {node.at: node for path, node in nodes.items() if path not in seen}
    message = "this step is never reached: no step and no event leads to it"
    return [Problem(message, at) for at in lost]
