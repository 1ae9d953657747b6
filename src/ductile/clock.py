"""Time, ids and random numbers, injected so that tests control them.

`Clock` and `Entropy` are the only source: nothing else in the package asks the system for the time,
an id or a random number.
"""

from __future__ import annotations

import hashlib
import random
import threading
import time
from collections import deque
from datetime import UTC, datetime, timedelta
from typing import Protocol

import orjson
import uuid_utils


class Clock(Protocol):
    """The source of time."""

    def now(self) -> datetime:
        """Wall time, aware, in UTC."""

    def monotonic(self) -> float:
        """Seconds that never decrease; used for deadlines."""

    def wait(self, wake: threading.Event, timeout: float) -> bool:
        """Block until `wake` is set or `timeout` seconds have passed; return whether it was set."""


class Entropy(Protocol):
    """The source of ids and random numbers."""

    def uuid(self) -> str:
        """A fresh UUID; later ones sort after earlier ones."""

    def uniform(self) -> float:
        """A float in [0, 1)."""


class SystemClock:
    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    def wait(self, wake: threading.Event, timeout: float) -> bool:
        return wake.wait(timeout)


class SystemEntropy:
    def uuid(self) -> str:
        return str(uuid_utils.uuid7())

    def uniform(self) -> float:
        return random.random()


class JumpDetector:
    """By how much the wall clock was set, seen by its distance to the monotonic clock."""

    SMALLEST = 1.0
    """Seconds; smaller steps are corrections of a running clock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._offset = self._read_offset(clock.now())

    def detect(self, now: datetime) -> float:
        """Seconds by which the clock was set forward since the last call; negative if back, 0.0 if
        it was not set. A suspended machine sets its clock forward.
        """
        offset = self._read_offset(now)
        jump = offset - self._offset
        self._offset = offset
        return jump if abs(jump) >= self.SMALLEST else 0.0

    def _read_offset(self, now: datetime) -> float:
        return now.timestamp() - self._clock.monotonic()


class TrustedTime:
    """Wall time that follows a clock set forward only after `DELAY`, and one set back at once.

    For decisions that cannot be undone: a clock that is ahead for a moment does not cause them.
    """

    DELAY = 24 * 3600.0

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._jumps = JumpDetector(clock)
        self._ahead: deque[tuple[float, float]] = deque()
        """When the clock was set forward (monotonic), and by how many seconds."""

    @property
    def ahead(self) -> float:
        """Seconds by which the clock is ahead of the trusted time."""
        return sum(seconds for _, seconds in self._ahead)

    def read(self, now: datetime) -> datetime:
        """The trusted time when the wall clock shows `now`."""
        jump, monotonic = self._jumps.detect(now), self._clock.monotonic()
        if jump > 0:
            self._ahead.append((monotonic, jump))
        while jump < 0 and self._ahead:
            since, seconds = self._ahead.pop()
            jump += seconds
            if jump > 0:
                self._ahead.append((since, jump))
        while self._ahead and self._ahead[0][0] <= monotonic - self.DELAY:
            self._ahead.popleft()
        return now - timedelta(seconds=self.ahead)


class Ids:
    """Ids derived from one id: a transaction that is run again creates the same ones."""

    def __init__(self, base: str) -> None:
        self._base = base
        self._count = 0
        # Version, variant and time are those of the base, so that ids sort by time.
        high = int(base.replace("-", ""), 16) >> _LOW_BITS
        text = f"{high >> 2:016x}"
        self._prefix, self._variant = (
            f"{text[:8]}-{text[8:12]}-{text[12:]}-",
            (high & 3) << _LOW_BITS,
        )

    def next(self) -> str:
        self._count += 1
        seed = f"{self._base}:{self._count}".encode()
        low = int.from_bytes(hashlib.blake2b(seed, digest_size=8).digest(), "big")
        text = f"{self._variant | (low & _LOW_MASK):016x}"
        return f"{self._prefix}{text[:4]}-{text[4:]}"


_LOW_BITS = 62
_LOW_MASK = (1 << _LOW_BITS) - 1


def to_text(moment: datetime) -> str:
    """The ledger's form of a time: UTC and fixed width, so that text order is time order."""
    global _last_conversion
    known, text = _last_conversion
    # The same time is converted several times in a row: in a claim, in a settlement.
    if known is not moment:
        text = _to_text(moment)
        _last_conversion = moment, text
    return text


def _to_text(moment: datetime) -> str:
    if moment.tzinfo is not UTC:
        moment = moment.astimezone(UTC)
    # Many times faster than `isoformat`; it omits a fraction of zero.
    text = orjson.dumps(moment, option=orjson.OPT_UTC_Z)
    return text[1:-1].decode() if moment.microsecond else f"{text[1:20].decode()}.000000Z"


_last_conversion: tuple[datetime | None, str] = None, ""


def from_text(text: str) -> datetime:
    """Read any ISO 8601 form, also SQLite's `YYYY-MM-DD HH:MM:SS`; without a zone it is UTC.

    `ValueError` if it cannot be parsed.
    """
    moment = datetime.fromisoformat(text.strip())
    if moment.tzinfo is UTC:
        return moment
    if moment.tzinfo is None:
        return moment.replace(tzinfo=UTC)
    try:
        return moment.astimezone(UTC)
    except OverflowError as error:
        raise ValueError(f"{text} is beyond the calendar in UTC") from error


def moment_of(text: object) -> datetime | None:
    """As `from_text`; None if it cannot be parsed or is not text."""
    try:
        return from_text(text) if isinstance(text, str) else None
    except ValueError:
        return None
