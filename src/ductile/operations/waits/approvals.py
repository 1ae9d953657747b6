"""Approvals that pipelines wait for: list and show them, approve and reject one."""

from __future__ import annotations

from typing import Any

from ductile._fast_dataclass import dataclass
from ductile.clock import Ids, from_text, to_text
from ductile.core.waits.decision import WaitEnd, WaitStatus
from ductile.core.waits.parse import WaitKind
from ductile.engine.services import Services
from ductile.errors import NotFound, Refused, UsageError
from ductile.operations.waits.describe import describe_approvals
from ductile.store.engines.api import Tx
from ductile.store.jobs import close
from ductile.store.waits import parked_jobs, wait_rows
from ductile.store.waits.wait_rows import WaitRow

SEPARATOR = "_"
MIN_PREFIX = 4
"""Characters of a shortened id."""


def list_approvals(
    tx: Tx, *, limit: int, status: str | None, pipeline: str | None, before: str | None
) -> dict[str, Any]:
    """A page of approvals, newest first; `cursor` leads to the next page."""
    at, before_id = _parse_cursor(before)
    rows = wait_rows.list_approvals(
        tx, status=status, pipeline=pipeline, before=at, before_id=before_id, limit=limit + 1
    )
    page = rows[:limit]
    last = page[-1] if len(rows) > limit else None
    return {
        "approvals": describe_approvals(tx, page),
        "cursor": f"{last.created_at}{SEPARATOR}{last.id}" if last else None,
    }


def show_approval(tx: Tx, approval_id: str) -> dict[str, Any]:
    """An approval; `NotFound` if there is none."""
    [shown] = describe_approvals(tx, [find_approval(tx, approval_id)])
    return shown


def find_approval(tx: Tx, approval_id: str) -> WaitRow:
    """The approval with this id, with an id that begins with it, or of the job with this id."""
    row = wait_rows.find_wait(tx, approval_id)
    if row is None and len(approval_id) >= MIN_PREFIX:
        row = _find_shortened(tx, approval_id)
    if row is None or row.kind != WaitKind.APPROVAL:
        raise NotFound(f"there is no approval {approval_id}")
    return row


def _find_shortened(tx: Tx, text: str) -> WaitRow | None:
    of_job = [row for row in wait_rows.list_of_job(tx, text) if row.kind == WaitKind.APPROVAL]
    if of_job:
        return of_job[-1]
    found = wait_rows.find_approval_ids(tx, text, 2)
    if len(found) > 1:
        raise UsageError(f"several approvals begin with {text}; give more of the id")
    return wait_rows.find_wait(tx, found[0]) if found else None


@dataclass(frozen=True, slots=True)
class DecidedApproval:
    id: str
    status: str
    job_id: str
    job_status: str
    """The new status of the waiting job."""


class ApprovalDecision:
    """The transaction that approves or rejects, and continues or ends the run."""

    def __init__(
        self,
        gateway: Services,
        approval_id: str,
        status: WaitStatus,
        by: str,
        comment: str | None = None,
        *,
        dry: bool = False,
    ) -> None:
        self._tx_config = gateway.compiled.tx_config
        self._approval_id, self._status, self._dry = approval_id, status, dry
        self._now, self._base_id = gateway.clock.now(), gateway.entropy.uuid()
        self._by, self._comment = by, comment

    def __call__(self, tx: Tx) -> DecidedApproval:
        row = find_approval(tx, self._approval_id)
        refuse_ended(row)
        if self._dry:
            return DecidedApproval(row.id, self._status.value, row.job_id, "queued")
        end = WaitEnd(self._status, self._now, self._by, self._comment)
        status = close.end_wait(tx, row, end, self._tx_config, Ids(self._base_id), self._now)
        if status is None:
            # Another transaction was faster: what it wrote says who decided.
            refuse_ended(find_approval(tx, row.id))
            raise Refused(f"approval {row.id} has ended meanwhile")
        return DecidedApproval(row.id, self._status.value, row.job_id, status.value)


def refuse_ended(row: WaitRow) -> None:
    """Raise `Refused` for an approval that can no longer be decided."""
    if row.status == WaitStatus.WAITING and row.decided is None:
        return
    if row.decided is not None and row.status == WaitStatus.WAITING:
        end = parked_jobs.decode_end(row.decided)
        by = f" by {end.by}" if end.by else ""
        raise Refused(f"approval {row.id} was {end.status}{by} at {to_text(end.at)}")
    by = f" by {row.ended_by}" if row.ended_by else ""
    raise Refused(f"approval {row.id} was {row.status}{by} at {row.ended_at}")


def _parse_cursor(text: str | None) -> tuple[str | None, str | None]:
    if text is None:
        return None, None
    at, _, id = text.partition(SEPARATOR)
    try:
        from_text(at)
    except (ValueError, OverflowError):
        raise UsageError("`before` must be the cursor of a page") from None
    return at, id
