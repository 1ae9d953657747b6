"""Durations and sizes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ductile.config.models.units import format_duration, format_size, parse_duration, parse_size
from tests.config.conftest import no_deadline

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
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text",
    ["", "5", "m", "-5m", "5 m", "5M", "5min", "1h 30m", "1e3s", "٣s", "9" * 70 + "s", "101000w"],
)
def test_invalid_durations_are_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="must"):
        parse_duration(text)


@no_deadline
@given(
    st.lists(st.tuples(st.integers(0, 999), st.sampled_from(sorted(UNITS))), min_size=1, max_size=5)
)
def test_compound_duration_is_the_sum_of_its_parts(parts: list[tuple[int, str]]) -> None:
    text = "".join(f"{count}{unit}" for count, unit in parts)
    assert parse_duration(text) == pytest.approx(sum(count * UNITS[unit] for count, unit in parts))


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
    assert parse_size(text) == count


@pytest.mark.parametrize("text", ["", "MB", "-1MB", "1XB", "1 M B", "9999999999T"])
def test_invalid_sizes_are_rejected(text: str) -> None:
    with pytest.raises(ValueError, match=r"must be a size|is too large"):
        parse_size(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0s"),
        (0.5, "500ms"),
        (30.0, "30s"),
        (90.0, "1m30s"),
        (300.0, "5m"),
        (5400.0, "1h30m"),
        (86_400.0, "1d"),
        (2_592_000.0, "30d"),
        (1.1, "1s100ms"),
        (0.0015, "1.5ms"),
    ],
)
def test_format_duration(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0B"), (7, "7B"), (1536, "1536B"), (65536, "64KB"), (1048576, "1MB"), (1024**3, "1GB")],
)
def test_format_size(count: int, text: str) -> None:
    assert format_size(count) == text


@no_deadline
@given(st.integers(0, 3_000_000_000_000))
def test_formatted_values_parse_to_the_same(count: int) -> None:
    assert parse_duration(format_duration(count / 1000)) == count / 1000
    assert parse_size(format_size(count)) == count


@no_deadline
@given(st.text(max_size=80))
def test_parsing_raises_only_value_errors(text: str) -> None:
    for parse in (parse_duration, parse_size):
        try:
            assert parse(text) >= 0
        except ValueError:
            pass
