"""Checking, planning and changing the configuration.

The operations are loaded at their first use: a gateway needs them for nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response

from ductile.config import load
from ductile.engine.services import Services
from ductile.errors import ConfigError, Refused, UsageError
from ductile.http.middleware.audit import note_details
from ductile.http.middleware.auth import access_of
from ductile.http.middleware.context import app_context_of
from ductile.http.requests import local_directory, parse_window
from ductile.http.responses import (
    JsonResponse,
    change_response,
    read_ledger,
    services_of,
    write_ledger,
)

if TYPE_CHECKING:
    from ductile.http.models.authoring_bodies import ApplyBody, RevertBody, SettingBody
    from ductile.http.models.queries import DiffQuery, HistoryQuery, PlanQuery, WatchQuery
    from ductile.operations.plan.apply import ConfigProposal


async def check_config(request: Request) -> Response:
    """`GET /config/check`: Check the files of the configuration; `ok` is false with problems."""
    from ductile.operations.config.check import check

    services = services_of(request)
    path, environ, now = services.compiled.loaded.path, services.environ, services.clock.now()

    def work() -> dict[str, Any]:
        try:
            checked = check(lambda: load(path, environ=environ), environ=environ, now=now)
        except ConfigError as error:
            return {"ok": False, "problems": [problem.document() for problem in error.problems]}
        return {"ok": True, "problems": [problem.document() for problem in checked.warnings]}

    return JsonResponse(await app_context_of(request).run_blocking(work))


async def plan_config(request: Request, query: PlanQuery) -> Response:
    """`GET /config/plan`: Compare the files with the configuration in force; 409 with problems.

    Only the local socket accepts a `directory`, since other callers could probe any file.
    """
    from ductile.operations.plan.plan import make_plan

    directory = local_directory(request, query.directory)
    context = app_context_of(request)
    return JsonResponse(await context.run_blocking(make_plan, context.services, directory))


async def apply_config(request: Request, body: ApplyBody) -> Response:
    """`POST /config/apply`: Apply a planned configuration; 409 if it is another one.

    Only the local socket accepts a `directory`.
    """
    from ductile.operations.plan import apply

    directory = local_directory(request, body.directory)
    lock = _may_lock(request, asked=body.lock)

    def propose(services: Services) -> apply.ConfigProposal:
        if directory is None:
            return apply.ConfigProposal()
        return apply.propose_directory(services, directory, lock=lock)

    return await _put_in_force(request, propose, body.plan, dry=body.dry_run)


async def revert_config(request: Request, body: RevertBody) -> Response:
    """`POST /config/revert`: Restore the files of a snapshot and apply them."""
    from ductile.operations.plan import apply

    lock = _may_lock(request, asked=body.lock)
    return await _put_in_force(
        request,
        lambda services: apply.propose_return(services, body.snapshot, lock=lock),
        body.plan,
        dry=body.dry_run,
    )


def _may_lock(request: Request, *, asked: bool) -> bool:
    if asked and not access_of(request).local:
        raise Refused("only an operator on the local socket can renew a seal")
    return asked


async def _put_in_force(
    request: Request, propose: Callable[[Services], ConfigProposal], plan: str | None, *, dry: bool
) -> Response:
    from ductile.operations.plan import apply

    context = app_context_of(request)
    services = context.services
    if dry:
        return JsonResponse(
            await context.run_blocking(lambda: apply.preview(services, propose(services)))
        )
    if plan is None:
        raise UsageError("plan is required: the id that a dry run returns")
    proposal = await context.run_blocking(propose, services)
    if proposal.writes_files:
        shown = await context.run_blocking(apply.check_plan, services, proposal, plan)
        # Before the files are written: a crash must not leave them without an entry.
        note_details(files=[row["file"] for row in shown["files"]], snapshot=proposal.snapshot_id)
        await write_ledger(services, lambda _tx: None)
    applied, document = await context.run_blocking(apply.put_in_force, services, proposal, plan)
    note_details(snapshot_id=applied.snapshot_id, previous=applied.previous_snapshot_id)
    return JsonResponse(document)


async def watch_config(request: Request, query: WatchQuery) -> Response:
    """`GET /config/watch`: Compare the error rates of what the last plan changed with before."""
    from ductile.operations.plan.watch import MAX_WINDOW, compare_outcomes, find_applied

    services, window = services_of(request), parse_window(query.window)
    if window > MAX_WINDOW:
        raise UsageError("window must be at most 24h")

    def work() -> dict[str, Any]:
        return compare_outcomes(services, find_applied(services.state_dir, query.plan), window)

    return JsonResponse(await asyncio.to_thread(work))


async def list_history(request: Request, query: HistoryQuery) -> Response:
    """`GET /config/history`: List the configurations that were in force, newest first."""
    from ductile.operations.plan.history import list_history as list_snapshots

    services = services_of(request)
    return JsonResponse(await asyncio.to_thread(list_snapshots, services, query.limit))


async def diff_config(request: Request, query: DiffQuery) -> Response:
    """`GET /config/diff`: Compare two configurations that were in force; 404 if one is unknown."""
    from ductile.operations.plan.history import diff_snapshots

    services = services_of(request)
    redactor = services.compiled.redactor
    return JsonResponse(
        await read_ledger(services, lambda tx: diff_snapshots(tx, query.from_, query.to, redactor))
    )


async def set_setting(request: Request, body: SettingBody) -> Response:
    """`POST /config/set`: Change one setting in the file that defines it; a reload applies it."""
    from ductile.operations.config.edit import change_setting

    services = services_of(request)
    changed = await app_context_of(request).run_blocking(
        change_setting,
        services.compiled.loaded.path,
        body.path,
        body.value,
        environ=services.environ,
        now=services.clock.now(),
        dry=body.dry_run,
    )
    return change_response(changed, dry_run=body.dry_run)
