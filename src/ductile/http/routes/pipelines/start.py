"""Starting a pipeline, and waiting for a synchronous one."""

from __future__ import annotations

import asyncio
from contextlib import closing
from typing import TYPE_CHECKING, Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from ductile.core.jobs.state_machine import ENDED
from ductile.engine.services import Services
from ductile.errors import UsageError
from ductile.http.middleware.budget import charge
from ductile.http.middleware.caller import trace_of, with_submitter
from ductile.http.middleware.context import app_context_of
from ductile.http.middleware.idempotency import run_once
from ductile.http.middleware.wait import JobWaiter
from ductile.http.requests import submitted_by, wait_for_disconnect
from ductile.http.responses import (
    JsonResponse,
    build_response,
    read_ledger,
    services_of,
    write_ledger,
)
from ductile.operations import job_tree
from ductile.operations.dry_run import pipeline as dry_run
from ductile.operations.pipelines import PipelineStart, StartedPipeline
from ductile.store.access.tokens import Spending
from ductile.store.engines.api import Tx, Work

if TYPE_CHECKING:
    from ductile.http.models.bodies import PipelineStartBody
    from ductile.http.models.queries import PipelineStartQuery, RunWaitQuery


async def start_pipeline(
    request: Request, query: PipelineStartQuery, body: PipelineStartBody
) -> Response:
    """`POST /pipeline/{name}`: Start a pipeline; a synchronous one returns its result."""
    services, name = services_of(request), request.path_params["name"]
    start = PipelineStart(
        services,
        name,
        body.payload,
        submitted_by(request),
        body.dedupe_key,
        body.dedupe_ttl,
        body.priority or 0.0,
        trace=trace_of(request.scope, services),
    )
    if body.dry_run:
        return await _plan_start(request, start, body)
    if start.pipeline.execution_mode != "synchronous" or query.async_:
        started = await write_ledger(services, _once(request, start))
        return JsonResponse(_describe_started(started, name), 202)
    if len(start.pipeline.first_jobs()) > 1:
        raise UsageError(f"pipeline {name} starts with several jobs; start it with ?async=true")
    with app_context_of(request).synchronous_call():
        return await _start_and_wait(request, start)


def _once(request: Request, start: PipelineStart) -> Work[StartedPipeline]:
    named = with_submitter(request, start, lambda started: started.job_ids)
    charged = charge(
        request,
        named,
        Spending.RUNS,
        lambda started: 1 if started.job_ids else 0,
        action="pipeline.run",
        created=lambda started: {"instance_id": started.instance_id},
    )
    return run_once(request, charged, StartedPipeline)


async def _plan_start(request: Request, start: PipelineStart, body: PipelineStartBody) -> Response:
    """Return what would run first, and the existing job with the same dedupe key."""
    services = services_of(request)
    run_once(request, start, StartedPipeline, dry_run=True)
    existing = await read_ledger(services, start.existing)
    duplicate = {"deduplicated": existing is not None, "job_id": existing}
    name, now = start.pipeline.name, services.clock.now()
    return await build_response(
        services, lambda: {**dry_run.plan(services.compiled, name, body.payload, now), **duplicate}
    )


async def _start_and_wait(request: Request, start: PipelineStart) -> Response:
    services = services_of(request)
    most = services.compiled.settings.api.max_sync_timeout
    timeout = min(start.pipeline.timeout or most, most)
    began = services.clock.monotonic()
    started = await write_ledger(services, _once(request, start))
    disconnect = asyncio.create_task(wait_for_disconnect(request))
    end = asyncio.create_task(_wait_for_run(services, started.instance_id, timeout))
    try:
        await asyncio.wait({disconnect, end}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        disconnect.cancel()
        end.cancel()
    accepted = _describe_started(started, start.pipeline.name)
    if not end.done():
        return JsonResponse(accepted, 202)  # The caller has gone and does not read this.
    run = end.result().shown
    if not run["tree_ended"]:
        queued = all(job["status"] == "queued" for job in run["jobs"])
        status = "queued" if queued else "running"
        return JsonResponse({**accepted, "status": status, "timeout_exceeded": True}, 202)
    took = round((services.clock.monotonic() - began) * 1000, 1)
    return await build_response(services, lambda: _describe_result(services, started, run, took))


async def _wait_for_run(services: Services, instance_id: str, timeout: float) -> _Run:
    """Return the run once every job that descends from it has ended, or the time is up."""
    with closing(JobWaiter(services, instance_id)) as waiter:
        return await waiter.wait(
            lambda: _read_run(services, instance_id), lambda run: run.awaited, timeout
        )


class _Run(NamedTuple):
    shown: dict[str, Any]
    awaited: tuple[str, ...]
    """What has to end before its tree can have ended; empty if the tree has ended."""


async def _read_run(services: Services, instance_id: str) -> _Run:
    def read(tx: Tx) -> _Run:
        unfinished = job_tree.find_unfinished(tx, instance_id)
        run = job_tree.instance(tx, instance_id)
        is_open = run["status"] == "open"
        # The run's own end first: most trees end with it, and are read only once more.
        awaited = (instance_id,) if is_open else () if unfinished is None else (unfinished,)
        return _Run({**run, "tree_ended": not awaited}, awaited)

    return await read_ledger(services, read)


async def show_run(request: Request, query: RunWaitQuery) -> Response:
    """`GET /pipeline-instance/{instance_id}`: Show a pipeline run and its jobs.

    With `wait` the response is sent when the run and every job that descends from it have ended,
    or when the time is up. With `seen` as well it is also sent when the number of finished jobs
    of the run differs from `seen`.
    """
    services, id = services_of(request), request.path_params["instance_id"]

    def find_awaited(run: _Run) -> tuple[str, ...]:
        states = {job["job_id"]: job["status"] in ENDED for job in run.shown["jobs"]}
        if query.seen is None or not run.awaited:
            return run.awaited
        if sum(states.values()) != query.seen:
            return ()
        return (*run.awaited, *(job_id for job_id, ended in states.items() if not ended))

    with closing(JobWaiter(services, id)) as waiter:
        run = await waiter.wait(lambda: _read_run(services, id), find_awaited, query.wait)
    return await build_response(services, lambda: run.shown)


def _describe_result(
    services: Services, started: StartedPipeline, run: dict[str, Any], took: float
) -> dict[str, Any]:
    job_id = started.job_ids[0] if started.job_ids else started.existing_job_id
    result = {
        "job_id": job_id,
        "status": run["status"],
        "duration_ms": took,
        "instance_id": started.instance_id,
    }
    if not started.job_ids or started.skipped:
        return {**result, "reason": run["reason"], "result": None, "tree": []}
    redactor = services.compiled.redactor
    tree = job_tree.graph(services.ledger, started.job_ids[0], redactor, by_creation=True)
    return {**result, "result": run["result"], "tree": tree}


def _describe_started(started: StartedPipeline, name: str) -> dict[str, Any]:
    has_begun = started.job_ids and not started.skipped
    return {
        "job_id": started.job_ids[0] if started.job_ids else started.existing_job_id,
        "instance_id": started.instance_id,
        "status": "queued" if has_begun else "skipped",
        "pipeline": name,
        "deduplicated": started.existing_job_id is not None,
        **({"reason": started.skipped} if started.skipped else {}),
    }
