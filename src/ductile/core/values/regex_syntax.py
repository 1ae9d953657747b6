"""The syntax of regular expressions: what is read, and what is refused by name.

Read: literals, `.`, classes with ranges and `[:alpha:]`, `\\d \\D \\w \\W \\s \\S`, `\\n` and the
like, `\\x41`, `\\x{1F600}`, groups (plain, `(?:...)`, named), `|`, `* + ? {m} {m,} {m,n}` (also
lazy, which is the same for a whole match), `^ $ \\A \\z \\b \\B`, and the flags `i m s U`.
Refused, because no automaton can do them or nobody asked: look-around, backreferences,
atomic groups, possessive quantifiers, `\\p{...}`.
"""

from __future__ import annotations

from enum import Enum, auto

from ductile.record import dataclass

MAX_PATTERN = 1_000
MAX_NESTING = 50
MAX_REPEAT = 1_000
_LAST = 0x10FFFF

Ranges = tuple[tuple[int, int], ...]


class SyntaxFault(Exception):
    """What is wrong with a pattern, and at which character of it."""

    def __init__(self, reason: str, position: int) -> None:
        super().__init__(reason)
        self.reason = reason
        self.position = position


class Assertion(Enum):
    TEXT_START = auto()
    TEXT_END = auto()
    LINE_START = auto()
    LINE_END = auto()
    WORD_BOUNDARY = auto()
    NO_WORD_BOUNDARY = auto()


@dataclass(frozen=True, slots=True)
class Characters:
    """One character out of a set."""

    ranges: Ranges
    negated: bool = False
    fold: bool = False

    def accepts(self, character: str) -> bool:
        variants = {character}
        if self.fold:
            variants |= {character.lower(), character.upper()}
        found = any(
            low <= ord(variant) <= high
            for variant in variants
            if len(variant) == 1
            for low, high in self.ranges
        )
        return found != self.negated


@dataclass(frozen=True, slots=True)
class Boundary:
    """A condition on what stands beside the position; it consumes nothing."""

    kind: Assertion


@dataclass(frozen=True, slots=True)
class Sequence:
    parts: tuple[Pattern, ...]


