"""Where attempts run: a job that is admitted waits for a seat, has one, and comes out settled.

A slot that is busy is told what comes next where that is known already, and goes on without us;
what it has not begun is recalled when another seat is free for it, or nobody wants it any more.
Whatever may take its time (copying files, judging a large answer, replacing a dead slot) is done
aside, by a thread of its own, so that no job waits for another's.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from ductile.engine.dispatch.attempt import Attempt, AttemptContext
from ductile.engine.dispatch.callbacks import CallbackQueue
from ductile.engine.dispatch.prefetch import PrefetchQueue, is_over
from ductile.engine.dispatch.started_log import StartedLog
from ductile.engine.dispatch.worker import Slot, SlotWatch, Worker
from ductile.failpoint import failpoint
from ductile.log import logger
from ductile.model import Cancellation, Job, Launch, Outcome, Settlement
from ductile.runner.client import LINE, Broken
from ductile.runner.started_flags import NOWHERE
from ductile.store.jobs.claim import Claimed

CANCEL_GRACE = 5.0
TICK = 1.0
"""How often a slot that runs is asked whether it is late."""
LARGE_ANSWER = 256 * 1024


class House(AttemptContext, Protocol):
    stopping: threading.Event
    started_log: StartedLog


class Workers:
    """All but `cancel`, `busy` and `in_hand` is for the dispatcher's thread."""

    def __init__(self, house: House, slots: Sequence[Slot], steps: CallbackQueue) -> None:
        self._house, self._steps = house, steps
        self._log = logger("worker")
        self._seats = [Worker(slot) for slot in slots]
        self._idle = self._seats[::-1]
        self._ahead = PrefetchQueue(len(self._seats))
        self._guard = threading.Lock()
        self._running: dict[Worker, Attempt] = {}
        self._judging = 0
        """Large answers that are to be judged aside."""
        self._bench = threading.Lock()
        """For one of them at a time: what an answer holds takes many times its own room."""
        self._look_at = 0.0
        self.lookout = SlotWatch()
        self.in_hand: dict[tuple[str, int], int] = {}
        """The ids and attempts of jobs from their admission until `forget`, and their places with
        the started_log."""
        self.ended: list[Settlement] = []
        """What is to be settled; for the dispatcher to take."""
        self._freed = self._ran = 0
        """Workers that have become idle, and processes that have ended, since the last turn."""

    @property
    def busy(self) -> int:
        """How many processes run now."""
        return len(self._running)

    @property
    def idle(self) -> int:
        return len(self._idle)

    @property
    def _clogged(self) -> bool:
        """Whether more large answers are at hand than we care to keep in memory."""
        return self._judging >= len(self._seats)

    @property
    def waiting(self) -> int:
        """How many are admitted and have not begun, as far as we know."""
        return len(self._ahead) + sum(len(seat.next) for seat in self._seats)

    @property
    def freed(self) -> int:
        """How many have become idle since the last turn."""
        return self._freed

    def take_turn(self) -> tuple[int, int]:
        """Of the time since the last turn: how many have become idle, and how many jobs to have
        ahead of the seats."""
        freed, ran, self._freed, self._ran = self._freed, self._ran, 0, 0
        return freed, self._ahead.wanted(ran, self.waiting)

    @property
    def provided(self) -> bool:
        """Whether each has a job, and one to go on with where it can have any."""
        if self._idle or not any(seat.next for seat in self._seats):
            return False
        return all(seat.next or not seat.slot.has_room for seat in self._seats)

    def admit(self, claimed: Claimed, place: int) -> bool:
        """Take a job in hand. It has the next seat that is free, once `fill` is called."""
        try:
            attempt = Attempt(self._house, claimed)
        except Exception as error:  # noqa: BLE001 - then it is a stray
            self._log.crash("a job cannot be begun", error, job_id=claimed.job.id)
            self._house.started_log.leave(place)
            return False
        self.in_hand[attempt.job.id, attempt.job.attempt] = place
        self._ahead.add(attempt)
        return True

    def forget(self, job: Job) -> None:
        self._house.started_log.leave(self.in_hand.pop((job.id, job.attempt), NOWHERE))

    def _place(self, attempt: Attempt) -> int:
        return self.in_hand[attempt.job.id, attempt.job.attempt]

    def fill(self) -> None:
        """Begin what has a seat, and line up what will have one."""
        self._fill_idle()
        for length in range(LINE):
            for seat in self._seats:
                if not self._ahead:
                    return
                if len(seat.next) == length:
                    self._line_up(seat)

    def listen(self, now: float, seconds: float) -> None:
        """Until a slot has something to say, or somebody wakes us; -1 waits for ever."""
        for seat in self.lookout.wait(seconds):
            if seat.running:
                self._careful(seat, partial(self._look, seat))
            else:
                # Its process has died: the next launch will find that out.
                self.lookout.forget(seat)
        if now >= self._look_at:
            self._look_at = now + TICK
            for seat in self._seats:
                if seat.running and seat.slot.due < now:
                    self._careful(seat, partial(self._look, seat))

    def cancel(self, why: Cancellation, grace: float, job_id: str | None) -> bool:
        """End what runs now or is about to (only `job_id`, where given); whether there was any."""
        with self._guard:
            found = self._ahead.cancel(why, job_id)
            for seat in self._seats:
                at_hand = seat.next if seat.attempt is None else (seat.attempt, *seat.next)
                for attempt in at_hand:
                    if job_id in (None, attempt.job.id):
                        attempt.cancelled = attempt.cancelled or why
                        found = True
                        if attempt is self._running.get(seat):
                            # Inside the guard: the slot cannot have gone on to the next job.
                            seat.slot.cancel(grace)
        return found

    def withdraw(self, now: float) -> None:
        """Give back what is not to begin here: cancelled, too long without a seat, or at a stop."""
        stopping = self._house.stopping.is_set()
        free = 0 if self._ahead else len(self._idle)
        for seat in self._seats:
            over = any(is_over(attempt, now) for attempt in seat.next)
            if seat.next and (stopping or free > 0 or over):
                seat.slot.recall()
                free -= len(seat.next)
        why = Cancellation.STOP if stopping else Cancellation.NO_SEAT
        for attempt in self._ahead.withdraw(now, everything=stopping):
            self._end(attempt, partial(attempt.withdrawn, why))

    # A seat

    def _careful(self, seat: Worker, step: Callable[[], None]) -> None:
        """Whatever goes wrong in there is the failure of the attempt that has the seat."""
        try:
            step()
        except Broken as broken:
            seat.running = False
            self.lookout.forget(seat)
            self._come_back(seat)

            def mended(outcome: Outcome | None) -> None:
                self._careful(seat, partial(self._started, seat, outcome))

            self._steps.aside(partial(seat.slot.mend, broken), mended, partial(self._fail, seat))
        except Exception as error:  # noqa: BLE001
            self._fail(seat, error)

    def _fail(self, seat: Worker, error: Exception) -> None:
        seat.slot.abandon()
        with self._guard:
            lined_up = list(seat.next)
            seat.next.clear()
        # What is lined up may have begun by now: it counts as well.
        for attempt in (self._leave(seat), *lined_up):
            if attempt is not None:
                self._end(attempt, partial(attempt.failed, error))

    def _fill_idle(self) -> None:
        while self._idle and self._ahead and not self._clogged:
            seat = self._idle.pop()
            with self._guard:
                attempt = seat.attempt = self._ahead.take()
            self._careful(seat, partial(self._begin, seat, attempt))

    def _begin(self, seat: Worker, attempt: Attempt) -> None:
        if not attempt.needs_files:
            self._launch(seat, attempt.prepare())
            return

        def provided(ready: Launch | Settlement) -> None:
            self._careful(seat, partial(self._launch, seat, ready))

        self._steps.aside(attempt.prepare, provided, partial(self._fail, seat))

    def _launch(self, seat: Worker, ready: Launch | Settlement) -> None:
        attempt = seat.attempt
        assert attempt is not None
        if isinstance(ready, Settlement):
            self._leave(seat)
            self.ended.append(ready)
            return
        failpoint("prepared")
        # Together: a cancel finds it running, or not begun, and never in between.
        with self._guard:
            stopped = self._house.stopping.is_set() or attempt.cancelled is not None
            if not stopped:
                self._running[seat] = attempt
                outcome = seat.slot.begin(ready, self._place(attempt))
        if stopped:
            self._leave(seat)
            self._end(attempt, partial(attempt.withdrawn, Cancellation.STOP))
        else:
            self._started(seat, outcome)

    def _started(self, seat: Worker, outcome: Outcome | None) -> None:
        if outcome is None:
            seat.running = True
            self.lookout.watch(seat)
        else:
            self._over(seat, outcome)

    def _look(self, seat: Worker) -> None:
        while True:
            outcome = seat.slot.look()
            self._come_back(seat, seat.slot.lined_up)
            self._started(seat, outcome)
            if not seat.running or not seat.slot.heard:
                return

    def _over(self, seat: Worker, outcome: Outcome) -> None:
        failpoint("ran")
        self._ran += 1
        attempt = self._leave(seat)
        assert attempt is not None
        if len(outcome.stdout) <= LARGE_ANSWER:
            self._end(attempt, partial(attempt.judge, outcome))
            return
        self._judging += 1

        def judge() -> Settlement:
            with self._bench:
                return attempt.judge(outcome)

        def judged(settled: Callable[[], Settlement]) -> None:
            self._judging -= 1
            self._end(attempt, settled)

        self._steps.aside(
            judge,
            lambda settlement: judged(lambda: settlement),
            lambda error: judged(partial(attempt.failed, error)),
        )

    def _leave(self, seat: Worker) -> Attempt | None:
        """The attempt that had the seat, which from now on is idle or the next one's."""
        with self._guard:
            attempt, seat.attempt = seat.attempt, None
            if seat.next:
                seat.slot.go_on()
                seat.attempt = seat.next.popleft()
            seat.running = seat.attempt is not None
            if seat.attempt is None:
                self._running.pop(seat, None)
            else:
                self._running[seat] = seat.attempt
                if seat.attempt.cancelled is not None:
                    seat.slot.cancel(CANCEL_GRACE)
        if not seat.running:
            self._idle.append(seat)
            self._freed += 1
        return attempt

    def _end(self, attempt: Attempt, settled: Callable[[], Settlement]) -> None:
        """Even a bug of ours ends in a settlement: no job is left running."""
        try:
            try:
                settlement = settled()
            except Exception as error:  # noqa: BLE001 - the attempt's failure
                settlement = attempt.failed(error)
        except Exception as error:  # noqa: BLE001 - then it is a stray
            self._log.crash("an attempt cannot be ended", error)
            self.forget(attempt.job)
        else:
            self.ended.append(settlement)

    # What comes after it

    def _line_up(self, seat: Worker) -> None:
        """Tell a slot that is busy what comes next."""
        if not seat.running or not seat.slot.has_room or self._clogged:
            return
        house, attempt = self._house, self._ahead.first
        over = house.stopping.is_set() or is_over(attempt, house.clock.monotonic())
        if attempt.needs_seat or over:
            return
        try:
            ready = attempt.prepare()
        except Exception as error:  # noqa: BLE001 - the attempt's failure
            self._ahead.take()
            self._end(attempt, partial(attempt.failed, error))
            return
        if isinstance(ready, Settlement):
            self._ahead.take()
            self.ended.append(ready)
        elif seat.slot.line_up(ready, self._place(attempt)):
            with self._guard:
                seat.next.append(self._ahead.take())
        else:
            attempt.needs_seat = True

    def _come_back(self, seat: Worker, still: int = 0) -> None:
        """What was lined up, and has not begun, is for another seat; but for so many."""
        while len(seat.next) > still:
            with self._guard:
                self._ahead.put_back(seat.next.pop())
