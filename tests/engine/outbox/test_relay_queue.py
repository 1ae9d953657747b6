"""The lane of relays, moved by hand: what is sent, what counts as delivered, who takes over."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import apsw
import orjson
import pytest

from ductile.core.delivery.relay import METHOD, PEER, RETRY_SECONDS, SIGNATURE, TIMESTAMP, signature
from ductile.core.pipelines.intents import SendRelay
from ductile.engine.config.compiled import build
from ductile.engine.outbox.queue import UNREADABLE, OutboundRequest, SendResult
from ductile.engine.outbox.relay import NOT_ALLOWED, RelayOutbox
from ductile.engine.outbox.worker import START_WITHIN, OutboxWorker
from ductile.engine.recovery.dead_nodes import LOST_AFTER
from ductile.errors import LedgerBusy
from ductile.log import configure
from ductile.store.engines.api import Ledger, T, Work
from ductile.store.outbox import relays
from tests.conftest import FakeClock
from tests.engine.site import Running, Site
from tests.postgres import Server
from tests.store.conftest import execute
from tests.waiting import WAIT_LIMIT, until

IDLE = RelayOutbox.poll
SECRET = "a-shared-secret-of-two"
LAB = {
    "name": "lab",
    "base_url": "https://lab.example/behind/",
    "ingress_path": "/ingest/peer/home",
    "secret": SECRET,
}
BODY = '{"event":{"type":"made","payload":{"n":1.50}},"origin":{"instance":"home"},"baggage":{}}'
RECEIPT = SendResult(202, None, b'{"status": "accepted", "receiver_event_id": "e"}')


class Unsure:
    """A ledger whose next writes are committed, or not, and end in an error either way."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.failures: list[tuple[bool, Exception]] = []
        self.before_writing: Callable[[], None] = lambda: None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ledger, name)

    def write(self, work: Work[T]) -> T:
        self.before_writing()
        if not self.failures:
            return self._ledger.write(work)
        committed, error = self.failures.pop(0)
        if committed:
            self._ledger.write(work)
        raise error


