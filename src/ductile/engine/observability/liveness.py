"""Whether a gateway truly lives: its ledger answers, its loops tick, its jobs are seen to."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from ductile.engine.gateway import Gateway
from ductile.errors import LedgerError
from ductile.store.jobs.read import count_jobs

LOOK_EVERY = 0.2
LONGEST_TICK = 60.0
"""Seconds after which a loop that has not come back from a tick hangs."""
BOUNDED = ("scheduler", "retries")
"""Loops whose ticks are short. Others wait for a network, or remove files, as long as it takes."""

Ask = Callable[[Callable[[], None]], None]
"""Has its argument called, from wherever an answer shows that somebody lives."""


class Liveness:
    def __init__(self, gateway: Gateway, others: Sequence[tuple[str, Ask]] = ()) -> None:
        self._gateway = gateway
        self._asked = (
            ("the ledger's writer", self._ask_ledger),
            ("the dispatcher", gateway.ask_dispatcher),
            *others,
        )
        self._waiting: dict[str, threading.Event] = {}

    def take(self, stopping: threading.Event, seconds: float) -> str | None:
        """Ask everybody; who has not answered in this time, or what else is wrong.

        Whoever owes an answer is not asked again until it has come.
        """
        for name, ask in self._asked:
            if name not in self._waiting:
                self._waiting[name] = answered = threading.Event()
                ask(answered.set)
        give_up = self._gateway.clock.monotonic() + seconds
        for name, answered in list(self._waiting.items()):
            while not answered.wait(LOOK_EVERY):
                if stopping.is_set() or self._gateway.clock.monotonic() > give_up:
                    return f"{name} does not answer"
            del self._waiting[name]
        return self._ailing()

    def _ask_ledger(self, answered: Callable[[], None]) -> None:
        """A refusal is an answer: a restart mends neither a full disk nor a lost server."""
        try:
            self._gateway.ledger.submit(
                lambda tx: tx.one("has_ready"), lambda _result, _error: answered()
            )
        except LedgerError:
            answered()

    def _ailing(self) -> str | None:
        gateway = self._gateway
        for name, loop in gateway.loops.items():
            if not loop.is_alive():
                return f"the loop {name} has ended"
            if name in BOUNDED and loop.ticking_for() > LONGEST_TICK:
                return f"the loop {name} hangs"
        ended = [thread.name for thread in gateway.threads if not thread.is_alive()]
        return f"the {ended[0]} has ended" if ended else None

    def status(self) -> str:
        """One line for `systemctl status`."""
        gateway = self._gateway
        plugins = len(gateway.compiled.plans)
        try:
            waiting, running = count_jobs(gateway.ledger)
        except LedgerError as error:
            return f"The ledger does not answer: {error.message}"
        return f"{running} running, {waiting} waiting, {plugins} plugins"
