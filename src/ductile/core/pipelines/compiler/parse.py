"""Parses and checks the configured steps one by one; `link` connects them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from enum import StrEnum
from itertools import count

from ductile._fast_dataclass import dataclass
from ductile.core.jobs.commands import HANDLE
from ductile.core.pipelines.baggage import Claims, compile_claims
from ductile.core.pipelines.conditions import Condition, compile_condition
from ductile.core.pipelines.templates import Template, compile_template, find_mistakes
from ductile.core.values.json_values import shorten
from ductile.core.values.suggest import nearest
from ductile.core.waits.parse import WaitStep, read_wait
from ductile.errors import Path, Problem
from ductile.model import Json

MAX_NESTING = 20
_RELAY_KEYS = ("to", "event", "dedupe_key", "with", "baggage")


class StepKind(StrEnum):
    USES = "uses"
    CALL = "call"
    STEPS = "steps"
    SPLIT = "split"
    RELAY = "relay"
    WAIT = "wait"


@dataclass(frozen=True, slots=True)
class Relay:
    """An event for a named remote instance; `with_`, if set, is the whole payload."""

    to: str
    event: str
    dedupe_key: Template | None = None
    with_: Template | None = None
    baggage: Claims | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """A configured step. `id` is the author's, or `step_N` if there is none."""

    id: str
    named: bool
    kind: StepKind
    at: Path
    plugin: str = ""
    command: str = ""
    call: str = ""
    steps: tuple[Step, ...] = ()
    """Its nested steps, or the branches of a split."""
    join_always: bool = False
    condition: Condition | None = None
    with_: Template | None = None
    baggage: Claims | None = None
    relay: Relay | None = None
    wait: WaitStep | None = None
    on_events: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Known:
    """What the configuration may refer to."""

    plugins: Mapping[str, frozenset[str]]
    """Each plugin with its commands."""
    instances: frozenset[str] | None = None
    """Remote instances to relay to; None if they are not checked."""

    def command(self, uses: str) -> tuple[str, str]:
        """Split `plugin` or `plugin.command`; a plugin with the whole name wins."""
        plugin, dot, command = uses.rpartition(".")
        return (plugin, command) if dot and uses not in self.plugins else (uses, HANDLE)


def walk(steps: Iterable[Step]) -> Iterator[Step]:
    """Every step, each followed by its nested steps."""
    for step in steps:
        yield step
        yield from walk(step.steps)


def read_steps(raw: Json, at: Path, known: Known, problems: list[Problem]) -> tuple[Step, ...]:
    """Parse a list of steps; problems are added to `problems`."""
    return _Reader(known, problems).sequence(raw, at, 0)


