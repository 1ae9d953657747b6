"""A compiled pipeline as a diagram: Mermaid for documents, a tree for terminals."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field

from ductile._fast_dataclass import dataclass
from ductile.core.pipelines.graph import Node, NodeKind
from ductile.core.pipelines.pipeline import Pipeline

_ESCAPES = {"#": "#35;", '"': "#quot;", "<": "#lt;", ">": "#gt;", "\n": " "}


def mermaid(pipeline: Pipeline) -> str:
    """The pipeline as a Mermaid flowchart; a dotted arrow is a join."""
    ids = {path: f"n{number}" for number, path in enumerate(pipeline.paths(), 1)}
    lines = [
        "flowchart TD",
        f"    start([{_quoted(_trigger(pipeline))}]) --> {ids[pipeline.entry]}",
    ]
    others: dict[str, str] = {}
    for path, id_ in ids.items():
        node = pipeline.nodes[path]
        lines.append(f"    {id_}{_shape(node)}")
        lines.extend(f"    {id_} {arrow}" for arrow in _arrows(node, ids, others))
    lines.extend(f"    {id_}[[{_quoted(f'pipeline {name}')}]]" for name, id_ in others.items())
    return "\n".join(lines) + "\n"


def tree(pipeline: Pipeline) -> str:
    """The pipeline as lines for a terminal; nested steps are indented below their parent."""
    root = _TreeEntry(f"{pipeline.name} ({_trigger(pipeline)})")
    _TreeBuilder(pipeline).chain(pipeline.entry, None, root)
    return "\n".join((root.label, *_drawn(root.children, ""))) + "\n"


def _arrows(node: Node, ids: dict[str, str], others: dict[str, str]) -> Iterator[str]:
    for branch in node.branches:
        yield f"-->|{_quoted(branch.label)}| {ids[branch.entry]}"
    if node.next is not None:
        arrows = {NodeKind.SWITCH: "-->|true|", NodeKind.SPLIT: "-.->|join|"}
        yield f"{arrows.get(node.kind, '-->')} {ids[node.next]}"
    if node.otherwise is not None:
        yield f"-->|false| {ids[node.otherwise]}"
    for event, targets in node.on_events.items():
        for target in targets:
            if target.path is None:
                id_ = others.setdefault(target.pipeline, f"p{len(others) + 1}")
            else:
                id_ = ids[target.path]
            yield f"-->|{_quoted(event)}| {id_}"


def _shape(node: Node) -> str:
    text = _quoted(_label(node))
    match node.kind:
        case NodeKind.SWITCH:
            return f"{{{text}}}"
        case NodeKind.SPLIT:
            return f"{{{{{text}}}}}"
        case NodeKind.RELAY:
            return f">{text}]"
        case NodeKind.WAIT:
            return f"([{text}])"
        case _:
            return f"[{text}]"


def _label(node: Node) -> str:
    match node.kind:
        case NodeKind.SWITCH:
            return f"if {node.condition}"
        case NodeKind.SPLIT:
            return f"{node.path}: split" + (", join always" if node.join_always else "")
        case NodeKind.RELAY:
            relay = node.relay
            return f"{node.path}: relay" + (f" {relay.event} to {relay.to}" if relay else "")
        case NodeKind.WAIT:
            return f"{node.path}: wait {node.wait}"
        case _:
            return f"{node.path}: {node.plugin}.{node.command}"


def describe_trigger(event_type: str | None, hook: str | None) -> str:
    """What starts a pipeline besides a start by name, in the words of the configuration."""
    if event_type:
        return f"on {event_type}"
    return f"on-hook {hook}" if hook else "schedules"


def _trigger(pipeline: Pipeline) -> str:
    cause = describe_trigger(pipeline.on, pipeline.hook)
    name = pipeline.from_plugin or pipeline.from_pipeline
    source = f" from {name}" if name else ""
    condition = f", if {pipeline.condition}" if pipeline.condition else ""
    return cause + source + condition


def _quoted(text: str) -> str:
    return '"' + "".join(_ESCAPES.get(character, character) for character in text) + '"'


@dataclass(slots=True)
class _TreeEntry:
    label: str
    children: list[_TreeEntry] = field(default_factory=list)

    def add(self, label: str) -> _TreeEntry:
        entry = _TreeEntry(label)
        self.children.append(entry)
        return entry


class _TreeBuilder:
    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self.drawn: set[str] = set()

    def chain(self, path: str | None, until: str | None, below: _TreeEntry) -> None:
        """Add the steps from `path` below `below`, up to `until` or the end of the chain."""
        while path is not None and path != until:
            if path in self.drawn:
                below.add(f"{path}, as above")
                return
            self.drawn.add(path)
            node = self.pipeline.nodes[path]
            entry = below.add(_label(node))
            if node.kind is NodeKind.SWITCH:
                self.chain(node.next, node.otherwise, entry)
                path = node.otherwise
                continue
            for branch in node.branches:
                self.chain(branch.entry, None, entry.add(f"branch {branch.label}"))
            self.events(node, entry)
            path = node.next

    def events(self, node: Node, entry: _TreeEntry) -> None:
        for event, targets in node.on_events.items():
            below = entry.add(f"on {event}")
            for target in targets:
                if target.path is None:
                    below.add(f"pipeline {target.pipeline}")
                else:
                    self.chain(target.path, None, below)


def _drawn(children: list[_TreeEntry], indent: str) -> Iterator[str]:
    for number, entry in enumerate(children, 1):
        last = number == len(children)
        yield f"{indent}{'└─' if last else '├─'} {entry.label}"
        yield from _drawn(entry.children, indent + ("   " if last else "│  "))
