"""What an operator does to many jobs at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ductile.engine.services import Services
from ductile.errors import DuctileError
from ductile.model import JobStatus, SubmittedBy
from ductile.operations import jobs as operate
from ductile.record import dataclass
from ductile.store.engines.api import Tx, Work

IN_ONE_COMMIT = 100
"""So many are ended together: others who write wait that long and no longer."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Jobs that are all of what is named, at most `limit` of them; with `dry` only to be told."""

    plugin: str | None
    command: str | None
    status: JobStatus | None
    submitted_by: SubmittedBy | None
    before: str | None
    """Made before this time."""
    limit: int
    dry: bool

    def read(self, tx: Tx, action: str) -> list[str]:
        rows = tx.all(
            "jobs_to_act_on",
            action=action,
            plugin=self.plugin,
            command=self.command,
            status=self.status and self.status.value,
            submitted_by=self.submitted_by and self.submitted_by.value,
            before=self.before,
            limit=self.limit,
        )
        return [row[0] for row in rows]

    def each(self, found: Sequence[str], act: Callable[[str], object]) -> Many:
        done, refused = [], []
        for job_id in found:
            try:
                act(job_id)
                done.append(job_id)
            except DuctileError as error:
                refused.append({"job_id": job_id, "error": error.message, "code": error.code})
        return Many(done, refused, len(found) == self.limit)


@dataclass(frozen=True, slots=True)
class Many:
    """What became of the jobs of a selection."""

    jobs: list[str]
    refused: list[dict[str, str]]
    more: bool
    """Whether there may be more of them than the limit allowed."""


def cancel(gateway: Services, selection: Selection) -> Many:
    found = gateway.ledger.read(lambda tx: selection.read(tx, "cancel"))
    waits = not selection.dry and selection.status in (None, JobStatus.QUEUED)
    ended = _end_queued(gateway, found) if waits else frozenset()
    cancelling = operate.JobCancellation(gateway, dry=selection.dry, only=selection.status)
    cancelling.ask([job_id for job_id in found if job_id not in ended])
    return selection.each(found, lambda job_id: job_id in ended or cancelling(job_id))


def _end_queued(gateway: Services, found: Sequence[str]) -> frozenset[str]:
    """Those of them that wait: before what runs is killed, which would have them begin."""
    starts = range(0, len(found), IN_ONE_COMMIT)
    together = (found[start : start + IN_ONE_COMMIT] for start in starts)
    return frozenset().union(*(operate.end_queued(gateway, ids) for ids in together))


def retrying(gateway: Services, selection: Selection) -> Work[Many]:
    """The transaction that queues failed and dead jobs again."""

    def work(tx: Tx) -> Many:
        def retry(job_id: str) -> None:
            operate.JobRetry(gateway, job_id, dry=selection.dry)(tx)

        return selection.each(selection.read(tx, "retry"), retry)

    return work
