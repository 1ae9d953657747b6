"""What starting a pipeline would do; nothing is committed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

import orjson

from ductile.core.jobs.prepare import Ready
from ductile.core.pipelines.graph import SWITCH_SUFFIX, Node, NodeKind
from ductile.core.pipelines.intents import Intent, Routing, SpawnJob, StartPipeline
from ductile.core.pipelines.lineage import Done
from ductile.core.pipelines.pipeline import Pipeline
from ductile.core.pipelines.router import Router
from ductile.core.pipelines.step_io import (
    RelayMessage,
    judge_switch,
    prepare_relay,
    prepare_step,
    switch_event,
)
from ductile.core.values.json_values import Failure
from ductile.core.waits.begin import NewWait, begin_wait
from ductile.engine.config.compiled import CompiledConfig
from ductile.errors import NotFound, Refused
from ductile.model import Event, JobStatus, Json, Outcome, Settlement, SubmittedBy
from ductile.operations.job_tree import added
from ductile.operations.pipelines import find_pipeline
from ductile.runner.pool import RunnerPool

Document = dict[str, Any]
PLACEHOLDER_ID = "dry-run"
"""Used where a real run would have an id."""


def resolved(compiled: CompiledConfig, pipeline: Pipeline) -> list[Document]:
    """The compiled steps: what each runs, what follows, and its place in the configuration."""
    return [_resolved(compiled, pipeline.nodes[path]) for path in pipeline.paths()]


def _resolved(compiled: CompiledConfig, node: Node) -> Document:
    file, line, _ = compiled.loaded.locate(node.at)
    claims = (*node.baggage.values, *node.baggage.objects) if node.baggage else ()
    return {
        "step": node.path,
        "kind": node.kind.value,
        "plugin": node.plugin or None,
        "command": node.command if node.plugin else None,
        "if": str(node.condition) if node.condition else None,
        "next": node.next,
        "otherwise": node.otherwise,
        "branches": {branch.label: branch.entry for branch in node.branches},
        "on_events": {
            event: [target.path or target.pipeline for target in targets]
            for event, targets in node.on_events.items()
        },
        "join_always": node.join_always,
        "with": node.with_ is not None,
        "baggage": {".".join(keys): str(ref) for keys, ref in claims},
        "source": f"{file}:{line}",
    }


def plan(compiled: CompiledConfig, which: str, payload: Json, now: datetime) -> Document:
    """The first jobs of a pipeline that is started now, with payload and context.

    `which` is a pipeline, or a step to start with. Conditions are evaluated up to the first step
    whose result they need. The pipeline's own `if` is shown; it does not apply to a pipeline that
    is started by name.
    """
    router = compiled.tx_config.router
    pipeline, step_path = find(router, which)
    by = SubmittedBy.CLI
    event = Event(pipeline.on or f"{by}.trigger", payload, None, by.value, now, PLACEHOLDER_ID)
    first = None if step_path is None else _guard_of(pipeline, step_path)
    start = router.start(pipeline.name, event, submitted_by=by, at=first)
    assert isinstance(start, StartPipeline)
    shown = compiled.redactor.document
    return {
        "dry_run": True,
        "pipeline": pipeline.name,
        "step": step_path,
        "event": event.type,
        "payload": shown(payload),
        "if": None if step_path else shown(_own_condition(pipeline, payload)),
        "context": shown(start.context(PLACEHOLDER_ID)),
        "max_depth": start.max_depth,
        "first": [shown(item) for item in _Preview(compiled, now).follow((start,))],
        "resolution": resolved(compiled, pipeline),
    }


def _guard_of(pipeline: Pipeline, path: str) -> str:
    """The path of the step's `if`, or of the step itself if it has none."""
    guard = f"{path}{SWITCH_SUFFIX}"
    return guard if guard in pipeline.nodes else path


def _own_condition(pipeline: Pipeline, payload: Json) -> Document | None:
    """The result of the pipeline's `if` for this payload and no context, and why."""
    if pipeline.condition is None:
        return None
    shown: Document = {"condition": str(pipeline.condition)}
    verdict = pipeline.admits(payload, {})
    if isinstance(verdict, Failure):
        return {**shown, "fails": verdict.reason}
    because = pipeline.explain_refusal(payload, {})
    return {**shown, "matched": verdict, "because": because}


def find(router: Router, which: str) -> tuple[Pipeline, str | None]:
    """A pipeline by name; a step as `PIPELINE/STEP`, or as `STEP` if only one pipeline has it.

    STEP is a whole path (`wide.0.good`), or the id as it is written (`good`).
    """
    if which in router.pipelines:
        return router.pipelines[which], None
    name, slash, step = which.partition("/")
    if slash:
        pipeline = find_pipeline(router, name)
        found = [(pipeline, path) for path in _find_paths(pipeline, step)]
        if not found:
            known = ", ".join(pipeline.paths())
            raise NotFound(f"pipeline {name} has no step {step!r}; its steps: {known}")
    else:
        step, known_pipelines = which, router.pipelines.values()
        found = [(having, path) for having in known_pipelines for path in _find_paths(having, step)]
    if len(found) > 1:
        spelled = ", ".join(f"{pipeline.name}/{path}" for pipeline, path in found)
        raise Refused(f"several steps are called {step!r}; use one of: {spelled}")
    return found[0] if found else (find_pipeline(router, which), None)


