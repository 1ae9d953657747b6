"""Gateways register as nodes of their ledger, and attempts name the node that ran them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from ductile.engine.gateway import Gateway
from ductile.errors import LedgerError
from ductile.operations.cluster.nodes import report_nodes
from tests.engine.site import OK, Site
from tests.postgres import Server
from tests.waiting import until

Make = Callable[..., Site]


@pytest.fixture
def url(postgres: Server) -> str:
    return postgres.database()


@pytest.fixture
def node(url: str, another: Callable[[], Site]) -> Make:
    """Makes a node of this name on the shared ledger, with one plugin."""

    def node(name: str, plugin: str = "work", **service: Any) -> Site:
        site = another()
        site.plugin(plugin, OK)
        site.settings["service"].update(service, node=name)
        site.settings["state"] = {"url": url, "dir": str(site.state)}
        return site

    return node


def states(gateway: Gateway) -> dict[str, str]:
    return {row["name"]: row["state"] for row in report_nodes(gateway)["nodes"]}


def test_gateway_on_sqlite_is_the_only_node(site: Site) -> None:
    site.plugin("work", OK)
    with site.running() as running:
        report = report_nodes(running.gateway)
        (row,) = report["nodes"]
        assert report["node"] == row["name"] == running.gateway.node
        assert (row["state"], row["boot"]) == ("running", running.gateway.boot)
        assert "work" in row["plugins"]


def test_nodes_list_each_other_until_they_stop(node: Make) -> None:
    one, two = node("a", labels={"gpu": "true"}), node("b", "other")
    with one.running() as a:
        with two.running() as b:
            rows = {row["name"]: row for row in report_nodes(b.gateway)["nodes"]}
            assert states(b.gateway) == {"a": "running", "b": "running"}
            assert rows["a"]["labels"] == {"gpu": "true"}
            assert ("work" in rows["a"]["plugins"], "work" in rows["b"]["plugins"]) == (True, False)
            assert rows["a"]["config_hash"] != rows["b"]["config_hash"]
        assert states(a.gateway) == {"a": "running", "b": "stopped"}


def test_settings_of_one_node_do_not_change_the_configuration_hash(
    node: Make, another: Callable[[], Site]
) -> None:
    first, second = node("a", max_workers=1), node("b", max_workers=2, labels={"gpu": "true"})
    second.settings["plugin_roots"] = first.settings["plugin_roots"] = [str(first.plugins)]
    with first.opened() as a, second.opened():
        hashes = {row["config_hash"] for row in report_nodes(a.gateway)["nodes"]}
    assert len(hashes) == 1


def test_node_that_is_not_seen_is_lost(node: Make, url: str) -> None:
    with node("a").opened() as a:
        with psycopg.connect(url) as connection:
            connection.execute("UPDATE nodes SET seen_at = '2026-01-01T00:00:00.000000Z'")
            connection.execute(
                "INSERT INTO nodes SELECT 'b', 'x', version, config_hash, labels,"
                " plugins, pipelines, workers, started_at, seen_at FROM nodes"
            )
        assert states(a.gateway)["b"] == "lost"


def test_running_node_renews_its_row(node: Make, url: str) -> None:
    with node("a").running() as a:
        with psycopg.connect(url) as connection:
            connection.execute("DELETE FROM nodes")
        a.gateway.loops["nodes"].wake()
        until(lambda: states(a.gateway) == {"a": "running"})


def test_name_of_a_running_node_is_refused(node: Make) -> None:
    with node("a").opened():
        second = node("a")
        with pytest.raises(LedgerError, match=r"named a; set service\.node"), second.opened():
            pass


def test_node_starts_again_under_its_name(node: Make) -> None:
    site = node("a")
    with site.opened() as first:
        boot = first.gateway.boot
    with site.opened() as second:
        (row,) = report_nodes(second.gateway)["nodes"]
        assert row["boot"] == second.gateway.boot != boot


def test_attempt_names_the_node_that_ran_it(node: Make) -> None:
    site = node("a")
    gate = site.gate()
    site.plugin("work", gate.script() + OK)
    with site.running() as running:
        id = running.put("work")
        gate.arrived()
        assert running.job(id)["node"] == "a"
        gate.open()
        job = running.ended(id)
    assert job["node"] is None
    (attempt,) = job["attempts"]
    assert (attempt["node"], attempt["boot"]) == ("a", running.gateway.boot)
