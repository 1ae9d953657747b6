"""kill -9 on the way of a delivery: each ends delivered, pending or dead, and never is gone."""

from __future__ import annotations

import hashlib
import hmac
import http.client
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import apsw
import orjson
import pytest

from ductile.engine.outbox.webhooks import EnqueueDelivery
from ductile.store.outbox import deliveries
from ductile.store.outbox.deliveries import NewWebhook
from tests.crash.life import Life
from tests.engine.receiver import Received, Receiver, receiving
from tests.engine.site import Running, Site
from tests.waiting import WAIT_LIMIT, until

SECRET = "a secret of webhooks"
PLACES = ("delivery.claimed:1", "delivery.sent:1", "delivery.sent:3", "delivery.settled:2")
COMMITS = [f"commit.{when}:{count}" for when in ("before", "after") for count in (6, 11, 15, 19)]


@pytest.fixture(autouse=True)
def _open_to_loopback(site: Site) -> None:
    site.settings["gateway"] = {"allowed_networks": ["127.0.0.0/8"]}


def add(house: Running, event: str, **more: Any) -> int:
    gateway = house.gateway
    new, now = NewWebhook("test", event, "", "s-1", **more), gateway.clock.now()
    return gateway.ledger.write(lambda tx: deliveries.add_webhook(tx, new, SECRET, now))


def put(house: Running, webhook_id: int, delay: float = 0.0) -> int:
    gateway = house.gateway
    later = timedelta(seconds=delay)
    sending = EnqueueDelivery(
        webhook_id, '{"a":1}', gateway.entropy.uuid(), gateway.clock.now(), later
    )
    return gateway.ledger.write(sending).delivery_id


def rows(site: Site) -> dict[int, dict[str, Any]]:
    connection = apsw.Connection(str(site.state / "state.db"), flags=apsw.SQLITE_OPEN_READONLY)
    found = connection.execute(
        "SELECT id, status, attempt_count, message_id, owner FROM webhook_deliveries"
    ).fetchall()
    connection.close()
    names = ("status", "attempt_count", "message_id", "owner")
    return {int(str(row[0])): dict(zip(names, row[1:], strict=True)) for row in found}


def count(site: Site, sql: str) -> int:
    connection = apsw.Connection(str(site.state / "state.db"), flags=apsw.SQLITE_OPEN_READONLY)
    ((found,),) = connection.execute(sql).fetchall()
    connection.close()
    return int(str(found))


def is_killed(life: Life) -> bool:
    """By its failpoint, and not by something else."""
    assert life.wait() == -9, (life.lines[-5:], life._errors)
    return True


def settled(site: Site, ids: list[int]) -> None:
    """A life without a failpoint brings each to its end."""
    with site.running():
        until(lambda: {rows(site)[id]["status"] for id in ids} <= {"delivered", "dead"})
    assert {rows(site)[id]["owner"] for id in ids} == {None}


def sends(receiver: Receiver) -> Counter[str]:
    return Counter(request.headers["webhook-id"] for request in receiver.received)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving(200) as receiver:
        yield receiver


@pytest.mark.parametrize("place", [*PLACES, *COMMITS])
def test_what_was_accepted_is_delivered_though_the_gateway_is_killed_there(
    site: Site, live: Callable[..., Life], receiver: Receiver, place: str
) -> None:
    with site.opened() as house:
        outside = add(house, "out", target_url=receiver.url)
        inside = add(house, "in", plugin="work")
        ids = [put(house, outside) for _ in range(3)]
        handed = put(house, inside)
    assert is_killed(live(place))
    assert rows(site).keys() == {*ids, handed}
    settled(site, [*ids, handed])
    found = rows(site)
    assert {row["status"] for row in found.values()} == {"delivered"}
    assert sends(receiver).keys() == {found[id]["message_id"] for id in ids}
    # Once more at most: what was sent and not settled is sent again, under the same id.
    assert max(sends(receiver).values()) <= 2
    assert count(site, "SELECT count(*) FROM job_queue WHERE plugin = 'work'") == 1


