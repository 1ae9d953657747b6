"""`${VAR}` and `${VAR:-default}`: hidden while YAML is parsed, expanded when it is trusted.

Before parsing, each reference gives way to a placeholder of the same number of characters,
none of which means anything to YAML. So `[${A}]` and `{token: ${T}}` parse, a value can never
change the structure around it, and every line and column stays true.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from ductile.config.loader.nodes import Place, Scalar
from ductile.config.loader.yaml import position
from ductile.errors import Problem, Severity
from ductile.record import dataclass

_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}\r\n]*))?\}")
_LOOKALIKE = re.compile(r"\$\{(?!\s)[^}\r\n]*\}")

# Plane 16 is for private use, YAML takes it for plain text, and the shortest reference has the
# four characters that a mark and three digits of this base need.
_MARK = 0x100000
_DIGIT = _MARK + 1
_BASE = 65_000
_FILLER = chr(_DIGIT + _BASE)
RESERVED = re.compile("[\U00100000-\U0010ffff]")
_PLACEHOLDER = re.compile(f"{chr(_MARK)}([{chr(_DIGIT)}-{chr(_DIGIT + _BASE - 1)}]{{3}}){_FILLER}*")


@dataclass(frozen=True, slots=True)
class Reference:
    """One `${...}` as it was written."""

    source: str
    name: str
    default: str | None


@dataclass(frozen=True, slots=True)
class Expansion:
    """What a scalar became, and the variables that went into it with their values."""

    text: str
    used: tuple[tuple[str, str], ...] = ()
    missing: tuple[str, ...] = ()


class Variables:
    """The references of all files of one configuration."""

    def __init__(self) -> None:
        self._references: list[Reference] = []

    def conceal(self, text: str, file: str) -> tuple[str, list[Problem]]:
        """`text` with placeholders for its references: as long, line by line."""
        problems = []
        if stray := RESERVED.search(text):
            place = position(text, file, stray.start())
            problems.append(
                place.problem("a character of the last private-use plane is reserved here")
            )
            text = RESERVED.sub("x", text)
        return _REFERENCE.sub(self._conceal, text), problems

    def _conceal(self, match: re.Match[str]) -> str:
        number = len(self._references)
        self._references.append(Reference(match[0], match[1], match[2]))
        digits = ""
        for _ in range(3):
            number, digit = divmod(number, _BASE)
            digits += chr(_DIGIT + digit)
        return (chr(_MARK) + digits).ljust(len(match[0]), _FILLER)

    def _reference(self, match: re.Match[str]) -> Reference:
        number = 0
        for digit in reversed(match[1]):
            number = number * _BASE + ord(digit) - _DIGIT
        return self._references[number]

    def restore(self, text: str) -> str:
        """`text` as it was written, nothing expanded."""
        return _PLACEHOLDER.sub(lambda match: self._reference(match).source, text)

    def conceals(self, text: str) -> bool:
        """Whether `text` holds a reference."""
        return _PLACEHOLDER.search(text) is not None

    def expand(self, scalar: Scalar, values: Mapping[str, str]) -> Expansion:
        """The text of `scalar` with its references replaced, once: a value is never expanded.

        A default stands in where the variable is unset or empty, as in the shell.
        """
        if not self.conceals(scalar.text):
            return Expansion(scalar.text)
        used: list[tuple[str, str]] = []
        missing: list[str] = []

        def replace(match: re.Match[str]) -> str:
            reference = self._reference(match)
            value = values.get(reference.name)
            if reference.default is not None and not value:
                return _unquoted(reference.default, scalar.style)
            if value is None:
                missing.append(reference.name)
                return ""
            used.append((reference.name, value))
            return value

        text = _PLACEHOLDER.sub(replace, scalar.text)
        return Expansion(text, tuple(used), tuple(missing))


def names_in(text: str) -> tuple[str, ...]:
    """The variables that `text` refers to, each once."""
    return tuple(dict.fromkeys(match[1] for match in _REFERENCE.finditer(text)))


def _unquoted(default: str, style: str) -> str:
    """A default that stands inside a quoted scalar is written with that quoting."""
    if style == "'":
        return default.replace("''", "'")
    if style == '"':
        return re.sub(r'\\(["\\/])', r"\1", default)
    return default


def lookalike(text: str, place: Place, *, quote: bool) -> Problem | None:
    """A warning for `${...}` that is no reference and so stays as it stands."""
    if match := _LOOKALIKE.search(text):
        return place.problem(
            "this looks like a variable but is none, and is left as it stands",
            found=match[0] if quote else None,
            allowed="${NAME} or ${NAME:-default}",
            severity=Severity.WARNING,
        )
    return None