def _find_paths(pipeline: Pipeline, step: str) -> list[str]:
    """The paths of the steps with this path or, if there is none, with this id."""
    if step in pipeline.nodes:
        return [step]
    return [
        path
        for path, node in pipeline.nodes.items()
        if node.id == step and node.kind is not NodeKind.SWITCH
    ]


class _Preview:
    """Follows intents until a process would have to run."""

    def __init__(self, compiled: CompiledConfig, now: datetime) -> None:
        self._compiled, self._now = compiled, now

    def follow(
        self, intents: Iterable[Intent], context: Mapping[str, Json] | None = None
    ) -> Iterator[Document]:
        for intent in intents:
            own = (
                intent.context(PLACEHOLDER_ID)
                if isinstance(intent, StartPipeline)
                else context or {}
            )
            for job in Routing((intent,)).jobs():
                yield from self._job(job, own)

    def _job(self, job: SpawnJob, context: Mapping[str, Json]) -> Iterator[Document]:
        node = self._compiled.tx_config.router.node(job.pipeline, job.step_path)
        shown: Document = {
            "pipeline": job.pipeline or None,
            "step": job.step_path or None,
            "branch": job.branch or None,
            "plugin": job.plugin,
            "command": job.command,
        }
        if job.dead is not None:
            yield {**shown, "fails": job.dead}
        elif node is None:
            yield {**shown, "payload": job.event.payload, "context": dict(context)}
        elif node.kind is NodeKind.SWITCH:
            yield from self._switch(shown, job, node, context)
        elif node.kind is NodeKind.RELAY:
            sent = prepare_relay(
                node, job.event.payload, job.event.dedupe_key, context, hops=job.hops
            )
            yield {**shown, **describe_relay(sent)}
        elif node.kind is NodeKind.WAIT:
            begun = begin_wait(
                node, job.event.payload, context, self._now, hops=job.hops, wait_id=PLACEHOLDER_ID
            )
            yield {**shown, **describe_wait_step(begun)}
        else:
            yield {**shown, **self._step(job, node, context)}

    def _switch(
        self, shown: Document, job: SpawnJob, node: Node, context: Mapping[str, Json]
    ) -> Iterator[Document]:
        judged = judge_switch(
            node, job.event.payload, context, self._config(node.config_of), hops=job.hops
        )
        shown = {**shown, "if": str(node.condition)}
        if isinstance(judged, Failure):
            yield {**shown, "fails": judged.reason}
            return
        yield {**shown, "matched": judged.matched, "because": judged.because}
        done = Done(
            PLACEHOLDER_ID,
            job.plugin,
            job.submitted_by.value,
            job.hops,
            judged.accumulated,
            job.pipeline,
            job.step_path,
            job.branch,
        )
        event = switch_event(judged, job.event.payload, self._now, PLACEHOLDER_ID)
        routing = self._compiled.tx_config.router.route(done, (event,))
        yield from self.follow(routing.intents, judged.accumulated)

    def _step(self, job: SpawnJob, node: Node, context: Mapping[str, Json]) -> Document:
        if node.plugin not in self._compiled.plans:
            gone = self._compiled.gone(node.plugin)
            return {"fails": gone or f"plugin {node.plugin} is not loaded"}
        step = prepare_step(
            node, job.event.payload, context, self._config(node.plugin), hops=job.hops
        )
        if isinstance(step, Failure):
            return {"fails": step.reason}
        return {
            "payload": step.payload,
            "context": step.context,
            "baggage_added": added(context, step.accumulated),
        }

    def _config(self, plugin: str | None) -> Document:
        plan = self._compiled.plans.get(plugin or "")
        return dict(orjson.loads(plan.config)) if plan else {}


def describe_wait_step(begun: NewWait | Failure) -> Document:
    return {"fails": begun.reason} if isinstance(begun, Failure) else {"waits_for": str(begun)}


def describe_relay(sent: RelayMessage | Failure) -> Document:
    if isinstance(sent, Failure):
        return {"fails": sent.reason}
    return {"relays": sent.event_type, "to": sent.to, "payload": sent.payload}


def run_once(ready: Ready) -> Outcome:
    """Run an attempt in a separate slot, as a worker would."""
    pool = RunnerPool(1, owns_children_after_loss=True)
    try:
        pool.start()
        return pool.slot(0).run(ready.launch)
    finally:
        pool.stop()


def describe_settlement(compiled: CompiledConfig, settlement: Settlement) -> Document:
    """The result of an attempt and the jobs that it would create, as every dry run shows them."""
    shown = compiled.redactor.document
    response = orjson.loads(settlement.result) if settlement.result else None
    succeeded = settlement.status is JobStatus.SUCCEEDED
    return {
        "plugin": settlement.plugin,
        "command": settlement.command,
        "status": settlement.path[0].value,
        "error": settlement.error,
        "duration_ms": round(settlement.duration * 1000, 1),
        "response": response,
        "stdout": settlement.stdout,
        "stderr": settlement.stderr,
        "events": list(response.get("events") or ()) if succeeded and response else [],
        "goes_to": [shown(_describe_next(job)) for job in Routing(settlement.intents).jobs()],
        "unrouted": [
            {"pipeline": item.pipeline, "reason": item.reason} for item in settlement.unrouted
        ],
    }


def _describe_next(job: SpawnJob) -> Document:
    return {
        "plugin": job.plugin,
        "command": job.command,
        "pipeline": job.pipeline or None,
        "step": job.step_path or None,
        "branch": job.branch or None,
        "event": job.event.type,
        "payload": job.event.payload,
        "fails": job.dead,
    }
