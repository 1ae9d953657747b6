"""Compiles configured pipelines to frozen graphs, and lists every problem in them.

A compiled pipeline is a map from step paths to nodes, and the path of the first. `call` and
`steps` are inlined; a `split` is a node that opens a scope; an `if` on a step is a switch node
before it. A job's (pipeline, step path) is enough to find the steps that follow. `on_failure`,
`on_success` and `always` become pipelines of their own, which the end of a run starts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import inf
from types import MappingProxyType

from ductile._fast_dataclass import dataclass
from ductile.core.jobs.limits import LONGEST_NAME, MAX_HOPS, fits
from ductile.core.pipelines.conditions import Condition, compile_condition, evaluate, explain, roots
from ductile.core.pipelines.graph import Node, NodeKind
from ductile.core.pipelines.hooks import HOOKS, RUN_HOOKS
from ductile.core.pipelines.link import Authored, Linked, link
from ductile.core.pipelines.parse import Known, Step, StepKind, read_steps, walk
from ductile.core.values.json_values import Failure, StepValues, shorten
from ductile.core.values.suggest import nearest
from ductile.errors import Path, Problem, Severity, errors_of
from ductile.model import Json

ASYNC, SYNCHRONOUS = MODES = ("async", "synchronous")


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A compiled pipeline. Either `on` or `hook` is set."""

    name: str
    at: Path
    on: str | None
    hook: str | None
    from_plugin: str | None
    from_pipeline: str | None
    """For the steps of an `on_failure`, `on_success` or `always`: the pipeline that has them."""
    condition: Condition | None
    execution_mode: str
    timeout: Json
    """As configured."""
    workspace: bool | None
    author_depth: int | None
    """`max_depth` if the author set it; 0 means no limit."""
    longest: int | None
    """The number of steps and splits on its longest path; None if its steps can loop."""
    entry: str
    nodes: Mapping[str, Node]

    @property
    def max_depth(self) -> int:
        """The value of `route_max_depth`: the author's limit, else the longest path; 0: none."""
        return self.author_depth if self.author_depth is not None else self.longest or 0

    def hop_limit(self, max_hops: int) -> int:
        """The maximum number of hops between a job of this pipeline and its root.

        `max_depth: 0` removes the limit on depth, not this one, which ends every loop; this one
        allows at least the longest path.
        """
        raised = self.longest if self.author_depth == 0 else self.author_depth
        return max(max_hops, raised or 0)

    def admits(self, payload: Json, context: Mapping[str, Json]) -> bool | Failure:
        """Whether the pipeline's own `if` accepts an event; without one it accepts every event."""
        if self.condition is None:
            return True
        return evaluate(self.condition, StepValues(payload, dict(context)))

    def explain_refusal(self, payload: Json, context: Mapping[str, Json]) -> str:
        """The values for which the pipeline's own `if` is false."""
        assert self.condition is not None
        return explain(self.condition, StepValues(payload, dict(context)))

    def first_jobs(self) -> tuple[Node, ...]:
        """The nodes of the first jobs: several if the pipeline starts with a split."""
        return tuple(self._jobs_from(self.entry))

    def paths(self) -> list[str]:
        """The step paths in the order of execution."""
        found, seen = [self.entry], {self.entry}
        for path in found:
            for to in self.nodes[path].follows():
                if to.path and to.pipeline == self.name and to.path not in seen:
                    seen.add(to.path)
                    found.append(to.path)
        return found

    def _jobs_from(self, path: str) -> Iterator[Node]:
        node = self.nodes[path]
        if node.kind is not NodeKind.SPLIT:
            yield node
        for branch in node.branches:
            yield from self._jobs_from(branch.entry)


@dataclass(frozen=True, slots=True)
class Compiled:
    """All pipelines of a config, by name."""

    pipelines: Mapping[str, Pipeline]
    warnings: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True)
class PartlyCompiled:
    """The pipelines of a config with errors that have none and call none with errors."""

    pipelines: Mapping[str, Pipeline]
    problems: tuple[Problem, ...]


