"""Pipeline runs: list and show them, wait for one, cancel and retry one."""

from __future__ import annotations

from contextlib import closing
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response

from ductile.http.middleware.budget import charge
from ductile.http.middleware.context import app_context_of
from ductile.http.middleware.idempotency import run_once
from ductile.http.middleware.wait import JobWaiter
from ductile.http.responses import (
    action_response,
    build_response,
    read_ledger,
    run_transaction,
    services_of,
)
from ductile.operations.pipelines import RetriedRun, RunRetry, cancel_run
from ductile.operations.reports import runs
from ductile.store.access.tokens import Spending
from ductile.store.engines.api import Tx

if TYPE_CHECKING:
    from ductile.http.models.bodies import ActionBody
    from ductile.http.models.queries import RunDetailQuery, RunFilterQuery


async def list_runs(request: Request, query: RunFilterQuery) -> Response:
    """`GET /pipeline-runs`: List pipeline runs, newest first."""
    services = services_of(request)
    filters: dict[str, Any] = {
        "pipeline": query.pipeline,
        "status": query.status,
        "since": query.since,
        "until": query.until,
        "before": runs.parse_cursor(query.before),
        "limit": query.limit,
    }
    return await build_response(
        services,
        lambda: services.ledger.read(
            lambda tx: runs.list_runs(tx, services.compiled.tx_config, **filters)
        ),
    )


async def show_run(request: Request, query: RunDetailQuery) -> Response:
    """`GET /pipeline-runs/{run_id}`: Show a run and its steps, with inputs, outputs and logs.

    With `wait` the response is sent when the run and every job that descends from it have ended,
    or when the time is up.
    """
    services, run_id = services_of(request), request.path_params["run_id"]

    def read(tx: Tx) -> tuple[dict[str, Any], tuple[str, ...]]:
        run = runs.show_run(tx, run_id, services.compiled)
        return run, runs.find_awaited(tx, run)

    with closing(JobWaiter(services, run_id)) as waiter:
        run, _ = await waiter.wait(
            lambda: read_ledger(services, read), lambda found: found[1], query.wait
        )
    return await build_response(services, lambda: run)


async def cancel(request: Request, body: ActionBody) -> Response:
    """`POST /pipeline-runs/{run_id}/cancel`: End every queued and running job of a run."""
    services, run_id = services_of(request), request.path_params["run_id"]
    context = app_context_of(request)
    job_ids = await context.run_blocking(cancel_run, services, run_id, dry=body.dry_run)
    plan = {"instance_id": run_id, "job_ids": job_ids}
    return action_response(plan, dry_run=body.dry_run)


async def retry(request: Request, body: ActionBody) -> Response:
    """`POST /pipeline-runs/{run_id}/retry`: Queue the failed jobs of a run again."""
    services, run_id, dry_run = services_of(request), request.path_params["run_id"], body.dry_run
    retry = RunRetry(services, run_id, dry=dry_run)
    charged = charge(
        request, retry, Spending.RETRIES, lambda done: len(done.job_ids), dry_run=dry_run
    )
    work = run_once(request, charged, RetriedRun, dry_run=dry_run)
    done = await run_transaction(services, work, dry_run=dry_run)
    return action_response(asdict(done), dry_run=dry_run)
