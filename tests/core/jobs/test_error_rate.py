"""When failures after a change count as more than before."""

from __future__ import annotations

import pytest

from ductile.core.jobs.error_rate import Outcomes, has_risen

SEEN = [
    # before, after, whether it has risen at once, and whether at the end of the time
    ((100, 0), (1, 1), True, True),
    ((3, 0), (1, 1), False, True),
    ((3, 0), (2, 2), True, True),
    ((10, 2), (1, 1), False, True),
    ((10, 2), (4, 4), True, True),
    ((10, 2), (10, 2), False, False),
    ((10, 2), (10, 3), False, True),
    ((10, 2), (100, 19), False, False),
    ((10, 10), (50, 50), False, False),
    ((0, 0), (4, 4), False, False),
    ((0, 0), (5, 5), True, True),
    ((0, 0), (100, 40), False, False),
    ((100, 0), (100, 0), False, False),
    ((100_000, 100), (50_000, 100), False, True),
    ((100_000, 100), (50_000, 1000), True, True),
]


@pytest.mark.parametrize(("before", "after", "at_once", "at_the_end"), SEEN)
def test_rate_has_risen(
    before: tuple[int, int], after: tuple[int, int], at_once: bool, at_the_end: bool
) -> None:
    was, is_now = Outcomes(*before), Outcomes(*after)
    assert has_risen(was, is_now, is_over=False) is at_once
    assert has_risen(was, is_now, is_over=True) is at_the_end
