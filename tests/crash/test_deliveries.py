"""SIGKILL during a delivery: each is delivered, pending or dead afterwards, and none is lost."""

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
from ductile.store.outbox import webhooks
from ductile.store.outbox.webhooks import NewWebhook
from tests.crash.gateway_process import GatewayProcess
from tests.engine.receiver import Received, Receiver, receiving
from tests.engine.site import Running, Site
from tests.waiting import WAIT_LIMIT, until

SECRET = "a secret of webhooks"
FAILPOINTS = ("delivery.claimed:1", "delivery.sent:1", "delivery.sent:3", "delivery.settled:2")
COMMITS = ["commit.before:6", "commit.after:11", "commit.before:15", "commit.after:19"]


@pytest.fixture(autouse=True)
def _open_to_loopback(site: Site) -> None:
    site.settings["gateway"] = {"allowed_networks": ["127.0.0.0/8"]}


def add(running: Running, event: str, **more: Any) -> int:
    gateway = running.gateway
    new, now = NewWebhook("test", event, "", "s-1", **more), gateway.clock.now()
    return gateway.ledger.write(lambda tx: webhooks.add_webhook(tx, new, SECRET, now))


def put(running: Running, webhook_id: int, delay: float = 0.0) -> int:
    gateway = running.gateway
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


def was_killed(gateway: GatewayProcess) -> bool:
    """Whether its failpoint killed it."""
    assert gateway.wait() == -9, (gateway.lines[-5:], gateway._errors)
    return True


def settle_all(site: Site, ids: list[int]) -> None:
    """A gateway without a failpoint delivers each or makes it dead."""
    with site.running():
        until(lambda: {rows(site)[id]["status"] for id in ids} <= {"delivered", "dead"})
    assert {rows(site)[id]["owner"] for id in ids} == {None}


def sends(receiver: Receiver) -> Counter[str]:
    return Counter(request.headers["webhook-id"] for request in receiver.received)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving(200) as receiver:
        yield receiver


@pytest.mark.parametrize("failpoint", [*FAILPOINTS, *COMMITS])
def test_kill_loses_no_accepted_delivery(
    site: Site, start_gateway: Callable[..., GatewayProcess], receiver: Receiver, failpoint: str
) -> None:
    with site.opened() as running:
        outside = add(running, "out", target_url=receiver.url)
        inside = add(running, "in", plugin="work")
        ids = [put(running, outside) for _ in range(3)]
        handed = put(running, inside)
    assert was_killed(start_gateway(failpoint))
    assert rows(site).keys() == {*ids, handed}
    settle_all(site, [*ids, handed])
    found = rows(site)
    assert {row["status"] for row in found.values()} == {"delivered"}
    assert sends(receiver).keys() == {found[id]["message_id"] for id in ids}
    # At most twice: a request that was sent and not settled is sent again, with the same id.
    assert max(sends(receiver).values()) <= 2
    assert count(site, "SELECT count(*) FROM job_queue WHERE plugin = 'work'") == 1


@pytest.mark.parametrize("failpoint", FAILPOINTS)
def test_kill_does_not_duplicate_the_dead_letter_event(
    site: Site, start_gateway: Callable[..., GatewayProcess], receiver: Receiver, failpoint: str
) -> None:
    receiver.answers = [500]
    with site.opened() as running:
        outside = add(running, "out", target_url=receiver.url)
        ids = [put(running, outside) for _ in range(3)]
    connection = apsw.Connection(str(site.state / "state.db"))
    connection.execute("UPDATE webhook_deliveries SET status = 'failed', attempt_count = 5")
    connection.close()
    assert was_killed(start_gateway(failpoint))
    settle_all(site, ids)
    assert {row["status"] for row in rows(site).values()} == {"dead"}
    assert {row["attempt_count"] for row in rows(site).values()} == {6}
    events = "SELECT count(*) FROM notices WHERE type = 'WebhookDLQEvent'"
    assert count(site, events) == len(ids)


def test_kill_during_a_request_sends_it_again(
    site: Site, start_gateway: Callable[..., GatewayProcess]
) -> None:
    over = threading.Event()

    class Slow(Receiver):
        def take(self, request: Received) -> int:
            status = super().take(request)
            over.wait(WAIT_LIMIT)
            return status

    receiver = Slow()
    try:
        with site.opened() as running:
            id = put(running, add(running, "out", target_url=receiver.url))
        gateway = start_gateway().ready()
        receiver.wait(1)
        gateway.kill()
        assert rows(site)[id]["status"] == "pending"
        assert rows(site)[id]["owner"] is not None
        over.set()
        settle_all(site, [id])
        assert list(sends(receiver).values()) == [2]
    finally:
        over.set()
        receiver.close()


class Poster:
    """Posts signed webhooks until the gateway has ended, and records which were accepted."""

    def __init__(self, gateway: GatewayProcess, webhook_id: int) -> None:
        self.accepted: list[int] = []
        self._gateway, self._path = gateway, f"/gateway/webhooks/{webhook_id}"
        self._thread = threading.Thread(target=self._work)
        self._thread.start()

    def _work(self) -> None:
        give_up = time.monotonic() + WAIT_LIMIT
        while time.monotonic() < give_up:
            body = orjson.dumps({"n": len(self.accepted)})
            signed = hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
            headers = {"X-Observatory-Signature": f"sha256={signed}"}
            try:
                answer = self._gateway.client.request("POST", self._path, body, headers)
                assert answer.status == 202, answer.body
                self.accepted.append(answer.json["delivery_id"])
            except (OSError, http.client.HTTPException):
                if self._gateway.process.poll() is not None:
                    return
                time.sleep(0.005)

    def stop(self) -> list[int]:
        self._thread.join(WAIT_LIMIT)
        return self.accepted


@pytest.mark.parametrize("failpoint", ["commit.before:60", "commit.after:60", "commit.after:90"])
def test_kill_loses_no_acknowledged_webhook(
    site: Site, start_gateway: Callable[..., GatewayProcess], failpoint: str
) -> None:
    with site.opened() as running:
        webhook = add(running, "in", plugin="work")
    gateway = start_gateway(failpoint)
    poster = Poster(gateway, webhook)
    assert was_killed(gateway)
    accepted = poster.stop()
    assert accepted
    found = rows(site)
    assert set(accepted) <= found.keys()
    assert {found[id]["status"] for id in accepted} == {"pending"}


@pytest.mark.torture
@pytest.mark.parametrize("number", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("name", ["delivery.claimed", "delivery.sent", "delivery.settled"])
def test_torture_at_every_delivery_failpoint(
    site: Site,
    start_gateway: Callable[..., GatewayProcess],
    receiver: Receiver,
    name: str,
    number: int,
) -> None:
    with site.opened() as running:
        outside = add(running, "out", target_url=receiver.url)
        inside = add(running, "in", plugin="work")
        ids = [put(running, webhook) for webhook in [outside, inside] * 6]
    times = 1 if name == "delivery.claimed" else number
    for _ in range(2):
        assert was_killed(start_gateway(f"{name}:{times}"))
    settle_all(site, ids)
    assert {row["status"] for row in rows(site).values()} == {"delivered"}
    assert count(site, "SELECT count(*) FROM job_queue WHERE plugin = 'work'") == 6
