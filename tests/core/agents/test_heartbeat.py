"""What is a heartbeat, what is none, and when an agent has been silent for too long."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from ductile.core.agents.heartbeat import (
    LONGEST_ID,
    Beat,
    InvalidHeartbeat,
    is_overdue,
    parse_heartbeat,
)

NOW = datetime(2026, 2, 22, 12, 0, tzinfo=UTC)
NOW_TEXT = "2026-02-22T12:00:00.000000Z"
GOOD = {"type": "heartbeat", "agent_id": "agent-42", "cluster_id": "west", "timestamp": NOW_TEXT}


def test_a_whole_one() -> None:
    assert parse_heartbeat(GOOD, NOW) == Beat("agent-42", "west", NOW_TEXT)


@pytest.mark.parametrize(
    ("said", "stored"),
    [
        ("2026-02-22T10:00:00Z", "2026-02-22T10:00:00.000000Z"),
        ("2026-02-22T12:00:00+02:00", "2026-02-22T10:00:00.000000Z"),
        ("2026-02-22 10:00:00", "2026-02-22T10:00:00.000000Z"),
        ("2026-02-22T10:00:00.5", "2026-02-22T10:00:00.500000Z"),
    ],
)
def test_a_timestamp_in_any_form_of_iso_8601(said: str, stored: str) -> None:
    beat = parse_heartbeat({**GOOD, "timestamp": said}, NOW)
    assert isinstance(beat, Beat)
    assert beat.last_seen_at == stored


@pytest.mark.parametrize(
    "said",
    ["yesterday", "", None, 1, True, [], {}, "0001-01-01T00:00:00+14:00", "9" * 5000, "2026-13-01"],
)
def test_a_timestamp_that_cannot_be_read_is_now(said: Any) -> None:
    beat = parse_heartbeat({**GOOD, "timestamp": said}, NOW)
    assert isinstance(beat, Beat)
    assert beat.last_seen_at == NOW_TEXT


def test_a_timestamp_may_be_absent() -> None:
    without = {key: value for key, value in GOOD.items() if key != "timestamp"}
    assert parse_heartbeat(without, NOW) == Beat("agent-42", "west", NOW_TEXT)


@pytest.mark.parametrize("document", [None, [], "heartbeat", 1, {}, {**GOOD, "type": "beat"}])
def test_what_is_of_another_type(document: Any) -> None:
    assert parse_heartbeat(document, NOW) is InvalidHeartbeat.TYPE


def test_the_type_is_looked_at_before_the_ids() -> None:
    assert parse_heartbeat({"type": "status_update", "agent_id": ""}, NOW) is InvalidHeartbeat.TYPE


@pytest.mark.parametrize("field", ["agent_id", "cluster_id"])
@pytest.mark.parametrize("value", ["", "  ", None, 7, ["a"], {}, True])
def test_an_id_that_says_nothing_is_missing(field: str, value: Any) -> None:
    assert parse_heartbeat({**GOOD, field: value}, NOW) is InvalidHeartbeat.MISSING


@pytest.mark.parametrize("value", ["a\nb", "a\x00", "\x1b[2J", "a\u2028b", "x" * (LONGEST_ID + 1)])
def test_an_id_that_cannot_name_anything(value: str) -> None:
    assert parse_heartbeat({**GOOD, "agent_id": value}, NOW) is InvalidHeartbeat.AGENT_ID
    assert parse_heartbeat({**GOOD, "cluster_id": value}, NOW) is InvalidHeartbeat.CLUSTER_ID


@pytest.mark.parametrize("value", ["a:b", "a,b", "team/a", 'a"b', "é😀", "x" * LONGEST_ID])
def test_any_other_id_is_good(value: str) -> None:
    assert isinstance(parse_heartbeat({**GOOD, "agent_id": value}, NOW), Beat)


@pytest.mark.parametrize(
    ("seconds", "overdue"), [(0, False), (90, False), (90.001, True), (-90, False), (-91, True)]
)
def test_silence_counts_from_the_threshold_on(seconds: float, overdue: bool) -> None:
    assert is_overdue(NOW - timedelta(seconds=seconds), NOW, 90) is overdue
