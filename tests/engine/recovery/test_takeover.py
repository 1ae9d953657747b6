"""Several nodes on one PostgreSQL: the jobs of dead nodes are recovered."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from ductile.engine.config import manager
from ductile.engine.gateway import LEASE_LOST_GRACE
from ductile.engine.recovery import dead_nodes, lease, node_heartbeat
from ductile.engine.recovery.dead_nodes import LOST_AFTER
from ductile.engine.recovery.lease import TERMINATE_AFTER, NodeLease
from ductile.engine.recovery.node_heartbeat import CHECK_SECONDS, NodeHeartbeat
from ductile.engine.recovery.node_record import make_registration
from ductile.engine.recovery.recover_jobs import recover_boots
from ductile.engine.recovery.takeover import TakeoverMonitor
from ductile.errors import LedgerBusy
from ductile.operations.cluster.nodes import change_drain
from ductile.operations.reports import waits_for
from ductile.store import boots, nodes
from ductile.store.engines.api import Ledger, Tx
from ductile.store.engines.pg import boot_lock as pg_boot_lock
from ductile.store.engines.postgres import PostgresLedger
from ductile.store.jobs import read
from tests.conftest import CountingEntropy, FakeClock
from tests.crash.gateway_process import GatewayProcess
from tests.engine.site import OK, Running, Site
from tests.waiting import WAIT_LIMIT, until

ROW = """
INSERT INTO job_queue (id, plugin, command, payload, status, attempt, max_attempts, submitted_by,
                       created_at, started_at, owner)
VALUES (%(id)s, 'echo', 'poll', '{}', 'running', %(attempt)s, 4, 'cli',
        '2026-02-08T10:00:00.000000Z', %(started)s, %(owner)s)
