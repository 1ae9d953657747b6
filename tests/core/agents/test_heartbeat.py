"""Heartbeats: validation, and when an agent is overdue."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from ductile.core.agents.heartbeat import (
    LONGEST_ID,
    Heartbeat,
    InvalidHeartbeat,
    is_overdue,
    parse_heartbeat,
)

NOW = datetime(2026, 2, 22, 12, 0, tzinfo=UTC)
NOW_TEXT = "2026-02-22T12:00:00.000000Z"
GOOD = {"type": "heartbeat", "agent_id": "agent-42", "cluster_id": "west", "timestamp": NOW_TEXT}


def test_complete_heartbeat() -> None:
    assert parse_heartbeat(GOOD, NOW) == Heartbeat("agent-42", "west", NOW_TEXT)


@pytest.mark.parametrize(
    ("sent", "stored"),
    [
        ("2026-02-22T10:00:00Z", "2026-02-22T10:00:00.000000Z"),
        ("2026-02-22T12:00:00+02:00", "2026-02-22T10:00:00.000000Z"),
        ("2026-02-22 10:00:00", "2026-02-22T10:00:00.000000Z"),
        ("2026-02-22T10:00:00.5", "2026-02-22T10:00:00.500000Z"),
    ],
)
def test_timestamp_in_any_iso_8601_format(sent: str, stored: str) -> None:
    heartbeat = parse_heartbeat({**GOOD, "timestamp": sent}, NOW)
    assert isinstance(heartbeat, Heartbeat)
    assert heartbeat.last_seen_at == stored


@pytest.mark.parametrize(
    "sent",
    ["yesterday", "", None, 1, True, [], {}, "0001-01-01T00:00:00+14:00", "9" * 5000, "2026-13-01"],
)
def test_invalid_timestamp_is_now(sent: Any) -> None:
    heartbeat = parse_heartbeat({**GOOD, "timestamp": sent}, NOW)
    assert isinstance(heartbeat, Heartbeat)
    assert heartbeat.last_seen_at == NOW_TEXT


def test_timestamp_is_optional() -> None:
    without = {key: value for key, value in GOOD.items() if key != "timestamp"}
    assert parse_heartbeat(without, NOW) == Heartbeat("agent-42", "west", NOW_TEXT)


@pytest.mark.parametrize("document", [None, [], "beat", 1, {}, {**GOOD, "type": "beat"}])
def test_other_type_is_refused(document: Any) -> None:
    assert parse_heartbeat(document, NOW) is InvalidHeartbeat.TYPE


def test_type_is_checked_before_the_ids() -> None:
    assert parse_heartbeat({"type": "status_update", "agent_id": ""}, NOW) is InvalidHeartbeat.TYPE


@pytest.mark.parametrize("field", ["agent_id", "cluster_id"])
@pytest.mark.parametrize("value", ["", "  ", None, 7, ["a"], {}, True])
def test_blank_id_is_missing(field: str, value: Any) -> None:
    assert parse_heartbeat({**GOOD, field: value}, NOW) is InvalidHeartbeat.MISSING


@pytest.mark.parametrize("value", ["a\nb", "a\x00", "\x1b[2J", "a\u2028b", "x" * (LONGEST_ID + 1)])
def test_invalid_id(value: str) -> None:
    assert parse_heartbeat({**GOOD, "agent_id": value}, NOW) is InvalidHeartbeat.AGENT_ID
    assert parse_heartbeat({**GOOD, "cluster_id": value}, NOW) is InvalidHeartbeat.CLUSTER_ID


@pytest.mark.parametrize("value", ["a:b", "a,b", "team/a", 'a"b', "é😀", "x" * LONGEST_ID])
def test_valid_id(value: str) -> None:
    assert isinstance(parse_heartbeat({**GOOD, "agent_id": value}, NOW), Heartbeat)


@pytest.mark.parametrize(
    ("seconds", "overdue"), [(0, False), (90, False), (90.001, True), (-90, False), (-91, True)]
)
def test_overdue_after_the_threshold(seconds: float, overdue: bool) -> None:
    assert is_overdue(NOW - timedelta(seconds=seconds), NOW, 90) is overdue