def compile_pipelines(
    raw: Sequence[Mapping[str, Json]],
    plugins: Mapping[str, frozenset[str]],
    *,
    instances: frozenset[str] | None = None,
    sources: frozenset[str] = frozenset(),
    max_hops: int = MAX_HOPS,
) -> Compiled | PartlyCompiled:
    """Compile the configured pipelines, and list every problem with its path.

    `plugins` maps each known plugin to its commands, `instances` are the remote instances
    that a `relay` may name (None: any), `sources` are further names that
    `from_plugin` may have.
    """
    known = Known(plugins, instances)
    headers = [
        header
        for index, item in enumerate(raw)
        for header in _headers(item, ("pipelines", index), known, sources)
    ]
    authored: dict[str, Authored] = {}
    for header in headers:
        authored.setdefault(header.name, header.authored)
    problems = [problem for header in headers for problem in header.problems]
    problems += _duplicates(headers)
    for header in headers:
        problems += _references(header.authored, authored, known)
    problems += _call_cycles(authored)
    for header in headers:
        problems += _endless_waits(header, authored)
    linked = {}
    for name, pipeline in _sound(authored, problems).items():
        result = link(pipeline, authored, known)
        if isinstance(result, Linked):
            linked[name] = result
        else:
            problems += result
    sound = _sound(authored, problems)
    longest = _longest_paths({name: linked[name] for name in sound})
    for header in headers:
        if header.name in longest:
            problems += _too_long(header, longest[header.name], max_hops)
    sound = _sound(authored, problems)
    kept = (header for header in headers if sound.get(header.name) is header.authored)
    pipelines = MappingProxyType(
        {h.name: h.compiled(linked[h.name], longest[h.name]) for h in kept}
    )
    if errors_of(problems):
        return PartlyCompiled(pipelines, tuple(dict.fromkeys(problems)))
    return Compiled(pipelines, tuple(problems))


class _Header:
    """The settings of a pipeline without its steps."""

    def __init__(
        self,
        raw: Json,
        at: Path,
        known: Known,
        sources: frozenset[str],
        from_pipeline: str | None = None,
    ) -> None:
        self.problems: list[Problem] = []
        self.at = at
        self.from_pipeline = from_pipeline
        if not isinstance(raw, Mapping):
            self.report((), "a pipeline must be a mapping", raw)
            raw = {}
        self.raw = {key: value for key, value in raw.items() if value is not None}
        self.name: str = self.text("name") or ""
        self.on, self.hook = self.text("on"), self.text("on-hook")
        self.from_plugin = self.text("from_plugin")
        self.condition = self.read_condition()
        self.mode: str = self.raw.get("execution_mode", MODES[0])
        self.author_depth = self.raw.get("max_depth")
        steps_at = at if from_pipeline is not None else (*at, "steps")
        steps = read_steps(self.raw.get("steps"), steps_at, known, self.problems)
        self.authored = Authored.of(self.name, at, steps)
        self.check(known, sources)

    def report(
        self,
        key: Path,
        message: str,
        found: Json = None,
        allowed: Iterable[str] = (),
        nearest: str | None = None,
    ) -> None:
        self.problems.append(
            Problem(
                message,
                (*self.at, *key),
                found=None if found is None else shorten(found),
                allowed=", ".join(allowed) or None,
                nearest=nearest,
            )
        )

    def text(self, key: str) -> str | None:
        value = self.raw.get(key)
        if value is not None and (not isinstance(value, str) or not value.strip()):
            self.report((key,), f"{key} must be text", value)
            return None
        return value

    def read_condition(self) -> Condition | None:
        if "if" not in self.raw:
            return None
        compiled = compile_condition(self.raw["if"], (*self.at, "if"))
        if isinstance(compiled, list):
            self.problems.extend(compiled)
            return None
        if "config" in roots(compiled):
            self.problems.append(
                Problem(
                    "the `if` of a pipeline cannot read config.*: it is always missing",
                    (*self.at, "if"),
                    severity=Severity.WARNING,
                )
            )
        return compiled

    def check(self, known: Known, sources: frozenset[str]) -> None:
        if self.from_pipeline is None:
            self.check_header(known, sources)
        elif not fits(self.name, LONGEST_NAME):
            message = "the name is too long: the runs of these steps are named after the pipeline"
            allowed = (f"at most {LONGEST_NAME} bytes",)
            self.report((), message, self.name, allowed)
        seen: set[str] = set()
        for step in (step for step in walk(self.authored.steps) if step.named):
            if step.id in seen:
                message = "another step in the pipeline has this id"
                self.problems.append(Problem(message, (*step.at, "id"), found=shorten(step.id)))
            seen.add(step.id)

    def check_header(self, known: Known, sources: frozenset[str]) -> None:
        if "name" not in self.raw:
            self.report(("name",), "a pipeline needs a name")
        elif "/" in self.name or self.name in (".", ".."):
            # It is one part of a path in the API: such a pipeline could not be started.
            allowed = ("a name without `/`, other than `.` and `..`",)
            self.report(("name",), "the name cannot be part of a URL", self.name, allowed)
        triggers = ("on" in self.raw) + ("on-hook" in self.raw)
        if triggers > 1 or (triggers == 0 and not self.raw.get("schedules")):
            self.report((), "a pipeline requires either on or on-hook, or schedules")
        if self.hook is not None and self.hook not in HOOKS:
            self.report(("on-hook",), "no such hook", self.hook, HOOKS, nearest(self.hook, HOOKS))
        if self.hook and self.condition is not None and "context" in roots(self.condition):
            self.report(("if",), "a hook has no context: its `if` cannot read context.*")
        source = self.from_plugin
        if source and source not in known.plugins and source not in sources:
            close = nearest(source, known.plugins)
            self.report(("from_plugin",), "an unknown plugin", source, nearest=close)
        if self.mode not in MODES:
            self.report(("execution_mode",), "no such mode", self.mode, MODES)
        depth = self.author_depth
        if depth is not None and (type(depth) is not int or depth < 0):
            self.report(("max_depth",), "must be a whole number; 0 means no limit", depth)

    def compiled(self, linked: Linked, longest: int | None) -> Pipeline:
        return Pipeline(
            name=self.name,
            at=self.at,
            on=self.on,
            hook=self.hook,
            from_plugin=self.from_plugin,
            from_pipeline=self.from_pipeline,
            condition=self.condition,
            execution_mode=self.mode,
            timeout=self.raw.get("timeout"),
            workspace=self.raw.get("workspace"),
            author_depth=self.author_depth,
            longest=longest,
            entry=linked.entry,
            nodes=MappingProxyType(dict(linked.nodes)),
        )


