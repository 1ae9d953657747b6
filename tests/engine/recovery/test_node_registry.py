"""Gateways register as nodes of their ledger, and attempts name the node that ran them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest

from ductile.engine.gateway import Gateway
from ductile.errors import LedgerError, Refused
from ductile.model import JobStatus
from ductile.operations.cluster import reload_all as reloads
from ductile.operations.cluster.nodes import change_drain, forget_node, report_nodes
from ductile.operations.cluster.reload_all import reload_all
from ductile.operations.jobs import cancel
from tests.engine.recovery.test_takeover import why
from tests.engine.site import OK, PYTHON, Site
from tests.engine.test_pipelines import start, wait_for_end
from tests.waiting import until

Make = Callable[..., Site]


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
                " plugins, pipelines, workers, workspaces, started_at, seen_at FROM nodes"
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
        with pytest.raises(LedgerError, match="named a; give this one"), second.opened():
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


WRITES = f"""{PYTHON}
file = json.load(sys.stdin)["workspace_dir"] + "/file"
print("x", file=open(file, "a"))
print(json.dumps({{"status": "ok", "result": str(len(open(file).readlines()))}}))
"""
"""Adds a line to a file and reports their number."""


def use_workspaces(site: Site, shared: Path | None) -> None:
    """A pipeline of two steps."""
    site.plugin("work", WRITES)
    steps = [{"id": "one", "uses": "work"}, {"id": "two", "uses": "work"}]
    pipeline = {"name": "p", "on": "go", "workspace": True, "steps": steps}
    site.settings["pipelines"] = [pipeline]
    if shared is not None:
        site.settings["state"]["workspaces"] = str(shared)


def run_pipelines(first: Site, second: Site) -> list[dict[str, Any]]:
    """The jobs of the second steps of some runs on two nodes."""
    with first.running() as a, second.running() as b:
        started = [start(running) for running in (a, b) for _ in range(8)]
        ends = [wait_for_end(a, one.instance_id)["jobs"] for one in started]
        return [a.job(job["job_id"]) for jobs in ends for job in jobs if job["step"] == "two"]


def test_next_step_finds_the_files_in_a_shared_directory(node: Make, tmp_path: Path) -> None:
    first, second = node("a"), node("b")
    for site in (first, second):
        use_workspaces(site, tmp_path / "shared")
    steps = run_pipelines(first, second)
    assert [job["result"]["result"] for job in steps] == ["2"] * 16


def test_step_without_the_files_of_another_node_fails(node: Make) -> None:
    first, second = node("a"), node("b")
    for site in (first, second):
        use_workspaces(site, None)
    for job in run_pipelines(first, second):
        if job["status"] == "failed":
            assert "are on another node (state.workspaces)" in job["last_error"]
        else:
            assert job["result"]["result"] == "2", "it ran with an empty workspace"


def test_directory_that_is_not_shared_is_refused(node: Make, tmp_path: Path) -> None:
    first, second = node("a"), node("b")
    use_workspaces(first, tmp_path / "one")
    use_workspaces(second, tmp_path / "two")
    refused = pytest.raises(LedgerError, match="is not the directory that node a uses")
    with first.opened():
        with refused, second.opened():
            pass
        second.settings["state"]["workspaces"] = str(tmp_path / "one")
        with second.opened():
            pass


def test_config_check_reports_that_workspaces_must_be_shared(node: Make, tmp_path: Path) -> None:
    site = node("a")
    use_workspaces(site, None)
    assert "set state.workspaces" in str(site.load().warnings)
    use_workspaces(site, tmp_path)
    assert "set state.workspaces" not in str(site.load().warnings)


def test_drained_node_finishes_its_jobs_and_claims_no_more(node: Make) -> None:
    site = node("a")
    gate = site.gate()
    site.plugin("work", gate.script() + OK)
    with site.running() as running:
        first = running.put("work")
        gate.arrived()
        drained = change_drain(running.gateway, "a", drained=True, dry=False)
        assert (drained["state"], drained["jobs"]) == ("draining", 1)
        second = running.put("work")
        gate.open()
        assert running.ended(first)["status"] == "succeeded"
        until(lambda: states(running.gateway) == {"a": "drained"})
        assert running.job(second)["status"] == "queued"
        assert why(running, second) == "every node that can run plugin work is drained"
    with site.running() as again:
        assert again.job(second)["status"] == "queued"
        change_drain(again.gateway, "a", drained=False, dry=False)
        gate.arrived()
        gate.open()
        assert again.ended(second)["status"] == "succeeded"


def test_drain_reaches_another_node(node: Make) -> None:
    with node("a").running() as a, node("b", "other").running() as b:
        change_drain(a.gateway, "b", drained=True, dry=False)
        until(lambda: b.gateway.is_drained)
        assert a.run("work")["status"] == "succeeded"
        change_drain(a.gateway, "b", drained=False, dry=False)
        assert b.run("other")["status"] == "succeeded"


def test_only_a_node_that_has_ended_can_be_forgotten(node: Make) -> None:
    with node("a").running() as a:
        with node("b").opened(), pytest.raises(Refused):
            forget_node(a.gateway, "b", dry=False)
        forget_node(a.gateway, "b", dry=False)
        assert states(a.gateway) == {"a": "running"}


def test_plugin_runs_on_nodes_with_its_labels(node: Make) -> None:
    plain, fast = node("a"), node("b", labels={"gpu": "true"})
    for site in (plain, fast):
        site.plugin("work", OK, nodes={"gpu": "true"})
    with plain.running() as a:
        id = a.put("work")
        assert why(a, id) == ("no living node has the labels that plugin work requires: gpu=true")
        with fast.running() as b:
            assert b.ended(id)["attempts"][-1]["node"] == "b"
            assert [b.run("work")["attempts"][-1]["node"] for _ in range(4)] == ["b"] * 4
        assert why(a, a.put("work")) == "no living node has plugin work: b is stopped"


def test_running_node_is_unhealthy_after_a_contract_of_a_newer_version(
    node: Make, url: str
) -> None:
    with node("a").running() as running:
        health = running.gateway.health
        assert health is not None
        assert health.check() == ()
        with psycopg.connect(url) as connection:
            connection.execute("INSERT INTO schema_migrations VALUES (9999, 'contract_x', 'x')")
        running.gateway.loops.wake("schema")
        (part,) = until(lambda: health.check() or None) or ()
        assert (part.part, part.critical) == ("schema", True)
        assert "newer version of ductile; upgrade, and start this node again" in part.error
        assert running.run("work")["status"] == "succeeded", "its jobs continue"


def test_every_node_reloads_and_answers(node: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    sites = {name: node(name) for name in "abc"}
    with ExitStack() as stack:
        running = {name: stack.enter_context(site.running()) for name, site in sites.items()}
        silent = stack.enter_context(node("silent").opened())
        for name in "ab":
            sites[name].plugin("more", OK)
            sites[name].write()
        sites["c"].settings["nonsense"] = 1
        sites["c"].write()
        gateway = running["a"].gateway
        assert {one["status"] for one in reload_all(gateway, dry=True)["nodes"]} == {"would reload"}
        assert "more" not in running["b"].gateway.compiled.plans
        monkeypatch.setattr(reloads, "ANSWER_SECONDS", 3.0)
        answers = {one["name"]: one for one in reload_all(gateway, dry=False)["nodes"]}
        assert {name: one["status"] for name, one in answers.items()} == {
            "a": "reloaded",
            "b": "reloaded",
            "c": "refused",
            "silent": "no answer",
        }
        assert "nonsense" in str(answers["c"]["problems"])
        assert "more" in running["b"].gateway.compiled.plans
        assert silent.gateway.compiled.plans.keys() == {"work"}


def test_cancel_reaches_its_node_while_a_transaction_holds_back_the_stream(
    node: Make, url: str
) -> None:
    site = node("a")
    gate = site.gate()
    site.plugin("work", gate.script() + OK)
    with site.running() as a, node("b").opened() as b, psycopg.connect(url) as foreign:
        id = a.put("work")
        gate.arrived()
        # An id of its own, as any transaction that writes: the stream ends before it.
        foreign.execute("SELECT pg_current_xact_id()")
        assert cancel(b.gateway, id) is JobStatus.RUNNING
        assert a.job(id)["status"] == "dead"
