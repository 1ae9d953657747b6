"""The lane of webhooks: what is sent, when, how often, and what stays in the house (004)."""

from __future__ import annotations

import hashlib
import hmac
import itertools
import json
import threading
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any

import apsw
import orjson
import psycopg
import pytest
from standardwebhooks.webhooks import Webhook as Published

from ductile.clock import SystemClock
from ductile.core.delivery.retry_policy import INBOUND_DELAY, RETRY_SCHEDULE_SECONDS
from ductile.engine.config.compiled import build
from ductile.engine.outbox import internal_delivery
from ductile.engine.outbox import webhooks as module
from ductile.engine.outbox.http_client import Sender
from ductile.engine.outbox.queue import MEND_EVERY, UNREADABLE, OutboundRequest, SendResult
from ductile.engine.outbox.webhooks import (
    MISMATCHES_A_MINUTE,
    POLL_INTERVAL_MS,
    Mismatches,
    Sending,
    WebhookOutbox,
)
from ductile.engine.outbox.worker import OutboxWorker
from ductile.engine.recovery.dead_nodes import LOST_AFTER
from ductile.log import configure
from ductile.store.outbox import deliveries
from ductile.store.outbox.deliveries import NewWebhook
from tests.conftest import CountingEntropy, FakeClock
from tests.engine.receiver import Receiver, gone, receiving, speaking
from tests.engine.site import OK, Running, Site
from tests.postgres import Server
from tests.store.conftest import execute
from tests.waiting import WAIT_LIMIT, until

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
URL = "https://example.com/hook"
LOOPBACK = {"allowed_networks": ["127.0.0.0/8"]}


class Office:
    """A lane and its courier over a gateway's ledger, moved by hand."""

    def __init__(
        self,
        house: Running,
        clock: FakeClock,
        send: Callable[[OutboundRequest], SendResult] | None = None,
        owner: str = "boot-of-the-test",
    ) -> None:
        self.house, self.clock, self.ledger = house, clock, house.gateway.ledger
        self.entropy = CountingEntropy()
        self.sent: list[tuple[datetime, OutboundRequest]] = []
        self._send = send or (lambda _parcel: SendResult(200))
        self.compiled = house.gateway.compiled
        self.lane = WebhookOutbox(self.ledger, lambda: self.compiled, self.entropy, owner)
        self.courier = OutboxWorker(self.lane, self.send, clock, house.gateway.broken)

    def send(self, parcel: OutboundRequest) -> SendResult:
        self.sent.append((self.clock.now(), parcel))
        return self._send(parcel)

    def tick(self) -> float:
        """One turn of the loop, and all of it done."""
        wait = self.courier.tick(self.clock.now())
        assert self.courier.idle(WAIT_LIMIT)
        return wait

    def run(self, seconds: float) -> None:
        """The loop, for so long by its own clock."""
        end = self.clock.now() + timedelta(seconds=seconds)
        while self.clock.now() < end:
            wait = self.tick()
            self.clock.advance(min(wait, (end - self.clock.now()).total_seconds()))

    def reload(self, site: Site) -> None:
        self.compiled = build(site.load(), boot_marker="m:b", environ=site.environ)

    def webhook(self, event: str = "push", **more: Any) -> int:
        given = {"target_url": URL, **more}
        new = NewWebhook("github", event, "review", "s-1", **given)
        now = self.clock.now()
        return self.ledger.write(lambda tx: deliveries.add_webhook(tx, new, SECRET, now))

    def put(self, webhook_id: int, payload: str = '{"a":1}', *, inbound: bool = False) -> int:
        delay = INBOUND_DELAY if inbound else timedelta(0)
        work = Sending(webhook_id, payload, self.entropy.uuid(), self.clock.now(), delay)
        return self.ledger.write(work).delivery_id

    def row(self, id: int) -> dict[str, Any]:
        return self.ledger.read(lambda tx: deliveries.get(tx, id))

    def status(self, id: int) -> str:
        return str(self.row(id)["status"])

    def notices(self, type: str) -> list[dict[str, Any]]:
        heard = [notice for notice in self.house._heard if notice.type == type]
        return [orjson.loads(notice.payload) for notice in heard]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def house(site: Site) -> Iterator[Running]:
    site.plugin("echo", OK)
    site.settings["gateway"] = LOOPBACK
    site.settings["pipelines"] = [{"name": "flow", "on": "never", "steps": [{"uses": "echo"}]}]
    with site.opened() as house:
        yield house