"""
STARTED = "2026-02-08T10:00:01.000000Z"
LONG = LOST_AFTER.total_seconds()


def insert(
    url: str,
    id: str,
    *,
    owner: str = "lost",
    attempt: int = 1,
    started: str | None = STARTED,
) -> None:
    """Insert a running job."""
    with psycopg.connect(url) as connection:
        given = {"id": id, "owner": owner, "attempt": attempt, "started": started}
        connection.execute(ROW, given)


def row(url: str, id: str) -> tuple[Any, ...]:
    """The status, attempt and owner of a job."""
    query = "SELECT status, attempt, owner FROM job_queue WHERE id = %s"
    with psycopg.connect(url) as connection:
        found = connection.execute(query, (id,)).fetchone()
    assert found is not None
    return found


def read_attempts(url: str, id: str) -> list[tuple[Any, ...]]:
    """The attempts of a job with their outcomes."""
    query = "SELECT attempt, status FROM job_log WHERE job_id = %s ORDER BY attempt"
    with psycopg.connect(url) as connection:
        return connection.execute(query, (id,)).fetchall()


def end_session(url: str, boot: str) -> None:
    """Terminate the server session that holds the lock of this boot."""
    query = """
        SELECT pg_terminate_backend(pid, 5000) FROM pg_locks
        WHERE locktype = 'advisory' AND objsubid = 1 AND
          (CAST(classid AS bigint) << 32) | CAST(objid AS bigint) =
          hashtextextended('ductile:boot:' || %s, 0)
    """
    with psycopg.connect(url, autocommit=True) as connection:
        assert connection.execute(query, (boot,)).fetchall() == [(True,)]


# Tick by tick, on a fake clock


class MonitorHarness:
    """The loops of one node."""

    def __init__(self, running: Running, clock: FakeClock, boot: str, ledger: Ledger) -> None:
        self.clock, self.ledger, self.begun, self.terminations = clock, ledger, 0, 0
        self.boot = boot
        compiled = running.gateway.compiled
        self.deadline = 0.0
        self.lease = NodeLease(clock, self._count_termination, lambda: None, self._set_deadline)
        self.heartbeat = NodeHeartbeat(
            ledger,
            boot,
            clock,
            self.lease,
            self._count_termination,
            self._count_begun,
            lambda *_: None,
        )
        self.monitor = TakeoverMonitor(ledger, boot, lambda: compiled, clock, CountingEntropy())
        now = clock.now()
        ledger.write(lambda tx: boots.begin_boot(tx, id=boot, pid=1, version="1", now=now))
        register = make_registration(boot, boot, is_only_node=False)
        ledger.write(lambda tx: register(tx, compiled))

    def _count_termination(self) -> None:
        self.terminations += 1

    def _set_deadline(self, monotonic: float) -> None:
        self.deadline = monotonic

    def _count_begun(self) -> None:
        self.begun += 1

    def tick(self) -> float:
        now = self.clock.now()
        try:
            self.heartbeat.tick(now)
        finally:
            self.lease.tick(now)
        return self.monitor.tick(now)

    def run(self, seconds: float) -> None:
        """Run the loop for this long on the fake clock."""
        for _ in range(int(seconds / CHECK_SECONDS)):
            assert self.tick() == CHECK_SECONDS
            self.clock.advance(CHECK_SECONDS)


@pytest.fixture
def running(site: Site, url: str) -> Iterator[Running]:
    """An open gateway whose loops do not run."""
    site.plugin("echo", OK)
    site.settings["state"] = {"url": url, "dir": str(site.state)}
    with site.opened() as running:
        yield running


@pytest.fixture
def monitor(running: Running, clock: FakeClock) -> MonitorHarness:
    return MonitorHarness(running, clock, "boot-of-the-test", running.gateway.ledger)


def test_monitor_knows_whether_another_node_runs_jobs(
    running: Running, monitor: MonitorHarness, url: str
) -> None:
    assert monitor.monitor.has_others, "unknown before the first tick"
    monitor.tick()
    assert monitor.monitor.has_others
    with psycopg.connect(url) as connection:
        connection.execute("UPDATE nodes SET seen_at = '2020-01-01T00:00:00.000000Z'")
    monitor.tick()
    assert not monitor.monitor.has_others, "the other one has been silent for years"
    running.gateway.ledger.write(lambda tx: nodes.renew(tx, running.gateway.boot))
    monitor.tick()
    assert monitor.monitor.has_others
    running.gateway.ledger.write(lambda tx: nodes.stop(tx, running.gateway.boot))
    monitor.tick()
    assert not monitor.monitor.has_others


def test_heartbeat_follows_a_drain_unless_a_decision_here_is_newer(
    running: Running, monitor: MonitorHarness
) -> None:
    gateway = running.gateway

    def make_heartbeat(set_drained: Callable[[bool, float], None]) -> NodeHeartbeat:
        parts = gateway.ledger, gateway.boot, gateway.clock, monitor.lease
        return NodeHeartbeat(*parts, lambda: None, lambda: None, set_drained)

    def drain_late(drained: bool, read_at: float) -> None:
        change_drain(gateway, gateway.node, drained=True, dry=False)
        gateway.set_drained(drained, read_at)

    heartbeat = make_heartbeat(gateway.set_drained)
    heartbeat.tick(monitor.clock.now())
    make_heartbeat(drain_late).tick(monitor.clock.now())
    assert gateway.is_drained, "it was read before the operator decided"
    # As another node does before this one's next heartbeat.
    gateway.ledger.write(lambda tx: nodes.set_drained(tx, gateway.node, drained=False))
    heartbeat.tick(monitor.clock.now())
    assert not gateway.is_drained


def test_job_of_a_lost_node_is_recovered(monitor: MonitorHarness, url: str) -> None:
    insert(url, "a")
    monitor.run(LONG)
    assert row(url, "a") == ("running", 1, "lost")
    monitor.run(2 * CHECK_SECONDS)
    assert row(url, "a") == ("queued", 2, None)
    assert read_attempts(url, "a") == [(1, "failed")]


def test_job_of_a_lost_node_without_attempts_left_is_dead(
    monitor: MonitorHarness, url: str
) -> None:
    insert(url, "a", attempt=4)
    monitor.run(LONG + 2 * CHECK_SECONDS)
    assert row(url, "a") == ("dead", 4, None)


def test_unstarted_claim_of_a_lost_node_is_ready_at_once(monitor: MonitorHarness, url: str) -> None:
    heard: list[int] = []
    monitor.ledger.listen(lambda effects: heard.append(effects.ready))
    insert(url, "a", started=None)
    monitor.run(LONG + 2 * CHECK_SECONDS)
    assert row(url, "a") == ("queued", 1, None)
    assert sum(heard) == 1


def test_job_of_a_living_node_is_left_alone(monitor: MonitorHarness, url: str) -> None:
    living = PostgresLedger(url)
    living.start()
    try:
        living.claim_boot("living")
        insert(url, "a", owner="living")
        monitor.run(10 * LONG)
        assert row(url, "a") == ("running", 1, "living")
    finally:
        living.close()


def test_own_jobs_are_never_recovered(monitor: MonitorHarness, url: str) -> None:
    insert(url, "a", owner="boot-of-the-test")
    monitor.run(10 * LONG)
    assert row(url, "a") == ("running", 1, "boot-of-the-test")


def test_node_that_returns_in_time_keeps_its_jobs(monitor: MonitorHarness, url: str) -> None:
    insert(url, "a")
    monitor.run(LONG - CHECK_SECONDS)
    monitor.ledger.claim_boot("lost")
    monitor.run(10 * LONG)
    assert row(url, "a") == ("running", 1, "lost")


def test_node_missing_briefly_twice_is_not_lost(monitor: MonitorHarness, url: str) -> None:
    insert(url, "a")
    for _ in range(4):
        monitor.run(LONG - CHECK_SECONDS)
        flaky = PostgresLedger(url)
        flaky.start()
        flaky.claim_boot("lost")
        monitor.run(CHECK_SECONDS)
        flaky.close()
    assert row(url, "a") == ("running", 1, "lost")


@pytest.mark.parametrize("seconds", [3600.0, -3600.0])
def test_changed_clock_makes_no_node_lost(
    monitor: MonitorHarness, url: str, seconds: float
) -> None:
    insert(url, "a")
    monitor.tick()
    monitor.clock.advance(seconds)
    monitor.tick()
    monitor.clock.advance(CHECK_SECONDS)
    monitor.tick()
    assert row(url, "a") == ("running", 1, "lost")
    monitor.run(LONG + 2 * CHECK_SECONDS)
    assert row(url, "a") == ("queued", 2, None)


def test_running_job_without_owner_waits_for_a_start(monitor: MonitorHarness, url: str) -> None:
    insert(url, "a")
    with psycopg.connect(url) as connection:
        connection.execute("UPDATE job_queue SET owner = NULL")
    monitor.run(10 * LONG)
    assert row(url, "a") == ("running", 1, None)


def test_each_job_is_recovered_by_one_node(running: Running, clock: FakeClock, url: str) -> None:
    ledgers = [PostgresLedger(url) for _ in range(3)]
    for ledger in ledgers:
        ledger.start()
    try:
        watches = [
            MonitorHarness(running, clock, f"boot-{n}", ledger) for n, ledger in enumerate(ledgers)
        ]
        for n in range(50):
            insert(url, f"job-{n}")
        for _ in range(int(LONG / CHECK_SECONDS) + 6):
            ready = threading.Barrier(3)

            def tick(monitor: MonitorHarness, ready: threading.Barrier = ready) -> None:
                ready.wait(WAIT_LIMIT)
                monitor.tick()

            threads = [threading.Thread(target=tick, args=(monitor,)) for monitor in watches]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(WAIT_LIMIT)
            clock.advance(CHECK_SECONDS)
    finally:
        for ledger in ledgers:
            ledger.close()
    for n in range(50):
        assert row(url, f"job-{n}") == ("queued", 2, None)
        assert read_attempts(url, f"job-{n}") == [(1, "failed")]


def test_node_declared_dead_terminates_its_jobs_once(
    running: Running, clock: FakeClock, url: str
) -> None:
    """At the first check after it holds its lock again."""
    other = PostgresLedger(url)
    other.start()
    try:
        ours = MonitorHarness(running, clock, "ours", running.gateway.ledger)
        theirs = MonitorHarness(running, clock, "theirs", other)
        ours.tick()
        insert(url, "a", owner="ours")
        end_session(url, "ours")
        theirs.run(LONG + 2 * CHECK_SECONDS)
        assert row(url, "a") == ("queued", 2, None)
        assert theirs.begun == 0
        ours.tick()
        assert (ours.begun, ours.terminations) == (1, 1)
    finally:
        other.close()


def test_database_outage_makes_no_node_lost(
    monitor: MonitorHarness, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    insert(url, "a")
    monitor.tick()
    with monkeypatch.context() as away:
        away.setattr(monitor.ledger, "boot_is_dead", _away)
        for _ in range(30):
            monitor.clock.advance(1)
            with pytest.raises(LedgerBusy):
                monitor.tick()
    monitor.run(LONG)
    assert row(url, "a") == ("running", 1, "lost")


def test_node_without_its_lock_terminates_jobs_before_others_start_them(
    monitor: MonitorHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without(seconds: int) -> int:
        before = monitor.terminations
        with monkeypatch.context() as away:
            away.setattr(monitor.ledger, "claim_boot", _away)
            for _ in range(seconds):
                monitor.clock.advance(1)
                with pytest.raises(LedgerBusy):
                    monitor.tick()
        monitor.tick()
        return monitor.terminations - before

    assert TERMINATE_AFTER + LEASE_LOST_GRACE < LONG
    assert without(7) == 0
    assert without(30) == 23, "at each tick: a job may have started since the last"
    assert without(7) == 0, "counted from when it was held last"
    assert without(8) == 1


def test_jobs_of_a_disconnected_node_are_requeued_without_counting(
    node: Make, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "TERMINATE_AFTER", 1.0)
    monkeypatch.setattr(node_heartbeat, "CHECK_SECONDS", 0.05)
    site = node("")
    gate = site.gate()
    site.plugin("work", gate.script() + OK)
    with site.running() as running:
        id = running.put("work")
        gate.arrived()
        with cut_off(running, url):
            until(lambda: running.job(id)["status"] == "queued")
            assert not running.gateway.may_claim()
        gate.arrived()
        gate.open()
        assert running.ended(id)["status"] == "succeeded"
        job = running.job(id)
        assert (job["attempt"], job["max_attempts"]) == (2, 5)


@pytest.mark.parametrize("when", ["while it is lost", "after it was regained"])
def test_job_claimed_after_the_lease_was_lost_does_not_start(
    node: Make, url: str, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """Another node may have started it in the meantime."""
    monkeypatch.setattr(lease, "TERMINATE_AFTER", 1.0)
    monkeypatch.setattr(lease, "CHECK_SECONDS", 0.05)
    monkeypatch.setattr(node_heartbeat, "CHECK_SECONDS", 0.05)
    site = node("")
    starts = site.folder / "starts"
    site.plugin("work", f"echo >> '{starts}'\n" + OK)
    with site.running() as running:
        gateway: Any = running.gateway
        answers: list[tuple[Any, ...]] = []
        answer, terminations = gateway.dispatcher._answered, []
        finish = gateway.dispatcher._finish_commit
        monkeypatch.setattr(gateway.lease, "_terminate_jobs", lambda: terminations.append(1))

        def hold(batch: Any, result: Any, error: Any) -> None:
            """Do not answer a claim yet."""
            if result is not None and result[1]:
                answers.append((batch, result, error))
            else:
                finish(batch, result, error)

        # Not `_answered`, which a claim that has begun already holds.
        gateway.dispatcher._finish_commit = hold
        with cut_off(running, url):
            id = running.put("work")
            until(lambda: answers)
            until(lambda: terminations)
            gateway.dispatcher._finish_commit = finish
            if when == "while it is lost":
                answer(*answers.pop())
                until(lambda: running.job(id)["status"] == "queued")
        until(gateway.may_claim)
        for late in answers:
            answer(*late)
        assert running.ended(id)["attempt"] == 2
    assert starts.read_text() == "\n", "only the second attempt"


def test_slots_kill_their_jobs_before_others_start_them(monitor: MonitorHarness) -> None:
    monitor.tick()
    proven_at = monitor.clock.monotonic()
    left = monitor.deadline - proven_at
    assert (
        lease.TERMINATE_AFTER + LEASE_LOST_GRACE <= left < dead_nodes.LOST_AFTER.total_seconds() - 2
    )
    monitor.clock.advance(5)
    monitor.tick()
    assert monitor.deadline == monitor.clock.monotonic() + left


def test_lease_of_a_node_that_was_declared_dead_has_a_new_term(monitor: MonitorHarness) -> None:
    before = monitor.lease.term
    monitor.tick()
    assert monitor.lease.term == before
    now = monitor.clock.now()
    monitor.ledger.write(lambda tx: boots.end_boot(tx, monitor.boot, now))
    monitor.tick()
    assert monitor.lease.term not in (None, before)


def test_node_renews_its_lease_while_slow_calls_have_all_connections(
    monitor: MonitorHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger: Any = monitor.ledger
    monkeypatch.setattr(ledger._pool, "timeout", 0.1)
    monitor.heartbeat.tick(monitor.clock.now())
    with contextlib.ExitStack() as slow:
        for _ in range(ledger._pool.max_size):
            slow.enter_context(ledger._pool.connection(timeout=WAIT_LIMIT))
        with pytest.raises(LedgerBusy):
            ledger.read(nodes.list_nodes)
        monitor.clock.advance(TERMINATE_AFTER)
        monitor.heartbeat.tick(monitor.clock.now())
        assert monitor.lease.is_held()


def test_node_whose_row_is_locked_keeps_its_boot(
    monitor: MonitorHarness, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pg_boot_lock, "LOCK_TIMEOUT_MS", 50)
    monitor.heartbeat.tick(monitor.clock.now())
    query = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1"
    with psycopg.connect(url) as other:
        before = other.execute(query).fetchall()
        other.execute("SELECT 1 FROM nodes FOR UPDATE")
        monitor.clock.advance(TERMINATE_AFTER)
        with pytest.raises(LedgerBusy):
            monitor.heartbeat.tick(monitor.clock.now())
        assert not monitor.lease.is_held()
        assert other.execute(query).fetchall() == before != []
    monitor.heartbeat.tick(monitor.clock.now())
    assert monitor.lease.is_held()


def _away(_boot: str) -> bool:
    raise LedgerBusy("the database does not answer")


def test_no_takeover_monitor_on_sqlite(site: Site) -> None:
    site.plugin("echo", OK)
    with site.running() as running:
        assert "nodes" not in running.gateway.loops
    assert not (site.state / "last.boot").exists()


# Whole gateways


@pytest.fixture
def node(url: str, another: Callable[[], Site]) -> Callable[[str], Site]:
    """Makes a node with one plugin that runs this script."""

    def node(script: str) -> Site:
        site = another()
        site.plugin("work", script, retry={"backoff_base": "10ms"})
        site.settings["service"]["log_level"] = "info"
        site.settings["state"] = {"url": url, "dir": str(site.state)}
        return site

    return node


@pytest.fixture
def short_timeouts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node is lost after half a second instead of fifteen."""
    monkeypatch.setattr(dead_nodes, "LOST_AFTER", timedelta(seconds=0.5))
    monkeypatch.setattr(node_heartbeat, "CHECK_SECONDS", 0.05)


