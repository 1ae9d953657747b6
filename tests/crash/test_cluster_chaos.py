"""Three nodes on one PostgreSQL server, and everything that can happen to them.

After each fault: every job ran as often as its attempts say, none is lost or stuck, the cap of a
plugin was never exceeded, every occurrence of a schedule fired once, and `verify` is clean. The
short form runs the faults of every day once; `make torture` runs each fault several times.
"""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import psutil
import psycopg
import pytest
from psycopg import sql
from psycopg_pool import ConnectionPool
from psycopg_pool.pool import AddConnection, MaintenanceTask

from ductile.store import notices
from ductile.store.engines.api import BEGINNING
from ductile.store.engines.pg import connection as pg_connection
from ductile.store.engines.postgres import PostgresLedger
from ductile.store.verify import verify
from tests.crash.gateway_process import GatewayProcess
from tests.engine.site import PYTHON, Site
from tests.pg_proxy import Proxy, proxied
from tests.postgres import Server, a_server
from tests.waiting import WAIT_LIMIT, until

JOBS = 60
FENCED_AFTER = 6.0
"""`DUCTILE_TEST_SHORT_TIMES` of the driver."""
MAX_ATTEMPTS = 20
CAP = 2
"""The `parallelism` of the plugin `capped`, on all nodes together."""
SILENT = 1.0
"""Seconds after which a process that notes nothing did not run: it was frozen or had ended."""
SHIFTS = {"a": 0.0, "b": 120.0, "c": -90.0}
"""Seconds by which the clocks of the nodes are wrong."""
RUN = f"""{PYTHON}
request = json.load(sys.stdin)
path = "%s/" + request["job_id"]
def note(word):
    with open(path, "a") as file:
        file.write(f"{{word}} {{time.monotonic()}}\\n")
note("start")
for _ in range(8):
    time.sleep(0.05)
    note("alive")
note("end")
print(json.dumps({{"status": "ok", "result": "done"}}))
"""
END_SESSIONS = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()
"""


class Cluster:
    """Node `a` reaches the database through the proxy, `b` and `c` directly."""

    def __init__(self, server: Server, url: str, proxy: Proxy, another: Callable[[], Site]) -> None:
        self.server, self.url, self.proxy = server, url, proxy
        self.sites = {name: another() for name in "abc"}
        self.ran = self.sites["a"].folder / "ran"
        self.ran.mkdir()
        retry = {"backoff_base": "10ms", "max_attempts": MAX_ATTEMPTS}
        for name, site in self.sites.items():
            site.plugin("work", RUN % self.ran, retry=retry)
            site.plugin("capped", RUN % self.ran, retry=retry, parallelism=CAP)
            site.plugin("beat", RUN % self.ran, schedules=[{"every": "2s"}], retry=retry)
            site.settings["service"].update(node=name, log_level="info", max_workers=4)
            address = proxy.url if name == "a" else url
            site.settings["state"] = {"url": address, "dir": str(site.state)}
            site.environ["DUCTILE_TEST_SHORT_TIMES"] = "1"
            site.environ["DUCTILE_TEST_CLOCK_SHIFT"] = str(SHIFTS[name])
        self.nodes = {name: GatewayProcess(site) for name, site in self.sites.items()}
        self.ids: list[str] = []

    def put(self, count: int, names: str = "abc") -> None:
        for number in range(count):
            plugin = "capped" if number % 6 == 0 else "work"
            self.ids.append(self._put(self.nodes[names[number % len(names)]], plugin))

    def _put(self, node: GatewayProcess, plugin: str) -> str:
        """As a client that repeats what was refused: 503 means that nothing was enqueued."""

        def put() -> str | None:
            answer = node.client.post(f"/plugin/{plugin}/poll", {})
            assert answer.status in (202, 503), answer.body
            return str(answer.json["job_id"]) if answer.status == 202 else None

        return until(put) or ""

    def rows(self) -> list[tuple[Any, ...]]:
        query = "SELECT id, status, attempt, max_attempts FROM job_queue WHERE plugin <> 'beat'"
        with psycopg.connect(self.url) as connection:
            return connection.execute(query).fetchall()

    def wait_until_done(self) -> None:
        """In several times the limit of one condition: many processes start in this time."""
        for left in reversed(range(4)):
            try:
                until(lambda: {status for _, status, *_ in self.rows()} <= {"succeeded"})
            except AssertionError:
                if not left:
                    waiting = [row for row in self.rows() if row[1] != "succeeded"]
                    raise AssertionError(f"stuck: {waiting}") from None
            else:
                return

    def restart(self, name: str) -> None:
        self.nodes[name].end()
        self.nodes[name] = GatewayProcess(self.sites[name]).ready()

    def freeze(self, name: str, seconds: float) -> None:
        """Stop the whole node, its runner and its plugins for a while."""
        gateway = psutil.Process(self.nodes[name].process.pid)
        stopped = [gateway, *gateway.children(recursive=True)]
        for process in stopped:
            if process.is_running():
                process.suspend()
        time.sleep(seconds)
        for process in stopped:
            if process.is_running():
                process.resume()

    def end_all_sessions(self) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(END_SESSIONS)

    def stop(self) -> None:
        for node in self.nodes.values():
            if node.process.poll() is None:
                node.signal(signal.SIGTERM)
        for node in self.nodes.values():
            node.end()

    # What must hold

    def check(self) -> None:
        """Stop, and compare what ran with what the ledger says."""
        self.stop()
        rows = self.rows()
        assert sorted(id for id, *_ in rows) == sorted(self.ids), "a job was lost"
        for id, _, attempt, max_attempts in rows:
            words = Counter(word for word, _ in self.read_notes(id))
            assert 1 <= words["start"] <= attempt <= max_attempts, (id, words, attempt)
            assert words["end"] >= 1
        self.check_cap()
        self.check_occurrences()
        ledger = PostgresLedger(self.url)
        ledger.start()
        try:
            report = verify(ledger)
            assert report.violations == [], report
        finally:
            ledger.close()

    def read_notes(self, job_id: str) -> list[tuple[str, float]]:
        lines = (self.ran / job_id).read_text().splitlines()
        return [(word, float(at)) for word, at in (line.split() for line in lines)]

    def check_cap(self) -> None:
        with psycopg.connect(self.url) as connection:
            query = "SELECT id FROM job_queue WHERE plugin = 'capped'"
            ids = [id for (id,) in connection.execute(query).fetchall()]
        changes: list[tuple[float, int]] = []
        for id in ids:
            for start, end in find_intervals(self.read_notes(id)):
                changes += [(start, 1), (end, -1)]
        running = 0
        for at, change in sorted(changes):
            running += change
            assert running <= CAP, (at, running)

    def check_occurrences(self) -> None:
        query = "SELECT slot FROM job_queue WHERE plugin = 'beat' AND slot IS NOT NULL"
        with psycopg.connect(self.url) as connection:
            fired = Counter(slot for (slot,) in connection.execute(query).fetchall())
        assert fired, "the schedule never fired"
        assert max(fired.values()) == 1, fired


def find_intervals(notes: list[tuple[str, float]]) -> Iterator[tuple[float, float]]:
    """When processes of a job ran. A pause in the notes is one in which the process was frozen."""
    began = last = None
    for word, at in notes:
        if word == "start" or last is None or at - last > SILENT:
            if began is not None and last is not None:
                yield began, last
            began = at
        last = at
        if word == "end" and began is not None:
            yield began, at
            began = last = None
    if began is not None and last is not None:
        yield began, last


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server of this module, which is restarted."""
    with a_server() as server:
        yield server


