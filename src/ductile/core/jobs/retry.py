"""Whether and when a failed attempt is retried."""

from __future__ import annotations

from datetime import datetime, timedelta

from ductile._fast_dataclass import dataclass

EX_CONFIG = 78
LONGEST_DELAY = 30 * 24 * 3600.0


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    max_attempts: int = 4
    backoff_base: float = 30.0


DEFAULT_RETRY = RetryPolicy()


def backoff(failures: int, base: float, chance: float) -> float:
    """Seconds to wait after the `failures`-th failure in a row; `chance` is in [0, 1)."""
    return min(base * 2.0 ** min(failures - 1, 60) + chance * base, LONGEST_DELAY)


def count_exempt_attempts(max_attempts: int, policy: RetryPolicy) -> int:
    """The number of attempts that do not count: a stop of the gateway, a lack of resources and an
    operator's retry raise `attempt` and `max_attempts` alike."""
    return max(0, max_attempts - policy.max_attempts)


def failures_so_far(attempt: int, max_attempts: int, policy: RetryPolicy) -> int:
    """The number of failures that count up to this attempt; the backoff grows with it."""
    return max(1, attempt - count_exempt_attempts(max_attempts, policy))


def next_retry_at(
    attempt: int, max_attempts: int, policy: RetryPolicy, now: datetime, chance: float
) -> datetime | None:
    """When the attempt after this failed one is due; None if the attempts are used up."""
    if attempt >= max_attempts:
        return None
    failures = failures_so_far(attempt, max_attempts, policy)
    return now + timedelta(seconds=backoff(failures, policy.backoff_base, chance))