@dataclass(frozen=True, slots=True)
class Alternation:
    parts: tuple[Pattern, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    part: Pattern
    least: int
    most: int | None


Pattern = Characters | Boundary | Sequence | Alternation | Repeat

_DIGIT: Ranges = ((0x30, 0x39),)
_LOWER: Ranges = ((0x61, 0x7A),)
_UPPER: Ranges = ((0x41, 0x5A),)
_WORD: Ranges = (*_DIGIT, *_UPPER, (0x5F, 0x5F), *_LOWER)
_SPACE: Ranges = ((0x09, 0x0A), (0x0C, 0x0D), (0x20, 0x20))
_PERL = {"d": _DIGIT, "w": _WORD, "s": _SPACE}
_POSIX: dict[str, Ranges] = {
    "alnum": (*_DIGIT, *_UPPER, *_LOWER),
    "alpha": (*_UPPER, *_LOWER),
    "ascii": ((0, 0x7F),),
    "blank": ((0x09, 0x09), (0x20, 0x20)),
    "cntrl": ((0, 0x1F), (0x7F, 0x7F)),
    "digit": _DIGIT,
    "graph": ((0x21, 0x7E),),
    "lower": _LOWER,
    "print": ((0x20, 0x7E),),
    "punct": ((0x21, 0x2F), (0x3A, 0x40), (0x5B, 0x60), (0x7B, 0x7E)),
    "space": ((0x09, 0x0D), (0x20, 0x20)),
    "upper": _UPPER,
    "word": _WORD,
    "xdigit": (*_DIGIT, (0x41, 0x46), (0x61, 0x66)),
}
_CONTROL = {"a": 0x07, "f": 0x0C, "n": 0x0A, "r": 0x0D, "t": 0x09, "v": 0x0B}
_ANCHORS = {
    "A": Assertion.TEXT_START,
    "z": Assertion.TEXT_END,
    "b": Assertion.WORD_BOUNDARY,
    "B": Assertion.NO_WORD_BOUNDARY,
}
_REFUSED_GROUPS = {
    "?=": "look-ahead is not supported",
    "?!": "look-ahead is not supported",
    "?<=": "look-behind is not supported",
    "?<!": "look-behind is not supported",
    "?P=": "backreferences are not supported",
    "?>": "atomic groups are not supported",
    "?#": "comments are not supported",
    "?(": "conditional groups are not supported",
}


def parse(pattern: str) -> Pattern:
    """The pattern as a tree; raises `SyntaxFault`."""
    if len(pattern) > MAX_PATTERN:
        raise SyntaxFault(f"the pattern is longer than {MAX_PATTERN} characters", MAX_PATTERN)
    reader = _Reader(pattern)
    tree = reader.alternation()
    if reader.position < len(pattern):
        raise reader.fault("a ) without its (")
    return tree


class _Reader:
    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.position = 0
        self.nesting = 0
        self.flags: frozenset[str] = frozenset()

    def fault(self, reason: str, position: int | None = None) -> SyntaxFault:
        return SyntaxFault(reason, self.position if position is None else position)

    def peek(self) -> str:
        """The next character, or the empty text at the end."""
        return self.pattern[self.position : self.position + 1]

    def take(self, text: str) -> bool:
        if not self.pattern.startswith(text, self.position):
            return False
        self.position += len(text)
        return True

    def until(self, text: str, reason: str) -> str:
        end = self.pattern.find(text, self.position)
        if end < 0:
            raise self.fault(reason)
        found = self.pattern[self.position : end]
        self.position = end + len(text)
        return found

    def alternation(self) -> Pattern:
        parts = [self.sequence()]
        while self.take("|"):
            parts.append(self.sequence())
        return parts[0] if len(parts) == 1 else Alternation(tuple(parts))

    def sequence(self) -> Pattern:
        parts: list[Pattern] = []
        while self.peek() not in ("", "|", ")"):
            parts.append(self.repeated())
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def repeated(self) -> Pattern:
        start = self.position
        if self.quantifier() is not None:
            raise self.fault("nothing to repeat", start)
        part = self.atom()
        bounds = self.quantifier()
        if bounds is None:
            return part
        if self.peek() == "+":
            raise self.fault("possessive quantifiers are not supported")
        self.take("?")
        start = self.position
        if self.quantifier() is not None:
            raise self.fault("a quantifier after a quantifier", start)
        return Repeat(part, *bounds)

    def quantifier(self) -> tuple[int, int | None] | None:
        for sign, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self.take(sign):
                return bounds
        return self.counted() if self.peek() == "{" else None

    def counted(self) -> tuple[int, int | None] | None:
        """`{m}`, `{m,}` or `{m,n}`; any other brace is a literal, as in Go."""
        end = self.pattern.find("}", self.position)
        inner = self.pattern[self.position + 1 : end] if end > 0 else ""
        least, comma, most = inner.partition(",")
        if comma and not least and _is_count(most):
            raise self.fault(f"write {{0,{most}}} for {{,{most}}}")
        if not _is_count(least) or (most and not _is_count(most)):
            return None
        bounds = (int(least), int(most) if most else None if comma else int(least))
        if bounds[0] > MAX_REPEAT or (bounds[1] or 0) > MAX_REPEAT:
            raise self.fault(f"more than {MAX_REPEAT} repetitions")
        if bounds[1] is not None and bounds[1] < bounds[0]:
            raise self.fault("a repetition whose upper bound is below its lower")
        self.position = end + 1
        return bounds

    def atom(self) -> Pattern:
        start = self.position
        character = self.peek()
        self.position += 1
        match character:
            case "(":
                return self.group(start)
            case "[":
                return self.characters(start)
            case ".":
                ranges: Ranges = () if "s" in self.flags else ((0x0A, 0x0A),)
                return Characters(ranges, negated=True)
            case "^":
                lines = "m" in self.flags
                return Boundary(Assertion.LINE_START if lines else Assertion.TEXT_START)
            case "$":
                lines = "m" in self.flags
                return Boundary(Assertion.LINE_END if lines else Assertion.TEXT_END)
            case "\\":
                return self.escape(start)
            case _:
                return self.literal(ord(character))

    def literal(self, code: int) -> Characters:
        return Characters(((code, code),), fold="i" in self.flags)

    def group(self, start: int) -> Pattern:
        for opening, reason in _REFUSED_GROUPS.items():
            if self.pattern.startswith(opening, self.position):
                raise self.fault(reason, start)
        outer = self.flags
        if self.take("?P<") or self.take("?<"):
            name = self.until(">", "a group's name without its >")
            if not name.isidentifier():
                raise self.fault(f"{name!r} is no name for a group", start)
        elif self.take("?") and not self.group_flags(start):
            return Sequence(())
        self.nesting += 1
        if self.nesting > MAX_NESTING:
            raise self.fault(f"groups nested deeper than {MAX_NESTING}", start)
        tree = self.alternation()
        if not self.take(")"):
            raise self.fault("a ( without its )", start)
        self.nesting -= 1
        self.flags = outer
        return tree

    def group_flags(self, start: int) -> bool:
        """Read `i-s:` or `i)`; False where the flags hold for the rest of the group around."""
        added: set[str] = set()
        removed: set[str] = set()
        removing = False
        while (flag := self.peek()) not in ("", ":", ")"):
            self.position += 1
            if flag == "-" and not removing:
                removing = True
            elif flag in "imsU":
                (removed if removing else added).add(flag)
            else:
                raise self.fault(f"(?{flag} is not supported", start)
        if not self.peek():
            raise self.fault("a ( without its )", start)
        self.flags = (self.flags | added) - removed
        self.position += 1
        return self.pattern[self.position - 1] == ":"

    def escape(self, start: int) -> Pattern:
        character = self.peek()
        if character in _ANCHORS:
            self.position += 1
            return Boundary(_ANCHORS[character])
        if character.lower() in _PERL:
            self.position += 1
            return Characters(_PERL[character.lower()], negated=character.isupper())
        return self.literal(self.escaped(start))

    def escaped(self, start: int) -> int:
        """The one character that an escape stands for."""
        character = self.peek()
        if not character:
            raise self.fault("a \\ at the end", start)
        self.position += 1
        if character == "x":
            return self.hexadecimal(start)
        if character in _CONTROL:
            return _CONTROL[character]
        if character in "123456789":
            raise self.fault("backreferences are not supported", start)
        if character.isascii() and character.isalnum():
            raise self.fault(f"\\{character} is not supported", start)
        return ord(character)

    def hexadecimal(self, start: int) -> int:
        if self.take("{"):
            digits = self.until("}", "a \\x{ without its }")
        else:
            digits = self.pattern[self.position : self.position + 2]
            self.position += 2
        known = 0 < len(digits) <= 8 and all(digit in "0123456789abcdefABCDEF" for digit in digits)
        if not known or int(digits, 16) > _LAST:
            raise self.fault("\\x needs two hexadecimal digits, or some in braces", start)
        return int(digits, 16)

    def characters(self, start: int) -> Characters:
        negated = self.take("^")
        ranges: list[tuple[int, int]] = []
        first = True
        while first or self.peek() != "]":
            if not self.peek():
                raise self.fault("a [ without its ]", start)
            ranges.extend(self.class_item())
            first = False
        self.position += 1
        return Characters(tuple(sorted(set(ranges))), negated, fold="i" in self.flags)

    def class_item(self) -> Ranges:
        start = self.position
        if self.take("[:"):
            name = self.until(":]", "a [: without its :]")
            if name.removeprefix("^") not in _POSIX:
                raise self.fault(f"[:{name}:] is not known", start)
            known = _POSIX[name.removeprefix("^")]
            return _complement(known) if name.startswith("^") else known
        low = self.class_member()
        if isinstance(low, tuple):
            return low
        if self.peek() != "-" or self.pattern[self.position + 1 : self.position + 2] in ("]", ""):
            return ((low, low),)
        self.position += 1
        high = self.class_member()
        if isinstance(high, tuple) or high < low:
            raise self.fault("a range out of order", start)
        return ((low, high),)

    def class_member(self) -> int | Ranges:
        start = self.position
        character = self.peek()
        self.position += 1
        if character != "\\":
            if not character:
                raise self.fault("a [ without its ]", start)
            return ord(character)
        following = self.peek()
        if following.lower() in _PERL:
            self.position += 1
            ranges = _PERL[following.lower()]
            return _complement(ranges) if following.isupper() else ranges
        return self.escaped(start)


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 10


def _complement(ranges: Ranges) -> Ranges:
    gaps, start = [], 0
    for low, high in sorted(ranges):
        if start < low:
            gaps.append((start, low - 1))
        start = high + 1
    return (*gaps, (start, _LAST))
