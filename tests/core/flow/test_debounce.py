"""The series of an event, and when its job starts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from ductile.core.flow.debounce import LONGEST_SERIES, Debounce, Series, route_target
from ductile.core.flow.keys import FlowKey, compile_key

BEGIN = datetime(2026, 2, 8, tzinfo=UTC)


def keyed(target: str = "pipeline:p") -> Debounce:
    key = compile_key("{payload.a}")
    assert isinstance(key, FlowKey)
    return Debounce(target, 10, 25, key)


@pytest.mark.parametrize(
    ("after", "due"), [(0, 10), (9, 19), (15, 25), (20, 25), (25, 25), (40, 40)]
)
def test_job_starts_after_a_quiet_time_but_not_after_max_wait(after: int, due: int) -> None:
    now = BEGIN + timedelta(seconds=after)
    assert Series("s", 10, 25).due_at(BEGIN, now) == BEGIN + timedelta(seconds=due)


def test_series_is_the_target_and_the_key() -> None:
    one = keyed().series({"a": 1}).name
    assert one == keyed().series({"a": 1, "b": 2}).name
    others = [
        keyed().series({"a": 2}).name,
        keyed().series({}).name,
        keyed("pipeline:q").series({"a": 1}).name,
        Debounce("pipeline:p", 10, 25).series({"a": 1}).name,
    ]
    assert one not in others
    assert others[1] == others[3], "no value is the same as no key"


def test_long_names_are_hashed() -> None:
    long = keyed(route_target("s" * 255, "e" * 255, "t" * 128))
    names = {long.series({"a": value}).name for value in range(3)}
    assert len(names) == 3
    assert max(map(len, names)) <= LONGEST_SERIES
