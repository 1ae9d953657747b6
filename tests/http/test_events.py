"""`GET /events`: live, resumed with nothing missing, filtered, kept over a reload."""

from __future__ import annotations

import http.client
import json
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from ductile.http import events, stream
from tests.http.doors import ADMIN, CONFIG, PATIENCE, House, opened


@pytest.fixture(scope="module")
def house() -> Iterator[House]:
    with opened(working=False) as house:
        yield house


class Follower:
    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.response = response
        assert self.line() == ": following"
        assert self.line() == ""

    def line(self) -> str:
        return self.response.readline().decode().rstrip("\n")

    def next(self) -> dict[str, Any]:
        """The next event, with its fields and its parsed data."""
        found: dict[str, Any] = {}
        while True:
            line = self.line()
            if not line and "data" in found:
                return {**found, "data": json.loads(found["data"])}
            name, _, value = line.partition(": ")
            found[name] = value


@contextmanager
def following(house: House, query: str = "", **headers: str) -> Iterator[Follower]:
    connection = http.client.HTTPConnection(*house.address("api"), timeout=PATIENCE)
    sent = {"Authorization": f"Bearer {ADMIN}"}
    sent |= {name.replace("_", "-"): value for name, value in headers.items()}
    try:
        connection.request("GET", f"/events{query}", headers=sent)
        response = connection.getresponse()
        assert response.status == 200, response.read()
        assert response.headers["content-type"].startswith("text/event-stream")
        yield Follower(response)
    finally:
        connection.close()


def trigger(house: House) -> str:
    job_id: str = house.ask("POST", "/plugin/echo/poll", "{}").json["job_id"]
    return job_id


def test_what_happens_is_told(house: House) -> None:
    trigger(house)
    with following(house) as follower:
        job_id = trigger(house)
        event = follower.next()
    assert event["event"] == "job.queued"
    assert event["data"]["data"]["job_id"] == job_id
    assert event["data"]["topic"] == "jobs"
    assert int(event["id"]) == event["data"]["id"]


def test_a_dropped_connection_resumes_with_nothing_missing(house: House) -> None:
    with following(house) as follower:
        first = trigger(house)
        last = follower.next()
    missed = [trigger(house) for _ in range(5)]
    with following(house, Last_Event_ID=last["id"]) as follower:
        live = trigger(house)
        got = [follower.next()["data"]["data"]["job_id"] for _ in range(6)]
    assert last["data"]["data"]["job_id"] == first
    assert got == [*missed, live]


def test_what_the_ring_has_passed_comes_from_the_ledger(house: House) -> None:
    with following(house) as follower:
        trigger(house)
        last = follower.next()["id"]
    before = house.gateway.bridge.ring
    house.gateway.bridge.ring = deque(maxlen=2)
    try:
        ids = [trigger(house) for _ in range(10)]
        with following(house, f"?after={last}") as follower:
            assert [follower.next()["data"]["data"]["job_id"] for _ in ids] == ids
            ids = [trigger(house) for _ in range(10)]
            assert [follower.next()["data"]["data"]["job_id"] for _ in ids] == ids
    finally:
        house.gateway.bridge.ring = before


def test_a_topic_is_filtered(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "HEARTBEAT", 0.02)
    with following(house, "?topic=breakers,pipelines") as follower:
        trigger(house)
        newest = house.gateway.ledger.read(lambda tx: tx.all("last_notice")[0][0])
        while follower.line() != f"id: {newest}":
            pass
    with following(house, "?topic=jobs") as follower:
        trigger(house)
        assert follower.next()["event"] == "job.queued"


@pytest.mark.parametrize("last", ["x", "-1", "1.5", "9" * 40])
def test_a_bad_cursor_is_refused(house: House, last: str) -> None:
    assert house.ask("GET", "/events", headers={"Last-Event-ID": last}).status == 400


def test_a_cursor_of_the_future_gets_all_there_is(house: House) -> None:
    trigger(house)
    with following(house, "?after=99999999") as follower:
        assert follower.next()["event"] == "job.queued"


def test_followers_are_bounded(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "MOST_FOLLOWERS", 0)
    assert house.ask("GET", "/events").status == 503


def test_a_reload_keeps_followers_and_a_stop_sends_them_away() -> None:
    with opened() as own, following(own) as follower:
        own.write(
            "config.yaml", CONFIG.replace("max_workers: 2", "max_workers: 2, log_level: warn")
        )
        assert own.ask("POST", "/system/reload").status == 200
        trigger(own)
        assert follower.next()["event"] == "job.queued"
        own.server.stop()
        assert follower.response.read() is not None
