"""Escape the characters that a terminal would obey, in text from plugins, files and callers."""

from __future__ import annotations

import re

_UNSAFE = (
    "\x00-\x1f\x7f-\x9f"  # controls, also those of eight bits
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # change the direction of text
    "\u2028\u2029"  # end a line
    "\ud800-\udfff"  # cannot be encoded
)
_CONTROLS = re.compile(f"[{_UNSAFE}]")
_CONTROLS_WITHIN_LINES = re.compile(f"(?![\t\n])[{_UNSAFE}]")
_NAMED = {"\t": "\\t", "\n": "\\n", "\r": "\\r"}


def escape_controls(text: str) -> str:
    """Text of several lines without control characters; tabs and newlines are kept."""
    return _CONTROLS_WITHIN_LINES.sub(_describe, text)


def escape_line(text: str) -> str:
    """Text as one line without control characters; a newline becomes a backslash and `n`."""
    return _CONTROLS.sub(_describe, text)


def escape_json(text: str) -> str:
    """The same JSON document without control characters; the newlines between values are kept."""
    return _CONTROLS_WITHIN_LINES.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _describe(match: re.Match[str]) -> str:
    character = match[0]
    code = ord(character)
    return _NAMED.get(character) or (f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}")