@pytest.fixture
def office(house: Running, clock: FakeClock) -> Office:
    return Office(house, clock)


def failing(_parcel: OutboundRequest) -> SendResult:
    return SendResult(503, "HTTP 503 Service Unavailable")


# Signatures, as a receiver sees them


def test_fr_10_10_every_delivery_is_signed_over_the_bytes_that_are_sent(
    house: Running, clock: FakeClock
) -> None:
    clock.moment = SystemClock().now()
    with receiving(204) as receiver:
        office = Office(house, clock, Sender(SystemClock()))
        text = '{"text": "grüße",  "n": [1, 2.50]}'
        id = office.put(office.webhook(target_url=receiver.url), text)
        office.tick()
    (request,) = receiver.received
    row = office.row(id)
    assert row["status"] == "delivered"
    assert request.body == text.encode()
    expected = hmac.new(SECRET.encode(), request.body, hashlib.sha256).hexdigest()
    assert request.headers["X-Observatory-Signature"] == f"sha256={expected}"
    assert row["signature"] == expected
    assert Published(SECRET).verify(request.body, request.headers) == json.loads(text)
    assert request.headers["webhook-id"] == row["message_id"]
    assert request.headers["Content-Type"] == "application/json"


def test_every_send_of_a_delivery_has_the_same_id(house: Running, clock: FakeClock) -> None:
    office = Office(house, clock, failing)
    office.put(office.webhook())
    office.run(1000)
    ids = [parcel.headers["webhook-id"] for _, parcel in office.sent]
    assert len(ids) == 4
    assert len(set(ids)) == 1
    times = [parcel.headers["webhook-timestamp"] for _, parcel in office.sent]
    assert len(set(times)) == 4


def test_private_networks_and_plain_http_are_as_the_config_says(
    site: Site, house: Running, clock: FakeClock
) -> None:
    with receiving() as receiver:
        office = Office(house, clock, Sender(SystemClock()))
        webhook = office.webhook(target_url=receiver.url)
        allowed = office.put(webhook)
        office.tick()
        site.settings["gateway"] = {}
        office.reload(site)
        refused = office.put(webhook)
        office.tick()
    assert office.status(allowed) == "delivered"
    row = office.row(refused)
    assert (row["status"], row["attempt_count"]) == ("failed", 1)
    assert row["error_detail"].startswith("not sent: ")
    assert len(receiver.received) == 1


# FR-10.9: when it is sent again


def test_fr_10_9_six_sends_by_the_schedule_then_death_and_one_dlq_event(
    house: Running, clock: FakeClock
) -> None:
    office = Office(house, clock, failing)
    id = office.put(office.webhook())
    office.run(sum(RETRY_SCHEDULE_SECONDS) + 100_000)
    times = [at for at, _ in office.sent]
    gaps = [(after - before).total_seconds() for before, after in itertools.pairwise(times)]
    assert gaps == [30, 120, 600, 3600, 21600]
    row = office.row(id)
    assert (row["status"], row["attempt_count"], row["next_retry_at"]) == ("dead", 6, None)
    assert row["error_detail"] == "HTTP 503 Service Unavailable"
    (told,) = office.notices("WebhookDLQEvent")
    assert (told["delivery_id"], told["attempt_count"]) == (id, 6)
    changes = [event["status"] for event in office.notices("WebhookDeliveryEvent")]
    assert changes == ["pending", *["failed"] * 5, "dead"]


def test_attempt_count_counts_failed_sends_and_a_success_leaves_it(
    house: Running, clock: FakeClock
) -> None:
    answers = iter(
        [SendResult(None, "no answer within 15 s"), SendResult(500, "HTTP 500"), SendResult(200)]
    )
    office = Office(house, clock, lambda _parcel: next(answers))
    id = office.put(office.webhook())
    office.run(600)
    row = office.row(id)
    assert (row["status"], row["attempt_count"], row["error_detail"]) == ("delivered", 2, None)
    assert len(office.sent) == 3
    assert office.notices("WebhookDLQEvent") == []


