"""A frozen database: the gateway responds, ends its processes and stops."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from ductile.engine import gateway
from tests.engine.site import OK, Site
from tests.postgres import Server, a_server
from tests.waiting import WAIT_LIMIT


@pytest.fixture
def postgres() -> Iterator[Server]:
    """A server for this test only, because it is frozen."""
    with a_server() as server:
        yield server


def test_stop_does_not_wait_for_a_frozen_database(
    site: Site, postgres: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.settings["state"] = {"url": postgres.database(), "dir": str(site.state)}
    site.settings["service"]["shutdown_grace"] = "100ms"
    monkeypatch.setattr(gateway, "LEDGER_TIMEOUT", 0.3)
    gate = site.gate()
    site.plugin("echo", gate.script() + OK)
    with site.running() as running:
        id = running.put("echo")
        gate.arrived()
        with postgres.frozen():
            stopping = threading.Thread(target=running.end, daemon=True)
            stopping.start()
            stopping.join(WAIT_LIMIT)
            ended, alive = not stopping.is_alive(), site.alive()
        assert ended
        assert alive == []
    with site.opened() as running:
        assert running.job(id)["status"] == "queued"
