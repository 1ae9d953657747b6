"""Workers: where an attempt goes from PREFETCHED to JUDGING.

A worker is a slot of the runner with the attempt that it runs and those that its slot buffers. The
methods of `Workers` are in the order of an attempt's life. Whatever may take long (copying files,
judging a large answer, replacing a dead slot) runs in a thread of its own, so that no job waits for
another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial

from ductile.engine.dispatch.attempt import Attempt, AttemptState
from ductile.engine.dispatch.attempt_judge import AttemptJudge
from ductile.engine.dispatch.context import WorkerContext
from ductile.engine.dispatch.live_attempts import LiveAttempts, Worker
from ductile.engine.dispatch.prefetch import PrefetchQueue, RecentEnds
from ductile.failpoint import failpoint
from ductile.log import logger
from ductile.model import Cancellation, Ending, Launch, Outcome, Settlement
from ductile.runner.client import BUFFER_LIMIT, SlotClient
from ductile.runner.connection import SlotLost
from ductile.runner.event_loop import EventLoop
from ductile.store.jobs.claim import ClaimedJob

CANCEL_GRACE = 5.0
TICK = 1.0
"""How often running slots are checked for being overdue, in seconds."""


class Workers:
    """Moves attempts through their states. For the dispatcher's thread, except `live`."""

    def __init__(
        self, context: WorkerContext, slots: Sequence[SlotClient], events: EventLoop
    ) -> None:
        self._context, self._events = context, events
        self._log = logger("worker")
        self.live = LiveAttempts(context.clock, [Worker(slot) for slot in slots])
        self.judge = AttemptJudge(events, self.forget)
        self._by_slot = {worker.slot: worker for worker in self.live.workers}
        self._idle = self.live.workers[::-1]
        self._prefetched = PrefetchQueue(len(self._idle), context.has_other_nodes)
        self._recent_ends = RecentEnds()
        self._check_overdue_at = 0.0
        self._freed = self._finished = 0
        """Workers that became idle and processes that ended since `take_round`."""

    @property
    def has_attempts(self) -> bool:
        """Whether there is an attempt that is not DONE."""
        return bool(self.live.attempts)

    @property
    def idle(self) -> int:
        return len(self._idle)

    @property
    def freed(self) -> int:
        """How many workers became idle since the last round."""
        return self._freed

    @property
    def has_buffered_everywhere(self) -> bool:
        """Whether every worker is busy and has a buffered attempt, where its slot can buffer."""
        if self._idle or not any(worker.buffered for worker in self.live.workers):
            return False
        return all(worker.buffered or not worker.slot.can_buffer for worker in self.live.workers)

    @property
    def _has_many_large_answers(self) -> bool:
        """Whether no job is started because large answers take the memory."""
        return self.judge.large_answers >= len(self.live.workers)

    @property
    def _may_start(self) -> bool:
        """Whether claimed jobs may start: without a lease, another node may start them too."""
        return not self._context.stopping.is_set() and self._context.lease_term() is not None

    @property
    def nap(self) -> float:
        """Seconds in which half of the workers are expected to finish a job."""
        return self._recent_ends.seconds_until(len(self.live.workers) / 2)

    def take_round(self) -> tuple[int, int]:
        """Begin a round: how many workers became idle in the last, how many jobs to prefetch."""
        waiting = len(self._prefetched) + sum(len(worker.buffered) for worker in self.live.workers)
        freed, finished, self._freed, self._finished = self._freed, self._finished, 0, 0
        recent = self._recent_ends.add(self._context.clock.monotonic(), finished)
        return freed, self._prefetched.demand(recent, waiting)

    def resize(self, slots: Sequence[SlotClient]) -> None:
        """Use these slots from now on. A worker that runs an attempt is removed after it."""
        for worker in self.live.workers:
            worker.is_leaving = worker.cold not in slots
        leaving = [worker for worker in self._idle if worker.is_leaving]
        self._idle = [worker for worker in self._idle if not worker.is_leaving]
        for worker in leaving:
            self._remove(worker)
        for slot in slots:
            if slot not in self._by_slot:
                worker = self._by_slot[slot] = Worker(slot)
                self.live.workers = [*self.live.workers, worker]
                self._idle.append(worker)
                self._freed += 1
        self._prefetched.resize(len(slots))

    def _remove(self, worker: Worker) -> None:
        """Remove a worker that runs nothing, and end the process of its slot."""
        self.live.workers = [one for one in self.live.workers if one is not worker]
        del self._by_slot[worker.cold]
        self._events.unwatch(worker.cold)
        worker.cold.set_connection(None)

    # PREFETCHED

    def admit(self, claimed: ClaimedJob, log_entry: int, why: Cancellation | None = None) -> bool:
        """Add the attempt of a claimed job; `assign` gives it a worker. False after a bug.

        With `why` it is cancelled before it starts.
        """
        try:
            attempt = Attempt(self._context, claimed, log_entry)
        except Exception as error:  # noqa: BLE001 - the orphan sweep ends the job
            self._log.crash("claimed job cannot be started", error, job_id=claimed.job.id)
            self._context.started_log.release(log_entry)
            return False
        attempt.cancelled = why
        self.live.attempts.add(attempt)
        self._prefetched.add(attempt)
        return True

    def assign(self) -> None:
        """Start prefetched attempts on idle workers, then buffer the next behind busy ones."""
        while self._idle and self._prefetched and not self._has_many_large_answers:
            worker, attempt = self._idle.pop(), self._prefetched.take()
            worker.attempt = attempt
            attempt.move_to(AttemptState.STARTING)
            self._guard(worker, partial(self._start, worker, attempt))
        for depth in range(BUFFER_LIMIT):
            for worker in self.live.workers:
                if not self._prefetched:
                    return
                if len(worker.buffered) == depth:
                    self._buffer(worker)

    def withdraw(self, now: float) -> None:
        """Settle prefetched attempts that are not to start here: cancelled, expired, at a stop, or
        without a lease.

        Those in a slot's buffer are recalled first, also where another worker is idle for them.
        """
        may_start = self._may_start
        free = 0 if self._prefetched else len(self._idle)
        for worker in self.live.workers:
            over = any(self._prefetched.is_over(attempt, now) for attempt in worker.buffered)
            if worker.buffered and (not may_start or free > 0 or over or worker.is_leaving):
                worker.slot.recall()
                free -= len(worker.buffered)
        leaving = self._prefetched.withdraw(now, everything=not may_start)
        if leaving:
            with self.live.lock:
                for attempt in leaving:
                    attempt.move_to(AttemptState.JUDGING)
        why = Cancellation.NO_WORKER if may_start else Cancellation.STOP
        for attempt in leaving:
            self.judge.settle(attempt, partial(attempt.judge_unstarted, why))

    # BUFFERED

    def _buffer(self, worker: Worker) -> None:
        """Send the first prefetched attempt to a busy slot, to start after those before it."""
        if not worker.is_running or not worker.slot.can_buffer or self._has_many_large_answers:
            return
        now, running, attempt = (
            self._context.clock.monotonic(),
            worker.attempt,
            self._prefetched.first,
        )
        if worker.is_leaving or running is None or not self._prefetched.may_follow(running, now):
            return
        over = not self._may_start or self._prefetched.is_over(attempt, now)
        if attempt.needs_idle_worker or over or self._warm_key(attempt) != worker.warm_key:
            return
        try:
            prepared = attempt.prepare()
        except Exception as error:  # noqa: BLE001 - the attempt's failure
            self._settle_first(partial(attempt.judge_bug, error))
            return
        if isinstance(prepared, Settlement):
            self._settle_first(lambda: prepared)
            return
        failpoint("prepared")
        if worker.slot.buffer(prepared, attempt.log_entry):
            attempt.move_to(AttemptState.BUFFERED)
            worker.buffered.append(self._prefetched.take())
        else:
            attempt.needs_idle_worker = True

    def _settle_first(self, decide: Callable[[], Settlement]) -> None:
        """Settle the first prefetched attempt, which needs no process."""
        attempt = self._prefetched.take()
        attempt.move_to(AttemptState.JUDGING)
        self.judge.settle(attempt, decide)

    def _unbuffer(self, worker: Worker, still: int = 0) -> None:
        """Make all but the first `still` buffered attempts PREFETCHED again: none has started."""
        while len(worker.buffered) > still:
            attempt = worker.buffered.pop()
            attempt.move_to(AttemptState.PREFETCHED)
            self._prefetched.put_back(attempt)

    # STARTING

    def _start(self, worker: Worker, attempt: Attempt) -> None:
        if not attempt.copies_files:
            self._launch(worker, attempt, attempt.prepare())
            return

        def launch(prepared: Future[Launch | Settlement]) -> None:
            self._guard(worker, lambda: self._launch(worker, attempt, prepared.result()))

        self._events.run_in_thread(attempt.prepare, launch)

    def _launch(self, worker: Worker, attempt: Attempt, prepared: Launch | Settlement) -> None:
        if isinstance(prepared, Settlement):
            self._release(worker)
            self.judge.settle(attempt, lambda: prepared)
            return
        failpoint("prepared")
        warm_slots, warm = self._context.warm_slots, prepared.warm
        if warm is None or warm_slots is None or not warm_slots.is_ready(warm):
            self._launch_on(worker, attempt, prepared, None)
        elif (slot := warm_slots.take(warm)) is not None:
            self._launch_on(worker, attempt, prepared, slot)
        else:
            self._events.run_in_thread(
                partial(warm_slots.fork, warm),
                lambda forked: self._guard(
                    worker, lambda: self._launch_on(worker, attempt, prepared, forked.result())
                ),
            )

    def _warm_key(self, attempt: Attempt) -> str | None:
        """The key of the warm slots that can start this attempt; None if it is started cold."""
        warm_slots, warm = self._context.warm_slots, attempt.warm
        is_warm = warm is not None and warm_slots is not None and warm_slots.is_ready(warm)
        return warm.key if warm is not None and is_warm else None

    def _launch_on(
        self, worker: Worker, attempt: Attempt, launch: Launch, warm_slot: SlotClient | None
    ) -> None:
        """Start the launch on this warm slot, or on the worker's own one."""
        # In one step: a cancellation finds the attempt without a process or with one.
        with self.live.lock:
            if warm_slot is not None and launch.warm is not None:
                worker.slot, worker.warm_key = warm_slot, launch.warm.key
                self._by_slot[warm_slot] = worker
            withdrawn = not self._may_start or attempt.cancelled is not None
            if not withdrawn:
                attempt.move_to(AttemptState.RUNNING)
                outcome = worker.slot.start(launch, attempt.log_entry)
        if withdrawn:
            self._release(worker)
            self.judge.settle(attempt, partial(attempt.judge_unstarted, Cancellation.STOP))
        else:
            self._continue(worker, outcome)

    # RUNNING

    def wait(self, now: float, seconds: float) -> None:
        """Wait for answers of slots and handle them; see `EventLoop.wait`."""
        for slot in self._events.wait(seconds):
            worker = self._by_slot.get(slot)
            if worker is not None and worker.is_running:
                self._guard(worker, partial(self._read, worker))
            else:
                # An idle slot has died: the next launch finds that out.
                self._events.unwatch(slot)
        if now >= self._check_overdue_at:
            self._check_overdue_at = now + TICK
            for worker in self.live.workers:
                if worker.is_running and worker.slot.deadline < now:
                    self._guard(worker, partial(self._read, worker))

    def _read(self, worker: Worker) -> None:
        """Handle all that the slot has sent: outcomes, and buffered attempts that it gives back."""
        while True:
            outcome = worker.slot.read_outcome()
            self._unbuffer(worker, still=worker.slot.buffered)
            self._continue(worker, outcome)
            if not worker.is_running or not worker.slot.has_answer:
                return

    def _continue(self, worker: Worker, outcome: Outcome | None) -> None:
        if outcome is None:
            self._events.watch(worker.slot)
            return
        failpoint("ran")
        self._finished += 1
        self.judge.judge(self._release(worker), outcome)

    def _release(self, worker: Worker) -> Attempt:
        """Take the attempt, now JUDGING, from its worker, which runs the first buffered one or is
        idle from now on."""
        with self.live.lock:
            attempt, following = worker.attempt, None
            assert attempt is not None
            attempt.move_to(AttemptState.JUDGING)
            if worker.buffered:
                worker.slot.advance()
                following = worker.buffered.popleft()
                following.move_to(AttemptState.RUNNING)
                if following.cancelled is not None:
                    worker.slot.cancel(CANCEL_GRACE)
            worker.attempt = following
            warm_slot = worker.leave_warm_slot() if following is None else None
        if warm_slot is not None:
            self._return_warm_slot(warm_slot)
        if following is None and worker.is_leaving:
            self._remove(worker)
        elif following is None:
            self._idle.append(worker)
            self._freed += 1
        return attempt

    def _return_warm_slot(self, slot: SlotClient) -> None:
        self._events.unwatch(slot)
        del self._by_slot[slot]
        assert self._context.warm_slots is not None
        self._context.warm_slots.give_back(slot)

    # SLOT_LOST, and bugs

    def _guard(self, worker: Worker, step: Callable[[], None]) -> None:
        """Run a step of the worker's attempt. A lost slot is replaced; a bug fails the attempt."""
        try:
            step()
        except SlotLost as lost:
            self._replace_slot(worker, lost)
        except Exception as error:  # noqa: BLE001 - the attempt's failure
            self._fail(worker, error)

    def _replace_slot(self, worker: Worker, lost: SlotLost) -> None:
        attempt = worker.attempt
        assert attempt is not None
        attempt.move_to(AttemptState.SLOT_LOST)
        launch = worker.slot.launch if worker.warm_key else None
        self._events.unwatch(worker.slot)
        self._unbuffer(worker)

        def continue_with(replaced: Future[Outcome | None]) -> None:
            outcome = replaced.result()
            if outcome is not None and outcome.ending is Ending.NOT_SPAWNED and worker.warm_key:
                self._start_cold(worker, attempt, launch)
                return
            if outcome is None:
                attempt.move_to(AttemptState.RUNNING)
            self._continue(worker, outcome)

        self._events.run_in_thread(
            partial(worker.slot.replace, lost),
            lambda replaced: self._guard(worker, partial(continue_with, replaced)),
        )

    def _start_cold(self, worker: Worker, attempt: Attempt, launch: Launch | None) -> None:
        """Start a launch that no warm slot has taken: its zygote is broken, or files changed."""
        assert launch is not None
        with self.live.lock:
            warm_slot = worker.leave_warm_slot()
            if warm_slot is not None:
                self._return_warm_slot(warm_slot)
            attempt.move_to(AttemptState.RUNNING)
            outcome = worker.slot.start(launch, attempt.log_entry)
            if attempt.cancelled is not None:
                worker.slot.cancel(CANCEL_GRACE)
        self._continue(worker, outcome)

    def _fail(self, worker: Worker, error: Exception) -> None:
        """Fail the worker's attempt, and those in its slot's buffer: they may have started."""
        worker.slot.disconnect()
        buffered = list(worker.buffered)
        worker.buffered.clear()
        with self.live.lock:
            for attempt in buffered:
                attempt.move_to(AttemptState.JUDGING)
        failed = buffered if worker.attempt is None else [self._release(worker), *buffered]
        for attempt in failed:
            self.judge.settle(attempt, partial(attempt.judge_bug, error))

    # DONE

    def forget(self, attempt: Attempt) -> None:
        """The attempt is DONE: the ledger has its settlement, or will never have it."""
        attempt.move_to(AttemptState.DONE)
        self.live.attempts.discard(attempt)
        self._context.started_log.release(attempt.log_entry)
