"""Change one value of a YAML text and keep comments, order, quotes and blank lines.

Each method yields whole texts, the most common form first. The caller must verify the meaning of
each: anchors, explicit keys and similar constructs can change it.
"""

from __future__ import annotations

from collections.abc import Iterator

from ductile.config.edit import emit
from ductile.config.edit.spans import TextSpan, parse_spans
from ductile.config.loader.nodes import MappingNode, ScalarNode, SequenceNode
from ductile.model import Json


class Splicer:
    def __init__(self, text: str, concealed: str) -> None:
        """`concealed` is the text that YAML parses: of the same length, references concealed."""
        self.text = text
        self.root = parse_spans(concealed)
        self._eol = "\r\n" if "\r\n" in text else "\n"
        self._unit, self._dash = _detect_indentation(self.root)

    def replace_value(self, span: TextSpan, value: Json) -> Iterator[str]:
        """Texts with another value at `span`."""
        rewritten = span.flow and bool(span.children)
        if _is_block(value) and not span.within_flow and not rewritten:
            yield self._splice_block(span, value)
            return
        for text in self._emit_inline(value, span):
            yield self._splice_inline(span, text)

    def add_key(self, table: TextSpan | None, key: str, value: Json) -> Iterator[str]:
        """Texts with a new key at the end of a mapping; None is the root of an empty file."""
        if table is None:
            yield self._insert_after(len(self.text.rstrip()), self._emit_lines({key: value}, 0))
        elif _is_empty_value(table):
            yield from self.replace_value(table, {key: value})
        elif table.flow:
            yield self._insert_into_brackets(table, emit.emit_flow({key: value})[1:-1])
        else:
            yield self._insert_after(table.end, self._emit_lines({key: value}, table.column))

    def append_item(self, listing: TextSpan, value: Json) -> Iterator[str]:
        """Texts with a new item at the end of a list."""
        if _is_empty_value(listing):
            yield from self.replace_value(listing, [value])
        elif listing.flow:
            yield self._insert_into_brackets(listing, emit.emit_flow(value))
        else:
            yield self._insert_after(listing.end, self._emit_lines([value], listing.column))

    def _emit_inline(self, value: Json, span: TextSpan) -> Iterator[str]:
        if isinstance(value, dict | list):
            yield emit.emit_flow(value)
            return
        if isinstance(value, str) and span.style == "|" and not span.within_flow:
            text = emit.emit_literal(value, _column_above(span) + self._unit)
            if text is not None:
                yield text.replace("\n", self._eol)
        yield from emit.emit_scalar(value, style=span.style, flow=span.within_flow)

    def _splice_inline(self, span: TextSpan, text: str) -> str:
        if span.kind is not ScalarNode and not span.flow and span.key is not None:
            colon = self._find_colon(span)
            kept = self.text[colon : min(self._find_line_end(colon), span.start)].rstrip()
            return f"{self.text[:colon]} {text}{kept}{self.text[span.end :]}"
        if span.start == span.end and span.key is not None:
            colon = self._find_colon(span)
            missing = "" if ":" in self.text[span.key.end : colon] else ":"
            rest = self.text[colon:]
            gap = "" if rest[:1].isspace() or rest[:1] in ("}", ",", "]", "") else " "
            return f"{self.text[:colon]}{missing} {text}{gap}{rest}"
        gap = " " if self.text[span.start - 1 : span.start] in ("-", ":") else ""
        return f"{self.text[: span.start]}{gap}{text}{self.text[span.end :]}"

    def _splice_block(self, span: TextSpan, value: Json) -> str:
        if span.key is None:
            lines = self._emit_lines(value, span.column)
            gap = " " if self.text[span.start - 1 : span.start] == "-" else ""
            return f"{self.text[: span.start]}{gap}{lines.lstrip()}{self.text[span.end :]}"
        colon = self._find_colon(span)
        deeper = self._unit if isinstance(value, dict) else self._dash
        lines = self._emit_lines(value, _column_above(span) + deeper)
        end = self._find_line_end(span.end)
        if span.kind is not ScalarNode and not span.flow:
            kept = self.text[colon : min(self._find_line_end(colon), span.start)]
        else:
            kept = self.text[span.end : end]
        return f"{self.text[:colon]}{kept.rstrip()}{self._eol}{lines}{self.text[end:]}"

    def _find_colon(self, span: TextSpan) -> int:
        """The position after the colon of a key, or after the key if it has no colon."""
        assert span.key is not None
        start = span.key.end
        limit = max(span.start, start) + 1
        colon = self.text.find(":", start, limit)
        return start if colon < 0 else colon + 1

    def _insert_into_brackets(self, collection: TextSpan, text: str) -> str:
        if not collection.children:
            point = collection.start + 1
            return f"{self.text[:point]}{text}{self.text[point:]}"
        last = collection.children[-1]
        point = max(last.end, last.key.end if last.key else 0)
        return f"{self.text[:point]}, {text}{self.text[point:]}"

    def _insert_after(self, point: int, lines: str) -> str:
        """The text with `lines` after the line that contains `point`."""
        if point == 0 or self.text[point - 1] == "\n":
            return f"{self.text[:point]}{lines}{self._eol}{self.text[point:]}"
        end = self._find_line_end(point)
        rest = self.text[end:] or self._eol
        return f"{self.text[:end]}{self._eol}{lines}{rest}"

    def _emit_lines(self, value: Json, indent: int) -> str:
        return self._eol.join(emit.emit_block(value, indent, self._unit, self._dash))

    def _find_line_end(self, point: int) -> int:
        end = self.text.find("\n", point)
        if end < 0:
            return len(self.text)
        return end - 1 if self.text[end - 1 : end] == "\r" and end > point else end


def _is_block(value: Json) -> bool:
    return isinstance(value, dict | list) and bool(value)


def _column_above(span: TextSpan) -> int:
    return span.parent.column if span.parent else 0


def _is_empty_value(collection: TextSpan) -> bool:
    """Whether it is `{}` or `[]` as the value of a key, and can be replaced by a block."""
    return not collection.children and not collection.within_flow and collection.key is not None


def _detect_indentation(root: TextSpan | None) -> tuple[int, int]:
    """The indentation that this file uses for mappings and for dashes of lists."""
    unit = dash = None
    for span in root.walk() if root else ():
        if span.key is None or span.flow or not span.children:
            continue
        if span.kind is SequenceNode and dash is None:
            dash = span.column - _column_above(span)
        elif span.kind is MappingNode and unit is None:
            unit = span.column - _column_above(span)
    return unit or 2, (unit or 2) if dash is None else dash