@pytest.fixture
def cluster(server: Server, another: Callable[[], Site]) -> Iterator[Cluster]:
    url = server.database()
    with psycopg.connect(url, autocommit=True) as connection:
        # The servers of tests acknowledge before they write, and an immediate shutdown loses that.
        name = sql.Identifier(connection.info.dbname)
        connection.execute(sql.SQL("ALTER DATABASE {} SET synchronous_commit = on").format(name))
    with proxied(url) as proxy:
        cluster = Cluster(server, url, proxy, another)
        try:
            for node in cluster.nodes.values():
                node.ready()
            yield cluster
        finally:
            proxy.heal()
            cluster.stop()


# Faults


def kill(cluster: Cluster) -> None:
    name = random.choice("abc")
    cluster.nodes[name].kill()
    cluster.restart(name)


def freeze(cluster: Cluster) -> None:
    cluster.freeze(random.choice("bc"), FENCED_AFTER + 2)


def blackhole(cluster: Cluster) -> None:
    cluster.proxy.blackhole()
    time.sleep(FENCED_AFTER + 2)
    cluster.proxy.heal()


def half_open(cluster: Cluster) -> None:
    cluster.proxy.half_open()
    time.sleep(FENCED_AFTER + 2)
    cluster.proxy.heal()


def end_sessions(cluster: Cluster) -> None:
    for _ in range(5):
        cluster.end_all_sessions()
        time.sleep(0.3)


