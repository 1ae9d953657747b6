"""Nodes that do not answer although their connections live: they end their jobs and are fenced."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from ductile.clock import SystemEntropy
from ductile.engine.instance_lock import is_alive
from ductile.engine.recovery import dead_nodes, lease, node_heartbeat
from ductile.errors import LedgerError, Refused
from ductile.operations.cluster.force_cancel import force_cancel
from ductile.store import nodes
from ductile.store.engines import postgres
from ductile.store.engines.open import name_application
from ductile.store.engines.pg import boot_lock as pg_boot_lock
from ductile.store.engines.postgres import PostgresLedger
from tests.crash.gateway_process import GatewayProcess
from tests.engine.site import OK, Site
from tests.pg_proxy import Proxy, proxied
from tests.waiting import until

Make = Callable[..., Site]


@pytest.fixture
def proxy(url: str) -> Iterator[Proxy]:
    with proxied(url) as proxy:
        yield proxy


@pytest.fixture
def node(url: str, another: Callable[[], Site]) -> Make:
    """Makes a node whose plugin `work` waits at the gate of this name."""

    def node(name: str, address: str | None = None) -> tuple[Site, Any]:
        site = another()
        gate = site.gate()
        site.plugin("work", gate.script() + OK, retry={"backoff_base": "10ms"})
        site.settings["service"].update(node=name, log_level="info")
        site.settings["state"] = {"url": address or url, "dir": str(site.state)}
        return site, gate

    return node


@pytest.fixture
def short_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a second per answer, four until jobs end, eight until a node is fenced."""
    monkeypatch.setattr(pg_boot_lock, "ANSWER_TIMEOUT", 0.5)
    monkeypatch.setattr(node_heartbeat, "CHECK_SECONDS", 0.2)
    monkeypatch.setattr(lease, "TERMINATE_AFTER", 4.0)
    monkeypatch.setattr(lease, "CHECK_SECONDS", 0.1)
    monkeypatch.setattr(dead_nodes, "FENCE_AFTER", timedelta(seconds=8))


@pytest.fixture
def fence_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four seconds until a node is fenced; jobs end without a proof as late as otherwise."""
    monkeypatch.setattr(node_heartbeat, "CHECK_SECONDS", 0.2)
    monkeypatch.setattr(dead_nodes, "FENCE_AFTER", timedelta(seconds=4))


def read_attempts(url: str, id: str) -> list[tuple[Any, ...]]:
    query = "SELECT attempt, status FROM job_log WHERE job_id = %s ORDER BY attempt"
    with psycopg.connect(url) as connection:
        return connection.execute(query, (id,)).fetchall()


@pytest.mark.usefixtures("short_times")
def test_half_open_node_ends_its_jobs_before_another_starts_them(
    node: Make, url: str, proxy: Proxy
) -> None:
    cut, gate = node("a", proxy.url)
    other, theirs = node("b")
    with cut.running() as running:
        id = running.put("work")
        pid = int(gate.arrived())
        with other.running() as second:
            proxy.blackhole()
            theirs.arrived()
            assert not is_alive(pid), "the same job ran twice at the same time"
            assert running.gateway.busy == 0
            theirs.open()
            assert second.ended(id)["status"] == "succeeded"
            proxy.heal()
            until(lambda: running.gateway.may_claim())
            assert running.gateway.busy == 0
    assert read_attempts(url, id) == [(1, "failed"), (2, "succeeded")]


@pytest.mark.usefixtures("fence_soon")
def test_frozen_node_is_fenced_and_its_settlement_refused(node: Make, url: str) -> None:
    frozen, gate = node("a")
    other, theirs = node("b")
    life = GatewayProcess(frozen)
    try:
        id = life.ready().put()
        pid = int(gate.arrived())
        with other.running() as second:
            os.kill(life.process.pid, signal.SIGSTOP)
            try:
                theirs.arrived()
                states = {row["name"]: row for row in second.gateway.ledger.read(nodes.list_nodes)}
                assert states["a"]["seconds_since_seen"] >= 4
            finally:
                os.kill(life.process.pid, signal.SIGCONT)
            until(lambda: not is_alive(pid))
            assert second.job(id)["owner"] == second.gateway.boot
            theirs.open()
            assert second.ended(id)["attempt"] == 2
    finally:
        life.end()
    assert read_attempts(url, id) == [(1, "failed"), (2, "succeeded")]


def test_call_without_an_answer_ends_with_an_error(
    url: str, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "CALL_TIMEOUT", 0.5)
    monkeypatch.setattr(postgres, "COMMIT_CHECK_TIMEOUT", 0.5)
    ledger = PostgresLedger(proxy.url)
    ledger.start()
    try:
        ledger.read(nodes.list_nodes)
        proxy.blackhole()
        with pytest.raises(LedgerError):
            ledger.read(nodes.list_nodes)
        proxy.heal()
        until(lambda: _answers(ledger))
    finally:
        proxy.heal()
        ledger.close()


def _answers(ledger: PostgresLedger) -> bool:
    try:
        return ledger.read(nodes.list_nodes) == []
    except LedgerError:
        return False


def test_all_sessions_of_a_node_are_ended(url: str) -> None:
    frozen = PostgresLedger(url, application=name_application("boot-of-a", "a"))
    other = PostgresLedger(url, application=name_application("other-boot", "b"))
    for ledger in (frozen, other):
        ledger.start()
    try:
        frozen.claim_boot("boot-of-a")
        other.claim_boot("other-boot")
        assert other.end_sessions("boot-of-a") >= 2
        until(lambda: other.boot_is_dead("boot-of-a"))
        assert not other.boot_is_dead("other-boot")
    finally:
        frozen.close()
        other.close()


def test_boots_of_the_same_time_have_different_sessions() -> None:
    entropy = SystemEntropy()
    first, second = entropy.uuid(), entropy.uuid()
    assert first[:8] == second[:8]
    assert name_application(first) != name_application(second)


def test_forgotten_transaction_of_a_node_is_ended_by_the_server(url: str) -> None:
    ledger = PostgresLedger(url)
    ledger.start()
    try:
        query = "SELECT current_setting('idle_in_transaction_session_timeout')"
        with ledger._connection() as connection:
            assert connection.execute(query).fetchone() == ("30s",)
    finally:
        ledger.close()


def test_job_of_a_silent_node_can_be_cancelled_by_force(node: Make, url: str) -> None:
    silent, gate = node("a")
    other, _ = node("b")
    with silent.running() as running, other.opened() as second:
        id = running.put("work")
        gate.arrived()
        with pytest.raises(Refused, match=r"node a, which runs job .* answers"):
            force_cancel(second.gateway, id, dry=False)
        for name in ("nodes", "lease"):
            running.gateway.loops[name].stop()
            running.gateway.loops[name].join()
        with psycopg.connect(url) as connection:
            connection.execute("UPDATE nodes SET seen_at = '2026-01-01T00:00:00Z' WHERE name = 'a'")
        assert force_cancel(second.gateway, id, dry=True) == "running"
        assert second.job(id)["status"] == "running"
        force_cancel(second.gateway, id, dry=False)
        job = second.job(id)
        assert (job["status"], job["last_error"]) == ("dead", "cancelled")
        gate.open()
        until(lambda: running.gateway.busy == 0)
        assert second.job(id)["status"] == "dead"
