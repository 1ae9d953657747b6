"""Jobs: trigger, look at, wait for."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ductile.config.quantities import duration
from ductile.core.lifecycle import ENDED
from ductile.errors import NotFound, UsageError
from ductile.http.answers import JsonResponse, gateway_of, object_of, reading, writing
from ductile.http.once import once
from ductile.http.query import limit_of as limit_of
from ductile.http.query import moment, seconds, whole, word
from ductile.model import JobStatus, NewJob, SubmittedBy
from ductile.runtime import report
from ductile.runtime.gateway import Gateway
from ductile.store import jobs
from ductile.store.jobs import Enqueued

LONGEST_WAIT = 60.0
LONGEST_TTL = 10 * 366 * 86_400


async def trigger(request: Request) -> Response:
    """`POST /plugin/{plugin}/{command}`: one job, queued durably before the answer."""
    gateway = gateway_of(request)
    plugin, command = request.path_params["plugin"], request.path_params["command"]
    gateway.check(plugin, command)
    body = await object_of(request)
    new = NewJob(
        plugin,
        command,
        producer(request),
        payload=body.get("payload") if body.get("payload") is not None else {},
        dedupe_key=text_of(body, "dedupe_key"),
        dedupe_ttl=seconds_of(body, "dedupe_ttl"),
    )
    work = once(request, gateway.enqueueing(new), Enqueued)
    answer = await writing(gateway, work)
    return JsonResponse(
        {
            "job_id": answer.job_id,
            "status": answer.status,
            "plugin": plugin,
            "command": command,
            "deduplicated": answer.deduplicated,
        },
        status_code=202,
    )


def producer(request: Request) -> SubmittedBy:
    # The command line names itself on the local socket; anybody else is the API.
    cli = request.app.state.local and request.headers.get("x-ductile-client") == "cli"
    return SubmittedBy.CLI if cli else SubmittedBy.API


def text_of(body: dict[str, Any], key: str) -> str | None:
    value = body.get(key)
    if value is not None and (not isinstance(value, str) or not value):
        raise UsageError(f"{key} must be a non-empty string")
    return value


def seconds_of(body: dict[str, Any], key: str) -> float | None:
    value = body.get(key)
    if value is None:
        return None
    if isinstance(value, str):
        try:
            value = duration(value)
        except (ValueError, OverflowError) as error:
            raise UsageError(f"{key}: {error}") from None
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 <= value <= LONGEST_TTL:
        raise UsageError(f"{key} must be a duration of at most ten years")
    return float(value)


async def show(request: Request) -> Response:
    """`GET /job/{id}`: a job, its attempts and its changes of state.

    With `?wait=SECONDS` it answers when the job has ended, or then.
    """
    gateway, job_id = gateway_of(request), request.path_params["job_id"]
    wait = seconds(request, "wait", LONGEST_WAIT)
    job = await _ended(gateway, job_id, wait) if wait else await _get(gateway, job_id)
    return JsonResponse(described(gateway, job))


def described(gateway: Gateway, job: dict[str, Any]) -> dict[str, Any]:
    """A job as callers see it: `job_id` first, and why it waits where it does."""
    waits = report.waits_for(job, gateway.blueprint, gateway.unready)
    shown = {"job_id": job["id"], **{key: value for key, value in job.items() if key != "id"}}
    shown["payload"] = gateway.blueprint.redactor.document(job.get("payload"))
    return {**shown, "waits_for": waits} if waits else shown


async def _get(gateway: Gateway, job_id: str) -> dict[str, Any]:
    job = await reading(gateway, lambda tx: jobs.get(tx, job_id))
    if job is None:
        raise NotFound(f"there is no job {job_id}")
    return job


async def _ended(gateway: Gateway, job_id: str, wait: float) -> dict[str, Any]:
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()

    def callback() -> None:
        loop.call_soon_threadsafe(ended.set)

    # Registered before the ledger is read, so that no end falls between the two.
    gateway.bridge.when_ended(job_id, callback)
    try:
        job = await _get(gateway, job_id)
        if job["status"] in ENDED:
            return job
        try:
            await asyncio.wait_for(ended.wait(), wait)
        except TimeoutError:
            return job
        return await _get(gateway, job_id)
    finally:
        gateway.bridge.forget(job_id, callback)


async def listing(request: Request) -> Response:
    """`GET /jobs`: the newest first; `before` (a `cursor` of the last page) goes on."""
    gateway, query, limit = gateway_of(request), request.query_params, limit_of(request)
    before, status = whole(request, "before") or None, word(request, "status", JobStatus)
    submitted_by = word(request, "submitted_by", SubmittedBy)
    rows = await reading(
        gateway,
        lambda tx: tx.dicts(
            "jobs",
            status=status,
            plugin=query.get("plugin"),
            command=query.get("command"),
            submitted_by=submitted_by,
            before=before,
            limit=limit,
        ),
    )
    return JsonResponse(
        {
            "jobs": [_summary(gateway, row) for row in rows],
            "cursor": rows[-1]["seq"] if len(rows) == limit else None,
        }
    )


def _summary(gateway: Gateway, row: dict[str, Any]) -> dict[str, Any]:
    waits = report.waits_for(row, gateway.blueprint, gateway.unready)
    kept = {key: value for key, value in row.items() if key not in ("id", "payload", "seq")}
    return {"job_id": row["id"], **kept, "waits_for": waits}


async def ids(request: Request) -> Response:
    """`GET /job-ids`: the first ids that begin with `begins`, also of jobs only in the log."""
    gateway, limit = gateway_of(request), limit_of(request)
    begins = request.query_params.get("begins")
    if not begins:
        raise UsageError("begins must be the beginning of an id")
    found = await reading(gateway, lambda tx: jobs.beginning(tx, begins, limit))
    return JsonResponse({"job_ids": found})


async def queue(request: Request) -> Response:
    """`GET /queue`: what runs and what waits, in the order of the queue."""
    gateway, limit = gateway_of(request), limit_of(request)
    rows = await reading(gateway, lambda tx: tx.dicts("pending_jobs", limit=limit))
    waiting, running = await asyncio.to_thread(report.queue_counts, gateway.ledger)
    shown = [_summary(gateway, row) for row in rows]
    return JsonResponse({"queue_depth": waiting, "running": running, "jobs": shown})


async def logs(request: Request) -> Response:
    """`GET /job-logs`: attempts, the newest first, with what they said."""
    gateway, query, limit = gateway_of(request), request.query_params, limit_of(request)
    before, status = whole(request, "before") or None, word(request, "status", JobStatus)
    since = moment(request, "since")
    rows = await reading(
        gateway,
        lambda tx: jobs.logs(
            tx,
            plugin=query.get("plugin"),
            command=query.get("command"),
            status=status,
            job_id=query.get("job_id"),
            since=since,
            before=before,
            limit=limit,
        ),
    )
    more = len(rows) == limit
    cursor = rows[-1]["seq"] if more else None
    return JsonResponse({"logs": rows, "cursor": cursor})