@pytest.mark.parametrize("place", PLACES)
def test_a_death_has_one_dlq_event_though_the_gateway_is_killed_there(
    site: Site, live: Callable[..., Life], receiver: Receiver, place: str
) -> None:
    receiver.answers = [500]
    with site.opened() as house:
        outside = add(house, "out", target_url=receiver.url)
        ids = [put(house, outside) for _ in range(3)]
    connection = apsw.Connection(str(site.state / "state.db"))
    connection.execute("UPDATE webhook_deliveries SET status = 'failed', attempt_count = 5")
    connection.close()
    assert is_killed(live(place))
    settled(site, ids)
    assert {row["status"] for row in rows(site).values()} == {"dead"}
    assert {row["attempt_count"] for row in rows(site).values()} == {6}
    told = "SELECT count(*) FROM notices WHERE type = 'WebhookDLQEvent'"
    assert count(site, told) == len(ids)


def test_killed_while_the_receiver_has_it_it_is_sent_again(
    site: Site, live: Callable[..., Life]
) -> None:
    over = threading.Event()

    class Slow(Receiver):
        def take(self, request: Received) -> int:
            status = super().take(request)
            over.wait(WAIT_LIMIT)
            return status

    receiver = Slow()
    try:
        with site.opened() as house:
            id = put(house, add(house, "out", target_url=receiver.url))
        life = live().ready()
        receiver.wait(1)
        life.kill()
        assert rows(site)[id]["status"] == "pending"
        assert rows(site)[id]["owner"] is not None
        over.set()
        settled(site, [id])
        assert list(sends(receiver).values()) == [2]
    finally:
        over.set()
        receiver.close()


class Poster:
    """Posts signed webhooks until the gateway is gone, and knows which were accepted."""

    def __init__(self, life: Life, webhook_id: int) -> None:
        self.accepted: list[int] = []
        self._life, self._path = life, f"/gateway/webhooks/{webhook_id}"
        self._thread = threading.Thread(target=self._work)
        self._thread.start()

    def _work(self) -> None:
        give_up = time.monotonic() + WAIT_LIMIT
        while time.monotonic() < give_up:
            body = orjson.dumps({"n": len(self.accepted)})
            signed = hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
            headers = {"X-Observatory-Signature": f"sha256={signed}"}
            try:
                answer = self._life.client.request("POST", self._path, body, headers)
                assert answer.status == 202, answer.body
                self.accepted.append(answer.json["delivery_id"])
            except (OSError, http.client.HTTPException):
                if self._life.process.poll() is not None:
                    return
                time.sleep(0.005)

    def stop(self) -> list[int]:
        self._thread.join(WAIT_LIMIT)
        return self.accepted


@pytest.mark.parametrize("place", ["commit.before:60", "commit.after:60", "commit.after:90"])
def test_what_came_in_and_was_acknowledged_is_there(
    site: Site, live: Callable[..., Life], place: str
) -> None:
    with site.opened() as house:
        webhook = add(house, "in", plugin="work")
    life = live(place)
    poster = Poster(life, webhook)
    assert is_killed(life)
    accepted = poster.stop()
    assert accepted
    found = rows(site)
    assert set(accepted) <= found.keys()
    assert {found[id]["status"] for id in accepted} == {"pending"}


@pytest.mark.torture
@pytest.mark.parametrize("number", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("name", ["delivery.claimed", "delivery.sent", "delivery.settled"])
def test_torture_at_every_place_again_and_again(
    site: Site, live: Callable[..., Life], receiver: Receiver, name: str, number: int
) -> None:
    with site.opened() as house:
        outside = add(house, "out", target_url=receiver.url)
        inside = add(house, "in", plugin="work")
        ids = [put(house, webhook) for webhook in [outside, inside] * 6]
    times = 1 if name == "delivery.claimed" else number
    for _ in range(2):
        assert is_killed(live(f"{name}:{times}"))
    settled(site, ids)
    assert {row["status"] for row in rows(site).values()} == {"delivered"}
    assert count(site, "SELECT count(*) FROM job_queue WHERE plugin = 'work'") == 6
