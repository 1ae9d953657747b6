"""Replays the recorded events of a pipeline run through a compiled configuration. Pure.

Plugins do not run: a step that ran ends as it was recorded. Where a step runs that did not run
before, its outcome is unknown, and so is what follows it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from datetime import datetime

import orjson

from ductile._fast_dataclass import dataclass
from ductile.core.jobs.plugin_protocol import EmittedEvent, ProtocolError, Response, read_response
from ductile.core.jobs.state_machine import ENDED_BADLY
from ductile.core.pipelines.graph import Node, NodeKind
from ductile.core.pipelines.intents import Intent, OpenScope, SpawnJob, StartPipeline
from ductile.core.pipelines.join_payload import EndedJob
from ductile.core.pipelines.lineage import Done, SplitScope
from ductile.core.pipelines.router import Router
from ductile.core.pipelines.step_io import (
    STEP_SUCCEEDED,
    entered_payload,
    judge_switch,
    outgoing,
    prepare_relay,
    prepare_step,
    switch_event,
)
from ductile.core.values.json_values import Failure
from ductile.core.waits.begin import begin_wait
from ductile.model import Event, Job, JobStatus, Json, SubmittedBy

MAX_REPLAYED = 500
"""Steps of a replay: a loop of the configuration ends there at the latest."""
TRIGGERS = frozenset({SubmittedBy.ROUTE, SubmittedBy.WEBHOOK, SubmittedBy.RELAY})
"""Who submits the first job of a run that an event started, not its name."""
Place = tuple[str, str, int]
"""A step, its branch, and how often it was reached there before."""


@dataclass(frozen=True, slots=True)
class RecordedStep:
    job: Job
    response: str | None
    """As JSON text; of the last attempt."""


@dataclass(frozen=True, slots=True)
class RecordedRun:
    run_id: str
    pipeline: str
    context: Mapping[str, Json]
    """What its first jobs entered with."""
    steps: Sequence[RecordedStep]
    """In the order of the queue."""


@dataclass(slots=True)
class ReplayedStep:
    """A step that is reached; `unknown` if nothing is recorded of its outcome."""

    plugin: str
    status: str
    input: Json = None
    """The payload with `with` applied; of a condition whether it holds."""
    reason: str | None = None


@dataclass(slots=True)
class ReplayedRun:
    steps: dict[Place, ReplayedStep] = field(default_factory=dict)
    children: Counter[str] = field(default_factory=Counter)
    """What starts outside of the pipeline, with the step that starts it."""
    refusal: str | None = None
    """Why the run does not start."""


def replay(
    run: RecordedRun, router: Router, configs: Mapping[str, bytes], now: datetime
) -> ReplayedRun:
    """The steps and children of a run under a configuration; `configs` is by plugin."""
    return _Replaying(run, router, configs, now).follow_run()


class _Replaying:
    def __init__(
        self, run: RecordedRun, router: Router, configs: Mapping[str, bytes], now: datetime
    ) -> None:
        self._run, self._router, self._configs, self._now = run, router, configs, now
        self._done = ReplayedRun()
        self._recorded: dict[Place, RecordedStep] = {}
        seen: Counter[tuple[str, str]] = Counter()
        for step in run.steps:
            place = (step.job.step_path, step.job.branch)
            self._recorded[(*place, seen[place])] = step
            seen[place] += 1
        self._reached: Counter[tuple[str, str]] = Counter()

    def follow_run(self) -> ReplayedRun:
        first = self._run.steps[0].job
        event = self._first_event(first)
        pipeline = self._router.pipelines.get(self._run.pipeline)
        by = SubmittedBy(first.submitted_by)
        if pipeline is None:
            self._done.refusal = f"pipeline {self._run.pipeline} no longer exists"
            return self._done
        if by in TRIGGERS and pipeline.on is not None:
            verdict = pipeline.admits(event.payload, self._run.context)
            if isinstance(verdict, Failure):
                self._done.refusal = f"if: {verdict.reason}"
            elif not verdict:
                self._done.refusal = f"its `if` {pipeline.condition} is false"
            if self._done.refusal is not None:
                return self._done
        start = self._router.start(self._run.pipeline, event, submitted_by=by)
        assert start is not None
        first_hops = replace_hops(start.children, first.hops)
        self._walk(first_hops, self._run.context, "")
        return self._done

    def _first_event(self, first: Job) -> Event:
        payload = entered_payload(first.command, first.payload)
        column = first.payload if isinstance(first.payload, dict) else {}
        kind = column.get("type") if first.command == "handle" else None
        kind = kind if isinstance(kind, str) else "run"
        return Event(kind, payload, None, first.submitted_by, self._now, "event")

    def _walk(
        self, intents: Iterable[Intent], context: Mapping[str, Json], source: str
    ) -> list[EndedJob]:
        """Follow what belongs to the run; the jobs that ended there, in their order."""
        ended: list[EndedJob] = []
        for intent in intents:
            if isinstance(intent, SpawnJob) and intent.pipeline == self._run.pipeline:
                ended += self._step(intent, context)
            elif isinstance(intent, SpawnJob):
                self._done.children[f"{source} --{intent.event.type}--> {intent.plugin}"] += 1
            elif isinstance(intent, StartPipeline):
                self._done.children[f"{source} --> pipeline {intent.pipeline}"] += 1
            elif isinstance(intent, OpenScope) and intent.pipeline == self._run.pipeline:
                ended += self._split(intent, context)
        return ended

    def _split(self, scope: OpenScope, context: Mapping[str, Json]) -> list[EndedJob]:
        inner = self._walk(scope.children, context, scope.split)
        bad = any(job.status in ENDED_BADLY for job in inner)
        unknown = any(job.status is JobStatus.QUEUED for job in inner)
        if unknown or (bad and not scope.join_always):
            return inner
        around = SplitScope(
            scope.pipeline,
            scope.split,
            scope.branch,
            scope.parent_job_id,
            scope.hops,
            context,
            scope.join,
        )
        joined = self._router.join(around, inner, now=self._now, event_id="join")
        after = self._walk(joined.intents, context, scope.split)
        return [*(replace(job, joined=True) for job in inner), *after] if after else inner

    def _step(self, spawn: SpawnJob, context: Mapping[str, Json]) -> list[EndedJob]:
        if len(self._done.steps) >= MAX_REPLAYED:
            return []
        where = (spawn.step_path, spawn.branch)
        place: Place = (*where, self._reached[where])
        self._reached[where] += 1
        recorded = self._recorded.get(place)
        node = self._router.node(spawn.pipeline, spawn.step_path)
        step = ReplayedStep(spawn.plugin, "unknown")
        self._done.steps[place] = step
        job_id = recorded.job.id if recorded else f"{place[0]}#{place[1]}#{place[2]}"
        ended = EndedJob(
            job_id, spawn.parent_job_id, spawn.branch, spawn.step_path, JobStatus.QUEUED, None
        )
        if spawn.dead is not None or node is None:
            step.status, step.reason = "failed", spawn.dead or "the step does not exist"
            return [replace(ended, status=JobStatus.DEAD, error=step.reason)]
        found = self._continue(spawn, node, context, recorded, step)
        if isinstance(found, Failure):
            step.status, step.reason = "failed", found.reason
            return [replace(ended, status=JobStatus.FAILED, error=found.reason)]
        events, accumulated, result = found
        status = _status_of(step.status)
        ended = replace(ended, status=status, result=result)
        if status is not JobStatus.SUCCEEDED:
            return [ended]
        done = Done(
            job_id,
            spawn.plugin,
            spawn.submitted_by.value,
            spawn.hops,
            accumulated,
            spawn.pipeline,
            spawn.step_path,
            spawn.branch,
        )
        routing = self._router.route(done, events)
        return [ended, *self._walk(routing.intents, accumulated, spawn.step_path)]

    def _continue(
        self,
        spawn: SpawnJob,
        node: Node,
        context: Mapping[str, Json],
        recorded: RecordedStep | None,
        step: ReplayedStep,
    ) -> tuple[tuple[Event, ...], Mapping[str, Json], Json] | Failure:
        """The events of the step, its context and its result; `step` gets input and status."""
        if node.kind is NodeKind.SWITCH:
            return self._judge_switch(spawn, node, context, step)
        response: Response | None = None
        if recorded is not None and recorded.job.plugin == spawn.plugin:
            step.status, response = recorded.job.status.value, _response_of(recorded)
        accumulated = self._enter(spawn, node, context, step)
        if isinstance(accumulated, Failure):
            return accumulated
        payload = spawn.event.payload
        result = None if response is None else response.result
        emitted: Sequence[EmittedEvent] = ()
        if node.kind is NodeKind.WAIT:
            inner = dict(payload) if isinstance(payload, dict) else {"payload": payload}
            emitted = (EmittedEvent(STEP_SUCCEEDED, {**inner, "result": result}, None),)
        elif node.kind is not NodeKind.RELAY and response is not None:
            emitted = response.events
        ids = [f"event-{len(self._done.steps)}-{number}" for number in range(max(1, len(emitted)))]
        events = outgoing(
            emitted,
            source=spawn.plugin,
            in_pipeline=True,
            entered=payload,
            result=result,
            now=self._now,
            event_ids=ids,
        )
        return events, accumulated, result

    def _judge_switch(
        self, spawn: SpawnJob, node: Node, context: Mapping[str, Json], step: ReplayedStep
    ) -> tuple[tuple[Event, ...], Mapping[str, Json], Json] | Failure:
        payload, config = spawn.event.payload, self._config(node.config_of)
        judged = judge_switch(node, payload, context, config, hops=spawn.hops)
        if isinstance(judged, Failure):
            return judged
        step.input, step.status = judged.matched, JobStatus.SUCCEEDED.value
        event = switch_event(judged, payload, self._now, f"event-{len(self._done.steps)}")
        return (event,), judged.accumulated, judged.result

    def _enter(
        self, spawn: SpawnJob, node: Node, context: Mapping[str, Json], step: ReplayedStep
    ) -> Mapping[str, Json] | Failure:
        """The context of a step that sends, waits or runs a plugin; `step` gets its input."""
        payload, hops = spawn.event.payload, spawn.hops
        if node.kind is NodeKind.RELAY:
            sent = prepare_relay(node, payload, spawn.dedupe_key, context, hops=hops)
            if isinstance(sent, Failure):
                return sent
            step.input = {"to": sent.to, "event": sent.event_type, "payload": sent.payload}
            # The message does not depend on a recorded outcome.
            step.status = JobStatus.SUCCEEDED.value
            return sent.accumulated
        if node.kind is NodeKind.WAIT:
            begun = begin_wait(node, payload, context, self._now, hops=hops, wait_id="replay")
            if isinstance(begun, Failure):
                return begun
            step.input = {"kind": begun.kind.value, "title": begun.title, "event": begun.event_type}
            return dict(context)
        prepared = prepare_step(node, payload, context, self._config(node.plugin), hops=hops)
        if isinstance(prepared, Failure):
            return prepared
        step.input = prepared.payload
        return prepared.accumulated

    def _config(self, plugin: str | None) -> dict[str, Json]:
        encoded = self._configs.get(plugin or "")
        return dict(orjson.loads(encoded)) if encoded else {}


def replace_hops(
    children: Sequence[SpawnJob | OpenScope], hops: int
) -> tuple[SpawnJob | OpenScope, ...]:
    """The first jobs of a run at the place in the chain that they had."""
    return tuple(
        replace(child, hops=child.hops + hops)
        if isinstance(child, SpawnJob)
        else replace(child, hops=child.hops + hops, children=replace_hops(child.children, hops))
        for child in children
    )


def _status_of(word: str) -> JobStatus:
    """`QUEUED` stands for an unknown outcome, and for one that is not recorded yet."""
    if word in (JobStatus.SUCCEEDED, JobStatus.SKIPPED):
        return JobStatus(word)
    return JobStatus.FAILED if word in ENDED_BADLY else JobStatus.QUEUED


def _response_of(recorded: RecordedStep) -> Response | None:
    if recorded.response is None:
        return None
    response = read_response(recorded.response.encode(), overflowed=False)
    return None if isinstance(response, ProtocolError) else response
