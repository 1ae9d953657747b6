"""Changing one value of a YAML text and nothing else: comments, order, quotes, blank lines stay.

Each method yields whole texts, the most natural first. Whether one means what it should is for
the caller to see: anchors, explicit keys and the like can make it mean something else.
"""

from __future__ import annotations

from collections.abc import Iterator

from ductile.config.edit import emit
from ductile.config.edit.spans import Span, spans
from ductile.config.loader.nodes import Listing, Scalar, Table
from ductile.model import Json


class Splicer:
    def __init__(self, text: str, concealed: str) -> None:
        """`concealed` is the text as YAML is to see it, character for character as long."""
        self.text = text
        self.root = spans(concealed)
        self._eol = "\r\n" if "\r\n" in text else "\n"
        self._unit, self._dash = _habits(self.root)

    def replaced(self, span: Span, value: Json) -> Iterator[str]:
        """Another value in the place of one."""
        rewritten = span.flow and bool(span.children)
        if _is_block(value) and not span.within_flow and not rewritten:
            yield self._block_value(span, value)
            return
        for text in self._inline(value, span):
            yield self._inline_value(span, text)

    def added(self, table: Span | None, key: str, value: Json) -> Iterator[str]:
        """A new key at the end of a mapping; None is the mapping of an empty file."""
        if table is None:
            yield self._after(len(self.text.rstrip()), self._lines({key: value}, 0))
        elif _is_hollow(table):
            yield from self.replaced(table, {key: value})
        elif table.flow:
            yield self._into_brackets(table, emit.flow({key: value})[1:-1])
        else:
            yield self._after(table.end, self._lines({key: value}, table.column))

    def appended(self, listing: Span, value: Json) -> Iterator[str]:
        """A new item at the end of a list."""
        if _is_hollow(listing):
            yield from self.replaced(listing, [value])
        elif listing.flow:
            yield self._into_brackets(listing, emit.flow(value))
        else:
            yield self._after(listing.end, self._lines([value], listing.column))

    def _inline(self, value: Json, span: Span) -> Iterator[str]:
        if isinstance(value, dict | list):
            yield emit.flow(value)
            return
        if isinstance(value, str) and span.style == "|" and not span.within_flow:
            text = emit.literal(value, _column_above(span) + self._unit)
            if text is not None:
                yield text.replace("\n", self._eol)
        yield from emit.scalar(value, style=span.style, flow=span.within_flow)

    def _inline_value(self, span: Span, text: str) -> str:
        if span.kind is not Scalar and not span.flow and span.key is not None:
            colon = self._colon(span)
            kept = self.text[colon : min(self._line_end(colon), span.start)].rstrip()
            return f"{self.text[:colon]} {text}{kept}{self.text[span.end :]}"
        if span.start == span.end and span.key is not None:
            colon = self._colon(span)
            missing = "" if ":" in self.text[span.key.end : colon] else ":"
            rest = self.text[colon:]
            gap = "" if rest[:1].isspace() or rest[:1] in ("}", ",", "]", "") else " "
            return f"{self.text[:colon]}{missing} {text}{gap}{rest}"
        gap = " " if self.text[span.start - 1 : span.start] in ("-", ":") else ""
        return f"{self.text[: span.start]}{gap}{text}{self.text[span.end :]}"

    def _block_value(self, span: Span, value: Json) -> str:
        if span.key is None:
            lines = self._lines(value, span.column)
            gap = " " if self.text[span.start - 1 : span.start] == "-" else ""
            return f"{self.text[: span.start]}{gap}{lines.lstrip()}{self.text[span.end :]}"
        colon = self._colon(span)
        deeper = self._unit if isinstance(value, dict) else self._dash
        lines = self._lines(value, _column_above(span) + deeper)
        end = self._line_end(span.end)
        if span.kind is not Scalar and not span.flow:
            kept = self.text[colon : min(self._line_end(colon), span.start)]
        else:
            kept = self.text[span.end : end]
        return f"{self.text[:colon]}{kept.rstrip()}{self._eol}{lines}{self.text[end:]}"

    def _colon(self, span: Span) -> int:
        """Behind the colon of a key; behind the key where it has none."""
        assert span.key is not None
        start = span.key.end
        limit = max(span.start, start) + 1
        colon = self.text.find(":", start, limit)
        return start if colon < 0 else colon + 1

    def _into_brackets(self, collection: Span, text: str) -> str:
        if not collection.children:
            point = collection.start + 1
            return f"{self.text[:point]}{text}{self.text[point:]}"
        last = collection.children[-1]
        point = max(last.end, last.key.end if last.key else 0)
        return f"{self.text[:point]}, {text}{self.text[point:]}"

    def _after(self, point: int, lines: str) -> str:
        """`lines` below the line that `point` is in."""
        if point == 0 or self.text[point - 1] == "\n":
            return f"{self.text[:point]}{lines}{self._eol}{self.text[point:]}"
        end = self._line_end(point)
        rest = self.text[end:] or self._eol
        return f"{self.text[:end]}{self._eol}{lines}{rest}"

    def _lines(self, value: Json, indent: int) -> str:
        return self._eol.join(emit.block(value, indent, self._unit, self._dash))

    def _line_end(self, point: int) -> int:
        end = self.text.find("\n", point)
        if end < 0:
            return len(self.text)
        return end - 1 if self.text[end - 1 : end] == "\r" and end > point else end


def _is_block(value: Json) -> bool:
    return isinstance(value, dict | list) and bool(value)


def _column_above(span: Span) -> int:
    return span.parent.column if span.parent else 0


def _is_hollow(collection: Span) -> bool:
    """`{}` or `[]` on a line of its own kind, which may as well become lines."""
    return not collection.children and not collection.within_flow and collection.key is not None


def _habits(root: Span | None) -> tuple[int, int]:
    """How far this file indents mappings, and the dashes of lists, below their key."""
    unit = dash = None
    for span in root.walk() if root else ():
        if span.key is None or span.flow or not span.children:
            continue
        if span.kind is Listing and dash is None:
            dash = span.column - _column_above(span)
        elif span.kind is Table and unit is None:
            unit = span.column - _column_above(span)
    return unit or 2, (unit or 2) if dash is None else dash
