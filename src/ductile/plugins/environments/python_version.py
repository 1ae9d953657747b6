"""Compare a Python version with a `requires-python` specifier."""

from __future__ import annotations

import re

PythonVersion = tuple[int, int, int]
_CLAUSE = re.compile(
    r"(~=|===?|!=|<=|>=|<|>)\s*v?(\d{1,4}(?:\.\d{1,4}){0,3})(\.\*)?((?:a|b|rc)\d+)?"
)
_NEWEST_PATCH = 60


class InvalidSpecifier(ValueError):
    """The text is not a version specifier."""


def is_satisfied(specifier: str, version: PythonVersion) -> bool:
    """Whether a released Python satisfies every clause of a specifier such as `>=3.11,<4`.

    A pre-release in a clause counts as its release. Raises `InvalidSpecifier`.
    """
    clauses = [clause.strip() for clause in specifier.split(",")]
    # Every clause, also after one that is not met: all have to be valid.
    met = [_is_met(clause, version) for clause in clauses if clause]
    return all(met)


def may_satisfy(specifier: str, major: int, minor: int) -> bool:
    """Whether some patch release of a Python version satisfies a specifier."""
    return any(is_satisfied(specifier, (major, minor, patch)) for patch in range(_NEWEST_PATCH))


def _is_met(clause: str, version: PythonVersion) -> bool:
    found = _CLAUSE.fullmatch(clause)
    if found is None:
        raise InvalidSpecifier(f"{clause!r} is not a version specifier such as >=3.11")
    operator, numbers, wildcard, _ = found.groups()
    parts = tuple(int(number) for number in numbers.split("."))
    if wildcard and operator not in ("==", "!="):
        raise InvalidSpecifier(f"{clause!r}: `.*` is allowed after == and != only")
    if operator == "~=":
        if len(parts) < 2:
            raise InvalidSpecifier(f"{clause!r}: ~= needs at least two numbers")
        return version >= _pad(parts) and version[: len(parts) - 1] == parts[:-1]
    if wildcard:
        is_equal = version[: len(parts)] == parts[:3]
        return is_equal == (operator == "==")
    wanted = _pad(parts)
    return {
        "==": version == wanted,
        "===": version == wanted,
        "!=": version != wanted,
        "<": version < wanted,
        "<=": version <= wanted,
        ">": version > wanted,
        ">=": version >= wanted,
    }[operator]


def _pad(parts: tuple[int, ...]) -> PythonVersion:
    major, minor, patch = (*parts, 0, 0)[:3]
    return major, minor, patch
