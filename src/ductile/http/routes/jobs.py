"""Jobs: trigger, look at, wait for, cancel, retry, replay."""

from __future__ import annotations

import asyncio
from contextlib import closing
from dataclasses import asdict
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ductile.core.jobs.state_machine import ENDED
from ductile.engine.services import Services
from ductile.errors import NotFound, UsageError
from ductile.http.middleware.context import app_context_of
from ductile.http.middleware.idempotency import once
from ductile.http.middleware.wait import JobWaiter
from ductile.http.requests import (
    Given,
    before,
    duration_of,
    flag,
    flag_of,
    is_dry,
    limit_of,
    object_of,
    payload_in,
    producer,
    seconds,
    status_of,
    text_of,
    time_of,
    word,
)
from ductile.http.responses import JsonResponse, acted, cursor, gateway_of, made, reading, writing
from ductile.model import NewJob, SubmittedBy
from ductile.operations import job_tree, status
from ductile.operations import jobs as operate
from ductile.operations.jobs import JobReplay, JobRetry, ReplayedJob, RetriedJob
from ductile.operations.why import explain_job
from ductile.store.engines.api import Tx
from ductile.store.jobs import attempts, enqueue, read
from ductile.store.jobs.attempts import AttemptFilter
from ductile.store.jobs.enqueue import Enqueued
from ductile.store.jobs.read import count_jobs

LONGEST_WAIT = 60.0
LONGEST_LOOK = 1.0
"""Seconds that one request may look through the log for attempts that match."""


async def trigger(request: Request) -> Response:
    """`POST /plugin/{plugin}/{command}`: one job, queued durably before the answer."""
    gateway = gateway_of(request)
    plugin, command = request.path_params["plugin"], request.path_params["command"]
    gateway.check(plugin, command)
    body = await object_of(request)
    new, dry = wanted(plugin, command, producer(request), body), flag_of(body, "dry_run")
    work = once(request, gateway.enqueueing(new), Enqueued, dry=dry)
    if dry:
        tx_config, now = gateway.compiled.tx_config, gateway.clock.now()
        found = await reading(
            gateway, lambda tx: enqueue.find_duplicate(tx, new, now, tx_config.dedupe_ttl)
        )
        told = {"deduplicated": found is not None, "job_id": found.job_id if found else None}
        return acted({"plugin": plugin, "command": command, **told}, dry=True)
    return JsonResponse(triggered(await writing(gateway, work), plugin, command), 202)


def wanted(plugin: str, command: str, producer: SubmittedBy, body: Given) -> NewJob:
    """The job that the body of a trigger asks for."""
    return NewJob(
        plugin,
        command,
        producer,
        payload=payload_in(body),
        dedupe_key=text_of(body, "dedupe_key"),
        dedupe_ttl=duration_of(body, "dedupe_ttl"),
    )


def triggered(job: Enqueued, plugin: str, command: str) -> dict[str, Any]:
    return {
        "job_id": job.job_id,
        "status": job.status,
        "plugin": plugin,
        "command": command,
        "deduplicated": job.deduplicated,
    }


async def show(request: Request) -> Response:
    """`GET /job/{id}`: a job, its attempts and its changes of state.

    With `?wait=SECONDS` it answers when the job has ended, or then. The attempts have at most
    4 MiB, unless the last alone has more: `/job-logs` has those that are left out. Of the changes
    of state there are the last thousand.
    """
    gateway, job_id = gateway_of(request), request.path_params["job_id"]
    wait = seconds(request.query_params, "wait", LONGEST_WAIT)
    with closing(JobWaiter(gateway, job_id)) as vigil:
        job = await vigil.watch(
            lambda: _get(gateway, job_id), lambda job: job["status"] in ENDED, wait
        )
    return await made(gateway, lambda: _described(gateway, job))


def _described(gateway: Services, job: dict[str, Any]) -> dict[str, Any]:
    """A job as callers see it: `job_id` first, and why it waits where it does."""
    waits = job["waits_for"]
    shown = {"job_id": job["id"], **_without(job, "id", "older", "waits_for")}
    shown["payload"] = gateway.compiled.redactor.document(job.get("payload"))
    for name in ("attempts", "transitions"):
        rows = job[name]
        shown[name] = [_without(row, "older") for row in rows]
        if rows and rows[0]["older"]:
            shown[f"{name}_left_out"] = rows[0]["older"]
    return {**shown, "waits_for": waits} if waits else shown


def _without(row: dict[str, Any], *names: str) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key not in names}


async def _get(gateway: Services, job_id: str) -> dict[str, Any]:
    def work(tx: Tx) -> list[dict[str, Any]]:
        job = read.describe_job(tx, job_id)
        return _explained(gateway, tx, [] if job is None else [job])

    found = await reading(gateway, work)
    if not found:
        raise NotFound(f"there is no job {job_id}")
    return found[0]


