"""Relays: claims, settlements, retries and receipts, on both engines."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import apsw
import orjson
import psycopg
import pytest

from ductile.clock import to_text
from ductile.core.delivery.relay import RETRY_SECONDS, judge_send
from ductile.core.pipelines.intents import SendRelay
from ductile.errors import NotFound, Refused
from ductile.store import retention as prune
from ductile.store.engines import queries
from ductile.store.engines.api import Effects, Ledger, StoredNotice, Tx
from ductile.store.engines.postgres import PostgresLedger
from ductile.store.engines.sqlite import SqliteLedger
from ductile.store.outbox import relays
from ductile.store.outbox.relays import MAX_IN_FLIGHT, TOPIC, ClaimedRelay, Receipt
from tests.store.conftest import execute
from tests.waiting import WAIT_LIMIT

NOW = datetime(2026, 2, 8, 10, 0, tzinfo=UTC)
BOOT = "boot-1"


def later(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def enqueue(ledger: Ledger, id: str = "r-1", *, instance: str = "lab", now: datetime = NOW) -> str:
    sent = SendRelay("j-1", instance, f"e-{id}", "made", f'{{"id":"{id}"}}')
    ledger.write(lambda tx: relays.enqueue_relay(tx, sent, id=id, now=now))
    return id


def claim(
    ledger: Ledger, *instances: str, now: datetime = NOW, owner: str = BOOT
) -> list[ClaimedRelay]:
    return ledger.write(lambda tx: relays.claim(tx, instances or ("lab",), owner, now))


def settle(
    ledger: Ledger,
    claimed: ClaimedRelay,
    error: str | None = None,
    *,
    now: datetime = NOW,
    owner: str = BOOT,
) -> str | None:
    """Settle a claim and return the new status; None if the claim is not valid any more."""
    update = judge_send(claimed.attempts, error, final=False, now=now)
    done = ledger.write(lambda tx: relays.settle(tx, claimed, owner, update, now))
    return update.status.value if done else None


def retry(ledger: Ledger, id: str, now: datetime = NOW, *, dry: bool = False) -> str:
    return ledger.write(lambda tx: relays.retry_relay(tx, id, now, dry=dry))


def row(ledger: Ledger, id: str) -> dict[str, Any]:
    rows = ledger.read(lambda tx: tx.dicts("relays", status=None, instance=None, limit=1000))
    return next(row for row in rows if row["id"] == id)


def kill(ledger: Ledger, id: str, *, now: datetime = NOW) -> None:
    """Let every send fail until the relay is dead."""
    for _ in range(len(RETRY_SECONDS) + 1):
        (claimed,) = claim(ledger, now=now)
        settle(ledger, claimed, "no luck", now=now)
        now = later(sum(RETRY_SECONDS) + (now - NOW).total_seconds())
    assert row(ledger, id)["status"] == "dead"


def under_way(ledger: Ledger) -> dict[str, list[str]]:
    return ledger.read(relays.list_claimed)


@pytest.fixture
def posted(ledger: Ledger) -> list[StoredNotice]:
    heard: list[StoredNotice] = []

    def hear(effects: Effects) -> None:
        heard.extend(notice for notice in effects.notices if notice.topic == TOPIC)

    ledger.listen(hear)
    return heard


def types(posted: list[StoredNotice]) -> list[str]:
    return [notice.type for notice in posted]


class TestClaims:
    def test_claim_returns_everything_needed_to_send(self, ledger: Ledger) -> None:
        enqueue(ledger)
        (claimed,) = claim(ledger)
        assert claimed == ClaimedRelay(
            "r-1", "lab", "j-1", "e-r-1", "made", '{"id":"r-1"}', 0, None, to_text(NOW)
        )
        assert row(ledger, "r-1")["last_attempted_at"] == to_text(NOW)

    def test_due_rows_are_claimed_oldest_first(self, ledger: Ledger) -> None:
        for name, seconds in (("a", 1), ("b", 9), ("c", 5), ("d", 7)):
            enqueue(ledger, name, now=later(-seconds))
        execute(ledger, "UPDATE relay_deliveries SET status = 'failed' WHERE id IN ('b', 'a')")
        assert [claimed.id for claimed in claim(ledger)] == ["b", "d", "c", "a"]

    def test_relays_due_at_the_same_time_are_claimed_in_creation_order(
        self, ledger: Ledger
    ) -> None:
        for name in ("c", "a", "b"):
            enqueue(ledger, name)
        assert [claimed.id for claimed in claim(ledger)] == ["a", "b", "c"]

    def test_relay_that_is_not_due_is_not_claimed(self, ledger: Ledger) -> None:
        enqueue(ledger, now=later(1))
        assert claim(ledger) == []
        assert len(claim(ledger, now=later(1))) == 1

    @pytest.mark.parametrize("status", ["delivered", "dead"])
    def test_finished_relay_is_not_claimed(self, ledger: Ledger, status: str) -> None:
        enqueue(ledger)
        execute(ledger, f"UPDATE relay_deliveries SET status = '{status}'")
        assert claim(ledger) == []
        assert ledger.read(lambda tx: relays.next_due_by_instance(tx, ["lab"])) == {}

    def test_relays_of_other_instances_are_not_touched(self, ledger: Ledger) -> None:
        enqueue(ledger, instance="attic")
        assert claim(ledger, "lab") == []
        assert len(claim(ledger, "attic")) == 1

    def test_sends_in_flight_are_limited_per_instance_over_all_nodes(self, ledger: Ledger) -> None:
        for n in range(MAX_IN_FLIGHT + 3):
            enqueue(ledger, f"r-{n}")
        enqueue(ledger, "other", instance="attic")
        first = claim(ledger, "lab", owner="boot-1")[:1]
        assert len(under_way(ledger)["boot-1"]) == MAX_IN_FLIGHT
        assert claim(ledger, "lab", owner="boot-2") == []
        assert [c.id for c in claim(ledger, "lab", "attic", owner="boot-2")] == ["other"]
        settle(ledger, first[0])
        assert len(claim(ledger, "lab", owner="boot-2")) == 1

    def test_count_and_claim_are_serialized_between_nodes(self, ledger: Ledger) -> None:
        for n in range(2 * MAX_IN_FLIGHT):
            enqueue(ledger, f"r-{n}")
        second: list[list[ClaimedRelay]] = []
        other = threading.Thread(target=lambda: second.append(claim(ledger, owner="boot-2")))

        class Interrupted:
            """A transaction during which another node claims, after the count of sends."""

            def __init__(self, tx: Tx) -> None:
                self._tx = tx

            def __getattr__(self, name: str) -> Any:
                return getattr(self._tx, name)

            def all(self, query: str, **values: object) -> Any:
                rows = self._tx.all(query, **values)
                if query == "claimed_relays":
                    other.start()
                    # It has to wait until this one is committed.
                    other.join(0.5)
                return rows

        def first(tx: Tx) -> list[ClaimedRelay]:
            wrapped: Any = Interrupted(tx)
            return relays.claim(wrapped, ["lab"], "boot-1", NOW)

        assert len(ledger.write(first)) == MAX_IN_FLIGHT
        other.join(WAIT_LIMIT)
        assert second == [[]]

    def test_concurrent_claims_share_no_relay(self, open_ledger: Callable[[], Ledger]) -> None:
        ledger = open_ledger()
        for n in range(40):
            enqueue(ledger, f"r-{n}")
        sent: list[str] = []
        most = 0

        def node(owner: str) -> None:
            nonlocal most
            while found := claim(ledger, owner=owner):
                most = max(most, sum(map(len, under_way(ledger).values())))
                for claimed in found:
                    sent.append(claimed.id)
                    settle(ledger, claimed, owner=owner)

        threads = [threading.Thread(target=node, args=(f"boot-{n}",)) for n in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT_LIMIT)
        # A claim without room has stopped; the other one takes the rest.
        node("boot-last")
        assert sorted(sent) == sorted({f"r-{n}" for n in range(40)})
        assert most <= MAX_IN_FLIGHT

    def test_next_due_time_per_instance(self, ledger: Ledger) -> None:
        enqueue(ledger, "a", now=later(5))
        enqueue(ledger, "b", now=later(3))
        enqueue(ledger, "c", instance="attic", now=later(9))
        execute(ledger, "UPDATE relay_deliveries SET status = 'failed' WHERE id = 'a'")

        def due() -> dict[str, datetime]:
            return ledger.read(
                lambda tx: relays.next_due_by_instance(tx, ["lab", "attic", "nowhere"])
            )

        assert due() == {"lab": later(3), "attic": later(9)}
        claim(ledger, now=later(3))
        assert due() == {"lab": later(5), "attic": later(9)}


class TestTimesThatScriptsWrite:
    OTHER_FORMATS = (
        "2026-02-08 10:00:30",
        "2026-02-08T10:00:30Z",
        "2026-02-08T02:00:30-08:00",
        "2026-02-08T18:00:30.000000+08:00",
        "20260208T100030Z",
    )
    NO_TIMES = (
        "1700000000",
        "0garbage",
        "",
        "soon",
        "2026-02-30T10:00:00.000000Z",
        "9999-99-99T99:99:99.999999Z",
    )

    def put(self, ledger: Ledger, written: str | None, status: str = "pending") -> str:
        id = enqueue(ledger, f"odd-{status}-{written}")
        value = "NULL" if written is None else f"'{written}'"
        execute(
            ledger,
            f"UPDATE relay_deliveries SET status = '{status}', next_retry_at = {value}"
            f" WHERE id = '{id}'",
        )
        return id

    def foreign(self, ledger: Ledger, *instances: str) -> list[str]:
        return ledger.read(lambda tx: relays.list_foreign_times(tx, instances or ("attic", "lab")))

    def normalize(self, ledger: Ledger) -> dict[str, datetime | None]:
        """Normalize batches until none is left."""
        changed: dict[str, datetime | None] = {}
        while ids := self.foreign(ledger):
            changed |= ledger.write(lambda tx, ids=ids: relays.normalize_due_times(tx, ids, NOW))
        return changed

    def due(self, ledger: Ledger) -> datetime | None:
        return ledger.read(lambda tx: relays.next_due_by_instance(tx, ["lab"])).get("lab")

    @pytest.mark.parametrize("status", ["pending", "failed"])
    def test_time_in_another_format_is_normalized(self, ledger: Ledger, status: str) -> None:
        ids = [self.put(ledger, written, status) for written in self.OTHER_FORMATS]
        assert self.normalize(ledger) == dict.fromkeys(ids, later(30))
        assert self.due(ledger) == later(30)
        assert claim(ledger, now=later(29)) == []
        found = {found.id for found in claim(ledger, now=later(30))}
        assert len(found) == MAX_IN_FLIGHT
        assert found < set(ids)

    def test_time_in_another_format_is_not_due_before_it_is_normalized(
        self, ledger: Ledger
    ) -> None:
        for written in self.OTHER_FORMATS:
            self.put(ledger, written)
        enqueue(ledger, "ours", now=later(3))
        assert self.due(ledger) == later(3)
        assert [found.id for found in claim(ledger, now=later(29))] == ["ours"]

    @pytest.mark.parametrize("status", ["pending", "failed"])
    def test_relay_without_a_time_is_due_now(self, ledger: Ledger, status: str) -> None:
        id = self.put(ledger, None, status)
        assert self.normalize(ledger) == {id: NOW}
        assert self.due(ledger) == NOW
        assert [found.id for found in claim(ledger)] == [id]

    def test_unreadable_time_is_due_now(self, ledger: Ledger) -> None:
        for written in self.NO_TIMES:
            id = self.put(ledger, written)
            assert self.normalize(ledger) == {id: None}, written
            assert [found.id for found in claim(ledger)] == [id], written
            execute(ledger, "DELETE FROM relay_deliveries")

    def test_unreadable_time_does_not_block_others(self, ledger: Ledger) -> None:
        for written in self.NO_TIMES:
            self.put(ledger, written)
            enqueue(ledger, "ours")
            found = self.due(ledger)
            assert found is not None, written
            assert found <= NOW, written
            assert "ours" in [found.id for found in claim(ledger)], written
            execute(ledger, "DELETE FROM relay_deliveries")

    def test_relays_of_other_instances_are_not_touched(self, ledger: Ledger) -> None:
        id = self.put(ledger, "soon")
        assert self.foreign(ledger, "attic") == []
        assert self.foreign(ledger, "attic", "lab") == [id]

    @pytest.mark.parametrize("status", ["delivered", "dead"])
    @pytest.mark.parametrize("written", [None, "soon"])
    def test_finished_relay_is_not_normalized(
        self, ledger: Ledger, status: str, written: str | None
    ) -> None:
        self.put(ledger, written, status)
        assert self.foreign(ledger) == []

    def test_row_that_ended_since_is_not_normalized(self, ledger: Ledger) -> None:
        self.put(ledger, None)
        ids = self.foreign(ledger)
        execute(ledger, "UPDATE relay_deliveries SET status = 'delivered'")
        assert ledger.write(lambda tx: relays.normalize_due_times(tx, ids, NOW)) == {}


class TestOwners:
    def test_only_the_claiming_boot_settles(
        self, ledger: Ledger, posted: list[StoredNotice]
    ) -> None:
        enqueue(ledger)
        (claimed,) = claim(ledger)
        assert settle(ledger, claimed, owner="another") is None
        assert row(ledger, "r-1")["status"] == "pending"
        assert settle(ledger, claimed) == "delivered"
        assert settle(ledger, claimed, "too late") is None
        assert row(ledger, "r-1")["status"] == "delivered"
        assert types(posted) == ["relay.pending", "relay.delivered"]

    def test_repeated_settlement_does_not_end_the_next_claim(self, ledger: Ledger) -> None:
        """The first commit succeeded without an answer, and the row was claimed again since."""
        enqueue(ledger)
        (first,) = claim(ledger)
        settle(ledger, first, "no luck")
        (second,) = claim(ledger, now=later(1))
        assert settle(ledger, first, "no luck", now=later(2)) is None
        assert under_way(ledger) == {BOOT: ["r-1"]}
        assert settle(ledger, second, now=later(2)) == "delivered"

    def test_undone_claim_restores_the_row(self, ledger: Ledger) -> None:
        enqueue(ledger)
        before = row(ledger, "r-1")
        (claimed,) = claim(ledger, now=later(1))
        ledger.write(lambda tx: relays.undo_claim(tx, claimed, BOOT))
        assert row(ledger, "r-1") == before
        assert len(claim(ledger, now=later(1))) == 1

    def test_claim_of_another_boot_is_not_undone(self, ledger: Ledger) -> None:
        enqueue(ledger)
        (claimed,) = claim(ledger)
        ledger.write(lambda tx: relays.undo_claim(tx, claimed, "another"))
        assert under_way(ledger) == {BOOT: ["r-1"]}

    def test_claims_of_a_boot_are_released(self, ledger: Ledger) -> None:
        for name in ("a", "b"):
            enqueue(ledger, name)
        enqueue(ledger, "c", instance="attic")
        old = claim(ledger, owner="gone")
        claim(ledger, "attic")
        assert ledger.write(lambda tx: relays.release(tx, "gone", "a")) == 1
        assert under_way(ledger) == {"gone": ["b"], BOOT: ["c"]}
        assert ledger.write(lambda tx: relays.release(tx, "gone")) == 1
        assert under_way(ledger) == {BOOT: ["c"]}
        assert [claimed.id for claimed in claim(ledger)] == ["a", "b"]
        assert settle(ledger, old[0], "too late", owner="gone") is None


class TestEnds:
    def test_success_keeps_the_number_of_failures(self, ledger: Ledger) -> None:
        enqueue(ledger)
        (claimed,) = claim(ledger)
        settle(ledger, claimed, "no luck")
        (claimed,) = claim(ledger, now=later(1))
        settle(ledger, claimed, now=later(2))
        found = row(ledger, "r-1")
        assert (found["status"], found["attempt_count"]) == ("delivered", 1)
        assert (found["next_retry_at"], found["error_detail"]) == (None, None)

    def test_relay_is_dead_after_its_retry_schedule(
        self, ledger: Ledger, posted: list[StoredNotice]
    ) -> None:
        enqueue(ledger)
        now, gaps = NOW, []
        while claimed := claim(ledger, now=now):
            settle(ledger, claimed[0], "no luck", now=now)
            due = ledger.read(lambda tx: relays.next_due_by_instance(tx, ["lab"]))
            if due:
                gaps.append((due["lab"] - now).total_seconds())
                now = due["lab"]
        assert tuple(gaps) == RETRY_SECONDS
        found = row(ledger, "r-1")
        assert (found["status"], found["attempt_count"]) == ("dead", len(RETRY_SECONDS) + 1)
        assert (found["next_retry_at"], found["error_detail"]) == (None, "no luck")
        assert types(posted) == ["relay.pending", *["relay.failed"] * 8, "relay.dead"]
        (last,) = [notice for notice in posted if notice.type == "relay.dead"]
        assert last.job_id == "j-1"
        assert orjson.loads(last.payload) == {
            "id": "r-1",
            "instance": "lab",
            "event_type": "made",
            "event_id": "e-r-1",
            "status": "dead",
            "error": "no luck",
        }

    def test_settlement_wakes_the_worker(self, ledger: Ledger) -> None:
        woken = []
        enqueue(ledger)
        (claimed,) = claim(ledger)
        ledger.listen(lambda effects: woken.append(effects.relays))
        settle(ledger, claimed)
        assert woken == [1]


class TestRetries:
    def test_retried_dead_relay_has_all_attempts_and_wakes_the_worker(
        self, ledger: Ledger, posted: list[StoredNotice]
    ) -> None:
        enqueue(ledger)
        kill(ledger, "r-1")
        woken = []
        ledger.listen(lambda effects: woken.append(effects.relays))
        assert retry(ledger, "r-1", later(10)) == "dead"
        assert woken == [1]
        assert types(posted)[-1] == "relay.pending"
        found = row(ledger, "r-1")
        assert (found["status"], found["attempt_count"]) == ("pending", 0)
        assert found["next_retry_at"] == to_text(later(10))

    def test_retried_failed_relay_is_due_now(self, ledger: Ledger) -> None:
        enqueue(ledger)
        settle(ledger, claim(ledger)[0], "no luck")
        assert retry(ledger, "r-1") == "failed"
        assert len(claim(ledger)) == 1

    def test_claimed_relay_cannot_be_retried(self, ledger: Ledger) -> None:
        enqueue(ledger)
        settle(ledger, claim(ledger)[0], "no luck")
        (claimed,) = claim(ledger, now=later(1))
        for dry in (True, False):
            with pytest.raises(Refused, match="is being sent now"):
                retry(ledger, "r-1", dry=dry)
        assert settle(ledger, claimed, "no luck", now=later(1)) == "failed"
        assert row(ledger, "r-1")["attempt_count"] == 2

    @pytest.mark.parametrize("status", ["pending", "delivered"])
    def test_pending_and_delivered_relays_cannot_be_retried(
        self, ledger: Ledger, status: str
    ) -> None:
        enqueue(ledger)
        execute(ledger, f"UPDATE relay_deliveries SET status = '{status}'")
        with pytest.raises(Refused, match=f"is {status}"):
            retry(ledger, "r-1")

    def test_unknown_relay_is_not_found(self, ledger: Ledger) -> None:
        with pytest.raises(NotFound):
            retry(ledger, "nope")

    def test_dry_run_changes_nothing(self, ledger: Ledger) -> None:
        enqueue(ledger)
        kill(ledger, "r-1")
        before = row(ledger, "r-1")
        assert retry(ledger, "r-1", dry=True) == "dead"
        assert ledger.write(lambda tx: relays.retry_dead(tx, 10, NOW, dry=True)) == ["r-1"]
        assert row(ledger, "r-1") == before

    def test_dead_relays_are_retried_oldest_first(
        self, ledger: Ledger, posted: list[StoredNotice]
    ) -> None:
        for n, name in enumerate(("b", "c", "a")):
            enqueue(ledger, name)
            execute(
                ledger,
                "UPDATE relay_deliveries SET status = 'dead', attempt_count = 9,"
                f" last_attempted_at = '{to_text(later(n))}' WHERE id = '{name}'",
            )
        enqueue(ledger, "fine")
        assert ledger.write(lambda tx: relays.retry_dead(tx, 2, NOW)) == ["b", "c"]
        assert ledger.write(lambda tx: relays.retry_dead(tx, 2, NOW)) == ["a"]
        assert ledger.write(lambda tx: relays.retry_dead(tx, 2, NOW)) == []
        assert types(posted) == ["relay.pending"] * 7


class TestReceipts:
    def receive(
        self, ledger: Ledger, event_id: str | None, *, peer: str = "home"
    ) -> Receipt | None:
        return ledger.write(
            lambda tx: relays.record_receipt(
                tx, peer=peer, event_id=event_id, receiver_event_id="ours", now=NOW
            )
        )

    def test_event_is_new_once(self, ledger: Ledger) -> None:
        assert self.receive(ledger, "e-1") is None
        ledger.write(
            lambda tx: tx.run("fill_relay_receipt", peer="home", event_id="e-1", job_id="j-9")
        )
        assert self.receive(ledger, "e-1") == Receipt("ours", "j-9", duplicate=True)

    def test_event_ids_are_separate_per_peer(self, ledger: Ledger) -> None:
        assert self.receive(ledger, "e-1") is None
        assert self.receive(ledger, "e-1", peer="attic") is None

    def test_event_without_an_id_is_always_new(self, ledger: Ledger) -> None:
        assert self.receive(ledger, None) is None
        assert self.receive(ledger, None) is None

    def test_only_one_of_two_concurrent_events_is_new(self, ledger: Ledger) -> None:
        answers: list[Receipt | None] = []
        threads = [
            threading.Thread(target=lambda: answers.append(self.receive(ledger, "e-1")))
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT_LIMIT)
        assert sum(answer is None for answer in answers) == 1
        assert len(answers) == 4

    def test_signature_is_accepted_once(self, ledger: Ledger) -> None:
        def fresh(peer: str) -> int:
            given = {"peer": peer, "signature": "s", "now": to_text(NOW)}
            return ledger.write(lambda tx: tx.run("insert_relay_signature", **given))

        assert [fresh("home"), fresh("home"), fresh("attic")] == [1, 0, 1]


class TestPruning:
    def prune(self, ledger: Ledger, now: datetime, *, jobs: float = 30 * prune.DAY) -> None:
        retention = prune.Retention(jobs, jobs, jobs, jobs, None, prune.DAY)
        for batch in prune.prune_batches(retention, now):
            ledger.write(batch)

    def count(self, ledger: Ledger, table: str) -> int:
        if isinstance(ledger, SqliteLedger):
            connection = apsw.Connection(str(ledger.path), flags=apsw.SQLITE_OPEN_READONLY)
            try:
                return int(connection.execute(f"SELECT count(*) FROM {table}").get)
            finally:
                connection.close()
        assert isinstance(ledger, PostgresLedger)
        with psycopg.connect(ledger.url) as server:
            found = server.execute(f"SELECT count(*) FROM {table}").fetchone()
        assert found is not None
        return int(found[0])

    def test_only_old_delivered_relays_are_pruned(self, ledger: Ledger) -> None:
        for status in ("delivered", "pending", "failed", "dead"):
            enqueue(ledger, status)
            execute(
                ledger,
                f"UPDATE relay_deliveries SET status = '{status}',"
                f" last_attempted_at = '{to_text(NOW)}' WHERE id = '{status}'",
            )
        self.prune(ledger, later(30 * prune.DAY))
        assert self.count(ledger, "relay_deliveries") == 4
        self.prune(ledger, later(30 * prune.DAY + 1))
        assert self.count(ledger, "relay_deliveries") == 3
        assert row(ledger, "dead")["status"] == "dead"

    def test_old_relay_delivered_today_is_kept(self, ledger: Ledger) -> None:
        enqueue(ledger)
        today = later(40 * prune.DAY)
        settle(ledger, claim(ledger, now=today)[0], now=today)
        self.prune(ledger, today)
        assert row(ledger, "r-1")["status"] == "delivered"

    def test_receipts_are_kept_for_at_least_a_week(self, ledger: Ledger) -> None:
        TestReceipts().receive(ledger, "e-1")
        self.prune(ledger, later(prune.WEEK), jobs=60)
        assert self.count(ledger, "relay_receipts") == 1
        self.prune(ledger, later(prune.WEEK + 1), jobs=60)
        assert self.count(ledger, "relay_receipts") == 0

    def test_signatures_are_kept_for_the_replay_period(self, ledger: Ledger) -> None:
        given = {"peer": "home", "signature": "s", "now": to_text(NOW)}
        ledger.write(lambda tx: tx.run("insert_relay_signature", **given))
        self.prune(ledger, later(prune.DAY))
        assert self.count(ledger, "relay_signatures") == 1
        self.prune(ledger, later(prune.DAY + 1))
        assert self.count(ledger, "relay_signatures") == 0


MANY = """
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 4000)
INSERT INTO relay_deliveries (id, instance, event_id, event_type, body, status, next_retry_at,
                              last_attempted_at, created_at)