Make = Callable[[str], Site]


def test_running_node_recovers_the_jobs_of_a_killed_one(
    node: Make, url: str, short_timeouts: None
) -> None:
    other = node(OK)
    dying = node("")
    gate = dying.gate()
    dying.plugin("work", gate.script() + OK)
    life = GatewayProcess(dying)
    try:
        id = life.ready().put()
        gate.arrived()
        # It starts only now, so that it does not claim the job.
        with other.running() as running:
            life.kill()
            job = running.ended(id)
    finally:
        life.end()
    assert (job["status"], job["attempt"]) == ("succeeded", 2)
    assert read_attempts(url, id) == [(1, "failed"), (2, "succeeded")]


def test_node_that_loses_its_session_keeps_its_job(
    node: Make, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_heartbeat, "CHECK_SECONDS", 0.05)
    site, other = node(""), node(OK)
    gate = site.gate()
    site.plugin("work", gate.script() + OK)
    with site.running() as running:
        id = running.put("work")
        gate.arrived()
        with other.running() as watching:
            boot = running.gateway.boot
            end_session(url, boot)
            until(lambda: not watching.gateway.ledger.boot_is_dead(boot))
            gate.open()
            job = running.ended(id)
    assert (job["status"], job["attempt"]) == ("succeeded", 1)


