"""The audit log: who did what, when and from where."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

from ductile.http.responses import JsonResponse, read_ledger, services_of, split_page
from ductile.store.access import audit

if TYPE_CHECKING:
    from ductile.http.models.queries import AuditQuery


async def list_audit_entries(request: Request, query: AuditQuery) -> Response:
    """`GET /audit`: List administrative actions and failed logins, newest first."""
    found = await read_ledger(
        services_of(request),
        lambda tx: audit.list_entries(
            tx,
            limit=query.limit + 1,
            before=query.before,
            actor=query.actor,
            action=query.action,
            since=query.since,
        ),
    )
    entries, cursor = split_page(found, query.limit, "id")
    return JsonResponse({"entries": entries, "cursor": cursor})
