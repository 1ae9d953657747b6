"""A full disk: enqueue is refused, no result is lost, and a stop works."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import apsw
import pytest

from ductile.errors import LedgerFull
from tests.engine.site import OK, PYTHON, Running, Site
from tests.waiting import WAIT_LIMIT, until

BIG = "x" * 400_000


class Disk:
    """Limits the pages of the ledger through its own connection."""

    def __init__(self, connections: list[apsw.Connection]) -> None:
        self._connections = connections

    def limit(self, running: Running, spare: int) -> None:
        # The first that is still open is the writer of the gateway's ledger.
        writer = next(filter(_is_open, self._connections))

        def work(_tx: Any) -> None:
            writer.pragma("max_page_count", int(str(writer.pragma("page_count"))) + spare)

        running.gateway.ledger.write(work)


def _is_open(connection: apsw.Connection) -> bool:
    try:
        return bool(connection.pragma("page_count"))
    except apsw.ConnectionClosedError:
        return False


@pytest.fixture
def disk() -> Iterator[Disk]:
    opened: list[apsw.Connection] = []
    apsw.connection_hooks.append(opened.append)
    yield Disk(opened)
    apsw.connection_hooks.remove(opened.append)


def large_answer(gate: Any) -> str:
    return (
        PYTHON
        + f"open({str(gate.reported)!r}, 'w').write('x\\n'); open({str(gate.path)!r}).readline()\n"
        + "print(json.dumps({'status': 'ok', 'result': 'y' * 400_000}))\n"
    )


def test_enqueue_is_refused_until_there_is_disk_space(site: Site, disk: Disk) -> None:
    site.plugin("echo", OK)
    with site.running() as running:
        disk.limit(running, 0)
        with pytest.raises(LedgerFull):
            running.put("echo", payload={"big": BIG})
        disk.limit(running, 10_000)
        assert running.run("echo", payload={"big": BIG})["status"] == "succeeded"


def test_settlement_waits_for_disk_space(
    site: Site, disk: Disk, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    gate = site.gate()
    site.plugin("echo", large_answer(gate))
    with site.running() as running:
        id = running.put("echo")
        gate.arrived()
        disk.limit(running, 0)
        gate.open()
        until(lambda: b"settlement waits" in capfdbinary.readouterr().out)
        assert running.job(id)["status"] == "running"
        disk.limit(running, 10_000)
        job = running.ended(id)
    assert (job["status"], job["attempt"]) == ("succeeded", 1)


def test_stop_does_not_wait_forever_for_disk_space(
    site: Site, disk: Disk, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """The attempt is lost, as in a crash; the next start recovers it."""
    gate = site.gate()
    site.settings["service"]["shutdown_grace"] = "500ms"
    site.plugin("echo", large_answer(gate), retry={"backoff_base": "10ms"})
    with site.running() as running:
        id = running.put("echo")
        gate.arrived()
        disk.limit(running, 0)
        gate.open()
        until(lambda: b"settlement waits" in capfdbinary.readouterr().out)
        thread = threading.Thread(target=running.end)
        thread.start()
        thread.join(WAIT_LIMIT)
        stopped = not thread.is_alive()
        if not stopped:
            disk.limit(running, 10_000)
            thread.join(WAIT_LIMIT)
        assert stopped
    with site.running() as running:
        gate.open()
        assert running.ended(id)["status"] == "succeeded"