@contextlib.contextmanager
def cut_off(running: Running, url: str) -> Iterator[None]:
    """Prevent a living node from holding its lock."""

    def claim(_boot: str) -> None:
        raise LedgerBusy("the database does not answer")

    ledger: Any = running.gateway.ledger
    ledger.claim_boot = claim
    # A tick that has started would take the lock again.
    until(lambda: running.gateway.loops["nodes"].current_tick_seconds() == 0)
    end_session(url, running.gateway.boot)
    yield
    del ledger.claim_boot


def test_node_declared_dead_terminates_processes_of_recovered_jobs(
    node: Make, url: str, short_timeouts: None
) -> None:
    site, other = node(""), node("")
    gate, theirs = site.gate(), other.gate()
    site.plugin("work", gate.script() + OK)
    # So that the node without a lock does not claim the job again.
    site.settings["service"]["max_workers"] = 1
    other.plugin("work", theirs.script() + OK, retry={"backoff_base": "10ms"})
    with site.running() as running:
        id = running.put("work")
        gate.arrived()
        with other.running() as second:
            with cut_off(running, url):
                theirs.arrived()
                assert row(url, id) == ("running", 2, second.gateway.boot)
                assert running.gateway.busy == 1
            until(lambda: running.gateway.busy == 0)
            assert row(url, id) == ("running", 2, second.gateway.boot)
            theirs.open()
            assert second.ended(id)["status"] == "succeeded"
            until(lambda: is_boot_recorded(running))
            # It continues to work.
            assert not second.gateway.ledger.boot_is_dead(running.gateway.boot)
    assert read_attempts(url, id) == [(1, "failed"), (2, "succeeded")]


