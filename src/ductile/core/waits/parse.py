"""Parses `wait:` of a step: for a person, for an event, until a time, or for a duration."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from ductile._fast_dataclass import dataclass
from ductile.clock import moment_of
from ductile.core.jobs.limits import LONGEST_NAME, fits
from ductile.core.pipelines.conditions import compile_condition, roots
from ductile.core.pipelines.templates import (
    Literal,
    Template,
    compile_template,
    find_mistakes,
)
from ductile.core.values.json_values import is_number, shorten, to_plain
from ductile.core.values.suggest import nearest
from ductile.errors import Path, Problem
from ductile.model import Json

_KEYS = ("approval", "event", "if", "until", "for", "timeout", "on_timeout")
_APPROVAL_KEYS = ("title", "description")


class WaitKind(StrEnum):
    APPROVAL = "approval"
    EVENT = "event"
    UNTIL = "until"
    FOR = "for"


OPEN_ENDED = frozenset({WaitKind.APPROVAL, WaitKind.EVENT})
"""The kinds that have no end of their own: they need a `timeout` to have one."""


class OnTimeout(StrEnum):
    FAIL = "fail"
    """The step ends as `failed`."""
    CONTINUE = "continue"
    """The next step runs, and its payload reports that the wait has expired."""
    SKIP = "skip"
    """The step ends as `skipped`, and the steps after it do not run."""


@dataclass(frozen=True, slots=True)
class WaitStep:
    """A compiled `wait:`."""

    kind: WaitKind
    title: Template = Literal("")
    description: Template = Literal("")
    event: str = ""
    condition: Template | None = None
    """The `if` of an event. Its values are rendered when the wait begins, and the rest is compiled
    when an event arrives."""
    until: Template = Literal("")
    seconds: float = 0.0
    timeout: float | None = None
    on_timeout: OnTimeout = OnTimeout.FAIL

    @property
    def is_endless(self) -> bool:
        """Whether it may wait without an end."""
        return self.kind in OPEN_ENDED and self.timeout is None

    def __str__(self) -> str:
        match self.kind:
            case WaitKind.APPROVAL:
                text = "approval"
            case WaitKind.EVENT:
                text = f"event {self.event}"
            case WaitKind.UNTIL:
                text = "until a time"
            case WaitKind.FOR:
                text = _span(self.seconds)
        if self.timeout is None:
            return text
        return f"{text}, at most {_span(self.timeout)}, then {self.on_timeout}"


def _span(seconds: float) -> str:
    """A duration in the notation of the files, in the largest exact unit."""
    for unit, size in (("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds % size == 0:
            return f"{seconds / size:.0f}{unit}"
    return f"{seconds:g}s"


def read_wait(raw: Json, at: Path, problems: list[Problem]) -> WaitStep | None:
    """The compiled `wait:`; None if it has an error. Problems are added to `problems`."""
    if is_number(raw):
        # A duration, which the configuration has already turned into seconds.
        raw = {"for": raw}
    reader = _WaitReader(at, problems)
    before = len(problems)
    step = reader.read(raw)
    return step if len(problems) == before else None


class _WaitReader:
    def __init__(self, at: Path, problems: list[Problem]) -> None:
        self.at, self.problems = at, problems

    def report(
        self, key: Path, message: str, found: Json = None, allowed: str = "", close: str = ""
    ) -> None:
        text = None if found is None else shorten(found)
        at = (*self.at, *key)
        self.problems.append(
            Problem(message, at, found=text, allowed=allowed or None, nearest=close or None)
        )

    def read(self, raw: Json) -> WaitStep | None:
        if not isinstance(raw, Mapping):
            self.report((), "wait must be a duration or a mapping", raw, ", ".join(_KEYS))
            return None
        given = {key: value for key, value in raw.items() if value is not None}
        self.refuse_unknown(given, _KEYS, ())
        kinds = [kind for kind in WaitKind if kind in given]
        if len(kinds) != 1:
            allowed = f"exactly one of: {', '.join(WaitKind)}"
            self.report((), "a wait must be of one kind", [str(kind) for kind in kinds], allowed)
            return None
        kind = kinds[0]
        if "if" in given and kind is not WaitKind.EVENT:
            self.report(("if",), "if belongs on a wait for an event; elsewhere it is the step's")
        for key in ("timeout", "on_timeout"):
            if key in given and kind not in OPEN_ENDED:
                self.report((key,), f"{key} has no effect: the wait ends by itself", given[key])
        if "on_timeout" in given and "timeout" not in given and kind in OPEN_ENDED:
            self.report(("on_timeout",), "on_timeout requires a timeout", given["on_timeout"])
        title, description = self.approval(given.get("approval"))
        return WaitStep(
            kind=kind,
            title=title,
            description=description,
            event=self.event(given),
            condition=self.condition(given),
            until=self.until(given),
            seconds=self.seconds(given, "for") or 0.0,
            timeout=self.seconds(given, "timeout"),
            on_timeout=self.on_timeout(given),
        )

    def refuse_unknown(self, given: Mapping[str, Json], keys: tuple[str, ...], at: Path) -> None:
        for key in given:
            if key not in keys:
                close = nearest(str(key), keys) or ""
                self.report((*at, key), "an unknown key", key, ", ".join(keys), close)

    def approval(self, raw: Json) -> tuple[Template, Template]:
        if raw is None:
            return Literal(""), Literal("")
        if isinstance(raw, str):
            raw = {"title": raw}
        if not isinstance(raw, Mapping):
            allowed = "the title, or a mapping with title and description"
            self.report(("approval",), "must be text or a mapping", raw, allowed)
            return Literal(""), Literal("")
        self.refuse_unknown(raw, _APPROVAL_KEYS, ("approval",))
        title = raw.get("title")
        if not isinstance(title, str) or not title.strip():
            self.report(("approval",), "an approval requires a title", title)
        texts = [self.text(raw.get(key), ("approval", key)) for key in _APPROVAL_KEYS]
        return texts[0], texts[1]

    def text(self, raw: Json, key: Path) -> Template:
        if raw is None:
            return Literal("")
        if not isinstance(raw, str):
            self.report(key, "must be text", raw)
            return Literal("")
        return self.template(raw, key) or Literal("")

    def template(self, raw: Json, key: Path) -> Template | None:
        at = (*self.at, *key)
        self.problems.extend(find_mistakes(raw, at))
        compiled = compile_template(raw, at)
        if isinstance(compiled, list):
            self.problems.extend(compiled)
            return None
        return compiled

    def event(self, given: Mapping[str, Json]) -> str:
        event = given.get("event", "")
        if "event" in given and (not isinstance(event, str) or not event.strip()):
            self.report(("event",), "must be the type of an event", event)
            return ""
        if not fits(str(event), LONGEST_NAME):
            allowed = f"at most {LONGEST_NAME} bytes"
            self.report(("event",), "the event type is too long", event, allowed)
        return str(event)

    def condition(self, given: Mapping[str, Json]) -> Template | None:
        if "if" not in given:
            return None
        compiled = compile_condition(given["if"], (*self.at, "if"))
        if isinstance(compiled, list):
            self.problems.extend(compiled)
            return None
        if "config" in roots(compiled):
            self.report(("if",), "the `if` of a wait cannot read config.*: a wait has no plugin")
        return self.template(to_plain(given["if"]), ("if",))

    def until(self, given: Mapping[str, Json]) -> Template:
        raw = given.get("until")
        if raw is None:
            return Literal("")
        allowed = "a time such as 2027-01-31T09:00:00+01:00, or a template that gives one"
        if not isinstance(raw, str):
            self.report(("until",), "must be a time", raw, allowed)
            return Literal("")
        template = self.template(raw, ("until",)) or Literal("")
        if isinstance(template, Literal) and moment_of(template.value) is None:
            self.report(("until",), "must be a time", raw, allowed)
        return template

    def seconds(self, given: Mapping[str, Json], key: str) -> float | None:
        value = given.get(key)
        if value is None:
            return None
        if not is_number(value) or value <= 0:
            self.report((key,), "must be a duration", value)
            return None
        return float(value)

    def on_timeout(self, given: Mapping[str, Json]) -> OnTimeout:
        word = given.get("on_timeout", OnTimeout.FAIL)
        if word not in list(OnTimeout):
            close = nearest(str(word), list(OnTimeout)) or ""
            self.report(("on_timeout",), "no such action", word, ", ".join(OnTimeout), close)
            return OnTimeout.FAIL
        return OnTimeout(word)
