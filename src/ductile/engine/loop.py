"""The thread that calls `tick(now)` again and again, as late as each tick allows."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from ductile.clock import Clock
from ductile.core.alerts.outage import Outage
from ductile.engine.observability.db_outage import OutageLog
from ductile.errors import LedgerBroken, LedgerError
from ductile.log import logger

Tick = Callable[[datetime], float]
"""Does the due work, and returns the seconds until the next tick."""
ERROR_RETRY_SECONDS = 1.0


class Loop:
    def __init__(
        self,
        name: str,
        tick: Tick,
        clock: Clock,
        on_broken: Callable[[LedgerBroken], None],
    ) -> None:
        self._name, self._tick, self._clock, self._on_broken = name, tick, clock, on_broken
        self._wake = threading.Event()
        self._stopping = False
        self._tick_started: float | None = None
        self.outage: Outage | None = None
        """The last one: since when ticks fail, or when they did."""
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def failure(self) -> str | None:
        """Why the last tick failed; None if it succeeded."""
        outage = self.outage
        return None if outage is None or outage.ended_at is not None else outage.error

    def start(self) -> None:
        self._thread.start()

    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def has_ended(self) -> bool:
        """Whether it was started and runs no more."""
        return self._thread.ident is not None and not self._thread.is_alive()

    def current_tick_seconds(self) -> float:
        """How long the current tick has been running; 0 between ticks."""
        since = self._tick_started
        return 0.0 if since is None else self._clock.monotonic() - since

    def wake(self) -> None:
        """Tick again as soon as possible."""
        self._wake.set()

    def stop(self) -> None:
        """Start no further tick; `join` waits for the current one."""
        self._stopping = True
        self._wake.set()

    def join(self, seconds: float | None = None) -> None:
        if self._thread.is_alive():
            self._thread.join(seconds)

    def _run(self) -> None:
        log = logger(self._name)
        outage = OutageLog(log)
        while not self._stopping:
            self._wake.clear()
            self._tick_started = self._clock.monotonic()
            try:
                wait = self._tick(self._clock.now())
                self._record(None)
                outage.report_end()
            except LedgerBroken as error:
                self._on_broken(error)
                return
            except LedgerError as error:
                self._record(error.message)
                outage.report(error)
                wait = ERROR_RETRY_SECONDS
            except Exception as error:  # noqa: BLE001 - one bad tick must not end the loop
                self._record(f"internal error: {type(error).__name__}: {error}")
                log.crash("tick raised an error", error)
                wait = ERROR_RETRY_SECONDS
            self._tick_started = None
            self._clock.wait(self._wake, wait)

    def _record(self, failure: str | None) -> None:
        """Begin, continue or end the outage."""
        outage = self.outage
        if outage is None or outage.ended_at is not None:
            if failure is not None:
                self.outage = Outage(self._name, failure, self._clock.now())
        elif failure is None:
            self.outage = replace(outage, ended_at=self._clock.now())
        elif failure != outage.error:
            self.outage = replace(outage, error=failure)


class Loops(dict[str, Loop]):
    """The loops of a gateway by name; `wake` ignores a name that is not running."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock

    def start(self, name: str, tick: Tick, on_broken: Callable[[LedgerBroken], None]) -> None:
        self[name] = Loop(name, tick, self._clock, on_broken)
        self[name].start()

    def wake(self, name: str) -> None:
        if name in self:
            self[name].wake()

    def stop(self) -> None:
        for loop in self.values():
            loop.stop()
