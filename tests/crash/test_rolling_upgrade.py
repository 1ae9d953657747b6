"""The rolling upgrade of `docs/reference/database.md`, with two versions in real processes."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

import ductile
from ductile.store.engines.migrate import load_migrations
from tests.crash.gateway_process import GatewayProcess
from tests.engine.site import PYTHON, Site
from tests.postgres import Server
from tests.waiting import WAIT_LIMIT, until

NEWEST = load_migrations("postgres")[-1].number
EXPAND, CONTRACT = NEWEST + 1, NEWEST + 2
RUN = f"""{PYTHON}
id = json.load(sys.stdin)["job_id"]
with open("%s/" + id, "a") as file:
    file.write("x\\n")
print(json.dumps({{"status": "ok", "result": "done"}}))
"""
PAGE = Path(__file__).parents[2] / "docs/reference/database.md"


def make_newer_version(folder: Path) -> Path:
    """A copy of the package with another version and two more migrations."""
    package = folder / "ductile"
    skipped = shutil.ignore_patterns("__pycache__", "static")
    shutil.copytree(Path(ductile.__file__).parent, package, ignore=skipped)
    (package / "http/static").mkdir(exist_ok=True)
    (package / "__init__.py").write_text('__version__ = "99.0.0"\n')
    migrations = package / "store/migrations"
    (migrations / f"{EXPAND:04}_more.sql").write_text(
        "CREATE TABLE more (id INTEGER);\nALTER TABLE job_queue ADD COLUMN more TEXT;\n"
    )
    # What no version uses any more: the cancels of other nodes had been read by it.
    (migrations / f"{CONTRACT:04}_contract_requests.sql").write_text(
        "DROP INDEX notices_requests;\n"
    )
    return folder


class UpgradedCluster:
    def __init__(self, url: str, another: Callable[[], Site], newer: Path) -> None:
        self.url, self._newer = url, newer
        self.sites = {name: another() for name in "abc"}
        self.ran = self.sites["a"].folder / "ran"
        self.ran.mkdir()
        for name, site in self.sites.items():
            site.plugin("work", RUN % self.ran)
            site.settings["service"].update(node=name, log_level="info", max_workers=2)
            site.settings["state"] = {"url": url, "dir": str(site.state)}
            site.environ["DUCTILE_TEST_SHORT_TIMES"] = "1"
        self.nodes: dict[str, GatewayProcess] = {}
        self.ids: list[str] = []

    def start(self, name: str) -> GatewayProcess:
        self.nodes[name] = GatewayProcess(self.sites[name]).ready()
        return self.nodes[name]

    def run(self, name: str, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a `ductile` command of this node and of its version."""
        site = self.sites[name]
        return subprocess.run(
            [sys.executable, "-m", "ductile", *command, "--config", str(site.folder)],
            env={**os.environ, **site.environ},
            cwd=site.folder,
            capture_output=True,
            text=True,
            check=False,
        )

    def upgrade(self, name: str) -> None:
        """As the page says."""
        assert f"node {name} is drained" in self.run(name, "node", "drain", name).stdout
        assert self.run(name, "system", "stop").returncode == 0
        assert self.nodes[name].wait() == 0
        self.nodes[name].end()
        self.sites[name].environ["PYTHONPATH"] = str(self._newer)
        self.start(name)
        self.run(name, "node", "resume", name)

    def put(self, count: int = 4) -> None:
        """Jobs on every node that runs, to their end."""
        self.ids += [
            node.put()
            for node in self.nodes.values()
            if node.process.poll() is None
            for _ in range(count)
        ]
        until(lambda: {status for _, status, _ in self.rows()} == {"succeeded"})

    def rows(self) -> list[tuple[Any, ...]]:
        query = "SELECT id, status, attempt FROM job_queue WHERE plugin = 'work'"
        with psycopg.connect(self.url) as connection:
            return connection.execute(query).fetchall()

    def applied(self) -> set[int]:
        with psycopg.connect(self.url) as connection:
            rows = connection.execute("SELECT number FROM schema_migrations").fetchall()
        return {number for (number,) in rows}

    def list_nodes(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.nodes[name].client.get("/nodes").json
        return found

    def stop(self) -> None:
        for node in self.nodes.values():
            if node.process.poll() is None:
                node.signal(signal.SIGTERM)
        for node in self.nodes.values():
            node.end()


@pytest.fixture
def cluster(
    postgres: Server, another: Callable[[], Site], tmp_path: Path
) -> Iterator[UpgradedCluster]:
    cluster = UpgradedCluster(postgres.database(), another, make_newer_version(tmp_path / "newer"))
    try:
        yield cluster
    finally:
        cluster.stop()


def test_nodes_are_upgraded_one_after_the_other(cluster: UpgradedCluster) -> None:
    for name in "ab":
        cluster.start(name)
    cluster.put()
    cluster.sites["c"].environ["PYTHONPATH"] = str(cluster._newer)
    cluster.start("c")
    old = f"a ({ductile.__version__}, schema {NEWEST}), b ({ductile.__version__}, schema {NEWEST})"
    waiting = (
        f"migration {CONTRACT:04} (contract_requests) waits until no node of an older version "
        f"runs: {old}"
    )
    cluster.nodes["c"].wait_for_log(waiting)
    assert cluster.list_nodes("c")["waiting_migration"] == waiting
    for name in "ab":
        cluster.nodes[name].wait_for_log("a newer version has extended the schema")
        assert cluster.nodes[name].client.get("/healthz").status == 200
    known = {
        row["name"]: (row["version"], row["schema_version"])
        for row in cluster.list_nodes("a")["nodes"]
    }
    assert known["b"] == (ductile.__version__, NEWEST)
    assert known["c"] == ("99.0.0", CONTRACT)
    cluster.put()
    cluster.upgrade("a")
    cluster.put()
    assert CONTRACT not in cluster.applied(), "b is still of the older version"
    cluster.upgrade("b")
    until(lambda: CONTRACT in cluster.applied())
    until(lambda: cluster.list_nodes("c")["waiting_migration"] is None)
    cluster.put()
    assert_older_version_is_refused(cluster)
    counts = {id: attempt for id, _, attempt in cluster.rows()}
    assert sorted(counts) == sorted(cluster.ids)
    ran = Counter({id: (cluster.ran / id).read_text().count("x") for id in counts})
    assert ran == Counter(dict.fromkeys(counts, 1)), "each job ran once"


def assert_older_version_is_refused(cluster: UpgradedCluster) -> None:
    cluster.nodes["a"].signal(signal.SIGTERM)
    assert cluster.nodes["a"].wait() == 0
    del cluster.sites["a"].environ["PYTHONPATH"]
    old = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "ductile",
            "system",
            "start",
            "--config",
            str(cluster.sites["a"].folder),
        ],
        env={**os.environ, **cluster.sites["a"].environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    text, _ = old.communicate(timeout=WAIT_LIMIT)
    assert old.returncode != 0
    assert (
        f"migration {CONTRACT:04} of the ledger is of a newer version of ductile; upgrade" in text
    )


def test_page_names_the_commands_of_the_test() -> None:
    """`UpgradedCluster.upgrade` runs them."""
    page = PAGE.read_text(encoding="utf-8")
    section = page[page.index("## Upgrading a cluster") :]
    commands = [line.split("#")[0].strip() for line in section.split("```")[1].strip().splitlines()]
    assert commands == [
        "ductile node drain a",
        "ductile system stop",
        "ductile system start --node a",
        "ductile node resume a",
    ]