def test_a_retried_dead_one_has_six_sends_again(house: Running, clock: FakeClock) -> None:
    office = Office(house, clock, failing)
    id = office.put(office.webhook())
    office.run(30_000)
    assert office.status(id) == "dead"
    now = clock.now()
    office.ledger.write(lambda tx: deliveries.retry(tx, id, now))
    office.run(30_000)
    assert len(office.sent) == 12
    assert len(office.notices("WebhookDLQEvent")) == 2


# First tries


def test_outbound_is_tried_at_once(office: Office) -> None:
    id = office.put(office.webhook())
    office.tick()
    assert office.status(id) == "delivered"


def test_fr_10_8_inbound_is_tried_after_thirty_seconds(office: Office) -> None:
    id = office.put(office.webhook(), inbound=True)
    began = office.clock.now()
    office.run(40)
    ((at, _),) = office.sent
    assert (at - began).total_seconds() == 30
    assert office.status(id) == "delivered"


def test_an_idle_lane_polls_every_five_seconds(office: Office) -> None:
    assert POLL_INTERVAL_MS == 5_000
    assert office.tick() == 5.0
    office.put(office.webhook(), inbound=True)
    assert office.tick() == 5.0
    office.clock.advance(28)
    assert office.tick() == 2.0


# FR-10.11: after a restart


def test_fr_10_11_what_is_due_is_sent_in_the_first_cycle_and_what_is_not_waits(
    house: Running, clock: FakeClock
) -> None:
    before = Office(house, clock, failing)
    webhook = before.webhook()
    due = [before.put(webhook) for _ in range(3)]
    before.tick()
    clock.advance(1000)
    future = before.put(webhook, inbound=True)
    kept = before.row(future)["next_retry_at"]
    after = Office(house, clock, owner="boot-after")
    after.lane.recover()
    after.tick()
    assert [after.status(id) for id in due] == ["delivered"] * 3
    assert after.row(future)["next_retry_at"] == kept
    assert after.status(future) == "pending"


def test_fr_10_11_what_a_dead_gateway_was_sending_is_sent_again(
    house: Running, clock: FakeClock
) -> None:
    before = Office(house, clock)
    id = before.put(before.webhook())
    (parcel,), _ = before.lane.claim(clock.now())
    after = Office(house, clock, owner="boot-after")
    clock.advance(5)
    after.tick()
    assert after.sent == []
    after.lane.recover()
    after.tick()
    assert [sent.headers["webhook-id"] for _, sent in after.sent] == [parcel.headers["webhook-id"]]
    assert after.status(id) == "delivered"
    before.lane.settle(parcel, SendResult(500, "HTTP 500"), clock.now())
    assert after.status(id) == "delivered"


def test_fr_10_11_dead_entries_stay_dead(house: Running, clock: FakeClock) -> None:
    office = Office(house, clock, failing)
    id = office.put(office.webhook())
    office.run(30_000)
    again = Office(house, clock, owner="boot-after")
    again.lane.recover()
    again.run(100)
    assert again.sent == []
    assert again.status(id) == "dead"


# FR-10.12: how many


def most_in(times: list[datetime], seconds: float) -> int:
    """The most sends in any window of so many seconds."""
    window, most = timedelta(seconds=seconds), 0
    start = 0
    for end, at in enumerate(times):
        while at - times[start] >= window:
            start += 1
        most = max(most, end - start + 1)
    return most


def test_fr_10_12_twelve_due_are_sent_in_three_cycles(office: Office) -> None:
    webhook, began = office.webhook(), office.clock.now()
    for _ in range(12):
        office.put(webhook)
    office.run(14)
    at = [(moment - began).total_seconds() for moment, _ in office.sent]
    assert at == [0] * 5 + [5] * 5 + [10] * 2


FILL = """
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count})
INSERT INTO webhook_deliveries (webhook_id, session_id, payload, target_url, signature, status,
                                attempt_count, next_retry_at, created_at)
SELECT {webhook}, 's', '{{}}', 'https://example.com/', '',
       CASE i % 2 WHEN 0 THEN 'pending' ELSE 'failed' END, 0,
       '2026-02-08T09:00:00.000000Z', '2026-02-08T09:00:00.000000Z' FROM n
"""


