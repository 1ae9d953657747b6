"""Budgets of leases: what such a token starts is counted and recorded with the change itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from starlette.requests import Request

from ductile.http.middleware.auth import principal_of
from ductile.http.middleware.caller import caller_of
from ductile.http.responses import services_of
from ductile.store.access import audit, tokens
from ductile.store.access.audit import AuditEntry
from ductile.store.access.tokens import Spending
from ductile.store.engines.api import Tx, Work

T = TypeVar("T")


def charge(
    request: Request,
    work: Work[T],
    what: Spending,
    count: Callable[[T], int],
    *,
    dry_run: bool = False,
    action: str | None = None,
    created: Callable[[T], dict[str, Any]] | None = None,
) -> Work[T]:
    """Return the transaction, which also takes its count from the budget of a lease.

    With `action` it also writes an audit entry with the details of `created`, for a route whose
    requests are not recorded otherwise. With `dry_run` nothing is taken and written.
    """
    principal = principal_of(request)
    if dry_run or principal is None or not principal.is_lease:
        return work
    caller, now = caller_of(request), services_of(request).clock.now()
    target = "/".join(request.path_params.values())

    def run(tx: Tx) -> T:
        result = work(tx)
        tokens.spend(tx, principal.id, what, count(result), now)
        if action is not None:
            details = created(result) if created is not None else None
            audit.append(tx, AuditEntry(caller.actor, caller.source, action, target, details), now)
        return result

    return run
