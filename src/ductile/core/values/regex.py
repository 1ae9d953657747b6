"""Regular expressions that match a whole string in bounded time.

The pattern becomes a Thompson automaton; matching follows all its threads at once, so that
no pattern and no text can make it backtrack. Sets of threads are remembered as the states
of a deterministic automaton built along the way, which makes the usual character one
dictionary look-up. What even that cannot bound, a budget does: a match that would be too
dear gives up with a `Failure`.

The syntax and its meaning are those of Go's `regexp` (RE2): `\\d \\w \\s \\b` are ASCII, `$`
is the very end. See `regex_syntax` for what is read and what is refused.
"""

from __future__ import annotations

from collections.abc import Iterator

from ductile.core.values.json_values import Failure
from ductile.core.values.regex_syntax import (
    Alternation,
    Assertion,
    Boundary,
    Characters,
    Pattern,
    Repeat,
    Sequence,
    SyntaxFault,
    parse,
)
from ductile.record import dataclass

MAX_INSTRUCTIONS = 5_000
MAX_TEXT = 1024 * 1024
BUDGET = 500_000

# What stands on one side of a position.
_EDGE, _NEWLINE, _WORD, _OTHER = range(4)

_Instruction = Characters | Boundary | tuple[int, ...]
"""Consume one character and go on; hold and go on; or go on at each of the targets."""


@dataclass(frozen=True, slots=True)
class Regex:
    """A compiled pattern. Immutable: what a match learns is forgotten with it."""

    pattern: str
    program: tuple[_Instruction, ...]
    alphabet: tuple[tuple[Characters, int], ...]
    """Each distinct set of characters, with a bit for every instruction that consumes it."""
    anchored: bool
    """Whether any instruction asks what stands beside a position."""

    def fullmatch(self, text: str) -> bool | Failure:
        """Whether the whole text matches."""
        if len(text) > MAX_TEXT:
            return Failure(f"the text is longer than {MAX_TEXT} characters: too long for regex")
        return _Match(self).run(text)


def compile_regex(pattern: str) -> Regex | Failure:
    """Compile a pattern, or say what in it is wrong or not supported, and where."""
    try:
        tree = parse(pattern)
    except SyntaxFault as fault:
        return Failure(f"{fault.reason} at character {fault.position + 1}")
    if _cost(tree) > MAX_INSTRUCTIONS:
        return Failure(f"the pattern unfolds to more than {MAX_INSTRUCTIONS} instructions")
    program: list[_Instruction] = []
    _emit(tree, program)
    masks: dict[Characters, int] = {}
    for index, instruction in enumerate(program):
        if isinstance(instruction, Characters):
            masks[instruction] = masks.get(instruction, 0) | 1 << index
    return Regex(
        pattern,
        tuple(program),
        tuple(masks.items()),
        any(isinstance(instruction, Boundary) for instruction in program),
    )


def _cost(tree: Pattern) -> int:
    """At least the number of instructions, and of calls, that emitting the tree takes."""
    match tree:
        case Sequence(parts) | Alternation(parts):
            return 1 + sum(2 + _cost(part) for part in parts)
        case Repeat(part, least, most):
            return 1 + (2 + _cost(part)) * max(least + 1 if most is None else most, 1)
        case _:
            return 1


def _emit(tree: Pattern, program: list[_Instruction]) -> None:
    match tree:
        case Characters() | Boundary():
            program.append(tree)
        case Sequence(parts):
            for part in parts:
                _emit(part, program)
        case Alternation(parts):
            _emit_alternation(parts, program)
        case Repeat(part, least, most):
            for _ in range(least):
                _emit(part, program)
            if most is None:
                _emit_loop(part, program)
            else:
                _emit_options(part, most - least, program)


def _emit_alternation(parts: tuple[Pattern, ...], program: list[_Instruction]) -> None:
    fork = len(program)
    program.append(())
    starts, ends = [], []
    for part in parts:
        starts.append(len(program))
        _emit(part, program)
        ends.append(len(program))
        program.append(())
    program[fork] = tuple(starts)
    for end in ends:
        program[end] = (len(program),)


