"""The start and end of each node in a YAML text, for edits in place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import cast

import yaml
from yaml._yaml import CParser, Mark

from ductile.config.loader.nodes import MappingNode, Node, ScalarNode, SequenceNode


@dataclass(slots=True, eq=False)
class TextSpan:
    """A node in the text: `text[start:end]`, without trailing comments and blank lines."""

    kind: type[Node]
    start: int
    end: int
    line: int
    column: int
    """Both count from 0."""
    style: str = ""
    flow: bool = False
    """Whether it is a collection in brackets."""
    key: TextSpan | None = None
    parent: TextSpan | None = None
    children: list[TextSpan] = field(default_factory=list)
    """The values of a mapping, each with its `key`, or the items of a list."""

    @property
    def within_flow(self) -> bool:
        return self.parent is not None and self.parent.flow

    def walk(self) -> Iterator[TextSpan]:
        yield self
        for child in self.children:
            yield from child.walk()

    def find(self, node: Node) -> TextSpan | None:
        """The span of a node of the same text."""
        location = (node.location.line - 1, node.location.column - 1)
        kind = type(node)
        return next(
            (s for s in self.walk() if s.kind is kind and (s.line, s.column) == location), None
        )


def parse_spans(text: str) -> TextSpan | None:
    """The spans of the document in `text`, which must be valid YAML; None if it is empty."""
    root: TextSpan | None = None
    open_: list[TextSpan] = []
    keys: list[TextSpan | None] = []
    parser = CParser(text)
    while (event := parser.get_event()) is not None:
        if isinstance(event, yaml.CollectionEndEvent):
            done = open_.pop()
            keys.pop()
            last = done.children[-1] if done.children else done
            done.end = _marks(event)[1].index if done.flow else max(last.end, _key_end(last))
            continue
        if not isinstance(event, yaml.NodeEvent):
            continue
        span = _span(text, event)
        parent = open_[-1] if open_ else None
        if parent is None:
            root = span
        elif parent.kind is MappingNode and keys[-1] is None:
            keys[-1] = span
            continue
        else:
            span.parent, span.key, keys[-1] = parent, keys[-1], None
            parent.children.append(span)
        if isinstance(event, yaml.CollectionStartEvent):
            open_.append(span)
            keys.append(None)
    return root


def _marks(event: yaml.Event) -> tuple[Mark, Mark]:
    """Start and end of an event; libyaml sets both, although their type allows None."""
    return cast(Mark, event.start_mark), cast(Mark, event.end_mark)


def _key_end(span: TextSpan) -> int:
    return span.key.end if span.key else span.end


def _span(text: str, event: yaml.NodeEvent) -> TextSpan:
    start, end = _marks(event)
    kind: type[Node] = ScalarNode
    if isinstance(event, yaml.CollectionStartEvent):
        kind = MappingNode if isinstance(event, yaml.MappingStartEvent) else SequenceNode
        flow = bool(event.flow_style)
        return TextSpan(kind, start.index, end.index, start.line, start.column, flow=flow)
    style = event.style or "" if isinstance(event, yaml.ScalarEvent) else ""
    last = end.index
    if style in ("|", ">") and "+" not in text[start.index : last].partition("\n")[0]:
        last = start.index + len(text[start.index : last].rstrip())
    return TextSpan(kind, start.index, last, start.line, start.column, style)
