"""Pipelines: start one and, where it is synchronous, stay on the line (002 §8.3)."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ductile.errors import DuctileError, UsageError
from ductile.http.answers import JsonResponse, gateway_of, object_of, reading, writing
from ductile.http.jobs import producer, text_of
from ductile.runtime import lineage, operate
from ductile.runtime.gateway import Gateway
from ductile.runtime.operate import Started, Starting


class Saturated(DuctileError):
    code = "too_many_synchronous_calls"
    http_status = 503


async def start(request: Request) -> Response:
    """`POST /pipeline/{name}`: 202 at once, or 200 with the result of a synchronous one."""
    gateway, name = gateway_of(request), request.path_params["name"]
    body = await object_of(request)
    payload = body.get("payload") if body.get("payload") is not None else {}
    starting = Starting(gateway, name, payload, producer(request), text_of(body, "dedupe_key"))
    wanted = starting.pipeline.execution_mode == "synchronous"
    if not wanted or request.query_params.get("async") == "true":
        return JsonResponse(_accepted(await writing(gateway, starting), name), status_code=202)
    if len(starting.pipeline.first_jobs()) > 1:
        raise UsageError(f"pipeline {name} begins with several jobs; start it with ?async=true")
    slots: asyncio.Semaphore = request.app.state.synchronous
    if slots.locked():
        raise Saturated("every synchronous call is in use; try again, or use ?async=true")
    async with slots:
        return await _stay(request, gateway, starting)


async def _stay(request: Request, gateway: Gateway, starting: Starting) -> Response:
    most = gateway.blueprint.settings.api.max_sync_timeout
    timeout = min(starting.pipeline.timeout or most, most)
    before = gateway.clock.monotonic()
    started = await writing(gateway, starting)
    gone = asyncio.create_task(_gone(request))
    ended = asyncio.create_task(_ended(gateway, started.instance_id))
    try:
        done, _ = await asyncio.wait(
            {gone, ended}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED
        )
    finally:
        gone.cancel()
        ended.cancel()
    if ended not in done:
        body = {**_accepted(started, starting.pipeline.name), "timeout_exceeded": True}
        return JsonResponse(body, status_code=202)
    took = round((gateway.clock.monotonic() - before) * 1000, 1)
    return JsonResponse(await _result(gateway, started, took))


async def _gone(request: Request) -> None:
    while (await request.receive()).get("type") != "http.disconnect":
        pass


async def _ended(gateway: Gateway, instance_id: str) -> None:
    loop, event = asyncio.get_running_loop(), asyncio.Event()

    def callback() -> None:
        loop.call_soon_threadsafe(event.set)

    gateway.bridge.when_ended(instance_id, callback)
    try:
        row = await reading(gateway, lambda tx: tx.dicts("scope", id=instance_id))
        if not row or row[0]["status"] == "open":
            await event.wait()
    finally:
        gateway.bridge.forget(instance_id, callback)


async def _result(gateway: Gateway, started: Started, took: float) -> dict[str, Any]:
    scope = (await reading(gateway, lambda tx: tx.dicts("scope", id=started.instance_id)))[0]
    job_id = started.job_ids[0] if started.job_ids else started.existing_job_id
    status = {"ended": "succeeded"}.get(scope["status"], scope["status"])
    answer: dict[str, Any] = {"job_id": job_id, "status": status, "duration_ms": took}
    if job_id is None or scope["status"] == "skipped":
        return {**answer, "reason": scope["reason"], "result": None, "tree": None}
    graph = await asyncio.to_thread(
        lineage.tree, gateway.ledger, job_id, gateway.blueprint.redactor
    )
    rows = await reading(gateway, lambda tx: tx.dicts("jobs_of_scope", id=started.instance_id))
    last = rows[-1]["id"] if rows else job_id
    return {**answer, "result": _find(graph, last)["result"], "tree": graph}


def _find(node: dict[str, Any], job_id: str) -> dict[str, Any]:
    waiting = [node]
    while waiting:
        found = waiting.pop()
        if found["job_id"] == job_id:
            return found
        waiting += found["children"]
    return node


def _accepted(started: Started, name: str) -> dict[str, Any]:
    return {
        "job_id": started.job_ids[0] if started.job_ids else started.existing_job_id,
        "instance_id": started.instance_id,
        "status": "queued" if started.job_ids else "skipped",
        "pipeline": name,
        "deduplicated": started.existing_job_id is not None,
    }


async def cancel(request: Request) -> Response:
    """`POST /job/{id}/cancel`: what waits ends, what runs is killed."""
    gateway, job_id = gateway_of(request), request.path_params["job_id"]
    was = await asyncio.to_thread(operate.cancel, gateway, job_id)
    return JsonResponse({"job_id": job_id, "was": was, "cancelled": True}, status_code=202)


async def retry(request: Request) -> Response:
    """`POST /job/{id}/retry`: a failed or dead job, again."""
    gateway, job_id = gateway_of(request), request.path_params["job_id"]
    job = await asyncio.to_thread(operate.retry, gateway, job_id)
    body = {"job_id": job_id, "status": job.status, "attempt": job.attempt}
    return JsonResponse({**body, "max_attempts": job.max_attempts}, status_code=202)


async def replay(request: Request) -> Response:
    """`POST /job/{id}/replay`: a new job from an old one's payload and context."""
    gateway, job_id = gateway_of(request), request.path_params["job_id"]
    step = text_of(await object_of(request), "step")
    if step is not None:
        job_id = await asyncio.to_thread(operate.find_step, gateway, job_id, step)
    new = await asyncio.to_thread(operate.replay, gateway, job_id)
    return JsonResponse({"job_id": new, "replay_of": job_id, "status": "queued"}, status_code=202)


async def tree(request: Request) -> Response:
    """`GET /job/{id}/tree`: the whole graph of what happened."""
    gateway, job_id = gateway_of(request), request.path_params["job_id"]
    graph = await asyncio.to_thread(
        lineage.tree, gateway.ledger, job_id, gateway.blueprint.redactor
    )
    return JsonResponse({"tree": graph})


async def why(request: Request) -> Response:
    """`GET /job/{id}/why`: in words."""
    gateway, job_id = gateway_of(request), request.path_params["job_id"]
    answer = await asyncio.to_thread(
        lineage.why, gateway.ledger, job_id, gateway.blueprint, gateway.unready
    )
    return JsonResponse(answer)
