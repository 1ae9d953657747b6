"""What other threads want done by the dispatcher's own, and what it has them do."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from ductile.engine.dispatch.wakeup import WorkSignal

T = TypeVar("T")


class CallbackQueue:
    """Posted by any thread, done in order by the one that calls `run`."""

    def __init__(self, work_signal: WorkSignal) -> None:
        self._work_signal = work_signal
        self._posted: deque[Callable[[], None]] = deque()
        self._thread = 0

    def __bool__(self) -> bool:
        return bool(self._posted)

    def post(self, step: Callable[[], None]) -> None:
        self._posted.append(step)
        if threading.get_ident() != self._thread:
            self._work_signal.knock()

    def run(self) -> None:
        self._thread = threading.get_ident()
        while self._posted:
            self._posted.popleft()()

    def aside(
        self, work: Callable[[], T], then: Callable[[T], None], failed: Callable[[Exception], None]
    ) -> None:
        """Do `work` by a thread of its own, and post what follows from what it comes to."""

        def run() -> None:
            try:
                result = work()
            except Exception as error:  # noqa: BLE001 - the caller's, who hears of it
                self.post(partial(failed, error))
            else:
                self.post(partial(then, result))

        try:
            threading.Thread(target=run, name="aside", daemon=True).start()
        except RuntimeError:
            # No thread is to be had: better that the others wait than that this one is lost.
            run()
