"""`ductile events follow` over a restart of the gateway: nothing missing, nothing twice."""

from __future__ import annotations

import json
import queue
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.cli.running import House, end, read_until
from tests.waiting import WAIT_LIMIT


class Follower:
    """A real process that follows, and what it has printed."""

    def __init__(self, house: House) -> None:
        self.process = house.start("events", "follow", "--topic", "jobs", "--json", "-v")
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()
        self.seen: list[dict[str, Any]] = []

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)

    def until(self, type: str, job_id: str) -> None:
        """Read on to the event that is meant."""
        while True:
            event = json.loads(self._lines.get(timeout=WAIT_LIMIT))
            self.seen.append(event)
            if (event["type"], event["data"]["job_id"]) == (type, job_id):
                return


@contextmanager
def following(house: House) -> Iterator[Follower]:
    follower = Follower(house)
    try:
        yield follower
    finally:
        end(follower.process, signal.SIGINT)


def until_followed(house: House) -> None:
    for _ in range(1000):
        if "ductile_event_followers 1" in house("api", "/metrics").out:
            return
    pytest.fail("nobody follows")


def run(house: House) -> str:
    job_id: str = house("plugin", "run", "hello", "--json").json["job_id"]
    return job_id


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL], ids=["stop", "kill"])
def test_a_follower_goes_on_where_it_was(house: House, how: signal.Signals) -> None:
    first = house.start("system", "start")
    read_until(first, '"message":"ready"')
    with following(house) as follower:
        until_followed(house)
        follower.until("job.succeeded", run(house))
        # What it is not told before the end, it is told after.
        hurried = run(house)
        end(first, how)
        with house.gateway():
            last = run(house)
            follower.until("job.succeeded", last)
            told = house("api", "/notices?after=0").json["notices"]
    assert follower.process.returncode in (0, 130)
    meant = [n["id"] for n in told if n["topic"] == "jobs"]
    seen = [event["id"] for event in follower.seen]
    assert seen == [id for id in meant if seen[0] <= id <= seen[-1]]
    assert hurried in {event["data"]["job_id"] for event in follower.seen}