def restart_fast(cluster: Cluster) -> None:
    cluster.server.restart(signal.SIGINT)


def restart_immediately(cluster: Cluster) -> None:
    cluster.server.restart(signal.SIGQUIT)


def use_up_connections(cluster: Cluster) -> None:
    """Take every connection of the server, so that no node gets one for a while."""
    with ExitStack() as stack:
        give_up = time.monotonic() + FENCED_AFTER
        cluster.end_all_sessions()
        while time.monotonic() < give_up:
            try:
                stack.enter_context(psycopg.connect(cluster.url))
            except psycopg.OperationalError:
                time.sleep(0.1)


def change_configuration(cluster: Cluster) -> None:
    """One node has a plugin and a pipeline that the others do not know."""
    site = cluster.sites["b"]
    site.plugin("only", RUN % cluster.ran)
    steps = [{"id": "one", "uses": "only"}, {"id": "two", "uses": "work"}]
    site.settings["pipelines"] = [{"name": "drifted", "on": "go", "steps": steps}]
    site.write()
    assert cluster.nodes["b"].client.post("/system/reload", {}).status == 200
    for _ in range(4):
        answer = cluster.nodes["b"].client.post("/pipeline/drifted", {})
        assert answer.status == 202, answer.body
    with psycopg.connect(cluster.url) as connection:
        query = "SELECT id FROM job_queue WHERE pipeline = 'drifted'"

        def has_ended() -> bool:
            rows = connection.execute(f"{query} AND status = 'succeeded'").fetchall()
            connection.rollback()
            return len(rows) == 8

        until(has_ended)
        cluster.ids += [id for (id,) in connection.execute(query).fetchall()]


FAULTS = {
    fault.__name__: fault
    for fault in (
        kill,
        freeze,
        blackhole,
        half_open,
        end_sessions,
        restart_fast,
        restart_immediately,
        use_up_connections,
        change_configuration,
    )
}


def test_every_job_runs_as_often_as_its_attempts_say(cluster: Cluster) -> None:
    cluster.put(JOBS, "bc")
    cluster.nodes["c"].kill()
    cluster.proxy.half_open()
    cluster.restart("c")
    cluster.server.restart(signal.SIGINT)
    cluster.freeze("b", FENCED_AFTER + 2)
    cluster.proxy.heal()
    cluster.wait_until_done()
    cluster.put(3)
    cluster.wait_until_done()
    cluster.check()


def test_first_call_after_an_outage_succeeds(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pool connects at a fixed interval; that of the driver waits longer each time."""
    delays: list[float] = []
    schedule_task = ConnectionPool.schedule_task

    def record(pool: ConnectionPool, task: MaintenanceTask, delay: float) -> None:
        if isinstance(task, AddConnection):
            delays.append(delay)
        schedule_task(pool, task, delay)

    assert pg_connection.RECONNECT_SECONDS <= 1.0
    monkeypatch.setattr(pg_connection, "RECONNECT_SECONDS", 0.02)
    monkeypatch.setattr(ConnectionPool, "schedule_task", record)
    ledger = PostgresLedger(server.database())
    ledger.start()
    try:
        with ThreadPoolExecutor(1) as executor:
            with server.stopped():
                # It waits for a connection, so that the pool looks for one.
                waiting = executor.submit(ledger.write, notices.last_position)
                until(lambda: len(delays) >= 5)
            assert waiting.result(WAIT_LIMIT) == BEGINNING
        assert max(delays) <= pg_connection.RECONNECT_SECONDS
        assert ledger.write(notices.last_position) == BEGINNING
    finally:
        ledger.close()


@pytest.mark.torture
@pytest.mark.parametrize("name", sorted(FAULTS))
def test_torture_with_one_fault_again_and_again(cluster: Cluster, name: str) -> None:
    for _ in range(3):
        cluster.put(JOBS)
        FAULTS[name](cluster)
        cluster.wait_until_done()
        if name == "change_configuration":
            break
    cluster.check()


@pytest.mark.torture
@pytest.mark.parametrize("seed", range(3))
def test_torture_with_faults_in_any_order(cluster: Cluster, seed: int) -> None:
    # Also for the nodes that the faults choose.
    random.seed(seed)
    order = random.sample(sorted(FAULTS), len(FAULTS))
    for name in order:
        cluster.put(JOBS // 2)
        FAULTS[name](cluster)
    cluster.wait_until_done()
    cluster.check()
