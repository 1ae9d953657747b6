"""Three nodes on one PostgreSQL: kill, freeze, blackholed connections, ended sessions."""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest

from ductile.store.engines.postgres import PostgresLedger
from ductile.store.verify import verify
from tests.crash.gateway_process import GatewayProcess
from tests.engine.site import PYTHON, Site
from tests.pg_proxy import Proxy, proxied
from tests.postgres import Server
from tests.waiting import until

JOBS = 60
FENCED_AFTER = 6.0
"""`DUCTILE_TEST_SHORT_TIMES` of the driver."""
RUN = f"""{PYTHON}
id = json.load(sys.stdin)["job_id"]
path = "%s/" + id
def note(word):
    with open(path, "a") as file:
        file.write(word + "\\n")
note("start")
time.sleep(0.4)
note("end")
print(json.dumps({{"status": "ok", "result": "done"}}))
"""
END_SESSIONS = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()
"""


class Cluster:
    """Node `a` reaches the database through the proxy, `b` and `c` directly."""

    def __init__(self, url: str, proxy: Proxy, another: Callable[[], Site]) -> None:
        self.url, self.proxy = url, proxy
        self.sites = {name: another() for name in "abc"}
        self.ran = self.sites["a"].folder / "ran"
        self.ran.mkdir()
        for name, site in self.sites.items():
            site.plugin("work", RUN % self.ran, retry={"backoff_base": "10ms", "max_attempts": 9})
            site.settings["service"].update(node=name, log_level="info", max_workers=2)
            address = proxy.url if name == "a" else url
            site.settings["state"] = {"url": address, "dir": str(site.state)}
            site.environ["DUCTILE_TEST_SHORT_TIMES"] = "1"
        self.nodes = {name: GatewayProcess(site) for name, site in self.sites.items()}

    def rows(self) -> list[tuple[Any, ...]]:
        query = "SELECT id, status, attempt FROM job_queue WHERE plugin = 'work'"
        with psycopg.connect(self.url) as connection:
            return connection.execute(query).fetchall()

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
        """As a restart of the server does."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(END_SESSIONS)

    def stop(self) -> None:
        for node in self.nodes.values():
            if node.process.poll() is None:
                node.signal(signal.SIGTERM)
        for node in self.nodes.values():
            node.end()


@pytest.fixture
def cluster(postgres: Server, another: Callable[[], Site]) -> Iterator[Cluster]:
    url = postgres.database()
    with proxied(url) as proxy:
        cluster = Cluster(url, proxy, another)
        try:
            for node in cluster.nodes.values():
                node.ready()
            yield cluster
        finally:
            proxy.heal()
            cluster.stop()


def test_every_job_runs_as_often_as_its_attempts_say(cluster: Cluster) -> None:
    ids = [cluster.nodes["bc"[n % 2]].put() for n in range(JOBS)]
    cluster.nodes["c"].kill()
    cluster.proxy.blackhole()
    cluster.restart("c")
    cluster.end_all_sessions()
    cluster.freeze("b", FENCED_AFTER + 2)
    cluster.proxy.heal()
    until(lambda: {status for _, status, _ in cluster.rows()} == {"succeeded"})
    ids += [cluster.nodes[name].put() for name in "abc"]
    until(lambda: {status for _, status, _ in cluster.rows()} == {"succeeded"})
    cluster.stop()
    rows = cluster.rows()
    assert sorted(id for id, _, _ in rows) == sorted(ids), "a job was lost"
    for id, _, attempt in rows:
        lines = Counter((Path(cluster.ran) / id).read_text().split())
        assert 1 <= lines["start"] <= attempt, (id, lines, attempt)
        assert lines["end"] >= 1
    ledger = PostgresLedger(cluster.url)
    ledger.start()
    try:
        report = verify(ledger)
        assert report.violations == [], report
    finally:
        ledger.close()
