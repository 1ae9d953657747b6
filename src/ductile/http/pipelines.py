"""Pipelines: look at one, start one and, where it is synchronous, stay on the line (002 §8.3)."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response

from ductile.core import graph
from ductile.core.lifecycle import ENDED
from ductile.core.pipeline import Pipeline
from ductile.errors import UsageError
from ductile.http.answers import JsonResponse, gateway_of, object_of, reading, writing
from ductile.http.events import position_of
from ductile.http.jobs import producer, seconds_of, text_of
from ductile.http.once import once
from ductile.http.query import flag, seconds, whole
from ductile.runtime import lineage, operate, rehearse
from ductile.runtime.gateway import Gateway
from ductile.runtime.operate import Replayed, Replaying, Retried, Retrying, Started, Starting
from ductile.store import notices as stored
from ductile.store.ledger import Position, StoredNotice, Tx

LONGEST_WAIT = 60.0
NOTICES_AT_ONCE = 1000


async def listing(request: Request) -> Response:
    """`GET /pipelines`: each with its trigger, mode and number of steps."""
    router = gateway_of(request).blueprint.chart.router
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
    blueprint = gateway_of(request).blueprint
    pipeline = operate.find_pipeline(blueprint.chart.router, request.path_params["name"])
    return JsonResponse(
        {
            **_summary(pipeline),
            "steps": rehearse.resolved(blueprint, pipeline),
            "mermaid": graph.mermaid(pipeline),
            "drawing": graph.tree(pipeline),
        }
    )


async def start(request: Request) -> Response:
    """`POST /pipeline/{name}`: 202 at once, or 200 with the result of a synchronous one."""
    gateway, name = gateway_of(request), request.path_params["name"]
    body = await object_of(request)
    payload = body.get("payload") if body.get("payload") is not None else {}
    starting = Starting(
        gateway,
        name,
        payload,
        producer(request),
        text_of(body, "dedupe_key"),
        seconds_of(body, "dedupe_ttl"),
    )
    wanted = starting.pipeline.execution_mode == "synchronous"
    if not wanted or flag(request, "async"):
        return JsonResponse(
            _accepted(await writing(gateway, once(request, starting, Started)), name),
            status_code=202,
        )
    if len(starting.pipeline.first_jobs()) > 1:
        raise UsageError(f"pipeline {name} begins with several jobs; start it with ?async=true")
    with request.app.state.lobby.line():
        return await _stay(request, gateway, starting)


async def _stay(request: Request, gateway: Gateway, starting: Starting) -> Response:
    most = gateway.blueprint.settings.api.max_sync_timeout
    timeout = min(starting.pipeline.timeout or most, most)
    before = gateway.clock.monotonic()
    started = await writing(gateway, once(request, starting, Started))
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
    return JsonResponse(await _result(gateway, started, ended.result(), took))


async def _gone(request: Request) -> None:
    while (await request.receive()).get("type") != "http.disconnect":
        pass


class _Bell:
    """Rung when one of the jobs or instances that it listens for ends."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway, self._loop = gateway, asyncio.get_running_loop()
        self._rung = asyncio.Event()
        self._ids: set[str] = set()

    def listen(self, *ids: str) -> None:
        """From now on; read the ledger afterwards, so that no end falls between the two."""
        for id in set(ids) - self._ids:
            self._ids.add(id)
            self._gateway.bridge.when_ended(id, self._ring)

    def _ring(self) -> None:
        self._loop.call_soon_threadsafe(self._rung.set)

    async def wait(self, seconds: float | None = None) -> None:
        try:
            await asyncio.wait_for(self._rung.wait(), seconds)
        except TimeoutError:
            pass

    def close(self) -> None:
        for id in self._ids:
            self._gateway.bridge.forget(id, self._ring)


async def _ended(gateway: Gateway, instance_id: str) -> dict[str, Any]:
    """The instance, once it is over."""
    bell = _Bell(gateway)
    try:
        bell.listen(instance_id)
        found = await reading(gateway, lambda tx: lineage.instance(tx, instance_id))
        if found["status"] == "open":
            await bell.wait()
            found = await reading(gateway, lambda tx: lineage.instance(tx, instance_id))
        return found
    finally:
        bell.close()


