"""Gateways that are killed at random, cancels, retries and reloads: the limit of a key holds.

Each job locks one of as many files as its key allows; the kernel frees the lock of a process that
dies in whatever way. A job that finds no free file has started beyond the limit.
"""

from __future__ import annotations

import random
import signal
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.crash.gateway_process import GatewayProcess
from tests.engine.site import PYTHON, Site
from tests.postgres import Server
from tests.waiting import until

LIMIT = 2
KEYS = "abc"
OVER = "over"
RUN = f"""{PYTHON}
import fcntl, os, random
request = json.load(sys.stdin)
key, folder = request["payload"]["account"], "%s"
for number in range({LIMIT}):
    place = open(f"{{folder}}/{{key}}-{{number}}", "a")
    try:
        fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
        break
    except BlockingIOError:
        pass
else:
    open(f"{{folder}}/{OVER}", "a").write(request["job_id"] + "\\n")
time.sleep(0.05)
os.close(place.fileno())
ok = random.random() > 0.1
print(json.dumps({{"status": "ok" if ok else "error", "error": "by chance", "result": "done"}}))
"""


class LimitedNodes:
    """One gateway on SQLite, or three on one PostgreSQL."""

    def __init__(self, url: str | None, another: Callable[[], Site], seed: int) -> None:
        self.random = random.Random(seed)
        self.sites = [another() for _ in range(1 if url is None else 3)]
        self.locks = self.sites[0].folder / "locks"
        self.locks.mkdir()
        for number, site in enumerate(self.sites):
            retry = {"backoff_base": "10ms", "max_attempts": 9}
            site.plugin("work", RUN % self.locks, retry=retry, concurrency=self.limit(LIMIT))
            site.settings["service"].update(log_level="info", max_workers=6)
            site.environ["DUCTILE_TEST_SHORT_TIMES"] = "1"
            if url is not None:
                site.settings["service"]["node"] = f"n{number}"
                site.settings["state"] = {"url": url, "dir": str(site.state)}
        self.nodes = [GatewayProcess(site) for site in self.sites]
        self.ids: list[str] = []

    @staticmethod
    def limit(limit: int) -> dict[str, Any]:
        return {"key": "{payload.account}", "limit": limit}

    def step(self) -> None:
        actions = [self.put] * 8 + [self.kill, self.cancel, self.retry, self.reload]
        self.random.choice(actions)()

    def put(self) -> None:
        node = self.random.choice(self.nodes)
        body = {"payload": {"account": self.random.choice(KEYS)}}
        if self.random.random() < 0.2:
            body["priority"] = "10m"  # type: ignore[assignment]
        self.ids += [node.put(**body) for _ in range(3)]

    def kill(self) -> None:
        number = self.random.randrange(len(self.nodes))
        self.nodes[number].kill()
        self.nodes[number].end()
        self.nodes[number] = GatewayProcess(self.sites[number]).ready()

    def cancel(self) -> None:
        self._ask("cancel")

    def retry(self) -> None:
        self._ask("retry")

    def _ask(self, action: str) -> None:
        """For some job, in whatever state it is."""
        if self.ids:
            node, id = self.random.choice(self.nodes), self.random.choice(self.ids)
            assert node.client.post(f"/job/{id}/{action}", {}).status < 500

    def reload(self) -> None:
        limit = self.limit(self.random.randint(1, LIMIT))
        for site, node in zip(self.sites, self.nodes, strict=True):
            site.settings["plugins"]["work"]["concurrency"] = limit
            site.write()
            node.signal(signal.SIGHUP)

    def wait_until_done(self) -> None:
        """Every job ends: none waits forever for a key that is free.

        The next one ends within the limit of a wait; all of them may take longer.
        """
        left = set(self.ids)
        while left:
            left -= until(partial(self.find_ended, left))

    def find_ended(self, ids: set[str]) -> set[str]:
        client = self.nodes[0].client
        shown = {id: client.get(f"/job/{id}").json["status"] for id in ids}
        return {id for id, status in shown.items() if status not in ("queued", "running")}

    def stop(self) -> None:
        for node in self.nodes:
            node.end()


@pytest.fixture(params=["sqlite", "postgres"])
def start(
    request: pytest.FixtureRequest, another: Callable[[], Site]
) -> Iterator[Callable[[int], LimitedNodes]]:
    made: list[LimitedNodes] = []

    def start(seed: int) -> LimitedNodes:
        server: Server | None = None
        if request.param == "postgres":
            server = request.getfixturevalue("postgres")
        made.append(LimitedNodes(server.database() if server else None, another, seed))
        for node in made[-1].nodes:
            node.ready()
        return made[-1]

    yield start
    for nodes in made:
        nodes.stop()


def live(nodes: LimitedNodes, steps: int) -> None:
    for _ in range(steps):
        nodes.step()
    nodes.kill()
    nodes.wait_until_done()
    assert not (Path(nodes.locks) / OVER).exists(), "more jobs of a key ran than its limit allows"


def test_limit_holds_over_kills_cancels_retries_and_reloads(
    start: Callable[[int], LimitedNodes],
) -> None:
    live(start(1), 16)


@pytest.mark.torture
@pytest.mark.parametrize("seed", range(2, 7))
def test_limit_holds_for_a_long_time(start: Callable[[int], LimitedNodes], seed: int) -> None:
    live(start(seed), 300)
