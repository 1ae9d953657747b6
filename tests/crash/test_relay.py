"""SIGKILL of either gateway while one relays to the other: no event is lost or duplicated."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import pytest

from tests.crash.gateway_process import GatewayProcess
from tests.engine.site import OK, Site
from tests.ports import find_free_port
from tests.waiting import until

SECRET = "a-shared-secret-of-two"
EMIT = """echo '{"status":"ok","result":1,"events":[{"type":"made","payload":{}}]}'\n"""
EVENTS = 5
TOKENS = {"tokens": [{"token": "a-token-of-the-tests", "scopes": ["*"]}]}


@pytest.fixture
def sites() -> Iterator[tuple[Site, Site]]:
    """`home`, which relays every `made` event to `lab`, and `lab`."""
    folders = [Path(tempfile.mkdtemp(prefix="dt-")) for _ in range(2)]
    home, lab = (Site(folder) for folder in folders)
    for site in (home, lab):
        site.settings["service"]["log_level"] = "info"
    port = find_free_port()
    home.settings["service"]["name"] = "home"
    home.plugin("emit", EMIT, retry={"max_attempts": 10, "backoff_base": "10ms"})
    home.settings["instances"] = [
        {
            "name": "lab",
            "base_url": f"http://127.0.0.1:{port}",
            "ingress_path": "/ingest/peer/home",
            "secret": SECRET,
        }
    ]
    relay = {"to": "lab", "event": "made.there"}
    home.settings["pipelines"] = [{"name": "p", "on": "made", "steps": [{"relay": relay}]}]
    lab.settings["api"] = {"enabled": True, "listen": f"127.0.0.1:{port}", "auth": TOKENS}
    lab.settings["remote_ingress"] = {"peers": [{"name": "home", "secret": SECRET}]}
    lab.plugin("work", f"cat > /dev/null\n{OK}")
    lab.settings["pipelines"] = [{"name": "q", "on": "made.there", "steps": [{"uses": "work"}]}]
    yield home, lab
    for site, folder in zip((home, lab), folders, strict=True):
        site.close()
        until(lambda site=site: site.alive() == [])  # type: ignore[misc]
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def start_gateway() -> Iterator[Callable[..., GatewayProcess]]:
    processes: list[GatewayProcess] = []

    def start_gateway(site: Site, failpoint: str | None = None) -> GatewayProcess:
        processes.append(GatewayProcess(site, failpoint))
        return processes[-1]

    yield start_gateway
    for process in processes:
        process.end()


def rows(site: Site, query: str) -> list[tuple[object, ...]]:
    """Read with a connection of its own: this process does not have the ledger open."""
    connection = apsw.Connection(str(site.state / "state.db"), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return list(connection.execute(query))
    finally:
        connection.close()


def statuses(home: Site) -> list[object]:
    return [status for (status,) in rows(home, "SELECT status FROM relay_deliveries")]


def arrived(lab: Site) -> list[object]:
    """The events at the receiver, by the sender's own id."""
    query = "SELECT payload FROM job_queue WHERE submitted_by = 'relay'"
    return [json.loads(str(row[0]))["event_id"] for row in rows(lab, query)]


def made(home: Site) -> int:
    """How many events there are, including one whose answer was lost with the gateway."""
    [(count,)] = rows(home, "SELECT count(*) FROM job_queue WHERE plugin = 'emit'")
    assert isinstance(count, int)
    return count


def all_arrive_once(home: Site, lab: Site) -> None:
    until(lambda: statuses(home) == ["delivered"] * max(made(home), EVENTS))
    assert len(arrived(lab)) == made(home)
    assert len(rows(lab, "SELECT event_id FROM relay_receipts")) == made(home)


FAILPOINTS = [
    "relay.claimed:1",
    "relay.sent:1",
    "relay.sent:3",
    "relay.settled:1",
    "relay.settled:3",
]


@pytest.mark.parametrize("failpoint", FAILPOINTS)
def test_kill_of_the_sender_relays_each_event_once(
    sites: tuple[Site, Site], start_gateway: Callable[..., GatewayProcess], failpoint: str
) -> None:
    home, lab = sites
    start_gateway(lab).ready()
    first = start_gateway(home, failpoint).ready()
    accepted = 0
    for _ in range(EVENTS):
        try:
            first.put("emit")
            accepted += 1
        except OSError:
            break
    first.wait()
    second = start_gateway(home).ready()
    for _ in range(EVENTS - accepted):
        second.put("emit")
    all_arrive_once(home, lab)


@pytest.mark.parametrize(
    ("failpoint", "count"), [("commit.before", 6), ("commit.after", 9), ("commit.before", 12)]
)
def test_kill_of_the_receiver_relays_each_event_once(
    sites: tuple[Site, Site],
    start_gateway: Callable[..., GatewayProcess],
    failpoint: str,
    count: int,
) -> None:
    home, lab = sites
    dying = start_gateway(lab, f"{failpoint}:{count}")
    sender = start_gateway(home).ready()
    for _ in range(EVENTS):
        sender.put("emit")
    dying.wait()
    start_gateway(lab).ready()
    all_arrive_once(home, lab)


def test_a_receiver_that_was_down_gets_every_event(
    sites: tuple[Site, Site], start_gateway: Callable[..., GatewayProcess]
) -> None:
    home, lab = sites
    away = start_gateway(lab).ready()
    away.kill()
    sender = start_gateway(home).ready()
    for _ in range(EVENTS):
        sender.put("emit")
    until(lambda: "failed" in statuses(home))
    sender.kill()
    start_gateway(lab).ready()
    start_gateway(home).ready()
    all_arrive_once(home, lab)
