"""How many jobs are claimed ahead, and for how long ends may gather."""

from __future__ import annotations

import pytest

from ductile.runtime.ahead import Ahead


@pytest.mark.parametrize(
    ("seats", "ran", "waiting", "wanted"),
    [
        (8, 0, 0, 0),
        (8, 1, 0, 0),
        (8, 2, 0, 4),
        (8, 2, 3, 1),
        (8, 2, 9, 0),
        (8, 12, 4, 20),
        (8, 100, 4, 20),
        (2, 2, 0, 4),
        (1, 2, 0, 0),
    ],
)
def test_as_many_are_wanted_as_will_end_in_two_turns_like_the_last(
    seats: int, ran: int, waiting: int, wanted: int
) -> None:
    assert Ahead(seats).wanted(ran, waiting) == wanted


@pytest.mark.parametrize(
    ("seats", "ends", "waiting", "lasts"),
    [
        (8, 1, 0, False),
        (8, 1, 2, False),
        (8, 1, 3, True),
        (8, 11, 3, True),
        (8, 12, 20, False),
        (2, 1, 0, False),
        (2, 1, 1, True),
        (1, 1, 1, False),
    ],
)
def test_ends_gather_while_the_seats_have_work_and_until_a_turn_is_full(
    seats: int, ends: int, waiting: int, lasts: bool
) -> None:
    assert Ahead(seats).lasts(ends, waiting) is lasts
