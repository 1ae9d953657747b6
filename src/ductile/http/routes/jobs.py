"""Jobs: trigger, list, show, wait for, cancel, retry, replay, acknowledge them, one or many."""

from __future__ import annotations

import asyncio
from contextlib import closing
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response

from ductile.core.jobs.state_machine import ENDED
from ductile.errors import UsageError
from ductile.http.middleware.audit import note_details
from ductile.http.middleware.auth import access_of, require_scope
from ductile.http.middleware.budget import charge
from ductile.http.middleware.caller import caller_of, trace_of, with_submitter
from ductile.http.middleware.context import app_context_of
from ductile.http.middleware.idempotency import run_once
from ductile.http.middleware.wait import JobWaiter
from ductile.http.models.fields import value_of
from ductile.http.requests import new_job, submitted_by
from ductile.http.responses import (
    JsonResponse,
    action_response,
    build_response,
    change_response,
    describe_queued,
    read_ledger,
    run_transaction,
    services_of,
    split_page,
    write_ledger,
)
from ductile.model import Job
from ductile.operations import bulk, job_tree
from ductile.operations import jobs as operations
from ductile.operations.bulk import BulkResult, Selection
from ductile.operations.cluster.force_cancel import force_cancel
from ductile.operations.jobs import (
    JobAcknowledgement,
    JobReplay,
    JobRetry,
    ReplayedJob,
    RetriedJob,
)
from ductile.operations.reports import job_list
from ductile.operations.reports.failures import list_failures
from ductile.operations.why import explain_job
from ductile.store.access.tokens import Spending
from ductile.store.jobs import attempts, enqueue, read
from ductile.store.jobs.attempts import AttemptFilter
from ductile.store.jobs.enqueue import Enqueued
from ductile.store.jobs.read import JobFilter, count_jobs

if TYPE_CHECKING:
    from ductile.http.models.bodies import ActionBody, BulkBody, CancelBody, ReplayBody, TriggerBody
    from ductile.http.models.queries import (
        JobIdQuery,
        JobListQuery,
        JobLogQuery,
        JobTreeQuery,
        JobWaitQuery,
        QueueQuery,
    )
    from ductile.store.engines.api import Tx

MAX_SEARCH_SECONDS = 1.0
"""The time that one request may search the log for matching attempts."""


async def trigger(request: Request, body: TriggerBody) -> Response:
    """`POST /plugin/{plugin}/{command}`: Queue a job; it is durable before the response."""
    services = services_of(request)
    plugin, command = request.path_params["plugin"], request.path_params["command"]
    services.check(plugin, command)
    actor, trace = caller_of(request).actor, trace_of(request.scope, services)
    new = new_job(plugin, command, submitted_by(request), body, actor, trace)
    charged = charge(
        request,
        services.enqueueing(new),
        Spending.RUNS,
        lambda job: 0 if job.deduplicated else 1,
        action="plugin.run",
        created=lambda job: {"job_id": job.job_id, "deduplicated": job.deduplicated},
    )
    work = run_once(request, charged, Enqueued, dry_run=body.dry_run)
    if body.dry_run:
        ttl, now = services.compiled.tx_config.dedupe_ttl, services.clock.now()
        found = await read_ledger(services, lambda tx: enqueue.find_duplicate(tx, new, now, ttl))
        existing = {"deduplicated": found is not None, "job_id": found.job_id if found else None}
        return JsonResponse({"plugin": plugin, "command": command, **existing, "dry_run": True})
    return JsonResponse(describe_queued(await write_ledger(services, work), plugin, command), 202)


async def show_job(request: Request, query: JobWaitQuery) -> Response:
    """`GET /job/{job_id}`: Show a job, its attempts and its changes of state.

    With `wait` the response is sent when the job has ended or the time is up. The attempts are
    limited to 4 MiB, except that the last one is always included: `/job-logs` has the others. The
    last thousand changes of state are included.
    """
    services, job_id = services_of(request), request.path_params["job_id"]
    with closing(JobWaiter(services, job_id)) as waiter:
        job = await waiter.wait(
            lambda: asyncio.to_thread(job_list.read_job, services, job_id),
            lambda job: () if job["status"] in ENDED else (job_id,),
            query.wait,
        )
    redactor = services.compiled.redactor
    return await build_response(services, lambda: job_list.describe_job(job, redactor))


async def cancel_job(request: Request, body: CancelBody) -> Response:
    """`POST /job/{job_id}/cancel`: End a queued job, or kill a running one."""
    services, job_id = services_of(request), request.path_params["job_id"]
    context, act = app_context_of(request), force_cancel if body.force else operations.cancel
    was = await context.run_blocking(act, services, job_id, dry=body.dry_run)
    return action_response({"job_id": job_id, "was": was}, dry_run=body.dry_run, cancelled=True)