async def instance(request: Request) -> Response:
    """`GET /pipeline-instance/{id}?wait=S&seen=N`: the instance and its jobs.

    With `wait` it answers when the number of ended jobs is no longer `seen`, when the
    instance is over, or when the time is up.
    """
    gateway, id = gateway_of(request), request.path_params["instance_id"]
    wait, seen = seconds(request, "wait", LONGEST_WAIT), whole(request, "seen")
    bell = _Bell(gateway)
    try:
        bell.listen(id)
        found = await reading(gateway, lambda tx: lineage.instance(tx, id))
        if wait and _same(found, seen):
            bell.listen(*(job["job_id"] for job in found["jobs"] if job["status"] not in ENDED))
            found = await reading(gateway, lambda tx: lineage.instance(tx, id))
            if _same(found, seen):
                await bell.wait(wait)
                found = await reading(gateway, lambda tx: lineage.instance(tx, id))
    finally:
        bell.close()
    return JsonResponse(found)


def _same(found: dict[str, Any], seen: int) -> bool:
    ended = sum(job["status"] in ENDED for job in found["jobs"])
    return found["status"] == "open" and ended == seen


async def _result(
    gateway: Gateway, started: Started, found: dict[str, Any], took: float
) -> dict[str, Any]:
    job_id = started.job_ids[0] if started.job_ids else started.existing_job_id
    answer = {"job_id": job_id, "status": found["status"], "duration_ms": took}
    if not started.job_ids:
        return {**answer, "reason": found["reason"], "result": None, "tree": None}
    tree = await asyncio.to_thread(
        lineage.tree, gateway.ledger, started.job_ids[0], gateway.blueprint.redactor
    )
    return {**answer, "result": found["result"], "tree": tree}


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
    dry = bool((await object_of(request)).get("dry_run"))
    was = await asyncio.to_thread(operate.cancel, gateway, job_id, dry=dry)
    if dry:
        return JsonResponse({"job_id": job_id, "was": was, "dry_run": True})
    return JsonResponse({"job_id": job_id, "was": was, "cancelled": True}, status_code=202)


async def retry(request: Request) -> Response:
    """`POST /job/{id}/retry`: a failed or dead job, again."""
    gateway, job_id = gateway_of(request), request.path_params["job_id"]
    if (await object_of(request)).get("dry_run"):
        would = await reading(gateway, Retrying(gateway, job_id, dry=True))
        return JsonResponse({**asdict(would), "dry_run": True})
    done = await writing(gateway, once(request, Retrying(gateway, job_id), Retried))
    return JsonResponse(asdict(done), status_code=202)


async def replay(request: Request) -> Response:
    """`POST /job/{id}/replay`: a new job from an old one's payload and context."""
    gateway, job_id = gateway_of(request), request.path_params["job_id"]
    body = await object_of(request)
    step, by = text_of(body, "step"), producer(request)
    if body.get("dry_run"):
        would = await reading(gateway, Replaying(gateway, job_id, by, step=step, dry=True))
        return JsonResponse({"replay_of": would.replay_of, "dry_run": True})
    work = once(request, Replaying(gateway, job_id, by, step=step), Replayed)
    done = await writing(gateway, work)
    return JsonResponse({**asdict(done), "status": "queued"}, status_code=202)


async def tree(request: Request) -> Response:
    """`GET /job/{id}/tree`: the whole graph of what happened; with `?flat=true` as a list."""
    gateway, job_id = gateway_of(request), request.path_params["job_id"]
    where = (gateway.ledger, job_id, gateway.blueprint.redactor)
    if flag(request, "flat"):
        return JsonResponse({"jobs": await asyncio.to_thread(lineage.graph, *where)})
    return JsonResponse({"tree": await asyncio.to_thread(lineage.tree, *where)})


async def why(request: Request) -> Response:
    """`GET /job/{id}/why`: why it ran, waits, failed or did not run, in words."""
    gateway, job_id = gateway_of(request), request.path_params["job_id"]
    answer = await asyncio.to_thread(
        lineage.why, gateway.ledger, job_id, gateway.blueprint, gateway.unready
    )
    return JsonResponse(answer)


async def notices(request: Request) -> Response:
    """`GET /notices?after=ID`: what was announced since; `?last=N` the newest N.

    `cursor` is the `after` of the next question.
    """
    gateway, after = gateway_of(request), request.query_params.get("after")
    skipped = min(whole(request, "last"), NOTICES_AT_ONCE)
    given = None if after is None else position_of(after)

    def work(tx: Tx) -> tuple[Position, list[StoredNotice]]:
        start = stored.last(tx, skipped) if given is None else given
        found = stored.after(tx, start, NOTICES_AT_ONCE)
        return (found[-1].position if found else start), found

    cursor, found = await reading(gateway, work)
    return JsonResponse({"notices": [_notice(notice) for notice in found], "cursor": str(cursor)})


def _notice(notice: StoredNotice) -> dict[str, Any]:
    return {
        "id": notice.id,
        "topic": notice.topic,
        "type": notice.type,
        "job_id": notice.job_id,
        "created_at": notice.created_at,
        "payload": orjson.loads(notice.payload),
    }
