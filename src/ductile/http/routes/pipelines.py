"""Pipelines: look at one, start one and, where it is synchronous, stay on the line (002 §8.3)."""

from __future__ import annotations

import asyncio
from contextlib import closing
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ductile.core.jobs.state_machine import ENDED
from ductile.core.pipelines import diagram
from ductile.core.pipelines.compile import Pipeline
from ductile.engine.services import Services
from ductile.errors import UsageError
from ductile.http.middleware.context import app_context_of
from ductile.http.middleware.idempotency import once
from ductile.http.middleware.wait import JobWaiter
from ductile.http.requests import (
    duration_of,
    flag,
    flag_of,
    object_of,
    payload_in,
    producer,
    seconds,
    text_of,
    whole,
)
from ductile.http.responses import JsonResponse, gateway_of, made, reading, writing
from ductile.http.routes.jobs import LONGEST_WAIT
from ductile.operations import job_tree
from ductile.operations.dry_run import pipeline as rehearse
from ductile.operations.pipelines import PipelineStart, StartedPipeline, find_pipeline


async def listing(request: Request) -> Response:
    """`GET /pipelines`: each with its trigger, mode and number of steps."""
    router = gateway_of(request).compiled.tx_config.router
    return JsonResponse(
        {"pipelines": [_summary(router.pipelines[n]) for n in sorted(router.pipelines)]}
    )


def _summary(pipeline: Pipeline) -> dict[str, Any]:
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


async def show(request: Request) -> Response:
    """`GET /pipeline/{name}`: its steps as they were compiled, and two drawings of them."""
    compiled = gateway_of(request).compiled
    pipeline = find_pipeline(compiled.tx_config.router, request.path_params["name"])
    return JsonResponse(
        {
            **_summary(pipeline),
            "steps": rehearse.resolved(compiled, pipeline),
            "mermaid": diagram.mermaid(pipeline),
            "drawing": diagram.tree(pipeline),
        }
    )


async def start(request: Request) -> Response:
    """`POST /pipeline/{name}`: 202 at once, or 200 with the result of a synchronous one."""
    gateway, name = gateway_of(request), request.path_params["name"]
    body = await object_of(request)
    starting = PipelineStart(
        gateway,
        name,
        payload_in(body),
        producer(request),
        text_of(body, "dedupe_key"),
        duration_of(body, "dedupe_ttl"),
    )
    if flag_of(body, "dry_run"):
        return await _rehearsed(request, gateway, starting, body)
    wanted = starting.pipeline.execution_mode == "synchronous"
    if not wanted or flag(request.query_params, "async"):
        started = await writing(gateway, once(request, starting, StartedPipeline))
        return JsonResponse(_accepted(started, name), 202)
    if len(starting.pipeline.first_jobs()) > 1:
        raise UsageError(f"pipeline {name} begins with several jobs; start it with ?async=true")
    with app_context_of(request).line():
        return await _stay(request, gateway, starting)


async def _rehearsed(
    request: Request, gateway: Services, starting: PipelineStart, body: dict[str, Any]
) -> Response:
    """What would run first, or the job that makes it needless."""
    once(request, starting, StartedPipeline, dry=True)
    existing = await reading(gateway, starting.existing)
    told = {"deduplicated": existing is not None, "job_id": existing}
    name, payload, now = starting.pipeline.name, payload_in(body), gateway.clock.now()
    return await made(
        gateway, lambda: {**rehearse.plan(gateway.compiled, name, payload, now), **told}
    )


async def _stay(request: Request, gateway: Services, starting: PipelineStart) -> Response:
    most = gateway.compiled.settings.api.max_sync_timeout
    timeout = min(starting.pipeline.timeout or most, most)
    before = gateway.clock.monotonic()
    started = await writing(gateway, once(request, starting, StartedPipeline))
    gone = asyncio.create_task(_gone(request))
    watched = asyncio.create_task(_watched(gateway, started.instance_id, timeout))
    try:
        await asyncio.wait({gone, watched}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        gone.cancel()
        watched.cancel()
    accepted = _accepted(started, starting.pipeline.name)
    if not watched.done():
        return JsonResponse(accepted, 202)  # Its caller has left: nobody reads this.
    found = watched.result()
    if found["status"] == "open":
        waits = all(job["status"] == "queued" for job in found["jobs"])
        status = "queued" if waits else "running"
        return JsonResponse({**accepted, "status": status, "timeout_exceeded": True}, 202)
    took = round((gateway.clock.monotonic() - before) * 1000, 1)
    return await made(gateway, lambda: _result(gateway, started, found, took))


async def _gone(request: Request) -> None:
    while (await request.receive()).get("type") != "http.disconnect":
        pass


async def _watched(gateway: Services, instance_id: str, timeout: float) -> dict[str, Any]:
    """The instance, once it is over or the time is up."""
    with closing(JobWaiter(gateway, instance_id)) as vigil:
        return await vigil.watch(
            lambda: _read(gateway, instance_id), lambda found: found["status"] != "open", timeout
        )


async def _read(gateway: Services, instance_id: str) -> dict[str, Any]:
    return await reading(gateway, lambda tx: job_tree.instance(tx, instance_id))


async def instance(request: Request) -> Response:
    """`GET /pipeline-instance/{id}?wait=S&seen=N`: the instance and its jobs.

    With `wait` it answers when the number of ended jobs is no longer `seen`, when the
    instance is over, or when the time is up.
    """
    gateway, id = gateway_of(request), request.path_params["instance_id"]
    query = request.query_params
    wait, seen = seconds(query, "wait", LONGEST_WAIT), whole(query, "seen") or 0
    with closing(JobWaiter(gateway, id)) as vigil:
        found = await _read(gateway, id)
        if wait and _same(found, seen):
            vigil.listen(*(job["job_id"] for job in found["jobs"] if job["status"] not in ENDED))
            found = await vigil.watch(
                lambda: _read(gateway, id), lambda found: not _same(found, seen), wait
            )
    return await made(gateway, lambda: found)


def _same(found: dict[str, Any], seen: int) -> bool:
    ended = sum(job["status"] in ENDED for job in found["jobs"])
    return found["status"] == "open" and ended == seen


def _result(
    gateway: Services, started: StartedPipeline, found: dict[str, Any], took: float
) -> dict[str, Any]:
    job_id = started.job_ids[0] if started.job_ids else started.existing_job_id
    answer = {"job_id": job_id, "status": found["status"], "duration_ms": took}
    if not started.job_ids:
        return {**answer, "reason": found["reason"], "result": None, "tree": None}
    tree = job_tree.tree(gateway.ledger, started.job_ids[0], gateway.compiled.redactor)
    return {**answer, "result": found["result"], "tree": tree}


def _accepted(started: StartedPipeline, name: str) -> dict[str, Any]:
    return {
        "job_id": started.job_ids[0] if started.job_ids else started.existing_job_id,
        "instance_id": started.instance_id,
        "status": "queued" if started.job_ids else "skipped",
        "pipeline": name,
        "deduplicated": started.existing_job_id is not None,
    }
