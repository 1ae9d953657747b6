"""Relays: claims, settlements and retries, on both engines."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime
from typing import Any

import orjson
import pytest

from ductile.clock import to_text
from ductile.core.delivery.relay import RETRY_SECONDS
from ductile.errors import NotFound, Refused
from ductile.store.engines.api import Effects, Ledger, StoredNotice, Tx
from ductile.store.outbox import relays
from ductile.store.outbox.relays import MAX_IN_FLIGHT, TOPIC, ClaimedRelay
from tests.store.conftest import execute
from tests.store.outbox.relay_harness import (
    BOOT,
    NOW,
    claim,
    claimed_by_boot,
    enqueue,
    kill,
    later,
    retry,
    row,
    settle,
)
from tests.waiting import WAIT_LIMIT


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
        assert len(claimed_by_boot(ledger)["boot-1"]) == MAX_IN_FLIGHT
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
                most = max(most, sum(map(len, claimed_by_boot(ledger).values())))
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

    @pytest.mark.parametrize("status", ["pending", "failed"])
    def test_time_in_another_format_is_not_due_before_it_is_normalized(
        self, ledger: Ledger, status: str
    ) -> None:
        enqueue(ledger, "odd")
        execute(
            ledger,
            f"UPDATE relay_deliveries SET status = '{status}',"
            " next_retry_at = '2026-02-08 10:00:30'",
        )
        enqueue(ledger, "ours", now=later(3))
        due = ledger.read(lambda tx: relays.next_due_by_instance(tx, ["lab"]))
        assert due == {"lab": later(3)}
        assert [found.id for found in claim(ledger, now=later(29))] == ["ours"]

    def test_only_times_of_outstanding_relays_of_the_instances_are_normalized(
        self, ledger: Ledger
    ) -> None:
        for id in ("odd", "done", "dead"):
            enqueue(ledger, id)
        enqueue(ledger, "ours")
        execute(ledger, "UPDATE relay_deliveries SET next_retry_at = 'soon' WHERE id <> 'ours'")
        execute(ledger, "UPDATE relay_deliveries SET status = 'delivered' WHERE id = 'done'")
        execute(ledger, "UPDATE relay_deliveries SET status = 'dead' WHERE id = 'dead'")

        def foreign(*instances: str) -> list[str]:
            return ledger.read(lambda tx: relays.list_foreign_times(tx, instances))

        assert foreign("attic") == []
        assert foreign("attic", "lab") == ["odd"]
        execute(ledger, "UPDATE relay_deliveries SET status = 'delivered' WHERE id = 'odd'")
        assert ledger.write(lambda tx: relays.normalize_due_times(tx, ["odd"], NOW)) == {}


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
        assert claimed_by_boot(ledger) == {BOOT: ["r-1"]}
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
        assert claimed_by_boot(ledger) == {BOOT: ["r-1"]}

    def test_claims_of_a_boot_are_released(self, ledger: Ledger) -> None:
        for name in ("a", "b"):
            enqueue(ledger, name)
        enqueue(ledger, "c", instance="attic")
        old = claim(ledger, owner="gone")
        claim(ledger, "attic")
        assert ledger.write(lambda tx: relays.release(tx, "gone", "a")) == 1
        assert claimed_by_boot(ledger) == {"gone": ["b"], BOOT: ["c"]}
        assert ledger.write(lambda tx: relays.release(tx, "gone")) == 1
        assert claimed_by_boot(ledger) == {BOOT: ["c"]}
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
