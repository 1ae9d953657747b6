"""The dispatcher: one thread that waits for every slot at once.

What has ended since it last looked is judged, and then settled in one transaction, with the
claims of the jobs that follow. Whatever may take its time (copying files, judging a large answer,
replacing a dead slot) is done aside, by a thread of its own, so that no job waits for another's.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol, TypeVar

from ductile.clock import Clock, Entropy
from ductile.errors import LedgerBroken, LedgerError
from ductile.failpoint import failpoint
from ductile.log import logger
from ductile.model import Cancellation, Launch, Outcome, Settlement
from ductile.runner.client import Broken
from ductile.runtime.attempt import Attempt
from ductile.runtime.bell import Bell
from ductile.runtime.blueprint import Blueprint
from ductile.runtime.seat import Lookout, Seat, Slot
from ductile.runtime.turn import Errand, Result, Turn, parted
from ductile.store.claim import Claimed, ClaimPolicy
from ductile.store.ledger import Ledger

T = TypeVar("T")
LEDGER_PAUSE = 1.0
CANCEL_GRACE = 5.0
TICK = 1.0
"""How often a slot that runs is asked whether it is late."""
LARGE_ANSWER = 256 * 1024


class House(Protocol):
    """What a dispatcher needs of the gateway around it."""

    ledger: Ledger
    clock: Clock
    entropy: Entropy
    bell: Bell
    stopping: threading.Event

    @property
    def blueprint(self) -> Blueprint: ...

    def claim_policy(self) -> ClaimPolicy: ...

    def settled(self, settlement: Settlement) -> None: ...

    def broken(self, error: LedgerBroken) -> None: ...


class Dispatcher:
    """Every seat is idle, or in the hands of exactly one of: a claim, an attempt, a settlement."""

    def __init__(self, house: House, slots: Sequence[Slot], *, claims: bool = True) -> None:
        """Without `claims` it takes no job but those that `perform` gives it."""
        self._house = house
        self._claims = claims
        self._log = logger("worker")
        self._seats = [Seat(slot) for slot in slots]
        self._idle = self._seats[::-1]
        self._guard = threading.Lock()
        self._running: dict[Seat, Attempt] = {}
        self._in_hand: set[str] = set()
        self._ended: list[Errand] = []
        self._refused: list[Errand] = []
        """Settlements that the ledger did not take, until `_resume_at`."""
        self._resume_at = 0.0
        self._look_at = 0.0
        self._posted: deque[Callable[[], None]] = deque()
        self._thread = 0
        self._lookout = Lookout()
        house.bell.attach(self._lookout.wake)

    def close(self) -> None:
        self._house.bell.attach(None)
        self._lookout.close()

    def loop(self) -> None:
        """Work until the gateway stops; a job that runs then is ended by `cancel`."""
        try:
            self._work()
        except LedgerBroken as error:
            self._house.broken(error)

    def perform(self, claimed: Claimed) -> None:
        """Bring one claimed job to its settlement, in this thread."""
        self._begin(self._idle.pop(), claimed)
        self._work()

    def cancel(
        self, why: Cancellation, grace: float = CANCEL_GRACE, job_id: str | None = None
    ) -> bool:
        """End the processes that run now (only that of `job_id`, where given); whether one did."""
        with self._guard:
            running = self._running.items()
            found = [(seat, one) for seat, one in running if job_id in (None, one.job.id)]
            for seat, attempt in found:
                attempt.cancelled = attempt.cancelled or why
                # Inside the guard: the slot cannot have gone on to the next job.
                seat.slot.cancel(grace)
        return bool(found)

    def ask(self, answered: Callable[[], None]) -> None:
        """Have `answered` called by the dispatcher's thread: it lives."""
        self._post(answered)

    def in_hand(self) -> frozenset[str]:
        """The ids of jobs whose claim or settlement is for this dispatcher to bring to its end."""
        return frozenset(self._in_hand)

    @property
    def busy(self) -> int:
        """How many processes run now."""
        return len(self._running)

    def _work(self) -> None:
        self._thread = threading.get_ident()
        house = self._house
        while (self._claims and not house.stopping.is_set()) or len(self._idle) < len(self._seats):
            try:
                self._listen()
                self._run_posted()
                self._commit()
                self._run_posted()
            except LedgerBroken:
                raise
            except Exception as error:  # noqa: BLE001 - it outlives every bug
                self._log.crash("the dispatcher met a bug", error)
                house.clock.wait(house.stopping, LEDGER_PAUSE)

    # Waiting

    def _listen(self) -> None:
        """Until a slot has something to say, or somebody wakes us."""
        now = self._house.clock.monotonic()
        spoken = self._lookout.wait(self._patience(now))
        self._house.bell.hush()
        for seat in spoken:
            if seat.running:
                self._careful(seat, partial(self._look, seat))
            else:
                # Its process has died: the next launch will find that out.
                self._lookout.forget(seat)
        if now >= self._look_at:
            self._look_at = now + TICK
            for seat in self._seats:
                if seat.running and seat.slot.due < now:
                    self._careful(seat, partial(self._look, seat))

    def _patience(self, now: float) -> float:
        """How many seconds there is nothing to do but to wait; -1 for ever."""
        house, resting = self._house, now < self._resume_at
        if self._posted or self._ended or (self._refused and not resting):
            return 0.0
        stopping = house.stopping.is_set()
        claimable = self._claims and bool(self._idle) and not resting and not stopping
        if not house.bell.listen(idle=claimable):
            return 0.0
        quiet = len(self._idle) == len(self._seats) and not resting
        return -1.0 if quiet else TICK

    # From other threads

    def _post(self, step: Callable[[], None]) -> None:
        """Have `step` done by the dispatcher's own thread."""
        self._posted.append(step)
        if threading.get_ident() != self._thread:
            self._house.bell.knock()

    def _run_posted(self) -> None:
        while self._posted:
            self._posted.popleft()()

    def _aside(self, seat: Seat, work: Callable[[], T], then: Callable[[T], None]) -> None:
        """Do `work` by a thread of its own, and with what it comes to go on here."""

        def run() -> None:
            try:
                result = work()
            except Exception as error:  # noqa: BLE001 - the attempt's failure
                self._post(partial(self._failed, seat, error))
            else:
                self._post(partial(self._careful, seat, partial(then, result)))

        try:
            threading.Thread(target=run, name="aside", daemon=True).start()
        except RuntimeError:
            # No thread is to be had: better that the others wait than that this one is lost.
            run()

    # An attempt

    def _careful(self, seat: Seat, step: Callable[[], None]) -> None:
        """Whatever goes wrong in there is the attempt's failure."""
        try:
            step()
        except Broken as broken:
            seat.running = False
            self._lookout.forget(seat)
            self._aside(seat, partial(seat.slot.mend, broken), partial(self._started, seat))
        except Exception as error:  # noqa: BLE001
            self._failed(seat, error)

    def _failed(self, seat: Seat, error: Exception) -> None:
        """Even a bug of ours ends in a settlement: no job is left running."""
        try:
            assert seat.attempt is not None
            self._end(seat, seat.attempt.failed(error))
        except Exception:  # noqa: BLE001 - then it is a stray
            self._log.crash("an attempt cannot be ended", error)
            self._leave(seat, None if seat.attempt is None else seat.attempt.job.id)

    def _begin(self, seat: Seat, claimed: Claimed) -> None:
        attempt = seat.attempt = Attempt(self._house, claimed)
        self._in_hand.add(attempt.job.id)
        if attempt.needs_files:
            self._aside(seat, attempt.prepare, partial(self._launch, seat))
        else:
            self._launch(seat, attempt.prepare())

    def _launch(self, seat: Seat, ready: Launch | Settlement) -> None:
        if isinstance(ready, Settlement):
            self._end(seat, ready)
            return
        failpoint("prepared")
        attempt = seat.attempt
        assert attempt is not None
        # Together: a cancel finds it running, or not begun, and never in between.
        with self._guard:
            stopped = self._house.stopping.is_set()
            if not stopped:
                self._running[seat] = attempt
                outcome = seat.slot.begin(ready)
        if stopped:
            self._end(seat, attempt.stopped())
        else:
            self._started(seat, outcome)

    def _started(self, seat: Seat, outcome: Outcome | None) -> None:
        if outcome is None:
            seat.running = True
            self._lookout.watch(seat)
        else:
            self._ran(seat, outcome)

    def _look(self, seat: Seat) -> None:
        self._started(seat, seat.slot.look())

    def _ran(self, seat: Seat, outcome: Outcome) -> None:
        failpoint("ran")
        seat.running = False
        attempt = seat.attempt
        assert attempt is not None
        with self._guard:
            self._running.pop(seat, None)
        if len(outcome.stdout) > LARGE_ANSWER:
            self._aside(seat, partial(attempt.judge, outcome), partial(self._end, seat))
        else:
            self._end(seat, attempt.judge(outcome))

    def _leave(self, seat: Seat, job_id: str | None) -> None:
        """Without a settlement: the seat is free again, and its job is in nobody's hand."""
        if job_id is not None:
            self._in_hand.discard(job_id)
        with self._guard:
            self._running.pop(seat, None)
        seat.running, seat.attempt = False, None
        self._idle.append(seat)
        self._house.bell.ring()

    def _end(self, seat: Seat, settlement: Settlement) -> None:
        seat.running, seat.attempt = False, None
        with self._guard:
            self._running.pop(seat, None)
        self._ended.append(Errand(seat, settlement, self._house.entropy.uuid()))

    # The ledger

    def _commit(self) -> None:
        """Settle what has ended and claim for whoever is free, in one commit where there is one."""
        house = self._house
        taking = self._claims and not house.stopping.is_set()
        if house.clock.monotonic() >= self._resume_at:
            self._ended += self._refused
            self._refused = []
            if taking and self._idle:
                for _ in range(house.bell.take(len(self._idle))):
                    self._ended.append(Errand(self._idle.pop()))
        if not self._ended:
            return
        chart, now = house.blueprint.chart, house.clock.now()
        policy = house.claim_policy() if taking else None
        errands, self._ended = self._ended, []
        turns = [Turn(some, chart, policy, now) for some in parted(errands, house.ledger)]
        works = [(turn, partial(self._answered, turn.errands)) for turn in turns]
        try:
            house.ledger.carry(works)
        except Exception as error:  # noqa: BLE001 - then nobody was answered
            self._answered(errands, None, error)

    def _answered(
        self, errands: list[Errand], result: Result | None, error: BaseException | None
    ) -> None:
        self._post(partial(self._committed, errands, result, error))

    def _committed(
        self, errands: list[Errand], result: Result | None, error: BaseException | None
    ) -> None:
        if error is not None:
            self._undone(errands, error)
            return
        assert result is not None
        done, claimed = result
        free = [errand.seat for errand in errands]
        if any(errand.settlement for errand in errands):
            failpoint("settled")
        if claimed:
            failpoint("claimed")
        # First of all: nothing else is as much in the way of the work.
        for job in claimed:
            seat = free.pop()
            self._careful(seat, partial(self._begin, seat, job))
        self._idle += free
        for errand, settled in zip(errands, done, strict=True):
            if errand.settlement is not None:
                self._in_hand.discard(errand.settlement.job_id)
                self._tell(errand.settlement, settled)

    def _undone(self, errands: list[Errand], error: BaseException) -> None:
        if isinstance(error, LedgerBroken):
            raise error
        if isinstance(error, LedgerError) or len(errands) == 1:
            for errand in errands:
                self._not_committed(errand, error)
            return
        for errand in errands:
            errand.alone = True
        self._ended += errands

    def _not_committed(self, errand: Errand, error: BaseException) -> None:
        house, settlement = self._house, errand.settlement
        self._resume_at = house.clock.monotonic() + LEDGER_PAUSE
        if settlement is None or not isinstance(error, LedgerError):
            if isinstance(error, LedgerError):
                self._log.error("the ledger takes no writes", error=error.message)
            else:
                self._log.crash("a transaction met a bug", error)
            self._leave(errand.seat, None if settlement is None else settlement.job_id)
            return
        self._log.error(
            "a settlement waits for the ledger",
            job_id=settlement.job_id,
            plugin=settlement.plugin,
            error=error.message,
        )
        errand.tries -= house.stopping.is_set()
        if errand.tries < 0:
            # The row stays `running`: the next start counts the attempt as lost.
            self._idle.append(errand.seat)
        else:
            self._refused.append(errand)

    def _tell(self, settlement: Settlement, done: Settlement | None) -> None:
        about = {"job_id": settlement.job_id, "plugin": settlement.plugin}
        if done is None:
            self._log.warning("a settlement was dropped: the attempt had ended", **about)
            return
        try:
            self._house.settled(done)
        except Exception as error:  # noqa: BLE001 - the end is durable, and the next job claimed
            self._log.crash("after a settlement", error, **about)
