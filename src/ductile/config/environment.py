"""`.env` files: `NAME=value` lines that stand in where the real environment is silent."""

from __future__ import annotations

import re

from ductile.config.nodes import Place
from ductile.errors import Problem

_LINE = re.compile(r"(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=(.*)\Z")


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
        values.setdefault(match[1], _unquote(match[2].strip()))
    return values, problems


def _unquote(value: str) -> str:
    if len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'":
        return value[1:-1]
    return value