def _headers(raw: Json, at: Path, known: Known, sources: frozenset[str]) -> Iterator[_Header]:
    """The pipeline, and its steps for the end of a run as pipelines that a hook starts."""
    pipeline = _Header(raw, at, known, sources)
    yield pipeline
    for key, hook in RUN_HOOKS.items():
        if key in pipeline.raw:
            own = {
                "name": f"{pipeline.name}.{key}",
                "on-hook": hook,
                "timeout": pipeline.raw.get("timeout"),
                "workspace": pipeline.raw.get("workspace"),
                "steps": pipeline.raw[key],
            }
            yield _Header(own, (*at, key), known, sources, pipeline.name)


def _duplicates(headers: Iterable[_Header]) -> Iterator[Problem]:
    seen: dict[str, _Header] = {}
    for header in headers:
        other = seen.get(header.name)
        # Two pipelines with one name are reported once, not again for each of their lists.
        if other is not None and not (header.from_pipeline and other.from_pipeline):
            message = "another pipeline has this name"
            at = header.at if header.from_pipeline else (*header.at, "name")
            yield Problem(message, at, found=shorten(header.name))
        if header.name:
            seen.setdefault(header.name, header)


def _sound(pipelines: Mapping[str, Authored], problems: Iterable[Problem]) -> dict[str, Authored]:
    """The pipelines without an error that call no pipeline with an error."""
    users: dict[str, list[str]] = {}
    for name, pipeline in pipelines.items():
        for step in walk(pipeline.steps):
            for used in (step.call, *(name for to in step.on_events.values() for name in to)):
                users.setdefault(used, []).append(name)
    places = {
        problem.path[:end]
        for problem in errors_of(problems)
        for end in range(1, len(problem.path) + 1)
    }
    open_ = [name for name, pipeline in pipelines.items() if pipeline.at in places]
    broken = set(open_)
    while open_:
        fresh = set(users.get(open_.pop(), ())) - broken
        broken |= fresh
        open_ += fresh
    return {name: pipeline for name, pipeline in pipelines.items() if name not in broken}


