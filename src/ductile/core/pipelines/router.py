"""Where events go: from a finished job and its events to a tuple of intents, by look-up.

The package describes the life of a pipeline job.

Producers: `arrive` for an external event (webhook, relay, `handle` by an operator), `start` for a
pipeline by name. Everything here is pure; ids and times are arguments.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from datetime import datetime

from ductile._fast_dataclass import dataclass
from ductile.core.flow.debounce import Debounce, pipeline_target, route_target
from ductile.core.jobs.commands import HANDLE
from ductile.core.jobs.limits import MAX_HOPS
from ductile.core.pipelines.baggage import depth_at, depth_limit
from ductile.core.pipelines.graph import Node, NodeKind
from ductile.core.pipelines.hooks import (
    RUN_HOOKS,
    RootEnd,
    RunEnd,
    hook_payload,
    hook_signals,
    run_payload,
    run_signals,
)
from ductile.core.pipelines.intents import (
    Intent,
    JoinStep,
    MatchWaits,
    OpenScope,
    Routing,
    SpawnJob,
    StartPipeline,
    Unrouted,
    gather,
    with_priority,
    with_series,
)
from ductile.core.pipelines.join_payload import EndedJob, inner_branch, join_payload
from ductile.core.pipelines.lineage import Done, Entry, InstanceCause, SplitScope
from ductile.core.pipelines.pipeline import Pipeline, describe_excess
from ductile.core.pipelines.step_io import SWITCH_TRUE
from ductile.core.values.redact import Redactor
from ductile.model import CORE_PREFIX, Event, Json, SubmittedBy

JOINED = "ductile.split.joined"
_JOIN_SOURCE = f"{CORE_PREFIX}join"
_RUN_SOURCE = f"{CORE_PREFIX}run"

_Index = Mapping[tuple[str, str], tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Router:
    """All routes and pipelines of one configuration, indexed for look-up."""

    pipelines: Mapping[str, Pipeline]
    routes: _Index
    """(emitting plugin, event type) to plugins."""
    triggers: _Index
    """(event type, emitting plugin or empty for any) to pipelines."""
    hook_triggers: _Index
    """(hook, plugin or empty for any) to pipelines."""
    run_triggers: _Index
    """(hook, pipeline whose run has ended) to pipelines."""
    max_hops: int = MAX_HOPS
    awaited: frozenset[str] = frozenset()
    """The event types that waiting steps wait for; also those of waits that began before."""
    debounces: Mapping[str, Debounce] = field(default_factory=dict)
    """By target: see `core/flow/debounce.py`."""
    priorities: Mapping[str, float] = field(default_factory=dict)
    """Of the routes that have one, in seconds, by the same target."""
    redactor: Redactor = field(default_factory=Redactor)
    """Hides secrets in the reasons why an event was not routed."""

    def has_target(self, plugin: str, pipeline: str, step_path: str, event_type: str) -> bool:
        """Whether an event of this job can lead anywhere, whatever its payload."""
        if (plugin, event_type) in self.routes or event_type in self.awaited:
            return True
        if any(_matches(self.triggers, event_type, plugin)):
            return True
        node = self.node(pipeline, step_path)
        return node is not None and (node.next is not None or event_type in node.on_events)

    def node(self, pipeline: str, step_path: str) -> Node | None:
        found = self.pipelines.get(pipeline)
        return None if found is None else found.nodes.get(step_path)

    def lost(self, pipeline: str, step_path: str, plugin: str, command: str) -> str | None:
        """Why a job that was created for this step cannot run as it; None if it can."""
        node = self.node(pipeline, step_path)
        if node is None:
            return f"step {step_path} no longer exists in pipeline {pipeline}"
        if (node.plugin, node.command) == (plugin, command):
            return None
        now = f"{node.plugin}.{node.command}" if node.plugin else "a split"
        return f"step {step_path} of pipeline {pipeline} is now {now}, not {plugin}.{command}"

    def exceeded_limit(self, pipeline: str, hops: int, context: Mapping[str, Json]) -> str | None:
        """The limit that an existing job exceeds, if any; `context` is what it entered with."""
        max_depth = self._depth_limit(pipeline, context)
        return describe_excess(
            self.max_hops, self.pipelines.get(pipeline), hops, depth_at(context, hops), max_depth
        )

    def route(self, done: Done, events: Sequence[Event]) -> Routing:
        """Where a succeeded job's events go: the next step, routes, other pipelines."""
        return gather(item for event in events for item in self._after(done, event))

    def announce(self, done: Done, event: Event) -> Routing:
        """Where an event about a job goes that does not continue the job's own pipeline."""
        entry = Entry.after(done, event, 0)
        return gather(self._elsewhere(entry, InstanceCause.job(done, event)))

    def arrive(
        self,
        event: Event,
        *,
        plugin: str | None,
        pipeline: str | None = None,
        submitted_by: SubmittedBy,
        baggage: Mapping[str, Json] | None = None,
        debounce: Debounce | None = None,
    ) -> Routing:
        """Where an external event goes: to `plugin` or `pipeline`, to routes, to other pipelines.

        The named pipeline starts once, whatever its `on`, `from_plugin` and `if`. For routes and
        `from_plugin` the event's source is `event.source`. `baggage` is the initial content of the
        root contexts. `debounce` is that of `plugin` or `pipeline`; by default the pipeline's own.
        """
        entry = Entry(event, submitted_by=submitted_by)
        cause = InstanceCause.outside(event, submitted_by, baggage)
        own: list[Intent] = [] if plugin is None else [self._routed(plugin, entry, debounce)]
        if pipeline is not None:
            debounce = debounce or self.debounces.get(pipeline_target(pipeline))
            started = self._instance(self.pipelines[pipeline], entry, cause)
            own.append(with_series(started, debounce))
        return gather((*own, *self._elsewhere(entry, cause, started=pipeline)))

    def start(
        self,
        pipeline: str,
        event: Event,
        *,
        submitted_by: SubmittedBy,
        baggage: Mapping[str, Json] | None = None,
        at: str | None = None,
        dedupe_ttl: float | None = None,
        priority: float = 0.0,
    ) -> StartPipeline | None:
        """An instance by name, whatever its `on`, `from_plugin` and `if`; None if unknown.

        `at` is its first step; by default the first of the pipeline. `priority`, in seconds,
        is that of its first jobs.
        """
        found = self.pipelines.get(pipeline)
        if found is None:
            return None
        entry = Entry(
            event,
            submitted_by=submitted_by,
            dedupe_key=event.dedupe_key,
            dedupe_ttl=dedupe_ttl,
        )
        cause = InstanceCause.outside(event, submitted_by, baggage)
        started = self._instance(found, entry, cause, at)
        children = tuple(with_priority(child, priority) for child in started.children)
        return replace(started, children=children) if priority else started

    def hooks(self, end: RootEnd, *, now: datetime, event_ids: Sequence[str]) -> Routing:
        """The hook pipelines that the end of a root job starts; up to three ids are needed."""
        if end.submitted_by == SubmittedBy.HOOK:
            return Routing()
        events = (
            Event(signal, hook_payload(end), None, end.plugin, now, event_id)
            for signal, event_id in zip(hook_signals(end), event_ids, strict=False)
        )
        return gather(item for event in events for item in self._hooked(end, event))

    def has_handlers(self, pipeline: str) -> bool:
        """Whether the end of a run of this pipeline can start steps."""
        return any((hook, pipeline) in self.run_triggers for hook in RUN_HOOKS.values())

    def handlers(self, end: RunEnd, *, now: datetime, event_ids: Sequence[str]) -> Routing:
        """The steps that the end of a run starts, as instances; two ids are needed.

        They begin one hop after the run began, so that a loop through their events ends at the hop
        limit, and a long run does not use up their hops.
        """
        payload, intents = run_payload(end), list[Intent]()
        for signal, event_id in zip(run_signals(end), event_ids, strict=True):
            event = Event(signal, payload, None, _RUN_SOURCE, now, event_id)
            entry = Entry(event, end.last_job_id, end.first_hop + 1, submitted_by=SubmittedBy.HOOK)
            cause = InstanceCause.run(end, event)
            for name in self.run_triggers.get((signal, end.pipeline), ()):
                intents.append(self._instance(self.pipelines[name], entry, cause))
        return Routing(tuple(intents))

    def join(
        self, scope: SplitScope, ended: Sequence[EndedJob], *, now: datetime, event_id: str
    ) -> Routing:
        """The job after a split whose scope has ended; nothing if the split was the last step.

        It is the step that followed when the split was entered, whatever a reload has changed. If
        that step no longer exists its job is created anyway: its claim reports the reason,
        and a retry continues when the step is back.
        """
        join = scope.join
        if join is None:
            split = self.node(scope.pipeline, scope.split)
            if split is None or split.kind is not NodeKind.SPLIT:
                return gather([_gone(event_id, scope.pipeline, scope.split)])
            join = self._join_step(split)
        if not join.path:
            return Routing()
        payload = join_payload(ended, branch=scope.branch)
        event = Event(JOINED, payload, None, _JOIN_SOURCE, now, event_id)
        entry = Entry.joining(scope, event, self._depth_limit(scope.pipeline, scope.context))
        if self.lost(scope.pipeline, join.path, join.plugin, join.command) is None:
            return gather(self._enter(scope.pipeline, join.path, entry))
        if join.plugin:
            return gather([self._step(scope.pipeline, join, entry)])
        return gather([_gone(event_id, scope.pipeline, join.path)])

    def _join_step(self, split: Node) -> JoinStep:
        if split.next is None:
            return JoinStep()
        step = self.pipelines[split.pipeline].nodes[split.next]
        return JoinStep(step.path, step.plugin, step.command)

    def _after(self, done: Done, event: Event) -> Iterator[Intent | Unrouted]:
        entry = Entry.after(done, event, self._depth_limit(done.pipeline, done.context))
        if done.pipeline:
            yield from self._onward(done, entry)
        yield from self._elsewhere(entry, InstanceCause.job(done, event))

    def _onward(self, done: Done, entry: Entry) -> Iterator[Intent | Unrouted]:
        """The steps of the job's own pipeline that its event leads to."""
        node = self.node(done.pipeline, done.step_path)
        if node is None:
            yield _gone(entry.event.event_id, done.pipeline, done.step_path)
        elif node.kind is NodeKind.SWITCH:
            matched = entry.event.type == SWITCH_TRUE
            yield from self._enter(node.pipeline, node.next if matched else node.otherwise, entry)
        elif entry.event.type in node.on_events:
            for target in node.on_events[entry.event.type]:
                path = target.path or self.pipelines[target.pipeline].entry
                yield from self._enter(target.pipeline, path, entry)
        else:
            yield from self._enter(node.pipeline, node.next, entry)

    def _elsewhere(
        self, entry: Entry, cause: InstanceCause, started: str | None = None
    ) -> Iterator[Intent | Unrouted]:
        """Routes and pipelines that the event matches, whatever job emitted it.

        `started` is a pipeline that the event has started already.
        """
        event, source = entry.event, cause.plugin or ""
        if event.type in self.awaited:
            yield MatchWaits(event)
        for plugin in self.routes.get((source, event.type), ()):
            target = route_target(source, event.type, plugin)
            priority = self.priorities.get(target, 0.0)
            yield self._routed(plugin, entry, self.debounces.get(target), priority)
        for name in _matches(self.triggers, event.type, source):
            if name == started:
                continue
            keyed = replace(entry, dedupe_key=event.dedupe_key)
            yield from self._triggered(self.pipelines[name], keyed, cause)

    def _hooked(self, end: RootEnd, event: Event) -> Iterator[Intent | Unrouted]:
        entry = Entry(event, submitted_by=SubmittedBy.HOOK)
        cause = InstanceCause.hook(end, event)
        for name in _matches(self.hook_triggers, event.type, end.plugin):
            yield from self._triggered(self.pipelines[name], entry, cause)

    def _triggered(
        self, pipeline: Pipeline, entry: Entry, cause: InstanceCause
    ) -> Iterator[Intent | Unrouted]:
        verdict = pipeline.admits(entry.event.payload, cause.context)
        if verdict is True:
            debounce = self.debounces.get(pipeline_target(pipeline.name))
            yield with_series(self._instance(pipeline, entry, cause), debounce)
        else:
            if verdict is False:
                because = pipeline.explain_refusal(entry.event.payload, cause.context)
                reason = self.redactor.text(f"its `if` {pipeline.condition} is false: {because}")
            else:
                reason = f"if: {verdict.reason}"
            yield Unrouted(entry.event.event_id, pipeline.name, reason)

    def _instance(
        self, pipeline: Pipeline, entry: Entry, cause: InstanceCause, at: str | None = None
    ) -> StartPipeline:
        entry = replace(entry, depth=1, max_depth=pipeline.author_depth or 0, branch="")
        children = tuple(self._enter(pipeline.name, at or pipeline.entry, entry))
        return StartPipeline(
            pipeline.name,
            pipeline.max_depth,
            cause.origin,
            children,
            cause.baggage,
            first_hop=entry.hops,
            has_context=pipeline.from_pipeline is not None
            or entry.submitted_by is not SubmittedBy.HOOK,
            depth_is_computed=pipeline.author_depth is None,
        )

    def _enter(
        self, pipeline: str, path: str | None, entry: Entry
    ) -> Iterator[SpawnJob | OpenScope]:
        if path is None:
            return
        node = self.pipelines[pipeline].nodes[path]
        if node.kind is not NodeKind.SPLIT:
            yield self._step(pipeline, node, entry)
            return
        inside = entry.inside_split()
        children = (
            child
            for branch in node.branches
            for child in self._enter(
                pipeline,
                branch.entry,
                replace(inside, branch=inner_branch(entry.branch, branch.label)),
            )
        )
        yield OpenScope(
            pipeline,
            path,
            entry.branch,
            entry.parent_job_id,
            inside.hops,
            node.join_always,
            self._join_step(node),
            tuple(children),
        )

    def _step(self, pipeline: str, step: Node | JoinStep, entry: Entry) -> SpawnJob:
        return SpawnJob(
            plugin=step.plugin,
            command=step.command,
            event=entry.event,
            submitted_by=entry.submitted_by,
            parent_job_id=entry.parent_job_id,
            hops=entry.hops,
            dedupe_key=entry.dedupe_key,
            dedupe_ttl=entry.dedupe_ttl,
            pipeline=pipeline,
            step_path=step.path,
            branch=entry.branch,
            dead=describe_excess(
                self.max_hops,
                self.pipelines.get(pipeline),
                entry.hops,
                entry.depth,
                entry.max_depth,
            ),
        )

    def _routed(
        self, plugin: str, entry: Entry, debounce: Debounce | None, priority: float = 0.0
    ) -> SpawnJob:
        return SpawnJob(
            plugin=plugin,
            command=HANDLE,
            event=entry.event,
            submitted_by=entry.submitted_by,
            parent_job_id=entry.parent_job_id,
            hops=entry.hops,
            dedupe_key=entry.event.dedupe_key,
            dead=describe_excess(self.max_hops, None, entry.hops),
            series=None if debounce is None else debounce.series(entry.event.payload),
            priority=priority,
        )

    def _depth_limit(self, pipeline: str, context: Mapping[str, Json]) -> int:
        """The limit that the instance's context stores, or else that of the pipeline; 0: none."""
        stored = depth_limit(context)
        if stored is not None:
            return stored
        found = self.pipelines.get(pipeline)
        return 0 if found is None else found.author_depth or 0


def _matches(index: _Index, name: str, source: str) -> Iterator[str]:
    yield from index.get((name, ""), ())
    if source:
        yield from index.get((name, source), ())


def _gone(event_id: str, pipeline: str, step_path: str) -> Unrouted:
    return Unrouted(event_id, pipeline, f"step {step_path} no longer exists in pipeline {pipeline}")
