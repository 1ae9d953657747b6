"""`.env` files: `NAME=value` lines that stand in where the real environment is silent."""

from __future__ import annotations

import re

from ductile.config.loader.nodes import Place
from ductile.errors import Problem

_LINE = re.compile(r"(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=(.*)\Z")
# The closing quote is the first with nothing but a comment behind it: `"{"a": 1}"` is one value.
_QUOTED = re.compile(r"""\s*(?:"(.*?)"|'(.*?)')(?:\s+#.*|\s*)""")
_COMMENT = re.compile(r"\s#")


def parse(text: str, file: str) -> tuple[dict[str, str], list[Problem]]:
    """The variables of a `.env` file, the first of a name winning, and the lines that are none.

    A problem never quotes its line: it may hold a secret.
    """
    values: dict[str, str] = {}
    problems = []
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        match = _LINE.match(line)
        if match is None:
            problems.append(
                Place(file, number, 1).problem(
                    "not a line of an .env file", allowed="NAME=value, a # comment or nothing"
                )
            )
            continue
        value = _value(match[2])
        if value is None:
            problems.append(
                Place(file, number, 1).problem(
                    "a quoted value ends at its closing quote",
                    allowed="behind it nothing, or a space and a # comment",
                )
            )
            continue
        values.setdefault(match[1], value)
    return values, problems


def _value(text: str) -> str | None:
    """What stands behind the `=`, without quotes and comment; None where a quote is amiss."""
    if quoted := _QUOTED.fullmatch(text):
        return quoted[1] or quoted[2] or ""
    if text.lstrip().startswith(('"', "'")):
        return None
    return _COMMENT.split(text, maxsplit=1)[0].strip()
