"""Whether attempts fail more often after a change than before it."""

from __future__ import annotations

from math import comb

from ductile._fast_dataclass import dataclass

CHANCE = 0.05
"""Below this probability, failures are not taken for chance."""
MOST_ATTEMPTS = 1000
"""Larger numbers are scaled down to it: the exact sum would be slow, and they are clear anyway."""


@dataclass(frozen=True, slots=True)
class Outcomes:
    """The ended attempts of a time."""

    attempts: int = 0
    failed: int = 0

    @property
    def rate(self) -> float | None:
        return self.failed / self.attempts if self.attempts else None


def has_risen(before: Outcomes, after: Outcomes, *, is_over: bool) -> bool:
    """Whether the error rate after a change is higher than the one before.

    While the time after the change is not over, only if that is unlikely to be chance: with few
    attempts, one failure proves little where failures are usual, and enough where there were none.
    Once both times have the same length, the plain rates are compared, unless there were no
    attempts before.
    """
    if not after.failed or (before.attempts and _is_at_most(after, before)):
        return False
    if is_over and before.attempts:
        return True
    # One success and one failure more than seen, so that few attempts before prove little.
    usual = (before.failed + 1) / (before.attempts + 2)
    return _at_least(after, usual) < CHANCE


def _is_at_most(one: Outcomes, other: Outcomes) -> bool:
    return one.failed * other.attempts <= other.failed * one.attempts


def _at_least(seen: Outcomes, rate: float) -> float:
    """The probability of so many failures, or more, at this rate."""
    attempts, failed = seen.attempts, seen.failed
    if attempts > MOST_ATTEMPTS:
        failed, attempts = -(-failed * MOST_ATTEMPTS // attempts), MOST_ATTEMPTS
    fewer = sum(comb(attempts, n) * rate**n * (1 - rate) ** (attempts - n) for n in range(failed))
    return max(0.0, 1.0 - fewer)
