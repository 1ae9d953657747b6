"""One clock over a whole piece of work."""

from __future__ import annotations

import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn


class Alarm:
    """Raises `TimeoutError` in what runs inside after `seconds`.

    A socket's own timeout starts anew with every byte that drips in; this one does not. What
    blocks in C without minding signals, as name resolution does, is not interrupted.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = max(seconds, 0.001)
        self.rang = False
        """Libraries make errors of their own out of a `TimeoutError`."""

    def __enter__(self) -> Alarm:
        signal.signal(signal.SIGALRM, self._ring)
        signal.setitimer(signal.ITIMER_REAL, self._seconds)
        return self

    def __exit__(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)

    def _ring(self, *_: object) -> NoReturn:
        self.rang = True
        raise TimeoutError
