"""The audit log: who did what, when and from where."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

from ductile.http.responses import JsonResponse, next_cursor, read_ledger, services_of
from ductile.store.access import audit

if TYPE_CHECKING:
    from ductile.http.models.queries import AuditQuery


async def list_audit_entries(request: Request, query: AuditQuery) -> Response:
    """`GET /audit`: List administrative actions and failed logins, newest first."""
    entries = await read_ledger(
        services_of(request),
        lambda tx: audit.list_entries(
            tx,
            limit=query.limit,
            before=query.before,
            actor=query.actor,
            action=query.action,
            since=query.since,
        ),
    )
    return JsonResponse({"entries": entries, "cursor": next_cursor(entries, query.limit, "id")})
