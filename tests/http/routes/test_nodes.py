"""Two gateways on one PostgreSQL database stream the same events."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import psycopg
import pytest

from ductile.model import Notice
from ductile.store import notices
from ductile.store.engines.api import Tx
from tests.http.harness import CONFIG, ApiHarness, allow_long_waits, running_api
from tests.http.subscriber import subscribed
from tests.postgres import Server
from tests.waiting import until

COUNT = 400
PIPELINES = """\
pipelines:
  - {name: now, on: never, execution_mode: synchronous, steps: [{uses: echo}]}
"""
Nodes = tuple[ApiHarness, ApiHarness]


def config(url: str) -> str:
    shared = f"state: {{url: '{url}', dir: ./data}}"
    return CONFIG.replace("state: {path: ./data/state.db}", shared) + PIPELINES


@pytest.fixture(scope="module")
def nodes(postgres: Server) -> Iterator[Nodes]:
    """Only the second node runs jobs."""
    text = config(postgres.database())
    with ExitStack() as stack:
        first = stack.enter_context(running_api(text, working=False))
        yield first, stack.enter_context(running_api(text))


def post(api: ApiHarness, name: str, pause: float) -> None:
    now = api.gateway.clock.now()

    def work(tx: Tx) -> None:
        notices.post(tx, Notice("session:numbers", name, {}), now)
        time.sleep(pause)

    api.gateway.ledger.write(work)


def post_many(nodes: Nodes, prefix: str) -> set[str]:
    """Concurrent transactions of both nodes, some of which commit late."""
    chance = random.Random(prefix)
    pauses = [chance.choice((0.0, 0.0, 0.002, 0.01)) for _ in range(COUNT)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: post(nodes[n % 2], f"{prefix}{n}", pauses[n]), range(COUNT)))
    return {f"{prefix}{n}" for n in range(COUNT)}


def test_both_nodes_stream_the_same_events_in_the_same_order(nodes: Nodes) -> None:
    with (
        subscribed(nodes[0], "?topic=session:numbers") as one,
        subscribed(nodes[1], "?topic=session:numbers") as two,
    ):
        posted = post_many(nodes, "live")
        received = [[subscriber.next()["event"] for _ in range(COUNT)] for subscriber in (one, two)]
    assert set(received[0]) == posted
    assert received[0] == received[1]


def test_stream_resumes_on_another_node_without_gaps_or_repeats(
    nodes: Nodes,
) -> None:
    with (
        subscribed(nodes[0], "?topic=session:numbers") as subscriber,
        ThreadPoolExecutor(1) as pool,
    ):
        posting = pool.submit(post_many, nodes, "hop")
        received = [subscriber.next()]
        while len(received) < COUNT:
            last = received[-1]["id"]
            node = nodes[len(received) % 2]
            with subscribed(node, "?topic=session:numbers", Last_Event_ID=last) as again:
                received += [again.next() for _ in range(min(23, COUNT - len(received)))]
        posted = posting.result()
    names = [event["event"] for event in received]
    assert len(set(names)) == len(names)
    assert set(names) == posted


def test_wait_on_one_node_sees_the_end_on_another(nodes: Nodes) -> None:
    answer = nodes[0].ask("POST", "/pipeline/now", "{}")
    assert (answer.status, answer.json["status"]) == (200, "succeeded")


def test_cursor_of_notices_is_valid_on_every_node(nodes: Nodes) -> None:
    before = nodes[0].ask("GET", "/notices").json
    posted = post_many(nodes, "page")
    names: list[str] = []
    cursor = before["cursor"]

    def all_told() -> bool:
        nonlocal cursor
        page = nodes[len(names) % 2].ask("GET", f"/notices?after={cursor}").json
        names.extend(
            notice["type"] for notice in page["notices"] if notice["topic"] == "session:numbers"
        )
        cursor = page["cursor"]
        return len(names) >= len(posted)

    assert before["notices"] == []
    until(all_told)
    assert sorted(names) == sorted(posted)


@pytest.fixture
def held_back(postgres: Server) -> Iterator[None]:
    """A transaction that stays open in another database of the server."""
    with psycopg.connect(postgres.database(empty=True)) as connection:
        connection.execute("CREATE TABLE left_open (n int)")
        connection.execute("INSERT INTO left_open VALUES (1)")
        yield
        connection.rollback()


@pytest.mark.usefixtures("held_back")
def test_wait_ends_although_notices_are_held_back(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Longer than the client waits: an answer at the end of the wait would come too late.
    allow_long_waits(monkeypatch)
    answer = nodes[0].ask("POST", "/pipeline/now", "{}")
    assert (answer.status, answer.json["status"]) == (200, "succeeded")
    job_id = nodes[0].ask("POST", "/plugin/echo/poll", "{}").json["job_id"]
    job = nodes[0].ask("GET", f"/job/{job_id}?wait=3600").json
    assert job["status"] == "succeeded"
    started = nodes[0].ask("POST", "/pipeline/now?async=true", "{}").json["instance_id"]
    found = nodes[0].ask("GET", f"/pipeline-instance/{started}?wait=3600").json
    assert found["status"] == "succeeded"