def test_fr_10_12_never_more_than_five_though_ten_thousand_are_due_after_a_restart(
    house: Running, clock: FakeClock
) -> None:
    spoil(house, FILL.format(count=10_000, webhook=Office(house, clock).webhook()))
    offices = []
    for life in range(4):
        # Restarted again and again: the slots outlive a boot.
        offices.append(Office(house, clock, owner=f"boot-{life}"))
        offices[-1].lane.recover()
        offices[-1].run(93)
    times = sorted(at for office in offices for at, _ in office.sent)
    assert most_in(times, 1) <= 5
    assert most_in(times, 5) <= 5
    assert len(times) == 5 * 75


@pytest.fixture
def url(postgres: Server, site: Site) -> str:
    url = postgres.database()
    site.settings["state"] = {"url": url, "dir": str(site.state)}
    return url


def test_fr_10_12_two_nodes_share_the_five(url: str, house: Running, clock: FakeClock) -> None:
    offices = [Office(house, clock, owner=f"boot-{n}") for n in range(2)]
    webhook = offices[0].webhook()
    with psycopg.connect(url) as connection:
        connection.execute(FILL.format(count=300, webhook=webhook))
    for _ in range(120):
        ready = threading.Barrier(2)

        def tick(office: Office, ready: threading.Barrier = ready) -> None:
            ready.wait(WAIT_LIMIT)
            office.tick()

        threads = [threading.Thread(target=tick, args=(office,)) for office in offices]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT_LIMIT)
        clock.advance(1)
    times = sorted(at for office in offices for at, _ in office.sent)
    assert most_in(times, 5) <= 5
    assert len(times) == 120
    ids = [parcel.id for office in offices for _, parcel in office.sent]
    assert len(set(ids)) == len(ids)


def test_what_a_lost_node_was_sending_is_taken_over_by_another(
    url: str, house: Running, clock: FakeClock
) -> None:
    lost, other = Office(house, clock, owner="lost"), Office(house, clock, owner="other")
    id = lost.put(lost.webhook())
    assert len(lost.lane.claim(clock.now())[0]) == 1
    other.run(LOST_AFTER.total_seconds() - 1)
    assert other.sent == []
    other.run(10)
    assert other.status(id) == "delivered"


def test_what_a_living_node_sends_is_left_to_it(url: str, house: Running, clock: FakeClock) -> None:
    living = Office(house, clock, owner=house.gateway.boot)
    other = Office(house, clock, owner="other")
    living.put(living.webhook())
    assert len(living.lane.claim(clock.now())[0]) == 1
    other.lane.recover()
    other.run(100)
    assert other.sent == []


# One does not delay the others


def test_a_receiver_that_hangs_does_not_hold_up_the_next_cycle(
    house: Running, clock: FakeClock
) -> None:
    over = threading.Event()

    def send(parcel: OutboundRequest) -> SendResult:
        if b"hang" in parcel.body:
            assert over.wait(WAIT_LIMIT)
        return SendResult(200)

    office = Office(house, clock, send)
    webhook = office.webhook()
    hanging = office.put(webhook, '"hang"')
    others = [office.put(webhook) for _ in range(8)]
    for _ in range(2):
        office.courier.tick(clock.now())
        clock.advance(5)
        until(lambda: len(office.lane._held) == 1)
    assert [office.status(id) for id in others] == ["delivered"] * 8
    assert office.status(hanging) == "pending"
    over.set()
    assert office.courier.idle(WAIT_LIMIT)
    assert office.status(hanging) == "delivered"