SELECT 'r' || CAST(i AS TEXT), CASE i % 3 WHEN 0 THEN 'lab' ELSE 'attic' END, 'e', 'made', '{}',
       CASE WHEN i % 100 = 0 THEN 'dead' WHEN i % 8 = 0 THEN 'pending' WHEN i % 8 = 1 THEN 'failed'
            ELSE 'delivered' END,
       CASE WHEN i % 8 < 2 THEN '2026-02-08T09:00:' || CAST(10 + i % 50 AS TEXT) || '.000000Z' END,
       '2026-02-08T09:00:' || CAST(10 + i % 50 AS TEXT) || '.000000Z',
       '2026-02-08T09:00:00.000000Z' FROM n
"""


def plan(ledger: Ledger, query: str, **values: object) -> str:
    sql = queries.load_queries(ledger.engine)[query]
    if isinstance(ledger, SqliteLedger):
        connection = apsw.Connection(str(ledger.path), flags=apsw.SQLITE_OPEN_READONLY)
        rows = connection.execute(f"EXPLAIN QUERY PLAN {sql}", values).fetchall()
        connection.close()
        return "\n".join(str(row[3]) for row in rows)
    assert isinstance(ledger, PostgresLedger)
    with psycopg.connect(ledger.url) as server:
        return "\n".join(row[0] for row in server.execute(f"EXPLAIN {sql}", values))


POLLING = [
    ("due_relays", {"instance": "lab", "now": to_text(NOW), "limit": 4}, "due"),
    ("next_relay", {"instance": "lab"}, "due"),
    ("foreign_relays", {"instance": "lab", "limit": 500}, "due"),
    ("claimed_relays", {}, "owner"),
    ("dead_relays", {"limit": 4}, "status"),
    ("prune_relays", {"before": "2026-02-08T09:00:11.000000Z", "limit": 4}, "status"),
]


def test_polling_queries_scan_no_table(ledger: Ledger) -> None:
    """SQLite also without statistics; a PostgreSQL server collects them by itself."""
    execute(ledger, MANY)
    for statement in ("ANALYZE",) if ledger.engine == "postgres" else ("SELECT 1", "ANALYZE"):
        execute(ledger, statement)
        for query, values, index in POLLING:
            shown = plan(ledger, query, **values)
            assert f"relay_deliveries_{index}" in shown, shown
            assert "Seq Scan" not in shown, shown
            assert "autoindex" not in shown.partition("LIST SUBQUERY")[2], shown
            assert "SCAN relay_deliveries\n" not in f"{shown}\n", shown