def is_boot_recorded(running: Running) -> bool:
    gateway = running.gateway
    return gateway.ledger.read(lambda tx: boots.is_open(tx, gateway.boot))


def test_settlement_of_a_node_declared_dead_is_dropped(
    node: Make, url: str, short_timeouts: None
) -> None:
    site, other = node(""), node("")
    gate, theirs = site.gate(), other.gate()
    site.plugin("work", gate.script() + 'echo \'{"status": "ok", "result": "stale"}\'\n')
    # So that the node without a lock does not claim the job again.
    site.settings["service"]["max_workers"] = 1
    other.plugin("work", theirs.script() + OK, retry={"backoff_base": "10ms"})
    with contextlib.ExitStack() as second:
        with site.running() as running:
            id = running.put("work")
            gate.arrived()
            watching = second.enter_context(other.running())
            with cut_off(running, url):
                theirs.arrived()
                gate.open()
                until(lambda: running.gateway.busy == 0)
        # After the stop every settlement was tried.
        assert row(url, id) == ("running", 2, watching.gateway.boot)
        theirs.open()
        job = watching.ended(id)
    assert job["result"]["result"] == "done"
    assert read_attempts(url, id) == [(1, "failed"), (2, "succeeded")]


def test_only_the_new_attempt_of_a_reclaimed_job_is_settled(node: Make, url: str) -> None:
    site = node("")
    gate = site.gate()
    site.plugin("work", gate.script() + OK, retry={"backoff_base": "10ms"})
    site.plugin("echo", OK)
    other = PostgresLedger(url)
    other.start()
    try:
        with site.running() as running:
            gateway = running.gateway
            id = running.put("work")
            first = int(gate.arrived())
            with cut_off(running, url):
                recover_boots(
                    other, gateway.compiled, gateway.clock, gateway.entropy, [gateway.boot]
                )
                gate.arrived()
                assert row(url, id) == ("running", 2, gateway.boot)
                os.kill(first, signal.SIGKILL)
                # There are two workers: one is idle after the first attempt has ended.
                assert running.run("echo")["status"] == "succeeded"
                assert row(url, id) == ("running", 2, gateway.boot)
                gate.open()
                job = running.ended(id)
    finally:
        other.close()
    assert (job["status"], job["attempt"]) == ("succeeded", 2)
    assert read_attempts(url, id) == [(1, "failed"), (2, "succeeded")]


