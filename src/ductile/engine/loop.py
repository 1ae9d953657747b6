"""A loop is a `tick(now)` that says how long it may sleep; this is the thread around it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime

from ductile.clock import Clock
from ductile.engine.observability.db_outage import Outage
from ductile.errors import LedgerBroken, LedgerError
from ductile.log import logger

Tick = Callable[[datetime], float]
"""Does what is due, and returns the seconds until the next tick."""
AFTER_AN_ERROR = 1.0


class Loop:
    def __init__(
        self,
        name: str,
        tick: Tick,
        clock: Clock,
        broken: Callable[[LedgerBroken], None],
    ) -> None:
        self._name, self._tick, self._clock, self._broken = name, tick, clock, broken
        self._wake = threading.Event()
        self._stopping = False
        self._ticking_since: float | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def ticking_for(self) -> float:
        """How long the tick that has not come back yet has taken; 0 between two."""
        since = self._ticking_since
        return 0.0 if since is None else self._clock.monotonic() - since

    def wake(self) -> None:
        """Tick again as soon as possible."""
        self._wake.set()

    def stop(self) -> None:
        """Tick no more; the tick that runs now goes on until `join` has seen its end."""
        self._stopping = True
        self._wake.set()

    def join(self, seconds: float | None = None) -> None:
        if self._thread.is_alive():
            self._thread.join(seconds)

    def _run(self) -> None:
        log = logger(self._name)
        outage = Outage(log)
        while not self._stopping:
            self._wake.clear()
            self._ticking_since = self._clock.monotonic()
            try:
                wait = self._tick(self._clock.now())
                outage.over()
            except LedgerBroken as error:
                self._broken(error)
                return
            except LedgerError as error:
                outage.met(error)
                wait = AFTER_AN_ERROR
            except Exception as error:  # noqa: BLE001 - one bad tick must not end the loop
                log.crash("a tick failed", error)
                wait = AFTER_AN_ERROR
            self._ticking_since = None
            self._clock.wait(self._wake, wait)


class Loops(dict[str, Loop]):
    """The loops of a gateway by name; a name that is not running is ignored by `wake`."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock

    def start(self, name: str, tick: Tick, broken: Callable[[LedgerBroken], None]) -> None:
        self[name] = Loop(name, tick, self._clock, broken)
        self[name].start()

    def wake(self, name: str) -> None:
        if name in self:
            self[name].wake()

    def stop(self) -> None:
        for loop in self.values():
            loop.stop()
