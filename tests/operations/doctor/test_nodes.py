"""The doctor reports nodes that differ or are lost, and sessions that hold back the stream."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from ductile.operations.doctor import nodes
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
    monkeypatch.setattr(nodes, "LONGEST_TRANSACTION", 0.0)
    with (
        site.opened() as running,
        psycopg.connect(postgres.database(empty=True), application_name="report") as foreign,
    ):
        foreign.execute("CREATE TABLE left_open (n int)")
        finding = find_one(examine(site), "holds back the event stream")
        assert "(report, database " in finding.what
        assert str(foreign.info.backend_pid) in str(finding.run)
        held = running.gateway.ledger.read(lambda tx: tx.dicts("stream_holders", seconds=0.0))
        assert held
        foreign.rollback()
