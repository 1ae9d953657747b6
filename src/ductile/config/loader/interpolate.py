"""`${VAR}` and `${VAR:-default}`: hidden while YAML is parsed, expanded after the seal is verified.

Before parsing, each reference is replaced by a placeholder with the same number of characters,
none of which is special in YAML. So `[${A}]` and `{token: ${T}}` parse, a value can never
change the structure around it, and every line and column stays correct.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from ductile._fast_dataclass import dataclass
from ductile.config.loader.nodes import Location, ScalarNode
from ductile.config.loader.yaml import locate_character
from ductile.errors import Problem, Severity

_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}\r\n]*))?\}")
_LOOKALIKE = re.compile(r"\$\{(?!\s)[^}\r\n]*\}")

# Plane 16 is for private use and plain text in YAML. The shortest reference has four characters,
# enough for a mark and three digits of this base.
_MARK = 0x100000
_DIGIT = _MARK + 1
_BASE = 65_000
_FILLER = chr(_DIGIT + _BASE)
RESERVED = re.compile("[\U00100000-\U0010ffff]")
_PLACEHOLDER = re.compile(f"{chr(_MARK)}([{chr(_DIGIT)}-{chr(_DIGIT + _BASE - 1)}]{{3}}){_FILLER}*")


@dataclass(frozen=True, slots=True)
class Reference:
    """A `${...}` as it was written."""

    source: str
    name: str
    default: str | None


@dataclass(frozen=True, slots=True)
class Expansion:
    """The expanded text of a scalar, and the variables in it with their values."""

    text: str
    used: tuple[tuple[str, str], ...] = ()
    missing: tuple[str, ...] = ()


class Variables:
    """The references of all files of one configuration."""

    def __init__(self) -> None:
        self._references: list[Reference] = []

    def conceal(self, text: str, file: str) -> tuple[str, list[Problem]]:
        """`text` with placeholders for its references; every line keeps its length."""
        problems = []
        if stray := RESERVED.search(text):
            location = locate_character(text, file, stray.start())
            problems.append(
                location.problem("characters from U+100000 on are reserved; remove this one")
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
        """`text` as it was written, with its references."""
        return _PLACEHOLDER.sub(lambda match: self._reference(match).source, text)

    def conceals(self, text: str) -> bool:
        """Whether `text` has a placeholder of a reference."""
        return _PLACEHOLDER.search(text) is not None

    def expand(self, scalar: ScalarNode, values: Mapping[str, str]) -> Expansion:
        """The text of `scalar` with its references replaced; values are not expanded again.

        A default is used if the variable is unset or empty, as in the shell.
        """
        if not self.conceals(scalar.text):
            return Expansion(scalar.text)
        used: list[tuple[str, str]] = []
        missing: list[str] = []

        def replace(match: re.Match[str]) -> str:
            reference = self._reference(match)
            value = values.get(reference.name)
            if reference.default is not None and not value:
                return _unescape(reference.default, scalar.style)
            if value is None:
                missing.append(reference.name)
                return ""
            used.append((reference.name, value))
            return value

        text = _PLACEHOLDER.sub(replace, scalar.text)
        return Expansion(text, tuple(used), tuple(missing))


def names_in(text: str) -> tuple[str, ...]:
    """The names of the variables that `text` refers to, each once."""
    return tuple(dict.fromkeys(match[1] for match in _REFERENCE.finditer(text)))


def _unescape(default: str, style: str) -> str:
    """A default inside a quoted scalar, without the escapes of that quoting."""
    if style == "'":
        return default.replace("''", "'")
    if style == '"':
        return re.sub(r'\\(["\\/])', r"\1", default)
    return default


def warn_of_lookalike(text: str, location: Location, *, quote: bool) -> Problem | None:
    """A warning for `${...}` that is not a valid reference and is left unchanged."""
    if match := _LOOKALIKE.search(text):
        return location.problem(
            "this is not a valid variable reference and is left unchanged",
            found=match[0] if quote else None,
            allowed="${NAME} or ${NAME:-default}",
            severity=Severity.WARNING,
        )
    return None
