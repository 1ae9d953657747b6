"""The dispatcher: one thread that waits for every slot at once.

What has ended since it last looked is judged, and then settled in one transaction, with the
claims of the jobs that follow: one for every seat that is free and, where jobs are short, some
ahead.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from ductile.clock import Clock, Entropy
from ductile.engine.config.compiled import CompiledConfig
from ductile.engine.dispatch.batch import BatchPart, CommitBatch, PendingSettlement, Result, parted
from ductile.engine.dispatch.callbacks import CallbackQueue
from ductile.engine.dispatch.started_log import StartedLog
from ductile.engine.dispatch.wakeup import WorkSignal
from ductile.engine.dispatch.worker import Slot
from ductile.engine.dispatch.workers import CANCEL_GRACE, TICK, Workers
from ductile.engine.observability.db_outage import Outage
from ductile.errors import LedgerBroken, LedgerError
from ductile.failpoint import failpoint
from ductile.log import logger, together
from ductile.model import Cancellation, Settlement
from ductile.runner.started_flags import NOWHERE
from ductile.store.engines.api import Ledger
from ductile.store.jobs.claim import Claimed, ClaimPolicy

LEDGER_PAUSE = 1.0
NAP = 0.002
"""How long nobody is listened to, while every slot has something to go on with: many ends at once
cost little more than one."""


class House(Protocol):
    """What a dispatcher needs of the gateway around it."""

    ledger: Ledger
    clock: Clock
    entropy: Entropy
    work_signal: WorkSignal
    stopping: threading.Event
    started_log: StartedLog

    @property
    def compiled(self) -> CompiledConfig: ...

    def claim_policy(self) -> ClaimPolicy: ...

    def settled(self, settlement: Settlement) -> None: ...

    def broken(self, error: LedgerBroken) -> None: ...


class Dispatcher:
    """A job that is in hand waits for a seat, has one, or has ended and is to be settled."""

    def __init__(self, house: House, slots: Sequence[Slot], *, claims: bool = True) -> None:
        """Without `claims` it takes no job but those that `perform` gives it."""
        self._house = house
        self._claims = claims
        self._log = logger("worker")
        self._outage = Outage(self._log)
        self._steps = CallbackQueue(house.work_signal)
        self._seats = Workers(house, slots, self._steps)
        self._asked = 0
        """Workers that are idle and for which a claim is under way."""
        self._ended: list[PendingSettlement] = []
        self._refused: list[PendingSettlement] = []
        """Settlements that the ledger did not take, until `_resume_at`."""
        self._resume_at = 0.0
        house.work_signal.attach(self._seats.lookout.wake)

    def close(self) -> None:
        self._house.work_signal.attach(None)
        self._seats.lookout.close()

    def loop(self) -> None:
        """Work until the gateway stops; a job that runs then is ended by `cancel`."""
        try:
            self._work()
        except LedgerBroken as error:
            self._house.broken(error)

    def perform(self, claimed: Claimed) -> None:
        """Bring one claimed job to its settlement, in this thread."""
        self._seats.admit(claimed, NOWHERE)
        self._seats.fill()
        self._work()

    def cancel(
        self, why: Cancellation, grace: float = CANCEL_GRACE, job_id: str | None = None
    ) -> bool:
        """End what runs now or is about to (only `job_id`, where given); whether there was any."""
        found = self._seats.cancel(why, grace, job_id)
        if found:
            self._house.work_signal.knock()
        return found

    def ask(self, answered: Callable[[], None]) -> None:
        """Have `answered` called by the dispatcher's thread: it lives."""
        self._steps.post(answered)

    def in_hand(self) -> frozenset[str]:
        """The ids of jobs whose claim or settlement is for this dispatcher to bring to its end."""
        return frozenset(id for id, _ in list(self._seats.in_hand))

    @property
    def busy(self) -> int:
        """How many processes run now."""
        return self._seats.busy

    def _work(self) -> None:
        house, seats = self._house, self._seats
        while self._takes_jobs() or seats.in_hand or self._asked:
            try:
                self._listen()
                self._commit()
                self._steps.run()
            except LedgerBroken:
                raise
            except Exception as error:  # noqa: BLE001 - it outlives every bug
                self._log.crash("the dispatcher met a bug", error)
                house.clock.wait(house.stopping, LEDGER_PAUSE)

    def _takes_jobs(self) -> bool:
        return self._claims and not self._house.stopping.is_set()

    # Waiting

    def _listen(self) -> None:
        house, now = self._house, self._house.clock.monotonic()
        patience = self._patience(now)
        if patience and self._seats.provided:
            house.clock.wait(house.stopping, NAP)
        self._seats.listen(now, patience)
        house.work_signal.hush()
        self._steps.run()
        self._seats.fill()
        self._gather()

    def _gather(self) -> None:
        entropy, seats = self._house.entropy, self._seats
        self._ended += [PendingSettlement(settlement, entropy.uuid()) for settlement in seats.ended]
        seats.ended.clear()

    def _patience(self, now: float) -> float:
        """How many seconds there is nothing to do but to wait; -1 for ever."""
        house, seats, resting = self._house, self._seats, now < self._resume_at
        claimable = self._takes_jobs() and seats.idle > self._asked and not resting
        if self._steps or seats.ended or self._ended or (claimable and seats.freed):
            return 0.0
        if (self._refused and not resting) or not house.work_signal.listen(idle=claimable):
            return 0.0
        return TICK if seats.in_hand or resting else -1.0

    # The ledger

    def _commit(self) -> None:
        """Settle what has ended and claim for whoever is free, in one commit where there is one."""
        house, now = self._house, self._house.clock.monotonic()
        self._seats.withdraw(now)
        self._gather()
        seats = ahead = 0
        if now >= self._resume_at:
            self._ended += self._refused
            self._refused = []
            if self._takes_jobs():
                seats, ahead = self._wanted()
        if not self._ended and not seats:
            return
        tx_config, policy, at = house.compiled.tx_config, house.claim_policy(), house.clock.now()
        started_log = house.started_log
        errands, self._ended = self._ended, []
        shares = list(parted(errands, seats, ahead, house.ledger.at_once))
        self._asked += seats
        works = [
            (CommitBatch(share, tx_config, policy, at, started_log), partial(self._answered, share))
            for share in shares
        ]
        try:
            house.ledger.carry(works)
        except Exception as error:  # noqa: BLE001 - then nobody was answered
            for share in shares:
                self._answered(share, None, error)

    def _wanted(self) -> tuple[int, int]:
        """How many jobs to ask for: for seats that are free, and ahead of those that will be."""
        idle = self._seats.idle - self._asked
        freed, ahead = self._seats.take_turn()
        seats = min(idle, freed)
        seats += self._house.work_signal.take(idle - seats)
        most = self._house.ledger.at_once
        # Who shares the ledger leaves to others what he cannot run at once.
        alone = most > 1
        return seats, max(0, min(ahead, most - seats)) if alone and seats == idle else 0

    def _answered(
        self, share: BatchPart, result: Result | None, error: BaseException | None
    ) -> None:
        self._steps.post(partial(self._committed, share, result, error))

    def _committed(
        self, share: BatchPart, result: Result | None, error: BaseException | None
    ) -> None:
        self._asked -= share.seats
        if error is not None:
            self._undone(share, error)
            return
        assert result is not None
        self._outage.over()
        done, claimed = result
        if share.errands:
            failpoint("settled")
        if claimed:
            failpoint("claimed")
        for job, place in zip(claimed, share.places, strict=True):
            if not self._seats.admit(job, place):
                self._house.work_signal.ring()
        # First of all: nothing else is as much in the way of the work.
        self._seats.fill()
        with together():
            for errand, settled in zip(share.errands, done, strict=True):
                self._seats.forget(errand.settlement.job)
                self._tell(errand.settlement, settled)

    def _undone(self, share: BatchPart, error: BaseException) -> None:
        if isinstance(error, LedgerBroken):
            raise error
        self._house.started_log.revoke(*share.places)
        self._house.work_signal.ring(share.seats)
        if not isinstance(error, LedgerError) and not all(one.alone for one in share.errands):
            for errand in share.errands:
                errand.alone = True
            self._ended += share.errands
            return
        self._resume_at = self._house.clock.monotonic() + LEDGER_PAUSE
        for errand in share.errands:
            self._not_committed(errand, error)
        if not share.errands:
            self._complain(error)

    def _not_committed(self, errand: PendingSettlement, error: BaseException) -> None:
        settlement = errand.settlement
        if not isinstance(error, LedgerError):
            self._complain(error)
            self._seats.forget(settlement.job)
            return
        if not errand.waits:
            errand.waits = True
            self._log.error(
                "a settlement waits for the ledger",
                job_id=settlement.job_id,
                plugin=settlement.plugin,
                error=error.message,
            )
        errand.tries -= self._house.stopping.is_set()
        if errand.tries < 0:
            # The row stays `running`: the next start counts the attempt as lost.
            self._seats.forget(settlement.job)
        else:
            self._refused.append(errand)

    def _complain(self, error: BaseException) -> None:
        if isinstance(error, LedgerError):
            self._outage.met(error)
        else:
            self._log.crash("a transaction met a bug", error)

    def _tell(self, settlement: Settlement, done: Settlement | None) -> None:
        about = {"job_id": settlement.job_id, "plugin": settlement.plugin}
        if done is None:
            self._log.warning("a settlement was dropped: the attempt had ended", **about)
            return
        try:
            self._house.settled(done)
        except Exception as error:  # noqa: BLE001 - the end is durable, and the next job claimed
            self._log.crash("after a settlement", error, **about)
