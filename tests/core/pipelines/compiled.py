"""A gateway in memory: the order that `router.py` describes, followed to the letter.

It shows that the values of `core/` are enough to settle by, and lets tests run whole
pipelines. Nothing is durable, plugins are functions, and jobs run in any order.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from typing import Any

from ductile.core.jobs.plugin_protocol import EmittedEvent
from ductile.core.jobs.state_machine import ENDED_BADLY
from ductile.core.pipelines.graph import NodeKind
from ductile.core.pipelines.intents import Intent, OpenScope, SpawnJob, StartPipeline
from ductile.core.pipelines.join_payload import EndedJob
from ductile.core.pipelines.lineage import Done, SplitScope
from ductile.core.pipelines.router import Router
from ductile.core.pipelines.step_io import (
    Prepared,
    entered_payload,
    judge_switch,
    outgoing,
    payload_column,
    prepare_relay,
    prepare_step,
    switch_event,
)
from ductile.core.values.json_values import Failure
from ductile.model import Event, JobStatus, Json, SubmittedBy

NOW = datetime(2026, 2, 8, 10, tzinfo=UTC)


@dataclass
class Answer:
    """What a fake plugin does."""

    events: list[tuple[str, Json]] = field(default_factory=list)
    result: Json = "done"
    fails: bool = False


Plugin = Callable[[Json, Mapping[str, Json]], Answer]


@dataclass
class Row:
    id: str
    spawn: SpawnJob
    column: Json
    scope: str | None
    entering: str | None
    join_of: str | None = None
    own: str | None = None
    status: JobStatus = JobStatus.QUEUED
    result: Json = None
    error: str | None = None
    seen: Json = None


@dataclass
class ScopeRow:
    id: str
    above: str | None
    opened: OpenScope | None
    entering: str | None
    state: str = "open"


@dataclass
class ContextRow:
    id: str
    above: str | None
    pipeline: str
    step: str
    accumulated: dict[str, Json]


class Simulation:
    def __init__(self, router: Router, plugins: Mapping[str, Plugin], seed: int = 0) -> None:
        self.router = router
        self.plugins = plugins
        self.chance = random.Random(seed)
        self.ids = (f"id{number:05}" for number in count(1))
        self.jobs: dict[str, Row] = {}
        self.scopes: dict[str, ScopeRow] = {}
        self.contexts: dict[str, ContextRow] = {}
        self.identities: set[tuple[str, ...]] = set()
        self.unrouted: list[Any] = []
        self.joins: Counter[str] = Counter()

    def event(self, type_: str, payload: Json, source: str = "outside") -> Event:
        return Event(type_, payload, None, source, NOW, next(self.ids))

    def start(self, pipeline: str, payload: Json) -> None:
        event = self.event(self.router.pipelines[pipeline].on or "hook", payload)
        intent = self.router.start(pipeline, event, submitted_by=SubmittedBy.API)
        assert intent is not None
        self.write(intent, None, None)
        self.run()

    def arrive(self, type_: str, payload: Json, plugin: str | None = None) -> None:
        event = self.event(type_, payload)
        routing = self.router.arrive(event, plugin=plugin, submitted_by=SubmittedBy.WEBHOOK)
        for intent in routing.intents:
            self.write(intent, None, None)
        self.run()

    def run(self, limit: int = 2000) -> None:
        while waiting := [row for row in self.jobs.values() if row.status is JobStatus.QUEUED]:
            limit -= 1
            assert limit, "it never ends"
            self.work(self.chance.choice(waiting))

    def retry(self, job_id: str) -> None:
        row = self.jobs[job_id]
        row.status = JobStatus.QUEUED
        scope = row.scope
        while scope is not None:
            self.scopes[scope].state = "open"
            scope = self.scopes[scope].above
        self.run()

    def work(self, row: Row) -> None:
        payload = entered_payload(row.spawn.command, row.column)
        entering = {} if row.entering is None else self.contexts[row.entering].accumulated
        if not row.spawn.pipeline:
            self.call_plugin(row, payload, entering, entering)
            return
        node = self.router.node(row.spawn.pipeline, row.spawn.step_path)
        assert node is not None
        if node.kind is NodeKind.SWITCH:
            switched = judge_switch(node, payload, entering, {}, hops=row.spawn.hops)
            if isinstance(switched, Failure):
                self.end(row, JobStatus.FAILED, switched.reason)
                return
            row.result = switched.result
            self.settle(
                row, switched.accumulated, (switch_event(switched, payload, NOW, next(self.ids)),)
            )
        elif node.kind is NodeKind.RELAY:
            message = prepare_relay(node, payload, None, entering, hops=row.spawn.hops)
            if isinstance(message, Failure):
                self.end(row, JobStatus.FAILED, message.reason)
                return
            row.seen = message.payload
            self.settle(row, message.accumulated, self.passed_on(row, payload, Answer()))
        else:
            prepared = prepare_step(node, payload, entering, {}, hops=row.spawn.hops)
            if isinstance(prepared, Failure):
                self.end(row, JobStatus.FAILED, prepared.reason)
                return
            self.call_plugin(row, payload, prepared.accumulated, prepared)

    def call_plugin(
        self, row: Row, payload: Json, accumulated: dict[str, Json], prepared: Any
    ) -> None:
        ready = isinstance(prepared, Prepared)
        row.seen = prepared.payload if ready else payload
        context = prepared.context if ready else accumulated
        answer = self.plugins[row.spawn.plugin](row.seen, context)
        row.result = answer.result
        if answer.fails:
            self.end(row, JobStatus.DEAD, "the plugin failed")
        else:
            self.settle(row, accumulated, self.passed_on(row, payload, answer))

    def passed_on(self, row: Row, payload: Json, answer: Answer) -> tuple[Event, ...]:
        return outgoing(
            [EmittedEvent(type_, body, None) for type_, body in answer.events],
            source=row.spawn.plugin,
            in_pipeline=bool(row.spawn.pipeline),
            entered=payload,
            result=answer.result,
            now=NOW,
            event_ids=[next(self.ids) for _ in range(max(1, len(answer.events)))],
        )

    def settle(self, row: Row, accumulated: dict[str, Json], events: tuple[Event, ...]) -> None:
        self.write_context(row, accumulated)
        done = Done(
            job_id=row.id,
            plugin=row.spawn.plugin,
            submitted_by=row.spawn.submitted_by,
            hops=row.spawn.hops,
            context=accumulated,
            pipeline=row.spawn.pipeline,
            step_path=row.spawn.step_path,
            branch=row.spawn.branch,
        )
        routing = self.router.route(done, events)
        self.unrouted += routing.unrouted
        for intent in routing.intents:
            in_scope = not isinstance(intent, SpawnJob) or intent.pipeline
            self.write(intent, row.scope if in_scope else None, row.own or row.entering)
        self.end(row, JobStatus.SUCCEEDED, None)

    def write_context(self, row: Row, accumulated: dict[str, Json]) -> None:
        if row.spawn.pipeline:
            spawn = row.spawn
            row.own = next(self.ids)
            self.contexts[row.own] = ContextRow(
                row.own, row.entering, spawn.pipeline, spawn.step_path, accumulated
            )

    def write(
        self, intent: Intent, scope: str | None, entering: str | None, join_of: str | None = None
    ) -> None:
        if isinstance(intent, SpawnJob):
            self.write_job(intent, scope, entering, join_of)
            return
        opened = next(self.ids)
        if isinstance(intent, StartPipeline):
            entering = next(self.ids)
            self.contexts[entering] = ContextRow(
                entering, None, intent.pipeline, "", intent.context(opened)
            )
            self.scopes[opened] = ScopeRow(opened, None, None, entering)
        else:
            self.scopes[opened] = ScopeRow(opened, scope, intent, entering)
        for child in intent.children:
            self.write(child, opened, entering)
        if not intent.children:
            self.close(opened)

    def write_job(
        self, intent: SpawnJob, scope: str | None, entering: str | None, join_of: str | None
    ) -> None:
        assert intent.identity not in self.identities
        self.identities.add(intent.identity)
        column = payload_column(intent.command, intent.event)
        row = Row(next(self.ids), intent, column, scope, entering, join_of)
        self.jobs[row.id] = row
        if intent.dead is not None:
            self.end(row, JobStatus.DEAD, intent.dead)

    def end(self, row: Row, status: JobStatus, error: str | None) -> None:
        row.status, row.error = status, error
        if row.scope is not None:
            self.close(row.scope)

    def close(self, scope_id: str) -> None:
        scope = self.scopes[scope_id]
        jobs = [row for row in self.jobs.values() if row.scope == scope_id]
        below = [other for other in self.scopes.values() if other.above == scope_id]
        open_ = any(row.status in (JobStatus.QUEUED, JobStatus.RUNNING) for row in jobs)
        if scope.state == "ended" or open_ or any(other.state == "open" for other in below):
            return
        bad = any(row.status in ENDED_BADLY for row in jobs)
        bad = bad or any(other.state == "failed" for other in below)
        if scope.opened is None or (bad and not scope.opened.join_always):
            scope.state = "failed" if bad else "ended"
        else:
            scope.state = "ended"
            self.join(scope, scope.opened)
        if scope.above is not None:
            self.close(scope.above)

    def join(self, scope: ScopeRow, opened: OpenScope) -> None:
        assert scope.entering is not None
        self.joins[scope.id] += 1
        inside = self.inside(scope.id)
        ended = [
            EndedJob(
                row.id,
                row.spawn.parent_job_id,
                row.spawn.branch,
                row.spawn.step_path,
                row.status,
                row.result,
                self.joined(str(row.scope), scope.id),
            )
            for row in self.jobs.values()
            if row.scope in inside
        ]
        split = SplitScope(
            opened.pipeline,
            opened.split,
            opened.branch,
            opened.parent_job_id,
            opened.hops,
            self.contexts[scope.entering].accumulated,
            opened.join,
        )
        routing = self.router.join(split, ended, now=NOW, event_id=next(self.ids))
        for intent in routing.intents:
            self.write(intent, scope.above, scope.entering, join_of=scope.id)

    def joined(self, scope_id: str, ending: str) -> bool:
        while scope_id != ending:
            scope = self.scopes[scope_id]
            assert scope.opened is not None
            assert scope.above is not None
            if scope.state == "ended" and scope.opened.join.path:
                return True
            scope_id = scope.above
        return False

    def inside(self, scope_id: str) -> set[str]:
        found = {scope_id}
        for other in self.scopes.values():
            if other.above in found:
                found.add(other.id)
        return found

    def ran(self) -> list[str]:
        """The step paths, or plugins, of all jobs that succeeded, sorted."""
        good = (row.spawn for row in self.jobs.values() if row.status is JobStatus.SUCCEEDED)
        return sorted(spawn.step_path or spawn.plugin for spawn in good)

    def job(self, step_path: str) -> Row:
        (row,) = [row for row in self.jobs.values() if row.spawn.step_path == step_path]
        return row
