"""Audit entries of requests that change something.

The row of the route table names the action. Its entry is written in the request's own transaction,
so that a change without an entry cannot be committed; an action that is not one transaction, such
as a reload, gets its entry before the response is sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from starlette.requests import Request

from ductile._fast_dataclass import dataclass
from ductile.core.delivery.target_url import redact_target
from ductile.engine.ingress.authenticator import Principal
from ductile.http.middleware.caller import actor_of, caller_of
from ductile.log import logger
from ductile.store.access import audit
from ductile.store.access.audit import AuditEntry
from ductile.store.engines.api import Tx, Work

if TYPE_CHECKING:
    from ductile.http.models.fields import RequestModel

T = TypeVar("T")
HIDDEN = frozenset({"dry_run", "secret", "token", "code", "payload", "baggage", "webhook", "value"})
"""Arguments that are not part of an entry."""
MAX_DETAILS = 2000
"""Characters of the arguments of an entry."""


@dataclass(slots=True)
class PendingEntry:
    """The entry of the request that this task serves."""

    entry: AuditEntry
    is_written: bool = False


_pending: ContextVar[PendingEntry | None] = ContextVar("pending_audit_entry", default=None)


def describe_action(request: Request, action: str, models: Iterable[RequestModel]) -> AuditEntry:
    """Return the entry of a request with these arguments."""
    caller = caller_of(request)
    given: dict[str, Any] = {}
    for model in models:
        given |= model.model_dump(
            mode="json", exclude_unset=True, exclude_none=True, exclude=set(HIDDEN)
        )
    if isinstance(given.get("target_url"), str):
        given["target_url"] = redact_target(given["target_url"])
    target = "/".join(request.path_params.values()) or given.pop("name", None)
    details = given if len(str(given)) <= MAX_DETAILS else {"omitted": "too large"}
    return AuditEntry(caller.actor, caller.source, action, target, details or None)


@contextmanager
def pending_entry(entry: AuditEntry) -> Iterator[PendingEntry]:
    """Have the first write transaction of this task write the entry."""
    pending = PendingEntry(entry)
    reset = _pending.set(pending)
    try:
        yield pending
    finally:
        _pending.reset(reset)


def name_actor(principal: Principal) -> None:
    """Name the actor of a login, who is known only when the login has succeeded."""
    pending = _pending.get()
    if pending is not None:
        pending.entry = replace(pending.entry, actor=actor_of(principal))


def note_details(**more: Any) -> None:
    """Add to the details of the request's entry, if it is recorded."""
    pending = _pending.get()
    if pending is not None:
        details = {**(pending.entry.details or {}), **more}
        pending.entry = replace(pending.entry, details=details)


def with_entry(work: Work[T], now: datetime) -> Work[T]:
    """Return the transaction, which also writes the entry of the request if that is due."""
    pending = _pending.get()
    if pending is None or pending.is_written:
        return work
    pending.is_written, entry = True, pending.entry

    def run(tx: Tx) -> T:
        result = work(tx)
        audit.append(tx, entry, now)
        return result

    return run


def log_entry(entry: AuditEntry) -> None:
    fields = {"actor": entry.actor, "source": entry.source, "target": entry.target}
    logger("audit").info(entry.action, **fields)
