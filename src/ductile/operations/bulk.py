"""Cancelling, retrying and acknowledging all jobs that match a filter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ductile._fast_dataclass import dataclass
from ductile.engine.services import Services
from ductile.errors import DuctileError
from ductile.model import JobStatus
from ductile.operations import jobs
from ductile.store.engines.api import Tx, Work
from ductile.store.jobs.read import JobFilter, find_bulk_ids

JOBS_PER_COMMIT = 100
"""Jobs ended per transaction, so that other writers do not wait for all of them."""


class CountChanged(DuctileError):
    code = "count_changed"
    http_status = 409


def check_count(count: int, expected: int | None) -> None:
    """Raise `CountChanged` if more or fewer match than the caller has seen."""
    if expected is not None and count != expected:
        raise CountChanged(
            f"{count} match now, not {expected}; look at the preview again", count=count
        )


@dataclass(frozen=True, slots=True)
class Selection:
    """The jobs that match every filter that is set, at most `limit`; with `dry` only list them."""

    wanted: JobFilter
    limit: int
    dry: bool
    expected: int | None = None
    """The count of the preview."""

    def find(self, tx: Tx, action: str) -> list[str]:
        """The ids of the matching jobs to which `action` applies, the oldest first."""
        return find_bulk_ids(tx, action, self.wanted, self.limit)

    def apply(self, found: Sequence[str], act: Callable[[str], object]) -> BulkResult:
        """Call `act` for each job; a refusal of one does not stop the others."""
        done, refused = [], []
        for job_id in found:
            try:
                act(job_id)
                done.append(job_id)
            except DuctileError as error:
                refused.append({"job_id": job_id, "error": error.message, "code": error.code})
        return BulkResult(done, refused, len(found) == self.limit)


@dataclass(frozen=True, slots=True)
class BulkResult:
    """The jobs of a selection that were acted on, and those that were refused."""

    jobs: list[str]
    refused: list[dict[str, str]]
    more: bool
    """Whether the limit was reached, so that more jobs may match."""


def cancel(gateway: Services, selection: Selection) -> BulkResult:
    found = gateway.ledger.read(lambda tx: selection.find(tx, "cancel"))
    check_count(len(found), selection.expected)
    include_queued = not selection.dry and selection.wanted.status in (None, JobStatus.QUEUED)
    ended = _end_queued(gateway, found) if include_queued else frozenset()
    cancelling = jobs.JobCancellation(gateway, dry=selection.dry, only=selection.wanted.status)
    cancelling.request_remote([job_id for job_id in found if job_id not in ended])
    return selection.apply(found, lambda job_id: job_id in ended or cancelling(job_id))


def _end_queued(gateway: Services, found: Sequence[str]) -> frozenset[str]:
    """End the queued jobs first: a worker that is freed by a kill would start them."""
    starts = range(0, len(found), JOBS_PER_COMMIT)
    batches = (found[start : start + JOBS_PER_COMMIT] for start in starts)
    return frozenset().union(*(jobs.end_queued(gateway, ids) for ids in batches))


def retrying(gateway: Services, selection: Selection) -> Work[BulkResult]:
    """The transaction that queues failed and dead jobs again.

    Jobs that were acknowledged, or ended on purpose, are retried only if the filter names them.
    """
    named = replace(selection.wanted, acknowledged=bool(selection.wanted.acknowledged))
    selection = replace(selection, wanted=named)

    def retry(tx: Tx, job_id: str) -> None:
        jobs.JobRetry(gateway, job_id, dry=selection.dry)(tx)

    return _acting(selection, "retry", retry)


def acknowledging(gateway: Services, selection: Selection, actor: str) -> Work[BulkResult]:
    """The transaction that acknowledges the failures of failed and dead jobs."""

    def acknowledge(tx: Tx, job_id: str) -> None:
        jobs.JobAcknowledgement(gateway, job_id, actor, dry=selection.dry)(tx)

    return _acting(selection, "acknowledge", acknowledge)


def _acting(
    selection: Selection, action: str, act: Callable[[Tx, str], object]
) -> Work[BulkResult]:
    def work(tx: Tx) -> BulkResult:
        result = selection.apply(selection.find(tx, action), lambda job_id: act(tx, job_id))
        # As the preview counts: without those that are refused.
        check_count(len(result.jobs), selection.expected)
        return result

    return work
