"""`ductile events follow` across a restart of the gateway: every event exactly once."""

from __future__ import annotations

import json
import queue
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.cli.runner import CliRunner, read_until, stop
from tests.waiting import WAIT_LIMIT


class Follower:
    """A process that follows events, and the events that it has printed."""

    def __init__(self, cli: CliRunner) -> None:
        self.process = cli.start("events", "follow", "--topic", "jobs", "--json", "-v")
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()
        self.seen: list[dict[str, Any]] = []

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)

    def until(self, type: str, job_id: str) -> None:
        """Read up to this event."""
        while True:
            event = json.loads(self._lines.get(timeout=WAIT_LIMIT))
            self.seen.append(event)
            if (event["type"], event["data"]["job_id"]) == (type, job_id):
                return


@contextmanager
def following(cli: CliRunner) -> Iterator[Follower]:
    follower = Follower(cli)
    try:
        yield follower
    finally:
        stop(follower.process, signal.SIGINT)


def until_followed(cli: CliRunner) -> None:
    for _ in range(1000):
        if "ductile_event_followers 1" in cli("api", "/metrics").out:
            return
    pytest.fail("there is no subscriber")


def run(cli: CliRunner) -> str:
    job_id: str = cli("plugin", "run", "hello", "--json").json["job_id"]
    return job_id


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL], ids=["stop", "kill"])
def test_following_events_resumes_after_a_restart(cli: CliRunner, how: signal.Signals) -> None:
    first = cli.start("system", "start")
    read_until(first, '"message":"ready"')
    with following(cli) as follower:
        until_followed(cli)
        follower.until("job.succeeded", run(cli))
        # An event that is not sent before the stop is sent after the restart.
        hurried = run(cli)
        stop(first, how)
        with cli.gateway():
            last = run(cli)
            follower.until("job.succeeded", last)
            result = cli("api", "/notices?after=0").json["notices"]
    assert follower.process.returncode in (0, 130)
    meant = [n["id"] for n in result if n["topic"] == "jobs"]
    seen = [event["id"] for event in follower.seen]
    assert seen == [id for id in meant if seen[0] <= id <= seen[-1]]
    assert hurried in {event["data"]["job_id"] for event in follower.seen}
