"""The registry of nodes: times by the database's clock, one row per name."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ductile.store import boots, nodes
from ductile.store.engines.api import Ledger
from ductile.store.nodes import NodeRecord
from tests.conftest import FakeClock
from tests.store.conftest import execute

NODE = NodeRecord(
    name="a",
    boot="boot-1",
    version="1",
    config_hash="hash",
    labels={"gpu": "true"},
    plugins={"echo", "work"},
    pipelines=["main"],
    workers=4,
)


@pytest.fixture
def registered(ledger: Ledger, clock: FakeClock) -> Ledger:
    """A ledger on which node `a` is registered."""
    now = clock.now()
    ledger.write(lambda tx: boots.begin_boot(tx, id="boot-1", pid=1, version="1", now=now))
    register(ledger, NODE)
    return ledger


def register(ledger: Ledger, node: NodeRecord, *, is_only_node: bool = False) -> None:
    ledger.write(lambda tx: nodes.register(tx, node, is_only_node=is_only_node))


def listed(ledger: Ledger) -> list[dict[str, Any]]:
    return ledger.read(nodes.list_nodes)


def test_registered_node_is_listed_with_what_it_runs(registered: Ledger) -> None:
    (row,) = listed(registered)
    assert (row["name"], row["boot"], row["workers"], row["jobs"]) == ("a", "boot-1", 4, 0)
    assert (row["labels"], row["pipelines"]) == ({"gpu": "true"}, ["main"])
    assert row["plugins"] == ["echo", "work"]
    assert row["seen_at"] >= row["started_at"]
    # By the database's clock: the clock of the test shows another year.
    assert row["seconds_since_seen"] < 60
    assert (row["stopped_at"], row["drained_at"]) == (None, None)


def test_renewal_moves_the_time_last_seen(registered: Ledger) -> None:
    execute(registered, "UPDATE nodes SET seen_at = '2026-01-01T00:00:00.000000Z'")
    assert listed(registered)[0]["seconds_since_seen"] > 86_400
    assert registered.write(lambda tx: nodes.renew(tx, "boot-1"))
    assert listed(registered)[0]["seconds_since_seen"] < 60


def test_renewal_of_an_unknown_boot_is_reported(registered: Ledger) -> None:
    assert not registered.write(lambda tx: nodes.renew(tx, "boot-2"))


def test_new_boot_replaces_the_row_and_keeps_the_drain(registered: Ledger) -> None:
    registered.write(lambda tx: nodes.stop(tx, "boot-1"))
    assert registered.read(lambda tx: nodes.find_boot(tx, "a")) is None
    execute(registered, "UPDATE nodes SET drained_at = '2026-01-01T00:00:00.000000Z'")
    register(registered, replace(NODE, boot="boot-2", plugins={"echo"}))
    (row,) = listed(registered)
    assert (row["boot"], row["plugins"], row["stopped_at"]) == ("boot-2", ["echo"], None)
    assert row["drained_at"] == "2026-01-01T00:00:00.000000Z"
    assert registered.read(lambda tx: nodes.find_boot(tx, "a")) == "boot-2"


def test_new_configuration_keeps_the_start_time(registered: Ledger) -> None:
    execute(registered, "UPDATE nodes SET started_at = '2026-01-01T00:00:00.000000Z'")
    register(registered, replace(NODE, config_hash="other"))
    (row,) = listed(registered)
    assert (row["config_hash"], row["started_at"]) == ("other", "2026-01-01T00:00:00.000000Z")


def test_node_unseen_for_a_week_is_deleted_by_the_next_registration(registered: Ledger) -> None:
    register(registered, replace(NODE, name="b", boot="boot-2"))
    execute(registered, "UPDATE nodes SET seen_at = '2026-01-01T00:00:00.000000Z' WHERE name = 'b'")
    register(registered, NODE)
    assert [row["name"] for row in listed(registered)] == ["a"]


def test_drain_is_reported_by_the_renewal(registered: Ledger) -> None:
    def renewed() -> bool:
        renewal = registered.write(lambda tx: nodes.renew(tx, "boot-1"))
        assert renewal is not None
        return renewal.is_drained

    assert not renewed()
    registered.write(lambda tx: nodes.set_drained(tx, "a", drained=True))
    assert renewed()
    registered.write(lambda tx: nodes.set_drained(tx, "a", drained=False))
    assert not renewed()


def test_only_node_deletes_the_rows_of_others(registered: Ledger) -> None:
    register(registered, replace(NODE, name="b", boot="boot-2"), is_only_node=True)
    assert [row["name"] for row in listed(registered)] == ["b"]