def _references(
    pipeline: Authored, pipelines: Mapping[str, Authored], known: Known
) -> Iterator[Problem]:
    """Calls and targets that do not exist."""
    for step in walk(pipeline.steps):
        if step.kind is StepKind.CALL and step.call not in pipelines:
            close = nearest(step.call, pipelines)
            found = shorten(step.call)
            yield Problem("no such pipeline", (*step.at, "call"), found=found, nearest=close)
        for event, names in step.on_events.items():
            for name in names:
                if name in pipeline.ids or name in pipelines:
                    continue
                plugin, command = known.command(name)
                if command not in known.plugins.get(plugin, ()):
                    yield Problem(
                        "is not a step of this pipeline, a pipeline or a command of a plugin",
                        (*step.at, "on_events", event),
                        found=shorten(name),
                        nearest=nearest(name, {*pipeline.ids, *pipelines, *known.plugins}),
                    )


def _call_cycles(pipelines: Mapping[str, Authored]) -> Iterator[Problem]:
    """One problem for each cycle of calls."""
    finished: set[str] = set()
    for start in pipelines:
        trail: dict[str, Iterator[Step]] = {}
        name: str | None = start if start not in finished else None
        while name is not None:
            calls = trail.setdefault(name, _calls(pipelines[name], pipelines))
            step = next(calls, None)
            if step is None:
                finished.add(name)
                del trail[name]
                name = next(reversed(trail), None)
            elif step.call in trail:
                names = list(trail)
                cycle = " -> ".join((*names[names.index(step.call) :], step.call))
                yield Problem(f"pipelines call each other in a cycle: {cycle}", (*step.at, "call"))
            elif step.call not in finished:
                name = step.call


def _calls(pipeline: Authored, pipelines: Mapping[str, Authored]) -> Iterator[Step]:
    return (
        step
        for step in walk(pipeline.steps)
        if step.kind is StepKind.CALL and step.call in pipelines
    )


def _endless_waits(header: _Header, pipelines: Mapping[str, Authored]) -> Iterator[Problem]:
    """Waits without an end in a synchronous pipeline, also in the pipelines that it calls."""
    if header.mode != SYNCHRONOUS:
        return
    open_, seen = [header.authored], {header.name}
    for pipeline in open_:
        for step in walk(pipeline.steps):
            if step.wait is not None and step.wait.is_endless:
                yield Problem(
                    f"the wait has no end, and pipeline {header.name} is synchronous: its caller "
                    "would never get an answer; set a timeout",
                    (*step.at, "wait"),
                )
            called = pipelines.get(step.call)
            if called is not None and step.call not in seen:
                seen.add(step.call)
                open_.append(called)


def _longest_paths(linked: Mapping[str, Linked]) -> dict[str, int | None]:
    """The number of steps and splits on the longest path; None if the pipeline can loop."""
    lengths: dict[tuple[str, str], float] = {}
    for name, pipeline in linked.items():
        _measure((name, pipeline.entry), linked, lengths)
    found = {name: lengths[name, pipeline.entry] for name, pipeline in linked.items()}
    return {name: None if length == inf else int(length) for name, length in found.items()}


def _measure(
    start: tuple[str, str],
    linked: Mapping[str, Linked],
    lengths: dict[tuple[str, str], float],
) -> None:
    """Fill in `lengths` for `start` and its successors, depth first, without recursion."""
    open_: set[tuple[str, str]] = set()
    stack = [start]
    while stack:
        key = stack[-1]
        node = linked[key[0]].nodes[key[1]]
        after = [
            (target.pipeline, target.path or linked[target.pipeline].entry)
            for target in node.follows()
        ]
        fresh = [other for other in after if other not in lengths and other not in open_]
        if key not in lengths and key not in open_ and fresh:
            open_.add(key)
            stack += fresh
            continue
        stack.pop()
        if key not in lengths:
            open_.discard(key)
            lengths[key] = 1 + max((lengths.get(other, inf) for other in after), default=0)


def _too_long(header: _Header, longest: int | None, max_hops: int) -> Iterator[Problem]:
    if header.author_depth is not None:
        if longest is not None and 0 < header.author_depth < longest:
            message = f"its longest path has {longest} hops; jobs beyond this depth end as dead"
            found = shorten(header.author_depth)
            yield Problem(
                message, (*header.at, "max_depth"), found=found, severity=Severity.WARNING
            )
    elif longest is None:
        advice = "start them as another pipeline" if header.from_pipeline else "set max_depth"
        message = f"its steps can loop through on_events; {advice} to limit them"
        yield Problem(message, header.at)
    elif longest > max_hops:
        advice = "shorten it" if header.from_pipeline else "set max_depth"
        message = f"its longest path has {longest} hops, more than {max_hops}; {advice}"
        yield Problem(message, header.at)
