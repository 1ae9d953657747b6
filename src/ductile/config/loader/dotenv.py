"""`.env` files: `NAME=value` lines for variables that the environment does not set."""

from __future__ import annotations

import re

from ductile.config.loader.nodes import Location
from ductile.errors import Problem

_LINE = re.compile(r"(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=(.*)\Z")
# The closing quote is the first that only a comment follows: `"{"a": 1}"` is one value.
_QUOTED = re.compile(r"""\s*(?:"(.*?)"|'(.*?)')(?:\s+#.*|\s*)""")
_COMMENT = re.compile(r"\s#")


def parse(text: str, file: str) -> tuple[dict[str, str], list[Problem]]:
    """The variables of a `.env` file (the first of a name wins) and the invalid lines.

    A problem never quotes its line, which may contain a secret.
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
                Location(file, number, 1).problem(
                    "this is not a valid line of an .env file",
                    allowed="NAME=value, a # comment or an empty line",
                )
            )
            continue
        value = _value(match[2])
        if value is None:
            problems.append(
                Location(file, number, 1).problem(
                    "there is text after the closing quote",
                    allowed="nothing, or a space and a # comment",
                )
            )
            continue
        values.setdefault(match[1], value)
    return values, problems


def _value(text: str) -> str | None:
    """The value after `=`, without quotes and comment; None if its quoting is wrong."""
    if quoted := _QUOTED.fullmatch(text):
        return quoted[1] or quoted[2] or ""
    if text.lstrip().startswith(('"', "'")):
        return None
    return _COMMENT.split(text, maxsplit=1)[0].strip()