def _explained(gateway: Services, tx: Tx, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Jobs, and why those wait that do."""
    served = bool(gateway.loops)
    return status.with_reasons(tx, rows, gateway.compiled, gateway.unready, served=served)


async def cancel(request: Request) -> Response:
    """`POST /job/{id}/cancel`: what waits ends, what runs is killed."""
    gateway, job_id = gateway_of(request), request.path_params["job_id"]
    dry = await is_dry(request)
    was = await app_context_of(request).aside(operate.cancel, gateway, job_id, dry=dry)
    return acted({"job_id": job_id, "was": was}, dry=dry, cancelled=True)


async def retry(request: Request) -> Response:
    """`POST /job/{id}/retry`: a failed or dead job, again."""
    gateway, job_id = gateway_of(request), request.path_params["job_id"]
    dry = await is_dry(request)
    work = once(request, JobRetry(gateway, job_id, dry=dry), RetriedJob, dry=dry)
    return acted(asdict(await (reading if dry else writing)(gateway, work)), dry=dry)


async def replay(request: Request) -> Response:
    """`POST /job/{id}/replay`: a new job from an old one's payload and context."""
    gateway, job_id = gateway_of(request), request.path_params["job_id"]
    body = await object_of(request)
    step, dry = text_of(body, "step"), flag_of(body, "dry_run")
    replaying = JobReplay(gateway, job_id, producer(request), step=step, dry=dry)
    work = once(request, replaying, ReplayedJob, dry=dry)
    done = await (reading if dry else writing)(gateway, work)
    return acted({"replay_of": done.replay_of}, dry=dry, job_id=done.job_id, status="queued")


async def tree(request: Request) -> Response:
    """`GET /job/{id}/tree`: the whole graph of what happened; with `?flat=true` as a list."""
    gateway, job_id = gateway_of(request), request.path_params["job_id"]
    where = (gateway.ledger, job_id, gateway.compiled.redactor)
    if flag(request.query_params, "flat"):
        return await made(gateway, lambda: {"jobs": job_tree.graph(*where)})
    return await made(gateway, lambda: {"tree": job_tree.tree(*where)})


async def why(request: Request) -> Response:
    """`GET /job/{id}/why`: why it ran, waits, failed or did not run, in words."""
    gateway, job_id = gateway_of(request), request.path_params["job_id"]
    answer = await asyncio.to_thread(
        explain_job,
        gateway.ledger,
        job_id,
        gateway.compiled,
        gateway.unready,
        served=bool(gateway.loops),
    )
    return JsonResponse(answer)


async def listing(request: Request) -> Response:
    """`GET /jobs`: the newest first; `before` (a `cursor` of the last page) goes on."""
    gateway, query = gateway_of(request), request.query_params
    limit = limit_of(query)
    asked = {
        "status": status_of(query),
        "plugin": query.get("plugin"),
        "command": query.get("command"),
        "submitted_by": word(query, "submitted_by", SubmittedBy),
        "before": before(query),
        "limit": limit,
    }
    rows = await reading(gateway, lambda tx: _explained(gateway, tx, tx.dicts("jobs", **asked)))
    after = cursor(rows, limit, "seq")
    return await made(gateway, lambda: {"jobs": [_summary(row) for row in rows], "cursor": after})


def _summary(row: dict[str, Any]) -> dict[str, Any]:
    return {"job_id": row["id"], **_without(row, "id", "seq")}


async def ids(request: Request) -> Response:
    """`GET /job-ids`: the first ids that begin with `begins`, also of jobs only in the log."""
    gateway, query = gateway_of(request), request.query_params
    limit, begins = limit_of(query), query.get("begins")
    if not begins:
        raise UsageError("begins must be the beginning of an id")
    found = await reading(gateway, lambda tx: read.find_job_ids(tx, begins, limit))
    return JsonResponse({"job_ids": found})


async def queue(request: Request) -> Response:
    """`GET /queue`: what runs and what waits, in the order of the queue."""
    gateway, limit = gateway_of(request), limit_of(request.query_params)
    rows = await reading(
        gateway, lambda tx: _explained(gateway, tx, tx.dicts("pending_jobs", limit=limit))
    )
    waiting, running = await asyncio.to_thread(count_jobs, gateway.ledger)
    shown = [_summary(row) for row in rows]
    return JsonResponse({"queue_depth": waiting, "running": running, "jobs": shown})


async def logs(request: Request) -> Response:
    """`GET /job-logs`: attempts, the newest first, with what they said; `before` goes on.

    A page has at most 4 MiB, unless one attempt alone has more, and fewer rows than `limit`
    where few of many attempts match: as long as there is a `cursor`, there may be more.
    """
    gateway, query = gateway_of(request), request.query_params
    wanted = AttemptFilter(
        plugin=query.get("plugin"),
        job_id=query.get("job_id"),
        command=query.get("command"),
        status=status_of(query),
        submitted_by=word(query, "submitted_by", SubmittedBy),
        since=max(filter(None, (time_of(query, "from"), time_of(query, "since"))), default=None),
        until=time_of(query, "to"),
        text=query.get("query", "").strip() or None,
        results=flag(query, "include_result"),
    )
    limit, start = limit_of(query), before(query)
    monotonic = gateway.clock.monotonic
    ends = monotonic() + LONGEST_LOOK

    def found() -> dict[str, Any]:
        page = attempts.list_attempts(
            gateway.ledger,
            wanted,
            before=start,
            limit=limit,
            is_out_of_time=lambda: monotonic() >= ends,
        )
        return {"logs": page.rows, "cursor": page.next_before}

    return await made(gateway, found)
