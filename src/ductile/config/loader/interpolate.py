"""`${VAR}` and `${VAR:-default}`: hidden while YAML is parsed, expanded after the seal is verified.

`${file:PATH}`, `${credential:NAME}` and `${command:PROGRAM ...}` are references to secrets that are
kept elsewhere. A default may contain references: `${A:-${B:-c}}`. `$${` writes a literal `${`.

Before parsing, each reference is replaced by a placeholder with the same number of characters,
none of which is special in YAML. So `[${A}]` and `{token: ${T}}` parse, a value can never
change the structure around it, and every line and column stays correct.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from ductile._fast_dataclass import dataclass
from ductile.config.loader.nodes import Location, ScalarNode
from ductile.config.loader.secret_sources import (
    KINDS,
    SecretSources,
    UnavailableSecret,
    is_secret_source,
)
from ductile.config.loader.yaml import locate_character
from ductile.errors import Problem, Severity

_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_SECRET_SOURCE = rf"(?:{'|'.join(KINDS)}):(?!-)(?:(?!:-)[^{{}}\r\n])+"
_TOKEN = re.compile(
    rf"(?P<escape>\$\$\{{)|\$\{{(?P<name>{_NAME}|{_SECRET_SOURCE})(?P<end>:-|\}})|(?P<close>\}})|[\r\n]"
)
MAX_NESTING = 50
_LOOKALIKE = re.compile(r"\$\{(?!\s)(?:[^}\r\n]*\}|[A-Za-z_][A-Za-z0-9_]*:-)")
"""Text in braces that is not a reference, or a reference without its closing brace."""

# Plane 16 is for private use and plain text in YAML. The shortest reference has four characters,
# enough for a mark and three digits of this base.
_MARK = 0x100000
_DIGIT = _MARK + 1
_BASE = 65_000
_FILLER = chr(_DIGIT + _BASE)
_ESCAPED = chr(_DIGIT + _BASE + 1) * 3
"""Replaces `$${`."""
RESERVED = re.compile("[\U00100000-\U0010ffff]")
_PLACEHOLDER = re.compile(f"{chr(_MARK)}([{chr(_DIGIT)}-{chr(_DIGIT + _BASE - 1)}]{{3}}){_FILLER}*")


@dataclass(frozen=True, slots=True)
class Reference:
    """A `${...}` as it was written."""

    source: str
    start: int
    """Where it starts in its text."""
    name: str
    """A variable, or `KIND:ARGUMENT` of a secret that is kept elsewhere."""
    default: tuple[str | Reference, ...] | None


@dataclass(slots=True)
class _OpenReference:
    """A `${NAME:-` whose closing brace was not found yet."""

    start: int
    name: str
    default_start: int
    inner: list[Reference]


def _find_references(text: str) -> list[Reference]:
    """The outermost references in `text`; each is on one line."""
    found: list[Reference] = []
    opened: list[_OpenReference] = []

    def close(start: int, end: int, name: str, default: tuple[str | Reference, ...] | None) -> None:
        reference = Reference(text[start:end], start, name, default)
        (opened[-1].inner if opened else found).append(reference)

    def abandon() -> None:
        # Without its closing brace it is ordinary text, around the references inside it.
        for unclosed in opened:
            found.extend(unclosed.inner)
        opened.clear()

    for token in _TOKEN.finditer(text):
        if token["name"] and token["end"] == "}":
            close(token.start(), token.end(), token["name"], None)
        elif token["name"]:
            if len(opened) == MAX_NESTING:
                abandon()
            opened.append(_OpenReference(token.start(), token["name"], token.end(), []))
        elif token["close"] and opened:
            last = opened.pop()
            default = _split_default(text, last, token.start())
            close(last.start, token.end(), last.name, default)
        elif token[0] in "\r\n":
            abandon()
    abandon()
    return found


def _split_default(text: str, reference: _OpenReference, end: int) -> tuple[str | Reference, ...]:
    """The parts of a default: text as it was written, and references."""
    parts: list[str | Reference] = []
    at = reference.default_start
    for inner in reference.inner:
        parts += (text[at : inner.start], inner)
        at = inner.start + len(inner.source)
    return (*parts, text[at:end])


@dataclass(frozen=True, slots=True)
class Expansion:
    """The expanded text of a scalar, and the references in it with their values."""

    text: str
    used: tuple[tuple[str, str], ...] = ()
    missing: tuple[str, ...] = ()
    """Variables that are not set."""
    unavailable: tuple[tuple[str, str], ...] = ()
    """Secrets that cannot be read, with the reason."""


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
        concealed: list[str] = []
        at = 0
        for reference in _find_references(text):
            concealed += (_conceal_escapes(text[at : reference.start]), self._conceal(reference))
            at = reference.start + len(reference.source)
        return "".join((*concealed, _conceal_escapes(text[at:]))), problems

    def _conceal(self, reference: Reference) -> str:
        number = len(self._references)
        self._references.append(reference)
        digits = ""
        for _ in range(3):
            number, digit = divmod(number, _BASE)
            digits += chr(_DIGIT + digit)
        return (chr(_MARK) + digits).ljust(len(reference.source), _FILLER)

    def _reference(self, match: re.Match[str]) -> Reference:
        number = 0
        for digit in reversed(match[1]):
            number = number * _BASE + ord(digit) - _DIGIT
        return self._references[number]

    def restore(self, text: str) -> str:
        """`text` as it was written, with its references."""
        text = text.replace(_ESCAPED, "$${")
        return _PLACEHOLDER.sub(lambda match: self._reference(match).source, text)

    def conceals(self, text: str) -> bool:
        """Whether `text` has a placeholder of a reference or of an escape."""
        return _ESCAPED in text or _PLACEHOLDER.search(text) is not None

    def names_in(self, text: str) -> tuple[str, ...]:
        """The names of the references that `text` conceals, each once."""
        return _names_of([self._reference(match) for match in _PLACEHOLDER.finditer(text)])

    def expand(
        self, scalar: ScalarNode, values: Mapping[str, str], secrets: SecretSources
    ) -> Expansion:
        """The text of `scalar` with its references replaced; values are not expanded again.

        A default is used if the variable is unset or empty, as in the shell, and if the file or
        the credential does not exist or is empty.
        """
        if not self.conceals(scalar.text):
            return Expansion(scalar.text)
        used: list[tuple[str, str]] = []
        missing: list[str] = []
        unavailable: list[tuple[str, str]] = []

        def value_of(reference: Reference) -> str:
            value: str | UnavailableSecret | None
            if is_secret_source(reference.name):
                value = secrets.read(_unescape(reference.name, scalar.style))
                if isinstance(value, UnavailableSecret):
                    if not value.absent or reference.default is None:
                        unavailable.append((reference.name, value.reason))
                        return ""
                    value = None
            else:
                value = values.get(reference.name)
            if reference.default is not None and not value:
                return "".join(
                    _unescape(part, scalar.style) if isinstance(part, str) else value_of(part)
                    for part in reference.default
                )
            if value is None:
                missing.append(reference.name)
                return ""
            used.append((reference.name, value))
            return value

        text = scalar.text.replace(_ESCAPED, "${")
        text = _PLACEHOLDER.sub(lambda match: value_of(self._reference(match)), text)
        return Expansion(text, tuple(used), tuple(missing), tuple(unavailable))


def names_in(text: str) -> tuple[str, ...]:
    """The names of the references in `text`, each once."""
    return _names_of(_find_references(text))


def _names_of(references: list[Reference]) -> tuple[str, ...]:
    names: list[str] = []
    left = list(references)
    while left:
        reference = left.pop(0)
        names.append(reference.name)
        left[:0] = [part for part in reference.default or () if isinstance(part, Reference)]
    return tuple(dict.fromkeys(names))


def _conceal_escapes(text: str) -> str:
    return text.replace("$${", _ESCAPED)


def _unescape(default: str, style: str) -> str:
    """Text of a default, without the escapes of its quoting and of references."""
    default = default.replace("$${", "${")
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
            allowed="${NAME}, ${NAME:-default}, or file:, credential: or command: instead of NAME",
            severity=Severity.WARNING,
        )
    return None
