"""Durations and sizes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ductile.config.quantities import duration, size
from tests.config.conftest import patient

UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("500ms", 0.5),
        ("30s", 30),
        ("5m", 300),
        ("2h", 7200),
        ("30d", 2592000),
        ("1w", 604800),
        ("1h30m", 5400),
        ("1.5h", 5400),
        ("0s", 0),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert duration(text) == seconds


@pytest.mark.parametrize(
    "text",
    ["", "5", "m", "-5m", "5 m", "5M", "5min", "1h 30m", "1e3s", "٣s", "9" * 70 + "s", "101000w"],
)
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="must"):
        duration(text)


@patient
@given(
    st.lists(st.tuples(st.integers(0, 999), st.sampled_from(sorted(UNITS))), min_size=1, max_size=5)
)
def test_a_compound_is_the_sum_of_its_parts(parts: list[tuple[int, str]]) -> None:
    text = "".join(f"{count}{unit}" for count, unit in parts)
    assert duration(text) == pytest.approx(sum(count * UNITS[unit] for count, unit in parts))


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("0", 0),
        ("512", 512),
        ("64KB", 65536),
        ("1MB", 1048576),
        ("10MiB", 10485760),
        ("1k", 1024),
        ("2 GB", 2 * 1024**3),
        ("1.5K", 1536),
        ("7B", 7),
    ],
)
def test_sizes(text: str, count: int) -> None:
    assert size(text) == count


@pytest.mark.parametrize("text", ["", "MB", "-1MB", "1XB", "1 M B", "9999999999T"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(ValueError, match="must"):
        size(text)


@patient
@given(st.text(max_size=80))
def test_nothing_else_is_raised(text: str) -> None:
    for parse in (duration, size):
        try:
            assert parse(text) >= 0
        except ValueError:
            pass
