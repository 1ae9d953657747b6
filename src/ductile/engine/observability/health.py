"""The health of a gateway: whether a job can be accepted and settled now, and what prevents it.

A probe in the ledger shows whether the next job would succeed. What real work has met since
shows the rest: settlements that the ledger refuses, and loops whose last tick failed.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import datetime
from functools import partial

from ductile._fast_dataclass import dataclass
from ductile.clock import to_text
from ductile.core.alerts.outage import Outage
from ductile.engine.observability.outages import OutageHistory
from ductile.engine.observability.parts import (
    CRITICAL_LOOPS,
    DISPATCHER,
    FILE,
    LEDGER,
    MONITOR,
    UNDELIVERED,
)
from ductile.engine.services import Services
from ductile.errors import DuctileError, LedgerError
from ductile.log import logger
from ductile.store.job_probe import JobProbe, RolledBack, Stage, commit_nothing

PROBE_TIMEOUT = 2.0
PROBE_MAX_AGE = 1.0
"""Seconds for which callers share the result of one probe."""
TICK_SECONDS = 5.0
IDLE_PROBE_SECONDS = 30.0
"""Between two probes that no caller asked for; each one writes to the disk."""
LOG_AGAIN_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class FailingPart:
    part: str
    """One of `PARTS`, or the name of a loop."""
    error: str
    code: str = "internal"
    critical: bool = True
    """Whether jobs cannot be accepted or settled because of it."""


class _Probe:
    """A probe on the threads of the ledger; `done` is set when its `failure` is known."""

    def __init__(self, gateway: Services) -> None:
        self._ledger, self._id = gateway.ledger, gateway.entropy.uuid()
        self.started_at, self.now = gateway.clock.monotonic(), gateway.clock.now()
        policy, tx_config = gateway.claim_policy(), gateway.compiled.tx_config
        self._job_probe = JobProbe(self._id, policy, tx_config, self.now)
        self.failure: FailingPart | None = None
        self.done = threading.Event()

    def start(self) -> None:
        try:
            self._ledger.submit(self._job_probe, self._on_answer)
        except LedgerError as error:
            self._end(LEDGER, error)

    def _on_answer(self, _result: None, error: BaseException | None) -> None:
        if not isinstance(error, RolledBack):
            self._end(self._job_probe.stage, error)
            return
        work = partial(commit_nothing, id=self._id, now=to_text(self.now))
        try:
            self._ledger.submit(work, lambda _result, error: self._end(Stage.COMMIT, error))
        except LedgerError as refusal:
            self._end(LEDGER, refusal)

    def _end(self, part: str, error: BaseException | None) -> None:
        if isinstance(error, DuctileError):
            self.failure = FailingPart(part, error.message, error.code)
        elif error is not None:
            self.failure = FailingPart(part, f"internal error: {type(error).__name__}: {error}")
        self.done.set()


class HealthMonitor:
    """Checks on demand, and in a loop that calls `tick`. Thread-safe."""

    def __init__(self, gateway: Services) -> None:
        self._gateway, self._log = gateway, logger("health")
        self._lock = threading.Lock()
        self._probe: _Probe | None = None
        self._logged: dict[str, str] = {}
        self._logged_at = 0.0
        self.last_failing: tuple[FailingPart, ...] = ()
        """The result of the last check."""
        self.outages = OutageHistory()
        """Those of critical parts."""

    def check(self, *, probe_max_age: float = PROBE_MAX_AGE) -> tuple[FailingPart, ...]:
        """The parts that fail now, critical ones first; waits up to `PROBE_TIMEOUT`."""
        gateway = self._gateway
        if gateway.failure is not None:
            return (FailingPart(LEDGER, gateway.failure.message, gateway.failure.code),)
        found = {part.part: part for part in (*self._observe(), *self._probe_ledger(probe_max_age))}
        self.last_failing = tuple(sorted(found.values(), key=lambda part: not part.critical))
        self.outages.update(self._list_outages(), gateway.clock.now())
        return self.last_failing

    def _list_outages(self) -> Iterator[Outage]:
        """The outages of the parts that fail, and the last ones of those that know their own."""
        gateway, own = self._gateway, dict[str, Outage]()
        loops = [loop for name, loop in tuple(gateway.loops.items()) if name in CRITICAL_LOOPS]
        for source in (gateway.dispatcher, *loops):
            if source is not None and source.outage is not None:
                own[source.outage.part] = source.outage
        yield from own.values()
        for part in self.last_failing:
            if part.critical and (part.part not in own or own[part.part].error != part.error):
                yield Outage(part.part, part.error, self._find_start(part))

    def _find_start(self, part: FailingPart) -> datetime:
        """When the part was first known to fail."""
        probe = self._probe
        if probe is not None and part.part in (LEDGER, *Stage):
            return probe.now
        return self._gateway.clock.now()

    def _probe_ledger(self, max_age: float) -> Iterator[FailingPart]:
        now = self._gateway.clock.monotonic()
        with self._lock:
            probe = self._probe
            if probe is None or (probe.done.is_set() and now - probe.started_at > max_age):
                probe = self._probe = _Probe(self._gateway)
                probe.start()
        if not probe.done.wait(max(0.0, PROBE_TIMEOUT - (now - probe.started_at))):
            yield FailingPart(LEDGER, "the ledger does not answer", LedgerError.code)
        elif probe.failure is not None:
            yield probe.failure

    def _observe(self) -> Iterator[FailingPart]:
        """What real work has met, without waiting for anything."""
        gateway = self._gateway
        try:
            gateway.ledger.check_files()
        except LedgerError as error:
            yield FailingPart(FILE, error.message, error.code)
        # A copy: at the start this runs while further loops are added.
        for name, loop in tuple(gateway.loops.items()):
            why = "the loop has ended" if loop.has_ended() else loop.failure
            if why is not None and not gateway.stopping.is_set():
                yield FailingPart(name, why, critical=name in CRITICAL_LOOPS)
        if gateway.alerts is not None and gateway.alerts.undelivered:
            yield FailingPart(UNDELIVERED, str(gateway.alerts.undelivered[0]), critical=False)
        if (refusal := gateway.counters.dead_man_error) is not None:
            yield FailingPart(MONITOR, f"a request to it failed: {refusal}", critical=False)
        dispatcher = gateway.dispatcher
        if dispatcher is None:
            return
        if not dispatcher.is_alive and not gateway.stopping.is_set():
            yield FailingPart(DISPATCHER, "the dispatcher has ended")
        if unsettled := dispatcher.unsettled_jobs():
            why = next(iter(unsettled.values()))
            waiting = f"{len(unsettled)} ended jobs wait to be settled: {why}"
            yield FailingPart(Stage.SETTLE, waiting, LedgerError.code)

    def tick(self, _now: datetime) -> float:
        """Log each change, and while a part fails, log it again once per minute."""
        is_failing = bool(self._logged)
        failing = self.check(probe_max_age=PROBE_MAX_AGE if is_failing else IDLE_PROBE_SECONDS)
        now = self._gateway.clock.monotonic()
        found = {part.part: part.error for part in failing}
        if found != self._logged or now - self._logged_at > LOG_AGAIN_SECONDS:
            self._logged_at = now
            for part in failing:
                log = self._log.error if part.critical else self._log.warning
                log("part of the gateway fails", part=part.part, error=part.error)
            for name in self._logged.keys() - found.keys():
                self._log.info("part of the gateway is healthy again", part=name)
        self._logged = found
        return TICK_SECONDS