# At a start


def test_last_boot_of_this_state_directory_is_recovered_at_once(node: Make, url: str) -> None:
    site = node("")
    gate = site.gate()
    site.plugin("work", gate.script() + OK)
    life = GatewayProcess(site)
    try:
        id = life.ready().put()
        gate.arrived()
        life.kill()
    finally:
        life.end()
    until(lambda: site.alive() == [])
    with site.opened():
        assert row(url, id)[:2] == ("queued", 2)


def test_start_leaves_a_node_that_briefly_lost_its_lock(node: Make, url: str) -> None:
    site, other = node(""), node(OK)
    gate = site.gate()
    site.plugin("work", gate.script() + OK)
    with site.running() as running:
        id = running.put("work")
        gate.arrived()
        with cut_off(running, url), other.opened():
            assert row(url, id) == ("running", 1, running.gateway.boot)
        gate.open()
        assert running.ended(id)["attempt"] == 1


def test_copied_state_directory_does_not_recover_the_original(node: Make, url: str) -> None:
    site, other = node(""), node(OK)
    gate = site.gate()
    site.plugin("work", gate.script() + OK)
    with site.running() as running:
        id = running.put("work")
        gate.arrived()
        other.state.mkdir(mode=0o700)
        shutil.copy(site.state / "last.boot", other.state / "last.boot")
        with other.opened():
            assert row(url, id) == ("running", 1, running.gateway.boot)
        gate.open()
        assert running.ended(id)["attempt"] == 1


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"x" * 10_000])
def test_invalid_last_boot_file_does_not_prevent_a_start(node: Make, content: bytes) -> None:
    site = node(OK)
    site.state.mkdir(mode=0o700)
    (site.state / "last.boot").write_bytes(content)
    with site.running() as running:
        assert running.run("work")["status"] == "succeeded"
    assert (site.state / "last.boot").stat().st_mode & 0o777 == 0o600


