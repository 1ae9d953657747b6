"""Escape the characters that a terminal would obey, in text from plugins, files and callers."""

from __future__ import annotations

import re

_UNSAFE = (
    "\x00-\x1f\x7f-\x9f"  # controls, also those of eight bits
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # change the direction of text
    "\u2028\u2029"  # end a line
    "\ud800-\udfff"  # cannot be encoded
    "\U000e0000-\U000e007f"  # invisible, and read by programs
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
    return _CONTROLS_WITHIN_LINES.sub(_describe_json, text)


def _describe(match: re.Match[str]) -> str:
    character = match[0]
    code = ord(character)
    if code > 0xFFFF:
        return f"\\U{code:08x}"
    return _NAMED.get(character) or (f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}")


def _describe_json(match: re.Match[str]) -> str:
    # JSON names a character beyond U+FFFF by its two units of UTF-16.
    units = match[0].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[start : start + 4]}" for start in range(0, len(units), 4))
