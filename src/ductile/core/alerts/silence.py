"""Whether a schedule was missed or is silent, by the occurrences that the scheduler explained.

An occurrence is **missed** if it neither fired nor was held back on purpose. It is not missed if
the entry was paused, if it was outside its window, if its breaker was open, or if the run before
it was still going on. What was missed before the last fire has been made up for.
"""

from __future__ import annotations

from datetime import datetime

from ductile._fast_dataclass import dataclass
from ductile.core.schedules.decide import Reason

MISSED = frozenset({Reason.CATCH_UP_SKIPPED, Reason.UNHEALTHY})
"""Why an occurrence did not fire although it should have."""


@dataclass(frozen=True, slots=True)
class Occurrence:
    """A decided occurrence of an entry; `reason` is None if it fired."""

    slot: datetime
    reason: Reason | None = None

    @property
    def is_missed(self) -> bool:
        return self.reason in MISSED

    @property
    def is_expected(self) -> bool:
        """Whether a success should follow: it fired, or was missed."""
        return self.reason is None or self.is_missed


def find_missed(
    occurrences: tuple[Occurrence, ...], *, last_fire: datetime | None, paused: bool
) -> tuple[Occurrence, ...]:
    """The missed occurrences since the last fire, oldest first; none of a paused entry."""
    if paused:
        return ()
    return tuple(
        one
        for one in sorted(occurrences, key=lambda one: one.slot)
        if one.is_missed and (last_fire is None or one.slot > last_fire)
    )


def find_silence(
    occurrences: tuple[Occurrence, ...], *, last_success: datetime | None, paused: bool
) -> datetime | None:
    """Since when an entry has no success although it should; None if it is not silent.

    That is the first occurrence after the last success that fired or was missed.
    """
    if paused:
        return None
    expected = [
        one.slot
        for one in occurrences
        if one.is_expected and (last_success is None or one.slot > last_success)
    ]
    return min(expected, default=None)