def spoil(house: Running, sql: str) -> None:
    connection = apsw.Connection(str(house.gateway.state_dir / "state.db"))
    connection.set_busy_timeout(5000)
    connection.execute(sql)
    connection.close()


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ("target_url = 'garbage'", "not sent: "),
        ("target_url = 'file:///etc/passwd'", "not sent: "),
        ("target_url = x'00ff'", "not sent: "),
        ("payload = CAST(x'ff' AS TEXT)", UNREADABLE),
        ("payload = x'00ff'", UNREADABLE),
        ("message_id = 'a' || char(10) || 'b'", "not sent: "),
        ("session_id = x'00ff', message_id = x'00ff'", None),
        ("target_url = 'internal://session/s', payload = '{'", "its payload is not JSON"),
    ],
)
def test_a_bad_row_is_its_own_failure(
    house: Running, clock: FakeClock, change: str, error: str | None
) -> None:
    with receiving() as receiver:
        office = Office(house, clock, Sender(SystemClock()))
        webhook = office.webhook(target_url=receiver.url)
        ids = [office.put(webhook) for _ in range(3)]
        spoil(house, f"UPDATE webhook_deliveries SET {change} WHERE id = {ids[1]}")
        office.tick()
    assert [office.status(id) for id in (ids[0], ids[2])] == ["delivered"] * 2
    rows = office.ledger.read(lambda tx: tx.dicts("deliveries", **ANY))
    bad = next(row for row in rows if row["id"] == ids[1])
    if error is None:
        assert bad["status"] == "delivered"
    else:
        assert (bad["status"], bad["attempt_count"]) == ("failed", 1)
        assert bad["error_detail"].startswith(error)


@pytest.fixture(params=["sqlite", "postgres"])
def either(request: pytest.FixtureRequest) -> None:
    """Named before `office`, it puts the ledger there."""
    if request.param == "postgres":
        request.getfixturevalue("url")


def script_sets(office: Office, id: int, written: str | None) -> None:
    value = "NULL" if written is None else f"'{written}'"
    sql = f"UPDATE webhook_deliveries SET next_retry_at = {value} WHERE id = {id}"
    execute(office.ledger, sql)


NO_TIMES = ["1700000000", "0garbage", "", "soon", "9999-99-99T99:99:99.999999Z"]


@pytest.mark.parametrize("written", NO_TIMES)
def test_a_time_that_cannot_be_read_is_told_once_and_stops_nothing(
    either: None, office: Office, capsysbinary: pytest.CaptureFixture[bytes], written: str
) -> None:
    configure("warn", "json")
    odd, ours = (office.put(office.webhook(event)) for event in ("push", "release"))
    script_sets(office, odd, written)
    capsysbinary.readouterr()
    office.run(20)
    assert [office.status(id) for id in (odd, ours)] == ["delivered"] * 2
    (line,) = capsysbinary.readouterr().out.splitlines()
    told = json.loads(line)
    assert (told["level"], told["delivery"]) == ("warn", odd)
    assert told["reason"] == "its next_retry_at cannot be read"


@pytest.mark.parametrize(
    "written",
    ["2026-02-08 10:10:00", "2026-02-08T03:10:00-07:00", "20260208T101000Z", "2026-02-08T10:10Z"],
)
def test_a_time_in_another_form_is_kept_to(either: None, office: Office, written: str) -> None:
    id, began = office.put(office.webhook()), office.clock.now()
    script_sets(office, id, written)
    office.run(700)
    assert [at - began for at, _ in office.sent] == [timedelta(minutes=10)]


def test_fr_10_12_an_entry_that_was_reset_without_a_time_is_sent_within_one_poll(
    either: None, office: Office
) -> None:
    """However often it is woken, and though it has looked just before."""
    office.put(office.webhook())
    office.tick()
    reset = "UPDATE webhook_deliveries SET status = 'pending', attempt_count = 0"
    execute(office.ledger, reset)
    for _ in range(int(office.lane.poll)):
        office.tick()
        office.clock.advance(1)
    assert len(office.sent) == 2


@pytest.mark.parametrize("written", [*NO_TIMES, "2026-02-09 10:00:00", None])
def test_what_a_script_has_just_written_does_not_delay_what_is_due(
    office: Office, written: str | None
) -> None:
    odd = office.put(office.webhook(), inbound=True)
    office.tick()
    script_sets(office, odd, written)
    ours = office.put(office.webhook("release"))
    office.tick()
    assert office.status(ours) == "delivered"


