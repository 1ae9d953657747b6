"""Which subjects a rule watches, and how it groups them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from ductile.core.alerts.causes import make_cause
from ductile.core.alerts.conditions import Condition
from ductile.core.alerts.rules import AlertRule, Grouping
from ductile.core.alerts.state_machine import AlertPolicy

NOW = datetime(2026, 3, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("pattern", "subject", "is_watched"),
    [
        ("backup", "plugin:backup", True),
        ("backup", "schedule:backup/nightly", True),
        ("backup/nightly", "schedule:backup/nightly", True),
        ("backup/hourly", "schedule:backup/nightly", False),
        ("back*", "plugin:backup", True),
        ("etl", "schedule:pipeline:etl/nightly", True),
        ("etl/nightly", "schedule:pipeline:etl/nightly", True),
        ("backup", "plugin:backup2", False),
        ("disk", "disk", True),
        ("disk", "disk:node-a", True),
        ("node-a", "disk:node-a", True),
        ("node-b", "disk:node-a", False),
        ("ledger", "part:node-a/ledger", True),
        ("node-a", "part:node-a/ledger", True),
        ("ledger", "part:ledger", True),
        ("ledger", "part:node-a/loops", False),
    ],
)
def test_only_selects_by_name(pattern: str, subject: str, is_watched: bool) -> None:
    rule = AlertRule("r", frozenset(Condition), "notify", AlertPolicy(), only=(pattern,))
    assert rule.watches(Condition.SCHEDULE_SILENT, subject) is is_watched


@pytest.mark.parametrize(
    ("grouping", "subject", "group"),
    [
        (Grouping.SUBJECT, "schedule:backup/nightly", "schedule:backup/nightly"),
        (Grouping.PLUGIN, "schedule:backup/nightly", "plugin:backup"),
        (Grouping.PLUGIN, "schedule:pipeline:etl/nightly", "pipeline:etl"),
        (Grouping.PLUGIN, "agent:a1", "agent:a1"),
        (Grouping.NONE, "agent:a1", "all"),
    ],
)
def test_groups(grouping: Grouping, subject: str, group: str) -> None:
    rule = AlertRule("r", frozenset(Condition), "notify", AlertPolicy(), grouping=grouping)
    assert rule.group_of(make_cause(Condition.SCHEDULE_SILENT, subject, NOW)) == group
