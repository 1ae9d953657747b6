"""How many jobs are claimed ahead."""

from __future__ import annotations

import pytest

from ductile.engine.dispatch.prefetch import PrefetchQueue


@pytest.mark.parametrize(
    ("seats", "ran", "waiting", "wanted"),
    [
        (8, 0, 0, 0),
        (8, 1, 0, 0),
        (8, 2, 0, 8),
        (8, 2, 7, 1),
        (8, 2, 9, 0),
        (8, 7, 4, 24),
        (8, 100, 4, 44),
        (2, 2, 0, 8),
        (2, 4, 0, 12),
        (1, 2, 0, 0),
    ],
)
def test_as_many_are_wanted_as_will_end_in_four_turns_like_the_last_and_can_be_lined_up(
    seats: int, ran: int, waiting: int, wanted: int
) -> None:
    assert PrefetchQueue(seats).demand(ran, waiting) == wanted
