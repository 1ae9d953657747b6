"""Emit a JSON value as YAML in the style of handwritten files."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ductile.config.loader.yaml import NotJson, resolve
from ductile.model import Json

_PLAIN = re.compile(r"[A-Za-z0-9_/.$][^\x00-\x1f\x7f]*")
_NOT_PLAIN = re.compile(r": |:$| #| $|[^\S ]")
_FLOW = re.compile(r"[,\[\]{}]")
_REFERENCE = re.compile(r"\$\{[^}\r\n]*\}")
_OTHERS_TYPE = re.compile(r"(?i:y|n|yes|no|on|off)\Z|[0-9]+(?::[0-9]+)+\Z")
"""Text in YAML 1.2, but another type for a YAML 1.1 parser that may read the file."""
_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r", "\0": "\\0"}


def emit_scalar(value: Json, *, style: str = "", flow: bool = False) -> Iterator[str]:
    """Forms of a scalar on one line, the most common first; the last one is always valid.

    `style` is the quoting of the previous value.
    """
    if not isinstance(value, str):
        yield "null" if value is None else str(value).lower()
        return
    if style == "'" and value.isprintable():
        yield f"'{value.replace(chr(39), chr(39) * 2)}'"
    elif style != '"' and _is_plain(value, flow=flow):
        yield value
    yield quote(value)


def quote(text: str) -> str:
    """A double-quoted scalar with unprintable characters escaped."""
    return f'"{"".join(map(_escape, text))}"'


def _escape(char: str) -> str:
    if char in _ESCAPES:
        return _ESCAPES[char]
    if char.isprintable():
        return char
    code = ord(char)
    width = next(w for w in (2, 4, 8) if code < 16**w)
    return f"\\{'xuU'[width // 4]}{code:0{width}x}"


def _is_plain(text: str, *, flow: bool) -> bool:
    """Whether `text` is still text without quotes."""
    # References are concealed while YAML is parsed, so their braces have no meaning.
    bare = _REFERENCE.sub("x", text)
    if not text.isprintable() or (flow and _FLOW.search(bare)):
        return False
    if not _PLAIN.fullmatch(bare) or _NOT_PLAIN.search(bare):
        return False
    if _OTHERS_TYPE.match(text) or bare in ("---", "..."):
        return False
    try:
        return isinstance(resolve(text), str)
    except NotJson:
        return False


def emit_flow(value: Json) -> str:
    """A value on one line; collections in brackets."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_emit_key(k)}: {emit_flow(v)}' for k, v in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(emit_flow, value))}]"
    return next(emit_scalar(value, flow=True))


def _emit_key(text: str, *, in_flow: bool = True) -> str:
    return text if _is_plain(text, flow=in_flow) else quote(text)


def emit_block(value: Json, indent: int, unit: int, dash: int) -> list[str]:
    """The lines of a non-empty collection; below a key, mappings are indented by `unit` and
    the dashes of lists by `dash`."""
    lines: list[str] = []
    if isinstance(value, list):
        for item in value:
            first, *rest = _emit_item(item, indent + 2, unit, dash)
            lines += [f"{' ' * indent}- {first.lstrip()}", *rest]
        return lines
    for key, item in value.items():
        name = f"{' ' * indent}{_emit_key(key, in_flow=False)}:"
        if item and isinstance(item, dict | list):
            deeper = indent + (unit if isinstance(item, dict) else dash)
            lines += [name, *emit_block(item, deeper, unit, dash)]
        else:
            lines.append(f"{name} {_emit_leaf(item)}")
    return lines


def _emit_item(item: Json, indent: int, unit: int, dash: int) -> list[str]:
    if item and isinstance(item, dict | list):
        return emit_block(item, indent, unit, dash)
    return [_emit_leaf(item)]


def _emit_leaf(value: Json) -> str:
    return emit_flow(value) if isinstance(value, dict | list) else next(emit_scalar(value))


def emit_literal(text: str, indent: int) -> str | None:
    """A literal block scalar (`|`); None if the text cannot be written as one."""
    lines = text.split("\n")
    if len(lines) < 2 or not all(line.isprintable() for line in lines) or lines[0][:1] in ("", " "):
        return None
    end = "" if text.endswith("\n") else "-"
    body = text.removesuffix("\n").split("\n")
    if not body[-1]:
        return None
    return "\n".join([f"|{end}", *(f"{' ' * indent}{line}".rstrip() for line in body)])
