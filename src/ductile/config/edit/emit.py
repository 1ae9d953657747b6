"""A JSON value as somebody would write it into a YAML file by hand."""

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
"""Text here, but not to a YAML 1.1 parser that may read the same file."""
_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r", "\0": "\\0"}


def scalar(value: Json, *, style: str = "", flow: bool = False) -> Iterator[str]:
    """Ways to write a scalar on one line, the most natural first; the last one always works.

    `style` is how the value before it was quoted.
    """
    if not isinstance(value, str):
        yield "null" if value is None else str(value).lower()
        return
    if style == "'" and value.isprintable():
        yield f"'{value.replace(chr(39), chr(39) * 2)}'"
    elif style != '"' and _is_plain(value, flow=flow):
        yield value
    yield quoted(value)


def quoted(text: str) -> str:
    """A double-quoted scalar, with nothing in it that a terminal or a parser stumbles over."""
    return f'"{"".join(map(_escaped, text))}"'


def _escaped(char: str) -> str:
    if char in _ESCAPES:
        return _ESCAPES[char]
    if char.isprintable():
        return char
    code = ord(char)
    width = next(w for w in (2, 4, 8) if code < 16**w)
    return f"\\{'xuU'[width // 4]}{code:0{width}x}"


def _is_plain(text: str, *, flow: bool) -> bool:
    """Whether text may stand without quotes and still be text."""
    # References are hidden while YAML is parsed, so their braces do not count.
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


def flow(value: Json) -> str:
    """A value on one line, in brackets where it is a collection."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_key(k)}: {flow(v)}' for k, v in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(flow, value))}]"
    return next(scalar(value, flow=True))


def _key(text: str, *, in_flow: bool = True) -> str:
    return text if _is_plain(text, flow=in_flow) else quoted(text)


def block(value: Json, indent: int, unit: int, dash: int) -> list[str]:
    """The lines of a collection that is not empty; `unit` and `dash` indent what lies below
    a key: mappings, and the dashes of lists."""
    lines: list[str] = []
    if isinstance(value, list):
        for item in value:
            first, *rest = _below(item, indent + 2, unit, dash)
            lines += [f"{' ' * indent}- {first.lstrip()}", *rest]
        return lines
    for key, item in value.items():
        name = f"{' ' * indent}{_key(key, in_flow=False)}:"
        if item and isinstance(item, dict | list):
            deeper = indent + (unit if isinstance(item, dict) else dash)
            lines += [name, *block(item, deeper, unit, dash)]
        else:
            lines.append(f"{name} {_leaf(item)}")
    return lines


def _below(item: Json, indent: int, unit: int, dash: int) -> list[str]:
    if item and isinstance(item, dict | list):
        return block(item, indent, unit, dash)
    return [_leaf(item)]


def _leaf(value: Json) -> str:
    return flow(value) if isinstance(value, dict | list) else next(scalar(value))


def literal(text: str, indent: int) -> str | None:
    """Several lines after a `|`; None where they cannot stand there as they are."""
    lines = text.split("\n")
    if len(lines) < 2 or not all(line.isprintable() for line in lines) or lines[0][:1] in ("", " "):
        return None
    end = "" if text.endswith("\n") else "-"
    body = text.removesuffix("\n").split("\n")
    if not body[-1]:
        return None
    return "\n".join([f"|{end}", *(f"{' ' * indent}{line}".rstrip() for line in body)])
