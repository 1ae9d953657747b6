"""A time limit for a block of code."""

from __future__ import annotations

import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn


class Deadline:
    """Raises `TimeoutError` in the `with` block after `seconds`.

    The timeout of a socket restarts with every received byte; this one does not. C code that
    ignores signals, such as name resolution, is not interrupted.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = max(seconds, 0.001)
        self.expired = False
        """Whether the limit was reached; libraries may raise other errors then."""

    def __enter__(self) -> Deadline:
        signal.signal(signal.SIGALRM, self._expire)
        signal.setitimer(signal.ITIMER_REAL, self._seconds)
        return self

    def __exit__(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)

    def _expire(self, *_: object) -> NoReturn:
        self.expired = True
        raise TimeoutError
