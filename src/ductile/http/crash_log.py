"""Logging of bugs that a request reveals: a client that repeats it must not fill the log."""

from __future__ import annotations

import traceback

from ductile.clock import Clock, SystemClock
from ductile.engine.ingress.rejection_limiter import RejectionLimiter
from ductile.log import logger

_clock: Clock = SystemClock()
_limiter = RejectionLimiter()


def log_crash(message: str, error: BaseException) -> None:
    """Log an error with its trace, a few times per minute for each place that raises it."""
    suppressed = _limiter.admit(_place_of(error), _clock.now())
    if suppressed is not None:
        logger("http").crash(message, error, suppressed=suppressed or None)


def log_loop_error(message: str, place: str = "event loop") -> None:
    """Log an error of the event loop that has no exception, a few times per minute and place."""
    suppressed = _limiter.admit(place, _clock.now())
    if suppressed is not None:
        logger("http").error(message, suppressed=suppressed or None)


def _place_of(error: BaseException) -> str:
    """Return the type of the error and the line that raised it; the text may vary endlessly."""
    frames = traceback.extract_tb(error.__traceback__, limit=-1)
    place = f"{frames[0].filename}:{frames[0].lineno}" if frames else ""
    return f"{type(error).__qualname__} {place}"
