"""The doctor reports nodes that differ or are lost, and sessions that hold back the stream."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from ductile.engine.observability.metrics import Metrics
from ductile.store import notices
from ductile.store.engines.queries import load_queries
from tests.engine.site import OK, Site
from tests.operations.doctor.harness import WARNING, examine, find_one
from tests.postgres import Server


@pytest.fixture
def url(postgres: Server) -> str:
    return postgres.database()


@pytest.fixture
def site(site: Site, url: str) -> Iterator[Site]:
    site.plugin("echo", OK)
    site.settings["service"]["node"] = "a"
    site.settings["state"] = {"url": url, "dir": str(site.state)}
    return site


COPY = """
INSERT INTO nodes SELECT 'b', 'x', version, %s, labels, plugins, pipelines, workers, workspaces,
                         started_at, seen_at FROM nodes
"""

WAITING_NOTICE = """
INSERT INTO notices (topic, type, payload, created_at)
VALUES ('jobs', 'job.queued', '{}', to_char((now() - interval '61 s') AT TIME ZONE 'UTC',
                                            'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'))
"""


def test_nodes_with_different_configurations(site: Site, url: str) -> None:
    with site.opened():
        with psycopg.connect(url) as connection:
            connection.execute(COPY, ("other-hash",))
        finding = find_one(examine(site), "the running nodes have different configurations")
    assert finding.severity is WARNING
    assert "b: other-ha" in finding.why


def test_lost_node(site: Site, url: str) -> None:
    with site.opened():
        with psycopg.connect(url) as connection:
            connection.execute(COPY, ("hash",))
            connection.execute("UPDATE nodes SET seen_at = '2026-01-01T00:00:00Z' WHERE name = 'b'")
        finding = find_one(examine(site), "node b is lost")
    assert finding.run is not None
    assert "node forget b" in finding.run


def test_session_that_holds_back_the_stream(
    site: Site, url: str, postgres: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notices, "LONGEST_TRANSACTION", 0.0)
    with (
        site.opened() as running,
        psycopg.connect(postgres.database(empty=True), application_name="report") as foreign,
    ):
        foreign.execute("CREATE TABLE left_open (n int)")
        finding = find_one(examine(site), "holds back the event stream")
        assert "(report, database " in finding.what
        assert str(foreign.info.backend_pid) in str(finding.run)
        pid = str(foreign.info.backend_pid)
        named = [line for line in Metrics(running.gateway).render(0).splitlines() if pid in line]
        assert len(named) == 1
        assert named[0].startswith(
            f'ductile_stream_holder_seconds{{session="{pid}",application="report",database="'
        )
        foreign.rollback()
        assert f'session="{pid}"' not in Metrics(running.gateway).render(0)


def test_session_of_another_database_user_is_named(postgres: Server) -> None:
    """To a user without pg_read_all_stats, the server does not show when a transaction began."""
    url = postgres.database()
    with psycopg.connect(url) as foreign, psycopg.connect(url) as connection:
        foreign.execute("CREATE TABLE left_open (n int)")
        with connection.transaction(force_rollback=True):
            connection.execute(WAITING_NOTICE)
            connection.execute("CREATE ROLE limited")
            connection.execute("GRANT SELECT ON notices TO limited")
            connection.execute("SET LOCAL ROLE limited")
            rows = connection.execute(load_queries("postgres")["stream_holders"]).fetchall()
        [(_, _, _, seconds)] = [row for row in rows if row[0] == foreign.info.backend_pid]
        assert seconds > 60
        foreign.rollback()
