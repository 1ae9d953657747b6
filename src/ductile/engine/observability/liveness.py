"""The liveness check of a gateway: its ledger responds, its loops tick, its dispatcher runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from ductile.engine.gateway import Gateway
from ductile.errors import LedgerError
from ductile.store.jobs.read import count_jobs

CHECK_SECONDS = 0.2
LONGEST_TICK = 60.0
"""Seconds after which a loop that has not returned from a tick counts as hanging."""
BOUNDED = ("scheduler", "retries")
"""Loops whose ticks are short. Others wait for a network or remove files, which may take long."""

Ping = Callable[[Callable[[], None]], None]
"""Calls its argument on the thread whose response proves that it is alive."""


class Liveness:
    def __init__(self, gateway: Gateway, others: Sequence[tuple[str, Ping]] = ()) -> None:
        self._gateway = gateway
        self._pings = (
            ("the ledger's writer", self._ping_ledger),
            ("the dispatcher", gateway.ask_dispatcher),
            *others,
        )
        self._waiting: dict[str, threading.Event] = {}

    def check(self, stopping: threading.Event, seconds: float) -> str | None:
        """Ping every part; returns the first problem, or None.

        A part that has not responded yet is not pinged again.
        """
        for name, ping in self._pings:
            if name not in self._waiting:
                self._waiting[name] = answered = threading.Event()
                ping(answered.set)
        give_up = self._gateway.clock.monotonic() + seconds
        for name, answered in list(self._waiting.items()):
            while not answered.wait(CHECK_SECONDS):
                if stopping.is_set() or self._gateway.clock.monotonic() > give_up:
                    return f"{name} does not respond"
            del self._waiting[name]
        return self._find_dead_thread()

    def _ping_ledger(self, answered: Callable[[], None]) -> None:
        """An error is a response too: a restart fixes neither a full disk nor a lost server."""
        try:
            self._gateway.ledger.submit(
                lambda tx: tx.one("has_ready"), lambda _result, _error: answered()
            )
        except LedgerError:
            answered()

    def _find_dead_thread(self) -> str | None:
        gateway = self._gateway
        for name, loop in gateway.loops.items():
            if not loop.is_alive():
                return f"the loop {name} has ended"
            if name in BOUNDED and loop.current_tick_seconds() > LONGEST_TICK:
                return f"the loop {name} hangs"
        ended = [thread.name for thread in gateway.threads if not thread.is_alive()]
        return f"the {ended[0]} has ended" if ended else None

    def describe(self) -> str:
        """One line for `systemctl status`."""
        gateway = self._gateway
        plugins = len(gateway.compiled.plans)
        try:
            queued, running = count_jobs(gateway.ledger)
        except LedgerError as error:
            return f"Ledger unavailable: {error.message}"
        return f"{running} running, {queued} queued, {plugins} plugins"