# Nodes with different configurations


@pytest.fixture
def short_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manager, "INIT_INTERVAL", 0.05)
    monkeypatch.setattr(manager, "CHECK_INTERVAL", 0.1)


def test_init_of_one_node_counts_for_all(node: Make, short_intervals: None) -> None:
    first, second = node(""), node(OK)
    gate = first.gate()
    first.plugin("work", gate.script() + OK, commands=("poll", "init"))
    second.plugin("work", OK, commands=("poll", "init"))
    with first.running():
        gate.arrived()
        with second.running() as running:
            assert running.gateway.unready
            # For `init`, and for the job, which either node may run.
            gate.open(2)
            until(lambda: not running.gateway.unready)
            assert running.run("work")["status"] == "succeeded"


def test_init_of_a_killed_node_is_run_by_another(
    node: Make, url: str, short_timeouts: None, short_intervals: None
) -> None:
    dying, other = node(""), node(OK)
    gate = dying.gate()
    dying.plugin("work", gate.script() + OK, commands=("poll", "init"))
    other.plugin("work", OK, commands=("poll", "init"))
    life = GatewayProcess(dying)
    try:
        life.ready()
        gate.arrived()
        with other.running() as running:
            life.kill()
            until(lambda: not running.gateway.unready)
            assert running.run("work")["status"] == "succeeded"
    finally:
        life.end()


FAILED_INIT = 'echo \'{"status": "error", "error": "no"}\'\nexit 1\n'