class Office:
    """A lane and its courier over a gateway's ledger."""

    def __init__(
        self,
        house: Running,
        clock: FakeClock,
        send: Callable[[OutboundRequest], SendResult] = lambda _parcel: RECEIPT,
        owner: str = "boot-of-the-test",
    ) -> None:
        self.house, self.clock, self.ledger = house, clock, Unsure(house.gateway.ledger)
        self.sent: list[OutboundRequest] = []
        self._send = send
        self.compiled = house.gateway.compiled
        self.lane = RelayOutbox(self.ledger, lambda: self.compiled, owner)  # type: ignore[arg-type]
        self.courier = OutboxWorker(self.lane, self.send, clock, house.gateway.broken)

    def send(self, parcel: OutboundRequest) -> SendResult:
        self.sent.append(parcel)
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

    def put(self, id: str = "r-1", *, instance: str = "lab", event_type: str = "made") -> str:
        given = SendRelay("j-1", instance, f"e-{id}", event_type, BODY)
        now = self.clock.now()
        self.ledger.write(lambda tx: relays.enqueue(tx, given, id=id, now=now))
        return id

    def row(self, id: str = "r-1") -> dict[str, Any]:
        rows = self.ledger.read(lambda tx: tx.dicts("relays", status=None, instance=None, limit=99))
        return next(row for row in rows if row["id"] == id)

    def status(self, id: str = "r-1") -> str:
        return str(self.row(id)["status"])

    def under_way(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = self.ledger.read(relays.under_way)
        return found

    def reload(self, site: Site) -> None:
        self.compiled = build(site.load(), boot_marker="m:b", environ=site.environ)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def house(site: Site) -> Iterator[Running]:
    site.settings["service"]["name"] = "home"
    site.settings["instances"] = [LAB]
    with site.opened() as house:
        yield house


@pytest.fixture
def office(house: Running, clock: FakeClock) -> Office:
    return Office(house, clock)


@pytest.fixture
def on_postgres(postgres: Server, site: Site) -> None:
    """Named before `house`, it puts the ledger there."""
    url = postgres.database()
    site.settings["state"] = {"url": url, "dir": str(site.state)}


class TestWhatIsSent:
    def test_the_signature_covers_the_path_of_the_whole_url(self, office: Office) -> None:
        office.put()
        office.tick()
        (parcel,) = office.sent
        assert parcel.url == "https://lab.example/behind/ingest/peer/home"
        path, at = "/behind/ingest/peer/home", parcel.headers[TIMESTAMP]
        assert METHOD == "POST"
        expected = signature(SECRET, path, at, parcel.body)
        assert parcel.headers[SIGNATURE] == f"sha256={expected}"
        assert not parcel.plain_http

    def test_a_path_is_signed_as_the_receiver_reads_it(self, site: Site, office: Office) -> None:
        site.settings["instances"] = [{**LAB, "ingress_path": "/in%20gest/peer/h%6Fme"}]
        office.reload(site)
        office.put()
        office.tick()
        (parcel,) = office.sent
        at = parcel.headers[TIMESTAMP]
        expected = signature(SECRET, "/behind/in gest/peer/home", at, parcel.body)
        assert parcel.headers[SIGNATURE] == f"sha256={expected}"

    def test_each_send_is_signed_anew(self, house: Running, clock: FakeClock) -> None:
        office = Office(house, clock, lambda _parcel: SendResult(503, "HTTP 503"))
        office.put()
        office.run(2)
        first, second = office.sent
        assert first.body == second.body
        assert first.headers[SIGNATURE] != second.headers[SIGNATURE]

    def test_it_is_sent_by_the_name_that_we_have_now(self, site: Site, office: Office) -> None:
        office.put()
        site.settings["service"]["name"] = "house"
        office.reload(site)
        office.tick()
        (parcel,) = office.sent
        assert parcel.headers[PEER] == "house"
        sent = orjson.loads(parcel.body)
        assert sent["origin"]["instance"] == "house"
        assert sent["event"] == {"type": "made", "payload": {"n": 1.5}}

    @pytest.mark.parametrize("body", ["garbage", "[]", "{}", '{"origin": 1}', ""])
    def test_a_row_that_cannot_be_read_is_its_own_failure(self, office: Office, body: str) -> None:
        for id in ("r-1", "r-2", "r-3"):
            office.put(id)
        _run(office.house, f"UPDATE relay_deliveries SET body = '{body}' WHERE id = 'r-2'")
        office.tick()
        assert [parcel.id for parcel in office.sent] == ["r-1", "r-3"]
        row = office.row("r-2")
        assert (row["status"], row["error_detail"]) == ("failed", UNREADABLE)

    def test_what_an_instance_allows_no_more_does_not_leave(
        self, site: Site, office: Office
    ) -> None:
        office.put("r-1", event_type="made")
        office.put("r-2", event_type="secret")
        site.settings["instances"] = [{**LAB, "allow": ["made"]}]
        office.reload(site)
        office.tick()
        assert [parcel.id for parcel in office.sent] == ["r-1"]
        row = office.row("r-2")
        assert (row["status"], row["error_detail"]) == ("failed", NOT_ALLOWED)

    @pytest.mark.parametrize("change", [{"enabled": False}, {"name": "attic"}])
    def test_what_is_for_an_instance_that_is_gone_waits_and_holds_up_nobody(
        self, site: Site, office: Office, change: dict[str, Any]
    ) -> None:
        office.put("old")
        site.settings["instances"] = [{**LAB, **change}, {**LAB, "name": "new"}]
        office.reload(site)
        office.put("r-1", instance="new")
        office.run(60)
        assert [parcel.id for parcel in office.sent] == ["r-1"]
        assert office.status("old") == "pending"
        site.settings["instances"] = [LAB]
        office.reload(site)
        office.tick()
        assert office.status("old") == "delivered"

    def test_a_reload_while_it_is_sent_changes_nothing_for_it(
        self, site: Site, house: Running, clock: FakeClock
    ) -> None:
        def send(_parcel: OutboundRequest) -> SendResult:
            site.settings["instances"] = []
            office.reload(site)
            return RECEIPT

        office = Office(house, clock, send)
        office.put()
        office.tick()
        assert office.status() == "delivered"


class TestWhatCounts:
    @pytest.mark.parametrize(
        ("answer", "error"),
        [
            (
                SendResult(200, None, b"<html>log in</html>"),
                "HTTP 200, but no receipt of a gateway",
            ),
            (SendResult(202, None, b'{"secret": "said"}'), "HTTP 202, but no receipt of a gateway"),
            (SendResult(204), "HTTP 204, but no receipt of a gateway"),
            (SendResult(403, "HTTP 403 Forbidden", b"why"), "HTTP 403 Forbidden"),
            (SendResult(None, "the connection was refused"), "the connection was refused"),
        ],
    )
    def test_only_a_receipt_does_and_nothing_that_was_said_is_kept(
        self, house: Running, clock: FakeClock, answer: SendResult, error: str
    ) -> None:
        office = Office(house, clock, lambda _parcel: answer)
        office.put()
        office.tick()
        row = office.row()
        assert (row["status"], row["error_detail"]) == ("failed", error)

    def test_no_secret_is_in_an_error(self, house: Running, clock: FakeClock) -> None:
        office = Office(house, clock, lambda _parcel: SendResult(None, f"at {SECRET}.example"))
        office.put()
        office.tick()
        assert office.row()["error_detail"] == "at [REDACTED].example"
        told = [notice.payload for notice in house._heard if notice.topic == relays.TOPIC]
        assert len(told) == 2
        assert SECRET not in "".join(told)

    def test_what_a_gateway_says_it_cannot_take_is_dead_at_once(
        self, house: Running, clock: FakeClock
    ) -> None:
        """One of an older version takes shorter names; the same bytes get the same answer."""
        told = b'{"error": "event.dedupe_key must be shorter", "code": "bad_request"}'
        office = Office(house, clock, lambda _: SendResult(400, "HTTP 400 Bad Request", told))
        office.put()
        office.run(60)
        row = office.row()
        assert (row["status"], row["attempt_count"], len(office.sent)) == ("dead", 1, 1)
        assert row["error_detail"] == "HTTP 400 Bad Request: the gateway cannot take this event"

    def test_what_somebody_on_the_way_does_not_take_is_tried_again(
        self, house: Running, clock: FakeClock
    ) -> None:
        office = Office(house, clock, lambda _: SendResult(400, "HTTP 400 Bad Request", b"<html>"))
        office.put()
        office.run(2)
        assert (office.status(), len(office.sent)) == ("failed", 2)


class TestWhatTheLedgerRefuses:
    def test_a_claim_of_which_we_were_not_told_is_released(self, office: Office) -> None:
        office.put()
        office.ledger.failures = [(True, LedgerBusy("the connection was lost"))]
        with pytest.raises(LedgerBusy):
            office.tick()
        assert office.under_way() == {"boot-of-the-test": ["r-1"]}
        office.run(IDLE + 1)
        assert len(office.sent) == 1
        assert office.status() == "delivered"

    def test_what_is_being_sent_is_not_taken_for_that(
        self, house: Running, clock: FakeClock
    ) -> None:
        over = threading.Event()

        def send(_parcel: OutboundRequest) -> SendResult:
            assert over.wait(WAIT_LIMIT)
            return RECEIPT

        office = Office(house, clock, send)
        office.put()
        for _ in range(10):
            office.courier.tick(clock.now())
            clock.advance(IDLE)
        over.set()
        assert office.courier.idle(WAIT_LIMIT)
        assert len(office.sent) == 1
        assert office.status() == "delivered"

    @pytest.mark.parametrize("committed", [True, False])
    def test_a_settlement_is_recorded_once_however_often_it_is_tried(
        self, house: Running, clock: FakeClock, committed: bool
    ) -> None:
        office = Office(house, clock, lambda _parcel: SendResult(500, "HTTP 500"))
        office.put()
        (parcel,), _ = office.lane.claim(clock.now())
        office.ledger.failures = [(committed, LedgerBusy("the connection was lost"))]
        with pytest.raises(LedgerBusy):
            office.lane.settle(parcel, SendResult(500, "HTTP 500"), clock.now())
        office.lane.settle(parcel, SendResult(500, "HTTP 500"), clock.now())
        assert (office.status(), office.row()["attempt_count"]) == ("failed", 1)
        assert office.under_way() == {}
        assert len(office.lane._held) == 0

    def test_one_that_cannot_be_settled_as_it_ended_has_failed(self, office: Office) -> None:
        office.put()
        (parcel,), _ = office.lane.claim(office.clock.now())
        office.ledger.failures = [(False, RuntimeError("a bug"))]
        office.lane.settle(parcel, RECEIPT, office.clock.now())
        row = office.row()
        assert (row["status"], row["error_detail"]) == ("failed", "internal error")
        assert row["attempt_count"] == 1
        office.run(RETRY_SECONDS[0] + 1)
        assert office.status() == "delivered"

    def test_one_that_cannot_be_settled_at_all_is_sent_again_and_no_place_is_lost(
        self, office: Office
    ) -> None:
        office.put()
        (parcel,), _ = office.lane.claim(office.clock.now())
        office.ledger.failures = [(False, RuntimeError("a bug"))] * 2
        with pytest.raises(RuntimeError):
            office.lane.settle(parcel, RECEIPT, office.clock.now())
        office.run(IDLE + 1)
        assert office.status() == "delivered"

    def test_what_could_not_be_started_in_time_is_as_if_it_had_not_been_claimed(
        self, office: Office
    ) -> None:
        office.put()
        before = office.row()
        office.ledger.before_writing = lambda: office.clock.advance(START_WITHIN + 1)
        office.tick()
        assert office.sent == []
        assert office.row() == before
        assert (office.under_way(), len(office.lane._held)) == ({}, 0)


class TestTimesThatScriptsWrite:
    @pytest.fixture(params=["sqlite", "postgres"])
    def either(self, request: pytest.FixtureRequest) -> None:
        """Named before `office`, it puts the ledger there."""
        if request.param == "postgres":
            request.getfixturevalue("on_postgres")

    def put(self, office: Office, written: str | None) -> None:
        id = office.put("odd")
        value = "NULL" if written is None else f"'{written}'"
        sql = f"UPDATE relay_deliveries SET next_retry_at = {value} WHERE id = '{id}'"
        execute(office.house.gateway.ledger, sql)

    @pytest.mark.parametrize("written", ["1700000000", "soon", "", "9999-99-99T99:99:99.999999Z"])
    def test_one_that_cannot_be_read_is_told_once_and_stops_nothing(
        self,
        either: None,
        office: Office,
        capsysbinary: pytest.CaptureFixture[bytes],
        written: str,
    ) -> None:
        configure("warn", "json")
        self.put(office, written)
        office.put("ours")
        capsysbinary.readouterr()
        office.run(20)
        assert [office.status(id) for id in ("odd", "ours")] == ["delivered"] * 2
        (line,) = capsysbinary.readouterr().out.splitlines()
        told = orjson.loads(line)
        assert (told["level"], told["relay"]) == ("warn", "odd")

    @pytest.mark.parametrize(
        "written", ["2026-02-08 10:10:00", "2026-02-08T03:10:00-07:00", "20260208T101000Z"]
    )
    def test_one_in_another_form_is_kept_to(
        self, either: None, office: Office, written: str
    ) -> None:
        self.put(office, written)
        office.run(599)
        assert office.sent == []
        office.run(2)
        assert office.status("odd") == "delivered"

    def test_without_one_it_is_due(self, either: None, office: Office) -> None:
        self.put(office, None)
        office.tick()
        assert office.status("odd") == "delivered"


class TestOtherNodes:
    def test_what_a_dead_gateway_was_sending_is_sent_at_the_next_start(
        self, house: Running, clock: FakeClock
    ) -> None:
        before = Office(house, clock, owner="boot-before")
        before.put()
        (parcel,), _ = before.lane.claim(clock.now())
        after = Office(house, clock, owner="boot-after")
        after.tick()
        assert after.sent == []
        after.lane.recover()
        after.tick()
        assert [sent.body for sent in after.sent] == [parcel.body]
        before.lane.settle(parcel, SendResult(500, "HTTP 500"), clock.now())
        assert after.status() == "delivered"

    def test_what_a_lost_node_was_sending_is_taken_over_while_another_runs(
        self, on_postgres: None, house: Running, clock: FakeClock
    ) -> None:
        lost, other = Office(house, clock, owner="lost"), Office(house, clock, owner="other")
        for n in range(relays.IN_FLIGHT):
            lost.put(f"r-{n}")
        assert len(lost.lane.claim(clock.now())[0]) == relays.IN_FLIGHT
        other.put("mine")
        other.run(LOST_AFTER.total_seconds() - 1)
        assert other.sent == []
        other.run(IDLE + 2)
        assert len(other.sent) == relays.IN_FLIGHT + 1
        assert {other.status(id) for id in ("r-0", "r-3", "mine")} == {"delivered"}

    def test_what_a_living_node_sends_is_left_to_it(
        self, on_postgres: None, house: Running, clock: FakeClock
    ) -> None:
        living = Office(house, clock, owner=house.gateway.boot)
        other = Office(house, clock, owner="other")
        living.put()
        (parcel,), _ = living.lane.claim(clock.now())
        other.lane.recover()
        other.run(100)
        assert other.sent == []
        living.lane.settle(parcel, RECEIPT, clock.now())
        assert living.status() == "delivered"

    def test_a_node_that_comes_back_in_time_keeps_what_it_sends(
        self, on_postgres: None, house: Running, clock: FakeClock
    ) -> None:
        flaky, other = Office(house, clock, owner="flaky"), Office(house, clock, owner="other")
        flaky.put()
        assert len(flaky.lane.claim(clock.now())[0]) == 1
        other.run(LOST_AFTER.total_seconds() - 1)
        house.gateway.ledger.claim_boot("flaky")
        other.run(100)
        assert other.sent == []


def test_an_operators_retry_is_sent_at_once(house: Running) -> None:
    """Without waiting for the next look of the loop."""
    gateway = house.gateway
    lane = _Counting(house)
    gateway._outboxes = (lane,)
    gateway.start()
    until(lambda: lane.looks > 0)
    looks = lane.looks
    now = gateway.clock.now()
    given = SendRelay("j-1", "nowhere", "e", "made", "{}")
    gateway.ledger.write(lambda tx: relays.enqueue(tx, given, id="r", now=now))
    until(lambda: lane.looks > looks)
    sql = "UPDATE relay_deliveries SET status = 'dead', next_retry_at = NULL, attempt_count = 9"
    _run(house, sql)
    looks = lane.looks
    gateway.ledger.write(lambda tx: relays.retry(tx, "r", now))
    until(lambda: lane.looks > looks, IDLE - 1)


class _Counting(RelayOutbox):
    """Never has anything to do, and knows how often it was asked."""

    def __init__(self, house: Running) -> None:
        gateway = house.gateway
        super().__init__(gateway.ledger, lambda: gateway.compiled, gateway.boot)
        self.looks = 0

    def claim(self, _now: Any) -> tuple[tuple[OutboundRequest, ...], float]:
        self.looks += 1
        return (), 60.0


def _run(house: Running, sql: str) -> None:
    connection = apsw.Connection(str(house.gateway.state_dir / "state.db"))
    connection.set_busy_timeout(5000)
    connection.execute(sql)
    connection.close()


def test_a_lane_that_has_nothing_to_do_looks_again_soon_enough_to_take_over(
    office: Office,
) -> None:
    assert office.tick() == IDLE
    office.put()
    failing = replace(RECEIPT, status=None, error="no luck")
    office._send = lambda _parcel: failing
    office.tick()
    assert office.tick() == 1.0
