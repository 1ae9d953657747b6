"""kill -9 of either gateway while one relays to the other: nothing lost, nothing doubled."""

from __future__ import annotations

import json
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import pytest

from tests.crash.life import Life
from tests.engine.site import OK, Site
from tests.waiting import until

SECRET = "a-shared-secret-of-two"
EMIT = """echo '{"status":"ok","result":1,"events":[{"type":"made","payload":{}}]}'\n"""
EVENTS = 5
TOKENS = {"tokens": [{"token": "a-token-of-the-tests", "scopes": ["*"]}]}


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


@pytest.fixture
def sites() -> Iterator[tuple[Site, Site]]:
    """Home, which relays whatever is made to lab; and lab."""
    folders = [Path(tempfile.mkdtemp(prefix="dt-")) for _ in range(2)]
    home, lab = (Site(folder) for folder in folders)
    for site in (home, lab):
        site.settings["service"]["log_level"] = "info"
    port = free_port()
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
def live() -> Iterator[Callable[..., Life]]:
    lives: list[Life] = []

    def live(site: Site, failpoint: str | None = None) -> Life:
        lives.append(Life(site, failpoint))
        return lives[-1]

    yield live
    for life in lives:
        life.end()


def rows(site: Site, query: str) -> list[tuple[object, ...]]:
    """Asked of the ledger's file by another process's connection: nobody here has it open."""
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
    """How many events there are: one whose answer was lost with the gateway counts too."""
    [(count,)] = rows(home, "SELECT count(*) FROM job_queue WHERE plugin = 'emit'")
    assert isinstance(count, int)
    return count


def all_arrive_once(home: Site, lab: Site) -> None:
    until(lambda: statuses(home) == ["delivered"] * max(made(home), EVENTS))
    assert len(arrived(lab)) == made(home)
    assert len(rows(lab, "SELECT event_id FROM relay_receipts")) == made(home)


POINTS = ["relay.claimed:1", "relay.sent:1", "relay.sent:3", "relay.settled:1", "relay.settled:3"]


@pytest.mark.parametrize("point", POINTS)
def test_the_sender_dies(sites: tuple[Site, Site], live: Callable[..., Life], point: str) -> None:
    home, lab = sites
    live(lab).ready()
    first = live(home, point).ready()
    accepted = 0
    for _ in range(EVENTS):
        try:
            first.put("emit")
            accepted += 1
        except OSError:
            break
    first.wait()
    second = live(home).ready()
    for _ in range(EVENTS - accepted):
        second.put("emit")
    all_arrive_once(home, lab)


@pytest.mark.parametrize("point", ["commit.before", "commit.after"])
@pytest.mark.parametrize("count", [6, 9, 12])
def test_the_receiver_dies(
    sites: tuple[Site, Site], live: Callable[..., Life], point: str, count: int
) -> None:
    home, lab = sites
    dying = live(lab, f"{point}:{count}")
    sender = live(home).ready()
    for _ in range(EVENTS):
        sender.put("emit")
    dying.wait()
    live(lab).ready()
    all_arrive_once(home, lab)


def test_a_receiver_that_is_away_for_a_while_misses_nothing(
    sites: tuple[Site, Site], live: Callable[..., Life]
) -> None:
    home, lab = sites
    away = live(lab).ready()
    away.kill()
    sender = live(home).ready()
    for _ in range(EVENTS):
        sender.put("emit")
    until(lambda: "failed" in statuses(home))
    sender.kill()
    live(lab).ready()
    live(home).ready()
    all_arrive_once(home, lab)