async def retry_job(request: Request, body: ActionBody) -> Response:
    """`POST /job/{job_id}/retry`: Queue a failed or dead job again, or end its backoff."""
    services, job_id, dry_run = services_of(request), request.path_params["job_id"], body.dry_run
    retry = JobRetry(services, job_id, dry=dry_run)
    charged = charge(request, retry, Spending.RETRIES, lambda _: 1, dry_run=dry_run)
    work = run_once(request, charged, RetriedJob, dry_run=dry_run)
    done = await run_transaction(services, work, dry_run=dry_run)
    return action_response(asdict(done), dry_run=dry_run)


async def acknowledge_job(request: Request, body: ActionBody) -> Response:
    """`POST /job/{job_id}/acknowledge`: Record that a failed or dead job needs no operator."""
    services, job_id, dry_run = services_of(request), request.path_params["job_id"], body.dry_run
    work = JobAcknowledgement(services, job_id, caller_of(request).actor, dry=dry_run)
    done = await run_transaction(services, work, dry_run=dry_run)
    return action_response(asdict(done), dry_run=dry_run, acknowledged=True)


async def replay_job(request: Request, body: ReplayBody) -> Response:
    """`POST /job/{job_id}/replay`: Queue a new job with the payload and context of an old one.

    The failure of the old one counts as acknowledged. With `payload` the new job has this payload
    instead; as in a trigger, the token must have the scope for the job's command.
    """
    services, job_id, dry_run = services_of(request), request.path_params["job_id"], body.dry_run
    if body.payload is not None:
        await _authorize_payload(request, job_id, body.step)
    replay = JobReplay(
        services,
        job_id,
        submitted_by(request),
        caller_of(request).actor,
        step=body.step,
        payload=body.payload,
        dry=dry_run,
    )
    named = with_submitter(request, replay, lambda done: [done.job_id] if done.job_id else [])
    charged = charge(request, named, Spending.RUNS, lambda _: 1, dry_run=dry_run)
    work = run_once(request, charged, ReplayedJob, dry_run=dry_run)
    done = await run_transaction(services, work, dry_run=dry_run)
    plan = {"replay_of": done.replay_of}
    return action_response(plan, dry_run=dry_run, job_id=done.job_id, status="queued")


async def _authorize_payload(request: Request, job_id: str, step: str | None) -> None:
    """Check that the caller may run the job's command with a payload of its own."""

    def find(tx: Tx) -> Job:
        old = job_id if step is None else operations.find_step_job(tx, job_id, step)
        return operations.load_job(tx, old)

    job = await read_ledger(services_of(request), find)
    access_of(request).authorize_command(request.scope, job.plugin, job.command)
    note_details(payload_replaced=True)


async def show_tree(request: Request, query: JobTreeQuery) -> Response:
    """`GET /job/{job_id}/tree`: Show every job of the graph, as a tree or as a list."""
    services, job_id = services_of(request), request.path_params["job_id"]
    where = (services.ledger, job_id, services.compiled.redactor)
    if query.flat:
        return await build_response(services, lambda: {"jobs": job_tree.graph(*where)})
    return await build_response(services, lambda: {"tree": job_tree.tree(*where)})


async def explain(request: Request) -> Response:
    """`GET /job/{job_id}/why`: Explain why a job ran, waits, failed or did not run."""
    services, job_id = services_of(request), request.path_params["job_id"]
    reasons = await asyncio.to_thread(
        explain_job,
        services.ledger,
        job_id,
        services.compiled,
        services.unready,
        now=services.clock.now(),
        served=bool(services.loops),
    )
    return JsonResponse(reasons)


async def bundle_job(request: Request) -> Response:
    """`GET /job/{job_id}/bundle`: Download a job with its request, state, files and log.

    Without secrets that are known. Needs `jobs:ro` as well; 409 for a job that has not ended.
    """
    from ductile.operations.compare.bundle import make_bundle

    require_scope(request, "jobs:ro")
    services, job_id = services_of(request), request.path_params["job_id"]
    document = await asyncio.to_thread(make_bundle, services, job_id)
    response = await build_response(services, lambda: document)
    # The id is that of a job: it has no quotes.
    response.headers["Content-Disposition"] = f'attachment; filename="job-{job_id}.json"'
    return response


async def list_jobs(request: Request, query: JobListQuery) -> Response:
    """`GET /jobs`: List jobs, newest first."""
    services = services_of(request)
    wanted = JobFilter(
        status=query.status,
        plugin=query.plugin,
        pipeline=query.pipeline,
        command=query.command,
        submitted_by=query.submitted_by,
        since=query.since,
        until=query.until,
        acknowledged=query.acknowledged,
    )
    found = await asyncio.to_thread(
        job_list.list_jobs, services, wanted, before=query.before or None, limit=query.limit + 1
    )
    rows, cursor = split_page(found, query.limit, "seq")
    return await build_response(services, lambda: {"jobs": _summaries(rows), "cursor": cursor})


