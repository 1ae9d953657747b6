"""Conditions that describe one node: only this node ends what it reports."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from ductile.core.alerts.conditions import Condition
from ductile.core.alerts.outage import Outage
from ductile.core.alerts.rules import Grouping
from ductile.core.alerts.state_machine import AlertState
from ductile.store import nodes
from ductile.store.alerts.levels import Watched
from ductile.store.engines.api import Ledger
from tests.conftest import CountingEntropy, FakeClock
from tests.store.alerts.test_evaluate import Alerting, rule
from tests.store.conftest import execute
from tests.store.test_nodes import NODE

OUTAGE = Outage("ledger", "is full", datetime(2026, 2, 8, tzinfo=UTC))
FULL = Watched(disk=(1, 1000), outages=(OUTAGE,))
FREE = Watched(disk=(900, 1000))
CONDITIONS = (Condition.DISK_FREE, Condition.HEALTH)


class Nodes(Alerting):
    """Several nodes that evaluate one after the other."""

    def observe(self, node: str, watched: Watched) -> list[tuple[str, str]]:
        self.watched = replace(watched, node=node)
        return [(sent.group, str(sent.news)) for sent in self.evaluate(5.0)]


@pytest.fixture
def cluster(ledger: Ledger, clock: FakeClock, entropy: CountingEntropy) -> Nodes:
    for name in ("a", "b"):
        record = replace(NODE, name=name, boot=f"boot-{name}")
        ledger.write(lambda tx, record=record: nodes.register(tx, record, is_only_node=False))
    return Nodes(ledger, clock, entropy)


def test_healthy_node_does_not_end_what_another_one_reports(cluster: Nodes) -> None:
    cluster.watch(rule(*CONDITIONS))
    assert cluster.observe("a", FULL) == [("disk:a", "firing"), ("part:a/ledger", "firing")]
    for _ in range(4):
        assert cluster.observe("b", FREE) == []
        assert cluster.observe("a", FULL) == []
    assert cluster.observe("a", FREE) == [("disk:a", "resolved"), ("part:a/ledger", "resolved")]
    assert cluster.observe("b", FREE) == []


def test_nodes_share_the_alert_of_a_rule_without_groups(cluster: Nodes) -> None:
    cluster.watch(rule(Condition.DISK_FREE, grouping=Grouping.NONE))
    assert cluster.observe("a", FULL) == [("all", "firing")]
    assert cluster.observe("b", FULL) == []
    assert cluster.observe("a", FREE) == []
    subjects = [cause.subject for cause in cluster.alert("all").causes.items]
    assert subjects == ["disk:b"]
    assert cluster.observe("b", FREE) == [("all", "resolved")]


def test_lost_or_restarting_node_keeps_its_alert(cluster: Nodes) -> None:
    cluster.watch(rule(Condition.DISK_FREE))
    cluster.observe("a", FULL)
    cluster.ledger.write(lambda tx: nodes.stop(tx, "boot-a"))
    assert cluster.observe("b", FREE) == []
    execute(
        cluster.ledger,
        "UPDATE nodes SET seen_at = '2026-01-01T00:00:00.000000Z', stopped_at = NULL "
        "WHERE name = 'a'",
    )
    assert cluster.observe("b", FREE) == []
    assert cluster.alert("disk:a").alert.state is AlertState.FIRING


@pytest.mark.parametrize(
    "change",
    [
        "DELETE FROM nodes WHERE name = 'a'",
        "UPDATE nodes SET seen_at = '2026-01-01T00:00:00Z', stopped_at = '' WHERE name = 'a'",
    ],
    ids=["forgotten", "stopped"],
)
def test_any_node_ends_what_a_node_reported_that_is_gone(cluster: Nodes, change: str) -> None:
    cluster.watch(rule(Condition.DISK_FREE))
    cluster.observe("a", FULL)
    execute(cluster.ledger, change)
    assert cluster.observe("b", FREE) == [("disk:a", "resolved")]


def test_alert_ends_when_its_rule_no_longer_watches_the_condition(cluster: Nodes) -> None:
    cluster.watch(rule(Condition.DISK_FREE))
    cluster.observe("a", FULL)
    cluster.rules = (rule(Condition.HEALTH),)
    assert cluster.observe("b", FREE) == [("disk:a", "resolved")]
