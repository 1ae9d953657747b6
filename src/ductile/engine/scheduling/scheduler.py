"""The scheduler: a heap of due times, and one transaction per schedule that fires."""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta

from ductile.clock import Clock, Entropy
from ductile.core.schedules.decide import Schedule, next_due, next_look
from ductile.core.schedules.history import rule_text
from ductile.engine.config.compiled import INIT_PENDING, CompiledConfig
from ductile.errors import LedgerError
from ductile.log import logger
from ductile.store import schedules
from ductile.store.engines.api import Ledger
from ductile.store.schedules import FirePolicy, FireResult

SET_BACK_SECONDS = 1.0
"""By how much the wall clock falls behind the monotonic clock when it was set back."""
SUSPENDED_AFTER = timedelta(minutes=1)
"""A tick that is later means that the machine was suspended or the clock was set forward."""
POLL_WAIT = timedelta(seconds=5)
"""Longest wait before an occurrence is tried again that polls of other producers hold back."""
ERROR_RETRY = timedelta(minutes=1)
"""Delay before a schedule that raised an error is tried again."""

Key = tuple[str, str]


class Scheduler:
    """Fires due schedules. One loop calls `tick`; `adopt` may be called from any thread."""

    def __init__(
        self,
        ledger: Ledger,
        clock: Clock,
        entropy: Entropy,
        *,
        unready: Callable[[], Mapping[str, str]],
    ) -> None:
        self._ledger, self._clock, self._entropy = ledger, clock, entropy
        self._unready = unready
        self.boot = clock.now()
        """The time of this start, corrected if the clock is set back."""
        self._began = clock.monotonic()
        self._resumed_at: datetime | None = None
        """When the last suspension ended."""
        self._expected: datetime | None = None
        """When the next tick is expected."""
        self._adopting = threading.Lock()
        """Held while due times are computed, which reads the ledger."""
        self._guard = threading.Lock()
        self._compiled: CompiledConfig | None = None
        self._entries: dict[Key, Schedule] = {}
        self._heap: list[tuple[datetime, Key]] = []
        self._waiting_for_init: list[tuple[datetime, Key]] = []
        """Due, but waiting for the `init` of their plugin."""
        self._seen = (clock.now(), clock.monotonic())
        self._stale = False
        self._log = logger("scheduler")

    def adopt(self, compiled: CompiledConfig) -> None:
        """Use the schedules of a configuration; unchanged ones keep their anchors."""
        with self._adopting:
            configured = {(entry.plugin, entry.id) for entry in compiled.schedules}
            self._ledger.write(lambda tx: schedules.withdraw_entries(tx, configured))
            self._install(compiled)

    def _install(self, compiled: CompiledConfig) -> None:
        entries = {(entry.plugin, entry.id): entry for entry in compiled.schedules}
        now = self._clock.now()
        heap: list[tuple[datetime, Key]] = []
        for key, schedule in entries.items():
            try:
                due = self._ensure(key, schedule, now)
            except LedgerError:
                raise
            except Exception as error:  # noqa: BLE001 - affects only this schedule
                due = self._postpone(schedule, error, now)
            if due is not None:
                heap.append((due, key))
        heapq.heapify(heap)
        with self._guard:
            self._compiled, self._entries, self._heap = compiled, entries, heap
            self._waiting_for_init = []

    def _ensure(self, key: Key, schedule: Schedule, now: datetime) -> datetime | None:
        """When the schedule is due; a new or changed one is written to the ledger."""
        known = self._entries.get(key)
        if known is not None and rule_text(known) == rule_text(schedule):
            found = self._ledger.read(lambda tx: schedules.load_anchors(tx, schedule, self.boot))
            return None if found is None else next_due(schedule, found, now)
        anchors = self._ledger.write(
            lambda tx: schedules.ensure_entry(tx, schedule, self.boot, now)
        )
        return next_due(schedule, anchors, now)

    def _postpone(self, schedule: Schedule, error: Exception, now: datetime) -> datetime:
        """Log the error; returns when to try again."""
        self._log.crash(
            "schedule raised an error", error, plugin=schedule.plugin, schedule=schedule.id
        )
        return now + ERROR_RETRY

    def release_waiting(self) -> None:
        """An `init` has ended: schedules that waited for one are due."""
        with self._guard:
            for item in self._waiting_for_init:
                heapq.heappush(self._heap, item)
            self._waiting_for_init = []

    def refresh(self) -> None:
        """Recompute every due time at the next tick: an operator has changed something."""
        self._stale = True

    def tick(self, now: datetime) -> float:
        """Fire the due schedules; returns the seconds until the next, at most the tick interval."""
        wait = 0.0
        try:
            wait = self._tick(now)
            return wait
        finally:
            self._expected = self._clock.now() + timedelta(seconds=wait)

    def _tick(self, now: datetime) -> float:
        if self._expected is not None and now > self._expected + SUSPENDED_AFTER:
            self._resumed_at = now
        if self._was_set_back(now):
            self._log.warning("the clock was set back; recomputing all schedules")
            self._stale = True
            if self.boot > now:
                self.boot = now - timedelta(seconds=self._clock.monotonic() - self._began)
        if self._stale:
            self._recompute()
        while True:
            with self._guard:
                compiled = self._compiled
                if compiled is None or not self._heap or self._heap[0][0] > now:
                    break
                due, key = heapq.heappop(self._heap)
                schedule = self._entries.get(key)
                if self._unready().get(key[0]) == INIT_PENDING:
                    self._waiting_for_init.append((due, key))
                    continue
            if schedule is not None:
                self._fire_and_push(compiled, schedule, key, due, now)
        return self._seconds_until_due(now)

    def _recompute(self) -> None:
        # Waits for a concurrent `adopt`, whose result counts.
        with self._adopting:
            self._stale = False
            try:
                if self._compiled is not None:
                    self._install(self._compiled)
            except BaseException:
                self._stale = True
                raise

    def _fire_and_push(
        self, compiled: CompiledConfig, schedule: Schedule, key: Key, due: datetime, now: datetime
    ) -> None:
        try:
            fired = self._fire(compiled, schedule, now)
            upcoming = None if fired is None else _next_look(schedule, fired, now)
        except LedgerError:
            # The occurrence is still owed.
            self._push(due, key, schedule)
            raise
        except Exception as error:  # noqa: BLE001 - affects only this schedule
            self._push(self._postpone(schedule, error, now), key, schedule)
            return
        if fired is not None:
            self._log_fired(schedule, fired)
        if upcoming is not None:
            self._push(upcoming, key, schedule)

    def _log_fired(self, schedule: Schedule, fired: FireResult) -> None:
        if fired.job_ids:
            self._log.debug(
                "fired", plugin=schedule.plugin, schedule=schedule.id, jobs=len(fired.job_ids)
            )
        for slot, reason in fired.passed:
            self._log.debug(
                "not fired",
                plugin=schedule.plugin,
                schedule=schedule.id,
                slot=slot.isoformat(),
                reason=reason.value,
            )

    def _push(self, due: datetime, key: Key, schedule: Schedule) -> None:
        with self._guard:
            if self._entries.get(key) is schedule:
                heapq.heappush(self._heap, (due, key))

    def _fire(
        self, compiled: CompiledConfig, schedule: Schedule, now: datetime
    ) -> FireResult | None:
        plugin = schedule.plugin
        policy = FirePolicy(
            max_outstanding=compiled.plugin_settings(plugin).max_outstanding_polls,
            healthy=schedule.pipeline is not None
            or (plugin in compiled.plans and plugin not in self._unready()),
        )
        tx_config, base_id = compiled.tx_config, self._entropy.uuid()
        return self._ledger.write(
            lambda tx: schedules.fire_due(
                tx,
                schedule,
                policy,
                tx_config,
                boot=self.boot,
                awake=self._resumed_at,
                now=now,
                base_id=base_id,
            )
        )

    def _was_set_back(self, now: datetime) -> bool:
        monotonic = self._clock.monotonic()
        wall, before = self._seen
        self._seen = (now, monotonic)
        return (now - wall).total_seconds() < (monotonic - before) - SET_BACK_SECONDS

    def _seconds_until_due(self, now: datetime) -> float:
        with self._guard:
            if self._compiled is None:
                return 1.0
            longest = self._compiled.settings.service.tick_interval
            if not self._heap:
                return longest
            return min(max((self._heap[0][0] - now).total_seconds(), 0.0), longest)


def _next_look(schedule: Schedule, fired: FireResult, now: datetime) -> datetime | None:
    upcoming = next_look(schedule, fired.anchors, now)
    if upcoming is None or not fired.waits_for_polls:
        return upcoming
    return min(upcoming, now + POLL_WAIT)
