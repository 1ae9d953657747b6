"""Approvals: list and show them, approve and reject one."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response

from ductile.core.waits.decision import WaitStatus
from ductile.http.middleware.caller import caller_of
from ductile.http.middleware.idempotency import run_once
from ductile.http.models.fields import value_of
from ductile.http.responses import action_response, build_response, run_transaction, services_of
from ductile.operations.waits.approvals import (
    ApprovalDecision,
    DecidedApproval,
    list_approvals,
    show_approval,
)

if TYPE_CHECKING:
    from ductile.http.models.bodies import DecisionBody
    from ductile.http.models.queries import ApprovalQuery


async def listing(request: Request, query: ApprovalQuery) -> Response:
    """`GET /approvals`: List approvals, newest first."""
    services = services_of(request)
    filters: dict[str, Any] = {
        "status": value_of(query.status),
        "pipeline": query.pipeline,
        "before": query.before,
        "limit": query.limit,
    }
    return await build_response(
        services, lambda: services.ledger.read(lambda tx: list_approvals(tx, **filters))
    )


async def show(request: Request) -> Response:
    """`GET /approvals/{approval_id}`: Show what a pipeline wants approved, and the decision."""
    services, approval_id = services_of(request), request.path_params["approval_id"]
    return await build_response(
        services, lambda: services.ledger.read(lambda tx: show_approval(tx, approval_id))
    )


async def approve(request: Request, body: DecisionBody) -> Response:
    """`POST /approvals/{approval_id}/approve`: Approve; the next step of the pipeline runs."""
    return await _decide(request, body, WaitStatus.APPROVED)


async def reject(request: Request, body: DecisionBody) -> Response:
    """`POST /approvals/{approval_id}/reject`: Reject; the step of the pipeline fails."""
    return await _decide(request, body, WaitStatus.REJECTED)


async def _decide(request: Request, body: DecisionBody, status: WaitStatus) -> Response:
    services, approval_id = services_of(request), request.path_params["approval_id"]
    actor = caller_of(request).actor
    decision = ApprovalDecision(
        services, approval_id, status, actor, body.comment, dry=body.dry_run
    )
    work = run_once(request, decision, DecidedApproval, dry_run=body.dry_run)
    done = await run_transaction(services, work, dry_run=body.dry_run)
    return action_response(asdict(done), dry_run=body.dry_run)