def test_init_that_failed_on_another_node_is_reported(node: Make, short_intervals: None) -> None:
    drained, other = node(OK), node(OK)
    with drained.running() as waiting, other.running() as working:
        change_drain(waiting.gateway, waiting.gateway.node, drained=True, dry=False)
        for site, running in ((other, working), (drained, waiting)):
            site.plugin("work", FAILED_INIT, commands=("poll", "init"))
            running.gateway.reload()
            until(lambda running=running: "failed" in running.gateway.unready.get("work", ""))  # type: ignore[misc]
        assert waiting.gateway.unready == {"work": "its init failed on another node: no"}


def test_failed_init_is_tried_once_per_node(node: Make, short_intervals: None) -> None:
    sites = [node(""), node("")]
    for site in sites:
        site.plugin("work", FAILED_INIT, commands=("poll", "init"))
    with sites[0].running() as one, sites[1].running() as two:
        for running in (one, two):
            until(lambda running=running: "failed" in running.gateway.unready.get("work", ""))  # type: ignore[misc]
        ended = [kind for kind, _ in one.list_notices() if kind in ("job.dead", "job.failed")]
    assert 1 <= len(ended) <= 2


def test_jobs_of_a_plugin_of_another_node_are_left_to_it(node: Make, short_intervals: None) -> None:
    """A reload reaches one node after the other."""
    knowing, behind = node(OK), node(OK)
    knowing.plugin("fresh", OK)
    knowing.settings["service"]["max_workers"] = 1
    with behind.running() as running, knowing.running() as other:
        ids = [other.put("fresh") for _ in range(10)]
        running.gateway.reload()
        ids += [other.put("fresh") for _ in range(10)]
        assert {other.ended(id)["status"] for id in ids} == {"succeeded"}


def why(running: Running, id: str) -> str | None:
    gateway = running.gateway

    def work(tx: Tx) -> str | None:
        job = read.describe_job(tx, id)
        assert job is not None
        now = gateway.clock.now()
        [row] = waits_for.with_reasons(
            tx, [job], gateway.compiled, gateway.unready, served=True, now=now
        )
        found: str | None = row["waits_for"]
        return found

    return gateway.ledger.read(work)


def test_jobs_of_a_plugin_of_a_stopped_node_wait_for_it(node: Make, short_intervals: None) -> None:
    knowing, behind = node(OK), node(OK)
    knowing.plugin("gpu", OK)
    knowing.settings["service"]["node"] = "a"
    with behind.running() as running:
        with knowing.opened() as other:
            id = other.put("gpu")
            assert why(running, id) == "only node a can run plugin gpu"
        for _ in range(3):
            running.gateway.config.settle()
        assert running.job(id)["status"] == "queued"
        assert why(running, id) == "no living node has plugin gpu: a is stopped"
        with knowing.running() as other:
            assert other.ended(id)["status"] == "succeeded"


def test_jobs_end_when_the_last_node_has_dropped_their_plugin(
    node: Make, short_intervals: None
) -> None:
    knowing, behind = node(OK), node(OK)
    knowing.plugin("gpu", OK)
    with behind.running() as running:
        with knowing.opened() as other:
            id = other.put("gpu")
            running.gateway.config.settle()
            assert running.job(id)["status"] == "queued"
        del knowing.settings["plugins"]["gpu"]
        shutil.rmtree(knowing.plugins / "gpu")
        with knowing.opened():
            assert running.ended(id)["last_error"] == "plugin removed"


def test_no_job_ends_while_a_node_has_not_registered(
    node: Make, url: str, short_intervals: None
) -> None:
    """A node of a version before the registry may have the plugin."""
    site = node(OK)
    site.plugin("gpu", OK)
    with site.opened() as other:
        id = other.put("gpu")
    del site.settings["plugins"]["gpu"]
    shutil.rmtree(site.plugins / "gpu")
    old = PostgresLedger(url)
    old.start()
    try:
        old.claim_boot("older")
        now = other.gateway.clock.now()
        old.write(lambda tx: boots.begin_boot(tx, id="older", pid=1, version="0", now=now))
        with site.running() as running:
            assert running.job(id)["status"] == "queued"
            old.close()
            assert running.ended(id)["last_error"] == "plugin removed"
    finally:
        old.close()
