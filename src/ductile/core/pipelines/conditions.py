"""`if`: conditions over payload, context and config, compiled at load, evaluated at run time.

`{path, op, value}` compares; `all`, `any` and `not` combine. Nothing is coerced: a value of
the wrong type makes a comparison false. A missing path is `null` to `eq`, `neq` and `in`, as
in the Go program (so `neq` is true for it), and makes all other comparisons false. Only
a regular expression that is too expensive for its text can fail.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping

from ductile._fast_dataclass import dataclass
from ductile.core.values.json_values import (
    MISSING,
    Failure,
    Missing,
    Ref,
    StepValues,
    are_equal,
    is_number,
    parse_ref,
    shorten,
    to_plain,
)
from ductile.core.values.redact import REDACTED, names_a_secret
from ductile.core.values.regex import Regex, compile_regex
from ductile.core.values.suggest import nearest
from ductile.errors import Path, Problem
from ductile.model import Json

MAX_DEPTH = 3
MAX_NODES = 20

ORDERING: Mapping[str, Callable[[float, float], bool]] = {
    "gt": lambda found, value: found > value,
    "gte": lambda found, value: found >= value,
    "lt": lambda found, value: found < value,
    "lte": lambda found, value: found <= value,
}
TEXTUAL: Mapping[str, Callable[[str, str], bool]] = {
    "contains": lambda found, value: value in found,
    "startswith": lambda found, value: found.startswith(value),
    "endswith": lambda found, value: found.endswith(value),
}
OPERATORS = ("exists", "eq", "neq", "in", *ORDERING, *TEXTUAL, "regex")
COMBINERS = ("all", "any", "not")
_KEYS = ("path", "op", "value", *COMBINERS)


@dataclass(frozen=True, slots=True)
class Comparison:
    """One comparison; for `regex`, `value` is the compiled pattern."""

    ref: Ref
    op: str
    value: Json = None

    def __str__(self) -> str:
        if self.op == "exists":
            return f"{self.ref} exists" if self.value else f"{self.ref} is absent"
        return f"{self.ref} {self.op} {shorten(_plain(self.value), 40)}"


@dataclass(frozen=True, slots=True)
class All:
    parts: tuple[Condition, ...]

    def __str__(self) -> str:
        return f"({' and '.join(map(str, self.parts))})"


@dataclass(frozen=True, slots=True)
class AnyOf:
    parts: tuple[Condition, ...]

    def __str__(self) -> str:
        return f"({' or '.join(map(str, self.parts))})"


@dataclass(frozen=True, slots=True)
class Not:
    part: Condition

    def __str__(self) -> str:
        return f"not {self.part}"


Condition = Comparison | All | AnyOf | Not


def compile_condition(raw: Json, path: Path) -> Condition | list[Problem]:
    """Compile the `if` at `path`, or list every problem in it."""
    compiler = _Compiler()
    condition = compiler.compile(raw, path, 1)
    if compiler.nodes > MAX_NODES:
        compiler.report(path, f"the condition has more than {MAX_NODES} nodes")
    return compiler.problems if condition is None or compiler.problems else condition


def evaluate(condition: Condition, scope: StepValues) -> bool | Failure:
    """Evaluate a condition from left to right, only as far as needed."""
    match condition:
        case Comparison():
            return _compare(condition, scope)
        case All(parts):
            return _first(parts, scope, stop_at=False)
        case AnyOf(parts):
            return _first(parts, scope, stop_at=True)
        case Not(part):
            verdict = evaluate(part, scope)
            return verdict if isinstance(verdict, Failure) else not verdict


def explain(condition: Condition, scope: StepValues) -> str:
    """The comparisons that decide the condition, with the values of both sides and their types.

    A value below a key that names a secret is hidden.
    """
    return "; ".join(_describe(leaf, scope) for leaf in _deciding(condition, scope))


def _deciding(condition: Condition, scope: StepValues) -> Iterator[Comparison]:
    match condition:
        case Comparison():
            yield condition
        case Not(part):
            yield from _deciding(part, scope)
        case All(parts) | AnyOf(parts):
            deciding = isinstance(condition, AnyOf)
            verdicts = [(part, evaluate(part, scope)) for part in parts]
            for part in [part for part, verdict in verdicts if verdict is deciding][:1] or parts:
                yield from _deciding(part, scope)


def _describe(comparison: Comparison, scope: StepValues) -> str:
    ref, value = comparison.ref, comparison.value
    found: Json | Missing = ref.read(scope)
    if found is MISSING:
        return f"{ref} does not exist"
    shown = REDACTED if any(map(names_a_secret, ref.keys)) else shorten(found, 40)
    own, other = _type_of(found), _type_of(value)
    if comparison.op in ("exists", "in") or own == other:
        return f"{ref} is {shown}, {own}"
    return f"{ref}: {shown} is {own}, {shorten(_plain(value), 40)} is {other}"


def _plain(value: Json) -> Json:
    return value.pattern if isinstance(value, Regex) else value


def _type_of(value: Json) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if is_number(value):
        return "a number"
    if isinstance(value, str | Regex):
        return "text"
    return "a list" if isinstance(value, list) else "an object"


def roots(condition: Condition) -> frozenset[str]:
    """Which of payload, context and config the condition reads."""
    return frozenset(ref.root for ref in refs(condition))


def refs(condition: Condition) -> Iterator[Ref]:
    """All references in the condition."""
    match condition:
        case Comparison(ref):
            yield ref
        case All(parts) | AnyOf(parts):
            for part in parts:
                yield from refs(part)
        case Not(part):
            yield from refs(part)


def _first(parts: Iterable[Condition], scope: StepValues, *, stop_at: bool) -> bool | Failure:
    for part in parts:
        verdict = evaluate(part, scope)
        if isinstance(verdict, Failure) or verdict is stop_at:
            return verdict
    return not stop_at


def _compare(comparison: Comparison, scope: StepValues) -> bool | Failure:
    found: Json = comparison.ref.read(scope)
    op, value = comparison.op, comparison.value
    if op == "exists":
        return (found is not MISSING) is value
    if found is MISSING:
        found = None
    if op in ("eq", "neq"):
        return are_equal(found, value) is (op == "eq")
    if op == "in":
        return any(are_equal(found, item) for item in value)
    if op in ORDERING:
        return is_number(found) and ORDERING[op](found, value)
    if not isinstance(found, str):
        return False
    if isinstance(value, Regex):
        return value.fullmatch(found)
    return TEXTUAL[op](found.casefold(), value.casefold())


def _as_number(value: Json) -> str | None:
    """The number that a text is probably meant to be."""
    is_one = isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,15}(\.[0-9]{1,15})?", value)
    return value if is_one else None


class _Compiler:
    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.nodes = 0

    def report(
        self,
        path: Path,
        message: str,
        found: Json = None,
        allowed: str | None = None,
        nearest: str | None = None,
    ) -> None:
        text = None if found is None else shorten(found)
        self.problems.append(Problem(message, path, found=text, allowed=allowed, nearest=nearest))

    def compile(self, raw: Json, path: Path, depth: int) -> Condition | None:
        self.nodes += 1
        if self.nodes > MAX_NODES:
            return None
        if depth > MAX_DEPTH:
            self.report(path, f"the condition is nested deeper than {MAX_DEPTH} levels")
            return None
        if not isinstance(raw, Mapping):
            self.report(path, "a condition must be a mapping", raw, "path and op, all, any or not")
            return None
        given = {key: value for key, value in raw.items() if value is not None or key == "value"}
        for key in given:
            if key not in _KEYS:
                close = nearest(str(key), _KEYS)
                self.report((*path, key), "an unknown key", key, ", ".join(_KEYS), close)
        combiners = [key for key in COMBINERS if key in given]
        single = "path" in given or "op" in given
        if len(combiners) + single != 1:
            allowed = "exactly one of: path with op, all, any, not"
            self.report(path, "a condition must be one thing", sorted(map(str, given)), allowed)
            return None
        if not combiners:
            return self.comparison(given, path)
        return self.combine(combiners[0], given[combiners[0]], path, depth)

    def combine(self, combiner: str, raw: Json, path: Path, depth: int) -> Condition | None:
        path = (*path, combiner)
        if combiner == "not":
            part = self.compile(raw, path, depth + 1)
            return None if part is None else Not(part)
        if not isinstance(raw, list | tuple) or not raw:
            self.report(path, f"{combiner} requires a list of at least one condition", raw)
            return None
        parts = [self.compile(item, (*path, i), depth + 1) for i, item in enumerate(raw)]
        known = tuple(part for part in parts if part is not None)
        return All(known) if combiner == "all" else AnyOf(known)

    def comparison(self, given: Mapping[str, Json], path: Path) -> Comparison | None:
        ref = parse_ref(given.get("path"))
        if isinstance(ref, Failure):
            self.report((*path, "path"), ref.reason, given.get("path"))
        op = given.get("op")
        if op not in OPERATORS:
            close = nearest(str(op), OPERATORS)
            self.report((*path, "op"), "an unknown operator", op, ", ".join(OPERATORS), close)
            return None
        value = self.value(op, given, path)
        return None if isinstance(ref, Failure) else Comparison(ref, op, value)

    def value(self, op: str, given: Mapping[str, Json], path: Path) -> Json:
        value: Json = to_plain(given.get("value"))
        path = (*path, "value")
        if op == "exists":
            if value is not None and not isinstance(value, bool):
                self.report(path, "exists accepts only true or false as value", value)
            return value is not False
        if "value" not in given:
            self.report(path[:-1], f"{op} needs a value")
        elif op == "in" and not isinstance(value, list):
            self.report(path, "in needs a list", value)
        elif op in ORDERING and not is_number(value):
            self.report(path, f"{op} compares numbers", value, nearest=_as_number(value))
        elif op in (*TEXTUAL, "regex") and not isinstance(value, str):
            self.report(path, f"{op} compares text", value)
        elif op == "regex":
            regex = compile_regex(value)
            if isinstance(regex, Regex):
                return regex
            self.report(path, regex.reason, value)
        return value
