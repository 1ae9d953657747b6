"""The dispatcher: one thread that waits for all slots, and commits what follows.

Each round waits for answers of slots (`workers.py` makes settlements of them), and then commits the
settlements together with the claims of the jobs that follow: one for each idle worker and, where
jobs are short, some ahead (`prefetch.py`). `attempt.py` has the states of an attempt.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from ductile.core.alerts.outage import Outage
from ductile.engine.dispatch.attempt import Attempt
from ductile.engine.dispatch.commit_batch import CommitBatch, CommitResult, split_batches
from ductile.engine.dispatch.context import DispatcherHost
from ductile.engine.dispatch.live_attempts import RunningLog
from ductile.engine.dispatch.workers import CANCEL_GRACE, TICK, Workers
from ductile.engine.observability.db_outage import OutageLog
from ductile.errors import LedgerBroken, LedgerBusy, LedgerError
from ductile.failpoint import failpoint
from ductile.log import batch_lines, logger
from ductile.model import Cancellation, Settlement
from ductile.runner.client import SlotClient
from ductile.runner.event_loop import EventLoop
from ductile.runner.started_flags import NO_ENTRY
from ductile.store.job_probe import Stage
from ductile.store.jobs.claim import ClaimedJob

LEDGER_PAUSE = 1.0
"""Seconds between two tries of a ledger that is not available."""
MAX_COMMITTING = 1
"""Transactions that are committed at the same time, where the ledger does not commit them at once:
meanwhile the next attempts end, and are settled together."""


class Dispatcher:
    """Claims jobs, has `Workers` run them, and commits their settlements."""

    def __init__(
        self, host: DispatcherHost, slots: Sequence[SlotClient], *, claims: bool = True
    ) -> None:
        """Without `claims` it runs only the jobs that `run_claimed` is given."""
        self._host = host
        self._claims = claims
        self._log = logger("worker")
        self._outage = OutageLog(self._log)
        self._events = EventLoop()
        self._workers = Workers(host, slots, self._events)
        self._claiming = 0
        """Idle workers for which a claim is being committed."""
        self._committing = 0
        """Transactions that are being committed, without those of one settlement alone."""
        self._settling: list[Attempt] = []
        """Attempts that are to be committed alone, in the next round."""
        self._refused: list[Attempt] = []
        """Attempts whose settlement the ledger refused, until `_resume_at`."""
        self._resume_at = 0.0
        self.is_alive = True
        """False once `loop` has ended."""
        self._unsettled: dict[str, str] = {}
        """Why the ledger refused the settlement of a job that is still to be settled, by id."""
        self.outage: Outage | None = None
        """The last time in which the ledger refused settlements."""
        host.work_signal.attach(self._events.wake)

    def close(self) -> None:
        self._host.work_signal.attach(None)
        self._events.close()

    def loop(self) -> None:
        """Work until the gateway stops and every attempt is DONE."""
        try:
            self._work()
        except LedgerBroken as error:
            self._host.broken(error)
        finally:
            self.is_alive = False

    def run_claimed(self, claimed: ClaimedJob) -> None:
        """Run one claimed job to its settlement, in this thread."""
        self._workers.admit(claimed, NO_ENTRY)
        self._workers.assign()
        self._work()

    def cancel(
        self, why: Cancellation, grace: float = CANCEL_GRACE, job_id: str | None = None
    ) -> bool:
        """Cancel the attempt of this job, or all; whether one was found that had not ended."""
        found = self._workers.live.cancel(why, grace, job_id)
        if found:
            self._host.work_signal.wake()
        return found

    def running_log(self, job_id: str) -> RunningLog | None:
        """The log of the job's process, if it runs here. For any thread."""
        return self._workers.live.running_log(job_id)

    def running_ids(self) -> list[str]:
        """The jobs whose processes run here. For any thread."""
        return self._workers.live.running_ids()

    def resize(self, slots: Sequence[SlotClient]) -> None:
        """Use these slots from now on; running jobs continue. For any thread."""
        self._events.call_soon(partial(self._workers.resize, slots))

    def call_soon(self, answered: Callable[[], None]) -> None:
        """Have the dispatcher's thread call `answered`, which shows that it is alive."""
        self._events.call_soon(answered)

    def owned_jobs(self) -> frozenset[str]:
        """The ids of the jobs that this dispatcher owns, from their claim to their settlement."""
        return self._workers.live.job_ids()

    @property
    def busy(self) -> int:
        """How many processes run now."""
        return self._workers.live.busy

    def unsettled_jobs(self) -> dict[str, str]:
        """The ended jobs whose settlement the ledger has refused, and why."""
        return self._unsettled.copy()

    # A round

    def _work(self) -> None:
        host, workers = self._host, self._workers
        while self._takes_jobs() or workers.has_attempts or self._claiming:
            try:
                self._wait()
                self._events.run_calls()
                workers.assign()
                self._commit()
                self._events.run_calls()
            except LedgerBroken:
                raise
            except Exception as error:  # noqa: BLE001 - a bug in one round must not end the others
                self._log.crash("dispatcher round failed with an internal error", error)
                host.clock.wait(host.stopping, LEDGER_PAUSE)

    def _takes_jobs(self) -> bool:
        return self._claims and not self._host.stopping.is_set()

    def _may_claim(self) -> bool:
        return self._takes_jobs() and self._host.may_claim()

    def _wait(self) -> None:
        host, workers, now = self._host, self._workers, self._host.clock.monotonic()
        seconds = self._seconds_to_wait(now)
        if seconds and workers.has_buffered_everywhere:
            host.clock.wait(host.stopping, workers.nap)
        workers.wait(now, seconds)
        host.work_signal.disarm()

    def _seconds_to_wait(self, now: float) -> float:
        """How long there is nothing to do without an event; -1 for any time."""
        workers, paused = self._workers, now < self._resume_at
        if self._events.has_calls:
            return 0.0
        if self._committing >= MAX_COMMITTING:
            return TICK
        if workers.judge.has_settling or self._settling:
            return 0.0
        if self._refused and not paused:
            return 0.0
        can_claim = self._may_claim() and workers.idle > self._claiming and not paused
        if can_claim and (workers.freed or not self._host.work_signal.arm()):
            return 0.0
        return TICK if workers.has_attempts or paused else -1.0

    # SETTLING, and the claims that follow

    def _commit(self) -> None:
        """Settle ended attempts and claim for idle workers, in one commit where possible."""
        host, now = self._host, self._host.clock.monotonic()
        # Before `_may_claim`: a term that begins later does not cover these claims.
        lease_term = host.lease_term()
        self._workers.withdraw(now)
        if self._committing >= MAX_COMMITTING:
            return
        settling = self._settling + self._workers.judge.take_settling()
        self._settling = []
        claims = prefetch = 0
        if now >= self._resume_at:
            settling += self._refused
            self._refused = []
            if self._may_claim():
                claims, prefetch = self._demand()
        if not settling and not claims:
            return
        batches = list(split_batches(settling, claims, prefetch, host.ledger.batch_size))
        for batch in batches:
            batch.lease_term = lease_term
        self._claiming += claims
        self._committing += sum(not batch.is_alone for batch in batches)
        parameters = host.compiled.tx_config, host.claim_policy(), host.clock.now()
        works = [
            (partial(batch.run, *parameters, host.started_log), partial(self._answered, batch))
            for batch in batches
        ]
        try:
            host.ledger.write_batch(works)
        except Exception as error:  # noqa: BLE001 - then no batch was answered
            for batch in batches:
                self._answered(batch, None, error)

    def _demand(self) -> tuple[int, int]:
        """How many jobs to claim: for idle workers, and ahead of those that will be idle."""
        # After a resize to fewer workers, more may be claimed than are idle.
        idle = max(0, self._workers.idle - self._claiming)
        freed, prefetch = self._workers.take_round()
        claims = min(idle, freed)
        claims += self._host.work_signal.take(idle - claims)
        if claims < idle:
            return claims, 0
        return claims, max(0, min(prefetch, self._host.ledger.batch_size - claims))

    def _answered(
        self, batch: CommitBatch, result: CommitResult | None, error: BaseException | None
    ) -> None:
        """Called by the ledger, in any thread."""
        self._events.call_soon(partial(self._finish_commit, batch, result, error))

    def _finish_commit(
        self, batch: CommitBatch, result: CommitResult | None, error: BaseException | None
    ) -> None:
        self._claiming -= batch.claims
        self._committing -= not batch.is_alone
        if error is not None:
            self._undo_commit(batch, error)
            return
        assert result is not None
        self._outage.report_end()
        settled, claimed = result
        if batch.attempts:
            failpoint("settled")
        if claimed:
            failpoint("claimed")
        # After a late answer, another node may have taken over the jobs.
        is_lost = batch.lease_term is None or batch.lease_term != self._host.lease_term()
        why = Cancellation.STOP if is_lost else None
        for job, entry in zip(claimed, batch.entries, strict=True):
            if not self._workers.admit(job, entry, why):
                self._host.work_signal.notify()
        # Before the rest: an idle worker waits for it.
        self._workers.assign()
        with batch_lines():
            for attempt, settlement in zip(batch.attempts, settled, strict=True):
                self._forget(attempt)
                self._report(attempt, settlement)

    def _report(self, attempt: Attempt, settlement: Settlement | None) -> None:
        about = {"job_id": attempt.job.id, "plugin": attempt.job.plugin}
        if settlement is None:
            self._log.warning("settlement dropped: the attempt had already ended", **about)
            return
        try:
            self._host.settled(settlement, attempt.trace_id)
        except Exception as error:  # noqa: BLE001 - the settlement is durable
            self._log.crash("internal error after a settlement", error, **about)

    # Commits that fail

    def _undo_commit(self, batch: CommitBatch, error: BaseException) -> None:
        """Keep the settlements of a batch that was rolled back, for another commit."""
        if isinstance(error, LedgerBroken):
            raise error
        self._host.started_log.revoke(*batch.entries)
        self._host.work_signal.notify(batch.claims)
        if isinstance(error, LedgerError):
            self._resume_at = self._host.clock.monotonic() + LEDGER_PAUSE
            for attempt in batch.attempts:
                # The server may wait for a row of one of them, which another program has locked.
                attempt.commit_alone |= isinstance(error, LedgerBusy)
                self._refuse(attempt, error)
            if not batch.attempts:
                self._outage.report(error)
        elif not all(attempt.commit_alone for attempt in batch.attempts):
            for attempt in batch.attempts:
                attempt.commit_alone = True
            self._settling += batch.attempts
        else:
            # A bug, and no other attempt to blame for it: the orphan sweep ends the job.
            self._resume_at = self._host.clock.monotonic() + LEDGER_PAUSE
            self._log.crash("transaction failed with an internal error", error)
            for attempt in batch.attempts:
                self._forget(attempt)

    def _refuse(self, attempt: Attempt, error: LedgerError) -> None:
        """Keep a settlement that the ledger does not take now."""
        if not attempt.waits_for_ledger:
            attempt.waits_for_ledger = True
            self._log.error(
                "settlement waits for the ledger",
                job_id=attempt.job.id,
                plugin=attempt.job.plugin,
                error=error.message,
            )
        attempt.retries_while_stopping -= self._host.stopping.is_set()
        if attempt.retries_while_stopping < 0:
            # The job stays `running`: recovery at the next start counts the attempt as lost.
            self._forget(attempt)
        else:
            if not self._unsettled:
                self.outage = Outage(Stage.SETTLE, error.message, self._host.clock.now())
            self._unsettled[attempt.job.id] = error.message
            self._refused.append(attempt)

    def _forget(self, attempt: Attempt) -> None:
        was_refused = self._unsettled.pop(attempt.job.id, None) is not None
        if was_refused and not self._unsettled and self.outage is not None:
            self.outage = replace(self.outage, ended_at=self._host.clock.now())
        self._workers.forget(attempt)