class _Reader:
    def __init__(self, known: Known, problems: list[Problem]) -> None:
        self.known = known
        self.problems = problems

    def report(
        self,
        at: Path,
        message: str,
        found: Json = None,
        allowed: str | None = None,
        nearest: str | None = None,
    ) -> None:
        text = None if found is None else shorten(found)
        self.problems.append(Problem(message, at, found=text, allowed=allowed, nearest=nearest))

    def sequence(
        self, raw: Json, at: Path, depth: int, kind: StepKind = StepKind.STEPS
    ) -> tuple[Step, ...]:
        if not isinstance(raw, Sequence) or isinstance(raw, str) or not raw:
            self.report(at, "must be a list of at least one step", raw)
            return ()
        if depth > MAX_NESTING:
            self.report(at, f"steps are nested deeper than {MAX_NESTING} levels")
            return ()
        # Each branch of a split is a sequence of its own.
        ids = _ids(raw) if kind is StepKind.STEPS else [_ids([item])[0] for item in raw]
        steps = [self.step(item, ids[index], (*at, index), depth) for index, item in enumerate(raw)]
        return tuple(step for step in steps if step is not None)

    def step(self, raw: Json, id_: str, at: Path, depth: int) -> Step | None:
        if not isinstance(raw, Mapping):
            self.report(at, "a step must be a mapping", raw)
            return None
        given = {
            key: value
            for key, value in raw.items()
            if value is not None and (key == "if" or value not in ({}, []))
        }
        kinds = [kind for kind in StepKind if kind in given]
        if len(kinds) != 1:
            allowed = f"exactly one of: {', '.join(StepKind)}"
            self.report(
                at, "a step must be of one kind", [str(kind) for kind in kinds], allowed=allowed
            )
            return None
        if "id" in given and (not isinstance(given["id"], str) or not _is_id(given["id"])):
            self.report((*at, "id"), "an id must be a string without / and @", given["id"])
        kind = kinds[0]
        self.misplaced(kind, given, at)
        plugin, command = self.uses(given, at) if kind is StepKind.USES else ("", "")
        call = given.get("call", "")
        if not isinstance(call, str):
            self.report((*at, "call"), "must be the name of a pipeline", call)
            call = ""
        return Step(
            id=id_,
            named="id" in given,
            kind=kind,
            at=at,
            plugin=plugin,
            command=command,
            call=call,
            steps=self.nested(kind, given, at, depth + 1),
            join_always=given.get("join") == "always",
            condition=self.condition(given, at),
            with_=self.template(given, at),
            baggage=self.claims(given, at),
            relay=self.relay(given["relay"], (*at, "relay")) if kind is StepKind.RELAY else None,
            wait=read_wait(given["wait"], (*at, "wait"), self.problems)
            if kind is StepKind.WAIT
            else None,
            on_events=self.on_events(given.get("on_events"), (*at, "on_events")),
        )

    def nested(
        self, kind: StepKind, given: Mapping[str, Json], at: Path, depth: int
    ) -> tuple[Step, ...]:
        if kind not in (StepKind.STEPS, StepKind.SPLIT):
            return ()
        return self.sequence(given[kind], (*at, kind.value), depth, kind)

    def misplaced(self, kind: StepKind, given: Mapping[str, Json], at: Path) -> None:
        for key in ("with", "baggage"):
            if key in given and kind is not StepKind.USES:
                inside = f"; write it under relay: {key}:" if kind is StepKind.RELAY else ""
                self.report((*at, key), f"{key} belongs on a `uses` step, not on `{kind}`{inside}")
        if "on_events" in given and kind is StepKind.SPLIT:
            message = "a split emits no events; use on_events on the steps in its branches"
            self.report((*at, "on_events"), message)
        if "join" in given and (kind is not StepKind.SPLIT or given["join"] != "always"):
            self.report((*at, "join"), "join belongs on a split", given["join"], allowed="always")

    def uses(self, given: Mapping[str, Json], at: Path) -> tuple[str, str]:
        at, uses = (*at, "uses"), given["uses"]
        if not isinstance(uses, str):
            self.report(at, "a plugin is needed", uses, allowed="plugin or plugin.command")
            return "", ""
        plugin, command = self.known.command(uses)
        commands = self.known.plugins.get(plugin)
        if commands is None:
            self.report(
                at, "an unknown plugin", plugin, nearest=nearest(plugin, self.known.plugins)
            )
        elif command not in commands:
            allowed = ", ".join(sorted(commands))
            close = nearest(command, commands)
            self.report(
                at, f"{plugin} does not have this command", command, allowed=allowed, nearest=close
            )
        return plugin, command

    def condition(self, given: Mapping[str, Json], at: Path) -> Condition | None:
        if "if" not in given:
            return None
        compiled = compile_condition(given["if"], (*at, "if"))
        if isinstance(compiled, list):
            self.problems.extend(compiled)
            return None
        return compiled

    def template(self, given: Mapping[str, Json], at: Path) -> Template | None:
        if "with" not in given:
            return None
        if not isinstance(given["with"], Mapping):
            self.report((*at, "with"), "with must be a mapping", given["with"])
            return None
        self.problems.extend(find_mistakes(given["with"], (*at, "with")))
        compiled = compile_template(given["with"], (*at, "with"))
        if isinstance(compiled, list):
            self.problems.extend(compiled)
            return None
        return compiled

    def claims(self, given: Mapping[str, Json], at: Path) -> Claims | None:
        if "baggage" not in given:
            return None
        compiled = compile_claims(given["baggage"], (*at, "baggage"))
        if isinstance(compiled, list):
            self.problems.extend(compiled)
            return None
        return compiled

    def relay(self, raw: Json, at: Path) -> Relay | None:
        if not isinstance(raw, Mapping):
            self.report(at, "relay must be a mapping", raw, allowed=", ".join(_RELAY_KEYS))
            return None
        given = {key: value for key, value in raw.items() if value is not None}
        for key in given:
            if key not in _RELAY_KEYS:
                close, allowed = nearest(str(key), _RELAY_KEYS), ", ".join(_RELAY_KEYS)
                self.report((*at, key), "an unknown key", key, allowed=allowed, nearest=close)
        for key in ("to", "event"):
            if not isinstance(given.get(key), str) or not given[key]:
                self.report((*at, key), f"relay requires `{key}:`", given.get(key))
        to, instances = str(given.get("to")), self.known.instances
        if "to" in given and instances is not None and to not in instances:
            self.report((*at, "to"), "an unknown instance", to, nearest=nearest(to, instances))
        return Relay(
            to=to,
            event=str(given.get("event")),
            dedupe_key=self.expression(given, "dedupe_key", at),
            with_=self.expression(given, "with", at),
            baggage=self.claims(given, at),
        )

    def expression(self, given: Mapping[str, Json], key: str, at: Path) -> Template | None:
        if key not in given:
            return None
        self.problems.extend(find_mistakes(given[key], (*at, key)))
        compiled = compile_template(given[key], (*at, key), bare_paths=True)
        if isinstance(compiled, list):
            self.problems.extend(compiled)
            return None
        return compiled

    def on_events(self, raw: Json, at: Path) -> Mapping[str, tuple[str, ...]]:
        if raw is None:
            return {}
        if not isinstance(raw, Mapping):
            allowed = "event type: [step, pipeline or plugin]"
            self.report(at, "on_events must be a mapping", raw, allowed=allowed)
            return {}
        events = {}
        for event, targets in raw.items():
            named = [targets] if isinstance(targets, str) else targets
            if not isinstance(named, list | tuple) or not named or not _are_texts(named):
                message = "must be a list of steps, pipelines or plugins"
                self.report((*at, event), message, targets)
                continue
            events[str(event)] = tuple(dict.fromkeys(named))
        return events


def _ids(raw: Sequence[Json]) -> list[str]:
    """The id of each step in a list: its own, or the next free `step_N`."""
    own = [item.get("id") if isinstance(item, Mapping) else None for item in raw]
    free = (name for n in count(1) if (name := f"step_{n}") not in own)
    return [str(id_) if id_ is not None else next(free) for id_ in own]


def _is_id(text: str) -> bool:
    return bool(text.strip()) and not any(sign in text for sign in "/@")


def _are_texts(values: Iterable[Json]) -> bool:
    return all(isinstance(value, str) for value in values)