def _summaries(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [job_list.summarize_job(row) for row in rows]


async def show_failures(request: Request) -> Response:
    """`GET /jobs/failures`: List commands with failed and dead jobs that may need an operator.

    Without jobs that were acknowledged or cancelled, or that failed without a retry more than a
    day ago.
    """
    services = services_of(request)
    found = await read_ledger(services, lambda tx: list_failures(tx, services.clock.now()))
    return await build_response(services, lambda: found)


async def list_ids(request: Request, query: JobIdQuery) -> Response:
    """`GET /job-ids`: List the first job ids with a prefix or suffix, also of pruned jobs."""
    if bool(query.begins) == bool(query.ends):
        raise UsageError("give a job id prefix as `begins`, or a suffix as `ends`")

    def find(tx: Tx) -> list[str]:
        if query.begins:
            return read.find_job_ids(tx, query.begins, query.limit)
        return read.find_job_ids_by_end(tx, query.ends, query.limit)

    return JsonResponse({"job_ids": await read_ledger(services_of(request), find)})


async def list_queue(request: Request, query: QueueQuery) -> Response:
    """`GET /queue`: List running and queued jobs in the order of the queue."""
    services = services_of(request)
    rows = await asyncio.to_thread(job_list.list_pending, services, query.limit)
    queued, running = await asyncio.to_thread(count_jobs, services.ledger)
    return JsonResponse({"queue_depth": queued, "running": running, "jobs": _summaries(rows)})


async def list_attempts(request: Request, query: JobLogQuery) -> Response:
    """`GET /job-logs`: List attempts with their output, newest first.

    A page has at most 4 MiB, unless one attempt alone is larger, and may have fewer rows than
    `limit` where few of many attempts match. There may be more as long as there is a `cursor`.
    """
    services = services_of(request)
    wanted = AttemptFilter(
        plugin=query.plugin,
        job_id=query.job_id,
        command=query.command,
        status=value_of(query.status),
        submitted_by=value_of(query.submitted_by),
        since=max(filter(None, (query.from_, query.since)), default=None),
        until=query.to,
        text=(query.query or "").strip() or None,
        results=query.include_result,
    )
    monotonic = services.clock.monotonic
    deadline = monotonic() + MAX_SEARCH_SECONDS

    def find_page() -> dict[str, Any]:
        page = attempts.list_attempts(
            services.ledger,
            wanted,
            before=query.before or None,
            limit=query.limit,
            is_out_of_time=lambda: monotonic() >= deadline,
        )
        return {"logs": page.rows, "cursor": page.next_before}

    return await build_response(services, find_page)


# Bulk actions


async def cancel_jobs(request: Request, body: BulkBody) -> Response:
    """`POST /jobs/cancel`: Cancel the queued and running jobs that match the filter."""
    services, selection = services_of(request), _selection(body)
    result = await app_context_of(request).run_blocking(bulk.cancel, services, selection)
    return _bulk_response(selection, result)


async def retry_jobs(request: Request, body: BulkBody) -> Response:
    """`POST /jobs/retry`: Retry the failed and dead jobs that match the filter.

    Jobs that were acknowledged or cancelled are left out, unless the filter has `acknowledged`.
    """
    services, selection = services_of(request), _selection(body)
    retry = bulk.retrying(services, selection)
    charged = charge(
        request, retry, Spending.RETRIES, lambda done: len(done.jobs), dry_run=body.dry_run
    )
    work = run_once(request, charged, BulkResult, dry_run=body.dry_run)
    return _bulk_response(selection, await run_transaction(services, work, dry_run=body.dry_run))


async def acknowledge_jobs(request: Request, body: BulkBody) -> Response:
    """`POST /jobs/acknowledge`: Acknowledge the failed and dead jobs that match the filter."""
    services, selection = services_of(request), _selection(body)
    work = bulk.acknowledging(services, selection, caller_of(request).actor)
    return _bulk_response(selection, await run_transaction(services, work, dry_run=body.dry_run))


def _selection(body: BulkBody) -> Selection:
    return Selection(
        JobFilter(**dict(body.filter)),
        limit=body.limit,
        dry=body.dry_run,
        expected=body.expected,
    )


def _bulk_response(selection: Selection, result: BulkResult) -> Response:
    shown = {**asdict(result), "count": len(result.jobs)}
    return change_response(shown, dry_run=selection.dry)