def _emit_loop(part: Pattern, program: list[_Instruction]) -> None:
    fork = len(program)
    program.append(())
    _emit(part, program)
    program.append((fork,))
    program[fork] = (fork + 1, len(program))


def _emit_options(part: Pattern, times: int, program: list[_Instruction]) -> None:
    forks = []
    for _ in range(times):
        forks.append(len(program))
        program.append(())
        _emit(part, program)
    for fork in forks:
        program[fork] = (fork + 1, len(program))


class _State:
    """A set of threads, one bit an instruction, and what stands before the position."""

    __slots__ = ("after", "before", "threads")

    def __init__(self, threads: int, before: int) -> None:
        self.threads = threads
        self.before = before
        self.after: dict[str, _State] = {}


class _Match:
    """One match at work."""

    def __init__(self, regex: Regex) -> None:
        self.regex = regex
        self.end = 1 << len(regex.program)
        self.budget = BUDGET
        self.states: dict[tuple[int, int], _State] = {}
        self.accepting: dict[str, int] = {}
        self.reach: dict[tuple[int, int, int], int] = {}

    def run(self, text: str) -> bool | Failure:
        state = _State(1, _EDGE)
        for character in text:
            following = state.after.get(character)
            if following is None:
                following = self._step(state, character)
                if self.budget < 0:
                    return Failure(f"regex {self.regex.pattern!r} gave up: too dear on this text")
            state = following
            if not state.threads:
                return False
        return bool(self._closure(state, _EDGE) & self.end)

    def _step(self, state: _State, character: str) -> _State:
        beside = _kind(character) if self.regex.anchored else _OTHER
        consumed = self._closure(state, beside) & self._accepting(character)
        key = (consumed << 1, beside)
        following = self.states.get(key)
        if following is None:
            following = self.states[key] = _State(*key)
        state.after[character] = following
        return following

    def _accepting(self, character: str) -> int:
        mask = self.accepting.get(character)
        if mask is None:
            self.budget -= len(self.regex.alphabet)
            mask = sum(bits for chars, bits in self.regex.alphabet if chars.accepts(character))
            self.accepting[character] = mask
        return mask

    def _closure(self, state: _State, after: int) -> int:
        before = state.before if self.regex.anchored else _OTHER
        after = after if self.regex.anchored else _OTHER
        reached = 0
        self.budget -= 4
        for index in _bits(state.threads):
            self.budget -= 1
            key = (index, before, after)
            if key not in self.reach:
                self.reach[key] = self._reach(*key)
            reached |= self.reach[key]
        return reached

    def _reach(self, start: int, before: int, after: int) -> int:
        """The consuming instructions, or the end, that a thread gets to without a character."""
        reached, seen, open_ = 0, {start}, [start]
        while open_:
            index = open_.pop()
            self.budget -= 1
            instruction = self.regex.program[index] if index < len(self.regex.program) else None
            if instruction is None or isinstance(instruction, Characters):
                reached |= 1 << index
                continue
            targets: tuple[int, ...]
            if isinstance(instruction, Boundary):
                targets = (index + 1,) if _holds(instruction.kind, before, after) else ()
            else:
                targets = instruction
            fresh = [target for target in targets if target not in seen]
            seen.update(fresh)
            open_.extend(fresh)
        return reached


def _bits(mask: int) -> Iterator[int]:
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


def _kind(character: str) -> int:
    if character == "\n":
        return _NEWLINE
    return _WORD if character.isascii() and (character.isalnum() or character == "_") else _OTHER


def _holds(assertion: Assertion, before: int, after: int) -> bool:
    match assertion:
        case Assertion.TEXT_START:
            return before == _EDGE
        case Assertion.TEXT_END:
            return after == _EDGE
        case Assertion.LINE_START:
            return before in (_EDGE, _NEWLINE)
        case Assertion.LINE_END:
            return after in (_EDGE, _NEWLINE)
        case Assertion.WORD_BOUNDARY:
            return (before == _WORD) != (after == _WORD)
        case Assertion.NO_WORD_BOUNDARY:
            return (before == _WORD) == (after == _WORD)
