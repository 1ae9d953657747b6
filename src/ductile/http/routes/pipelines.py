"""Pipelines: list, show and start them, and wait for a synchronous one."""

from __future__ import annotations

import asyncio
from contextlib import closing
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response

from ductile.core.jobs.state_machine import ENDED
from ductile.core.pipelines import diagram
from ductile.core.pipelines.compile import Pipeline
from ductile.engine.services import Services
from ductile.errors import UsageError
from ductile.http.middleware.context import app_context_of
from ductile.http.middleware.idempotency import run_once
from ductile.http.middleware.wait import JobWaiter
from ductile.http.requests import submitted_by
from ductile.http.responses import (
    JsonResponse,
    build_response,
    read_ledger,
    services_of,
    write_ledger,
)
from ductile.operations import job_tree
from ductile.operations.dry_run import pipeline as dry_run
from ductile.operations.pipelines import PipelineStart, StartedPipeline, find_pipeline

if TYPE_CHECKING:
    from ductile.http.models.bodies import PipelineStartBody
    from ductile.http.models.queries import PipelineStartQuery, RunWaitQuery


async def list_pipelines(request: Request) -> Response:
    """`GET /pipelines`: List pipelines with their trigger, mode and number of steps."""
    router = services_of(request).compiled.tx_config.router
    names = sorted(router.pipelines)
    return JsonResponse({"pipelines": [_summarize(router.pipelines[name]) for name in names]})


def _summarize(pipeline: Pipeline) -> dict[str, Any]:
    return {
        "name": pipeline.name,
        "on": pipeline.on,
        "on_hook": pipeline.hook,
        "from_plugin": pipeline.from_plugin,
        "if": str(pipeline.condition) if pipeline.condition else None,
        "execution_mode": pipeline.execution_mode,
        "timeout": pipeline.timeout,
        "workspace": pipeline.workspace,
        "max_depth": pipeline.max_depth,
        "steps": len(pipeline.nodes),
    }


async def show_pipeline(request: Request) -> Response:
    """`GET /pipeline/{name}`: Show the compiled steps of a pipeline, and two diagrams of them."""
    compiled = services_of(request).compiled
    pipeline = find_pipeline(compiled.tx_config.router, request.path_params["name"])
    return JsonResponse(
        {
            **_summarize(pipeline),
            "steps": dry_run.resolved(compiled, pipeline),
            "mermaid": diagram.mermaid(pipeline),
            "drawing": diagram.tree(pipeline),
        }
    )


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
    )
    if body.dry_run:
        return await _plan_start(request, start, body)
    if start.pipeline.execution_mode != "synchronous" or query.async_:
        started = await write_ledger(services, run_once(request, start, StartedPipeline))
        return JsonResponse(_describe_started(started, name), 202)
    if len(start.pipeline.first_jobs()) > 1:
        raise UsageError(f"pipeline {name} starts with several jobs; start it with ?async=true")
    with app_context_of(request).synchronous_call():
        return await _start_and_wait(request, start)


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
    started = await write_ledger(services, run_once(request, start, StartedPipeline))
    disconnect = asyncio.create_task(_wait_for_disconnect(request))
    end = asyncio.create_task(_wait_for_run(services, started.instance_id, timeout))
    try:
        await asyncio.wait({disconnect, end}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        disconnect.cancel()
        end.cancel()
    accepted = _describe_started(started, start.pipeline.name)
    if not end.done():
        return JsonResponse(accepted, 202)  # The caller has gone and does not read this.
    run = end.result()
    if run["status"] == "open":
        queued = all(job["status"] == "queued" for job in run["jobs"])
        status = "queued" if queued else "running"
        return JsonResponse({**accepted, "status": status, "timeout_exceeded": True}, 202)
    took = round((services.clock.monotonic() - began) * 1000, 1)
    return await build_response(services, lambda: _describe_result(services, started, run, took))


async def _wait_for_disconnect(request: Request) -> None:
    while (await request.receive()).get("type") != "http.disconnect":
        pass


async def _wait_for_run(services: Services, instance_id: str, timeout: float) -> dict[str, Any]:
    """Return the run once it has ended or the time is up."""
    with closing(JobWaiter(services, instance_id)) as waiter:
        return await waiter.wait(
            lambda: _read_run(services, instance_id), lambda run: run["status"] != "open", timeout
        )


async def _read_run(services: Services, instance_id: str) -> dict[str, Any]:
    return await read_ledger(services, lambda tx: job_tree.instance(tx, instance_id))


async def show_run(request: Request, query: RunWaitQuery) -> Response:
    """`GET /pipeline-instance/{instance_id}`: Show a pipeline run and its jobs.

    With `wait` the response is sent when the number of finished jobs differs from `seen`, when the
    run has ended, or when the time is up.
    """
    services, id = services_of(request), request.path_params["instance_id"]
    seen = query.seen or 0
    with closing(JobWaiter(services, id)) as waiter:
        run = await _read_run(services, id)
        if query.wait and _is_unchanged(run, seen):
            waiter.subscribe(*(job["job_id"] for job in run["jobs"] if job["status"] not in ENDED))
            run = await waiter.wait(
                lambda: _read_run(services, id),
                lambda run: not _is_unchanged(run, seen),
                query.wait,
            )
    return await build_response(services, lambda: run)


def _is_unchanged(run: dict[str, Any], seen: int) -> bool:
    finished = sum(job["status"] in ENDED for job in run["jobs"])
    return run["status"] == "open" and finished == seen


def _describe_result(
    services: Services, started: StartedPipeline, run: dict[str, Any], took: float
) -> dict[str, Any]:
    job_id = started.job_ids[0] if started.job_ids else started.existing_job_id
    result = {"job_id": job_id, "status": run["status"], "duration_ms": took}
    if not started.job_ids:
        return {**result, "reason": run["reason"], "result": None, "tree": None}
    tree = job_tree.tree(services.ledger, started.job_ids[0], services.compiled.redactor)
    return {**result, "result": run["result"], "tree": tree}


def _describe_started(started: StartedPipeline, name: str) -> dict[str, Any]:
    return {
        "job_id": started.job_ids[0] if started.job_ids else started.existing_job_id,
        "instance_id": started.instance_id,
        "status": "queued" if started.job_ids else "skipped",
        "pipeline": name,
        "deduplicated": started.existing_job_id is not None,
    }