def test_however_often_it_is_woken_what_is_outstanding_is_looked_through_once(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[datetime] = []
    look = deliveries.foreign

    def counted(tx: Any) -> list[int]:
        looks.append(office.clock.now())
        return look(tx)

    monkeypatch.setattr(deliveries, "foreign", counted)
    for _ in range(100):
        office.tick()
        office.clock.advance(0.1)
    assert most_in(looks, MEND_EVERY.total_seconds() - 0.1) == 1
    assert len(looks) == 3
    office.clock.moment -= timedelta(days=1)
    office.tick()
    assert len(looks) == 4


def test_a_secret_that_is_no_text_is_the_failure_of_its_own_deliveries(office: Office) -> None:
    bad, good = office.webhook(), office.webhook("release")
    ids = [office.put(bad), office.put(good)]
    spoil(office.house, f"UPDATE webhook_configs SET secret = x'00ff' WHERE id = {bad}")
    office.tick()
    assert [office.status(id) for id in ids] == ["failed", "delivered"]
    assert office.row(ids[0])["error_detail"] == UNREADABLE


def test_what_was_claimed_without_our_knowing_is_released(office: Office) -> None:
    """A commit that succeeded though the connection broke before it said so."""
    id = office.put(office.webhook())
    now = office.clock.now()
    office.ledger.write(lambda tx: deliveries.claim(tx, "boot-of-the-test", now))
    office.run(6)
    assert office.status(id) == "delivered"


def test_one_whose_end_could_not_be_recorded_is_sent_again(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    def bug(*_: Any, **__: Any) -> bool:
        raise ZeroDivisionError

    id = office.put(office.webhook())
    with monkeypatch.context() as patch:
        patch.setattr(deliveries, "settle", bug)
        office.tick()
    assert office.row(id)["owner"] == "boot-of-the-test"
    office.run(11)
    assert office.status(id) == "delivered"
    assert len(office.sent) == 2


def test_what_is_being_sent_is_not_taken_for_that(house: Running, clock: FakeClock) -> None:
    over = threading.Event()

    def send(_parcel: OutboundRequest) -> SendResult:
        assert over.wait(WAIT_LIMIT)
        return SendResult(200)

    office = Office(house, clock, send)
    office.put(office.webhook())
    for _ in range(10):
        office.courier.tick(clock.now())
        clock.advance(5)
    over.set()
    assert office.courier.idle(WAIT_LIMIT)
    assert len(office.sent) == 1


ANY: dict[str, Any] = {
    "status": None,
    "webhook_id": None,
    "since": None,
    "before": None,
    "limit": 100,
}


def test_what_a_removed_webhook_left_is_dead_when_it_is_due(office: Office) -> None:
    gone, kept = office.webhook(), office.webhook("release")
    ids = [office.put(gone), office.put(gone, inbound=True), office.put(kept)]
    now = office.clock.now()
    office.ledger.write(lambda tx: deliveries.remove_webhook(tx, gone, now))
    office.run(40)
    assert [office.status(id) for id in ids] == ["dead", "dead", "delivered"]
    row = office.row(ids[0])
    assert (row["attempt_count"], row["error_detail"]) == (0, "its webhook was removed")
    assert len(office.notices("WebhookDLQEvent")) == 2
    assert len(office.sent) == 1


def test_what_a_receiver_says_is_not_kept(house: Running, clock: FakeClock) -> None:
    office = Office(house, clock, lambda _parcel: SendResult(500, "HTTP 500", b"its own secrets"))
    id = office.put(office.webhook())
    office.tick()
    assert "secrets" not in str(office.row(id))
    assert "secrets" not in str(office.notices("WebhookDeliveryEvent"))


def test_a_real_receiver_that_says_nothing_fails_by_the_deadline(
    house: Running, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SEND_TIMEOUT", 0.3)
    with speaking(gone) as port:
        office = Office(house, clock, Sender(SystemClock()))
        id = office.put(office.webhook(target_url=f"http://127.0.0.1:{port}/"))
        office.tick()
    assert office.row(id)["error_detail"] == "no answer within 0.3 s"


# What stays in the house


def internal(office: Office, **more: Any) -> int:
    return office.webhook("deploy.finished", target_url=None, **more)


def test_an_event_for_a_session_is_published(office: Office) -> None:
    id = office.put(internal(office), '{"ok": true}', inbound=True)
    assert office.row(id)["target_url"] == "internal://session/s-1"
    office.run(35)
    assert office.status(id) == "delivered"
    (told,) = office.notices("WebhookEvent")
    assert told["payload"] == {"ok": True}
    assert (told["event_type"], told["agent_intent"]) == ("deploy.finished", "review")
    assert told["job_ids"] == []
    topics = {n.topic for n in office.house._heard if n.type == "WebhookEvent"}
    assert topics == {"session:s-1"}


def test_a_large_payload_is_not_in_the_stream(office: Office) -> None:
    id = office.put(internal(office), json.dumps("x" * 100_000))
    office.tick()
    (told,) = office.notices("WebhookEvent")
    assert (told["payload"], told["payload_omitted"]) == (None, True)
    assert len(office.row(id)["payload"]) > 100_000


def test_an_integer_beyond_64_bits_is_handed_over_as_the_text_that_it_came_in(
    office: Office,
) -> None:
    text = '{"id": 18446744073709551616}'
    office.put(internal(office, plugin="echo"), text)
    office.tick()
    (told,) = office.notices("WebhookEvent")
    assert told["payload"] == {"body": text}
    assert office.house.job(told["job_ids"][0])["payload"]["payload"] == {"body": text}


def test_the_plugin_that_the_webhook_names_gets_the_event_as_a_job(office: Office) -> None:
    id = office.put(internal(office, plugin="echo"), '{"ok": true}')
    office.tick()
    assert office.status(id) == "delivered"
    (told,) = office.notices("WebhookEvent")
    job = office.house.job(told["job_ids"][0])
    assert (job["plugin"], job["command"]) == ("echo", "handle")
    assert (job["status"], job["submitted_by"]) == ("queued", "webhook")
    assert job["payload"]["type"] == "deploy.finished"
    assert job["payload"]["payload"] == {"ok": True}
    assert job["source_event_id"] == office.row(id)["message_id"]


def test_the_pipeline_that_the_webhook_names_is_started(office: Office) -> None:
    office.put(internal(office, pipeline="flow"), '{"ok": true}')
    office.tick()
    (told,) = office.notices("WebhookEvent")
    job = office.house.job(told["job_ids"][0])
    assert job["submitted_by"] == "webhook"
    assert job["pipeline"] == "flow"


@pytest.mark.parametrize("target", [{"plugin": "nobody"}, {"pipeline": "nothing"}])
def test_who_is_not_there_is_tried_again_later(
    site: Site, office: Office, target: dict[str, str]
) -> None:
    id = office.put(internal(office, **target))
    office.tick()
    row = office.row(id)
    assert (row["status"], row["attempt_count"]) == ("failed", 1)
    assert next(iter(target.values())) in row["error_detail"]
    assert office.notices("WebhookEvent") == []
    site.plugin("nobody", OK)
    site.settings["pipelines"].append(
        {"name": "nothing", "on": "never", "steps": [{"uses": "echo"}]}
    )
    office.reload(site)
    office.run(60)
    assert office.status(id) == "delivered"


def test_a_job_and_the_settlement_that_made_it_are_one(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the one cannot be written, neither is; and the delivery is tried again."""
    id = office.put(internal(office, plugin="echo"))
    real = internal_delivery.close.write_intents

    def breaks(*arguments: Any) -> Any:
        real(*arguments)
        raise ZeroDivisionError

    monkeypatch.setattr(internal_delivery.close, "write_intents", breaks)
    office.tick()
    row = office.row(id)
    assert (row["status"], row["error_detail"]) == ("failed", "internal error")
    assert office.ledger.read(lambda tx: tx.all("pending_jobs", limit=10)) == []
    monkeypatch.setattr(internal_delivery.close, "write_intents", real)
    office.run(31)
    assert office.status(id) == "delivered"
    assert len(office.ledger.read(lambda tx: tx.all("pending_jobs", limit=10))) == 1


def test_an_event_is_handed_over_once_though_it_was_released_meanwhile(
    house: Running, clock: FakeClock
) -> None:
    first = Office(house, clock, owner="first")
    internal_id = internal(first, plugin="echo")
    first.put(internal_id)
    (parcel,), _ = first.lane.claim(clock.now())
    second = Office(house, clock, owner="second")
    second.lane.recover()
    clock.advance(5)
    second.tick()
    first.lane.settle(parcel, SendResult(None), clock.now())
    assert len(house.gateway.ledger.read(lambda tx: tx.all("pending_jobs", limit=10))) == 1
    assert len(first.notices("WebhookEvent")) == 1


def test_secrets_of_the_config_are_not_published(site: Site, clock: FakeClock) -> None:
    site.plugin("echo", OK, config={"api_key": "a-canary-of-the-config"})
    with site.opened() as house:
        office = Office(house, clock)
        office.put(internal(office), '{"leak": "a-canary-of-the-config"}')
        office.tick()
        assert "canary" not in str(office.notices("WebhookEvent"))


# In a gateway


def test_a_running_gateway_sends_at_once(site: Site) -> None:
    site.settings["gateway"] = LOOPBACK
    with receiving() as receiver, site.running() as house:
        office = Office(house, FakeClock(SystemClock().now()))
        office.entropy = house.gateway.entropy  # type: ignore[assignment]
        # It polls every five seconds: it is woken, or it would take that long.
        until(lambda: "deliveries" in house.gateway.loops)
        house.gateway.loops["deliveries"].wake()
        began = SystemClock().monotonic()
        id = office.put(office.webhook(target_url=receiver.url))
        receiver.wait(1)
        took = SystemClock().monotonic() - began
        until(lambda: office.status(id) == "delivered")
    assert took < POLL_INTERVAL_MS / 1000


def test_what_is_due_at_a_start_is_sent_at_once_and_what_is_not_is_kept(site: Site) -> None:
    site.settings["gateway"] = LOOPBACK
    with receiving() as receiver:
        with site.opened() as house:
            office = Office(house, FakeClock(SystemClock().now()))
            webhook = office.webhook(target_url=receiver.url)
            due, future = office.put(webhook), office.put(webhook, inbound=True)
            kept = office.row(future)["next_retry_at"]
        began = SystemClock().monotonic()
        with site.running() as house:
            receiver.wait(1)
            assert SystemClock().monotonic() - began < POLL_INTERVAL_MS / 1000
            until(lambda: house.gateway.ledger.read(get(due))["status"] == "delivered")
            assert house.gateway.ledger.read(get(future))["next_retry_at"] == kept


def get(id: int) -> Callable[[Any], dict[str, Any]]:
    return lambda tx: deliveries.get(tx, id)


def test_a_stop_waits_for_a_send_within_its_grace(site: Site) -> None:
    site.settings["gateway"] = LOOPBACK
    released = threading.Event()

    class Slow(Receiver):
        def take(self, request: Any) -> int:
            status = super().take(request)
            assert released.wait(WAIT_LIMIT)
            return status

    receiver = Slow()
    try:
        with site.running() as house:
            office = Office(house, FakeClock(SystemClock().now()))
            office.entropy = house.gateway.entropy  # type: ignore[assignment]
            id = office.put(office.webhook(target_url=receiver.url))
            receiver.wait(1)
            timer = threading.Timer(0.3, released.set)
            timer.start()
            house.gateway.stop()
            timer.join()
            assert office.status(id) == "delivered"
    finally:
        released.set()
        receiver.close()


# Wrong signatures


def test_so_many_wrong_signatures_a_minute_are_recorded_and_the_rest_counted(
    clock: FakeClock,
) -> None:
    mismatches = Mismatches()
    noted = [mismatches.note(7, clock.now()) for _ in range(MISMATCHES_A_MINUTE + 5)]
    assert noted == [0] * MISMATCHES_A_MINUTE + [None] * 5
    assert mismatches.note(8, clock.now()) == 0
    clock.advance(60)
    assert mismatches.note(7, clock.now()) == 5
    assert mismatches.note(7, clock.now()) == 0


def test_a_clock_that_was_set_back_does_not_silence_them(clock: FakeClock) -> None:
    mismatches = Mismatches()
    for _ in range(MISMATCHES_A_MINUTE + 1):
        mismatches.note(7, clock.now())
    clock.advance(-86_400)
    assert mismatches.note(7, clock.now()) == 1
