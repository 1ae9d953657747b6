"""Deliveries: slots, claims, settlements, retries and notices, on both engines."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import orjson
import pytest

from ductile.clock import to_text
from ductile.core.delivery import retry_policy as rules
from ductile.core.delivery.retry_policy import DeliveryStatus
from ductile.errors import NotFound, Refused
from ductile.store import retention as prune
from ductile.store.engines.api import Effects, Ledger, StoredNotice
from ductile.store.outbox import deliveries, webhooks
from ductile.store.outbox.deliveries import CYCLE, SENDS_PER_CYCLE, TOPIC
from tests.store.conftest import execute
from tests.store.outbox.delivery_harness import (
    NOW,
    SECRET,
    add,
    claim,
    enqueue,
    fail,
    later,
    row,
    succeed,
)


@pytest.fixture
def posted(ledger: Ledger) -> list[StoredNotice]:
    heard: list[StoredNotice] = []

    def hear(effects: Effects) -> None:
        heard.extend(notice for notice in effects.notices if notice.topic == TOPIC)

    ledger.listen(hear)
    return heard


def types(posted: list[StoredNotice]) -> list[tuple[str, str]]:
    return [(notice.type, orjson.loads(notice.payload)["status"]) for notice in posted]


# Claims and slots


def test_due_rows_are_claimed_oldest_first(ledger: Ledger) -> None:
    ids = [enqueue(ledger, due=later(-seconds)) for seconds in (1, 9, 5, 7, 3)]
    execute(ledger, f"UPDATE webhook_deliveries SET status = 'failed' WHERE id IN ({ids[1]})")
    execute(ledger, f"UPDATE webhook_deliveries SET status = 'failed' WHERE id IN ({ids[4]})")
    found = [claimed.delivery.id for claimed in claim(ledger)]
    assert found == [ids[1], ids[3], ids[2], ids[4], ids[0]]


def test_at_most_five_deliveries_are_claimed_per_cycle(ledger: Ledger) -> None:
    ids = [enqueue(ledger) for _ in range(12)]
    assert [c.delivery.id for c in claim(ledger)] == ids[:5]
    assert claim(ledger, later(4.9)) == []
    assert [c.delivery.id for c in claim(ledger, later(5))] == ids[5:10]
    assert [c.delivery.id for c in claim(ledger, later(10))] == ids[10:]


def test_only_as_many_slots_as_deliveries_are_taken(ledger: Ledger) -> None:
    enqueue(ledger)
    assert len(claim(ledger)) == 1
    for _ in range(6):
        enqueue(ledger)
    assert len(claim(ledger, later(1))) == 4
    assert len(claim(ledger, later(5))) == 1
    assert len(claim(ledger, later(6))) == 1


def test_claim_returns_delivery_webhook_and_payload(ledger: Ledger) -> None:
    id = enqueue(ledger)
    (claimed,) = claim(ledger)
    assert claimed.payload == '{"a":1}'
    assert claimed.webhook is not None
    assert claimed.webhook.secret == SECRET
    assert claimed.delivery.message_id == "m-1"
    found = row(ledger, id)
    assert (found["owner"], found["last_attempted_at"]) == ("boot-1", to_text(NOW))
    assert found["status"] == "pending"


@pytest.mark.parametrize("status", ["dead", "delivered"])
def test_dead_and_delivered_deliveries_are_not_claimed(ledger: Ledger, status: str) -> None:
    id = enqueue(ledger)
    execute(ledger, f"UPDATE webhook_deliveries SET status = '{status}' WHERE id = {id}")
    assert claim(ledger) == []
    assert ledger.read(lambda tx: deliveries.next_due_at(tx, NOW)) is None


def test_claimed_delivery_is_not_claimed_again(ledger: Ledger) -> None:
    enqueue(ledger)
    assert len(claim(ledger)) == 1
    assert claim(ledger, later(60), "boot-2") == []


def test_concurrent_claims_respect_the_slots_and_share_no_delivery(
    open_ledger: Callable[[], Ledger],
) -> None:
    ledger = open_ledger()
    for _ in range(20):
        enqueue(ledger)
    ready, found = threading.Barrier(4), []

    def work(owner: str) -> None:
        ready.wait()
        found.extend((owner, c.delivery.id) for c in claim(ledger, NOW, owner))

    threads = [threading.Thread(target=work, args=(f"boot-{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == SENDS_PER_CYCLE
    assert len({id for _, id in found}) == SENDS_PER_CYCLE


def test_clock_that_was_set_back_does_not_block_deliveries(ledger: Ledger) -> None:
    enqueue(ledger)
    assert len(claim(ledger)) == 1
    before = NOW - timedelta(days=1)
    enqueue(ledger, due=before)
    execute(ledger, f"UPDATE delivery_slots SET taken_at = '{to_text(NOW)}'")
    assert ledger.read(lambda tx: deliveries.next_due_at(tx, before)) == before
    assert len(claim(ledger, before)) == 1


def test_slot_of_a_node_with_a_fast_clock_counts(ledger: Ledger) -> None:
    for _ in range(10):
        enqueue(ledger, due=later(-10))
    assert len(claim(ledger, later(2))) == 5
    assert claim(ledger, NOW) == []


@pytest.mark.parametrize(("due", "taken", "expected"), [(7, 0, 7), (1, 0, 5), (-9, 3, 8)])
def test_next_due_time_considers_slots(ledger: Ledger, due: int, taken: int, expected: int) -> None:
    enqueue(ledger, due=later(due))
    execute(ledger, f"UPDATE delivery_slots SET taken_at = '{to_text(later(taken))}'")
    assert ledger.read(lambda tx: deliveries.next_due_at(tx, later(4))) == later(expected)


def test_unreadable_payload_is_none(ledger: Ledger) -> None:
    if ledger.engine == "postgres":
        pytest.skip("its text is always text")
    bad, good = enqueue(ledger), enqueue(ledger)
    execute(ledger, f"UPDATE webhook_deliveries SET payload = CAST(x'ff00' AS TEXT) WHERE id={bad}")
    found = {c.delivery.id: c.payload for c in claim(ledger)}
    assert found == {bad: None, good: '{"a":1}'}


def test_row_without_a_message_id_gets_a_default_one(ledger: Ledger) -> None:
    id = enqueue(ledger)
    execute(ledger, "UPDATE webhook_deliveries SET message_id = NULL")
    assert claim(ledger)[0].delivery.message_id == f"delivery-{id}"


# Settlements


def test_failed_send_is_recorded_with_its_next_time(
    ledger: Ledger, posted: list[StoredNotice]
) -> None:
    id = enqueue(ledger)
    assert fail(ledger, claim(ledger)[0], later(1))
    found = row(ledger, id)
    assert (found["status"], found["attempt_count"]) == ("failed", 1)
    assert found["next_retry_at"] == to_text(later(31))
    assert (found["error_detail"], found["owner"]) == ("no luck", None)
    assert types(posted) == [
        ("WebhookDeliveryEvent", "pending"),
        ("WebhookDeliveryEvent", "failed"),
    ]


def test_sixth_failure_is_dead_with_one_dlq_event(
    ledger: Ledger, posted: list[StoredNotice]
) -> None:
    id, now, waits = enqueue(ledger), NOW, []
    for _ in range(6):
        (claimed,) = claim(ledger, now)
        assert fail(ledger, claimed, now)
        found = row(ledger, id)
        if found["next_retry_at"] is not None:
            waits.append((datetime.fromisoformat(found["next_retry_at"]) - now).total_seconds())
            now = datetime.fromisoformat(found["next_retry_at"])
    assert waits == [30, 120, 600, 3600, 21600]
    assert (found["status"], found["attempt_count"], found["next_retry_at"]) == ("dead", 6, None)
    assert [type for type, _ in types(posted)].count("WebhookDLQEvent") == 1
    event = orjson.loads(posted[-1].payload)
    assert posted[-1].type == "WebhookDLQEvent"
    assert (event["delivery_id"], event["attempt_count"]) == (id, 6)
    assert claim(ledger, later(10**7)) == []


def test_success_keeps_the_attempt_count(ledger: Ledger, posted: list[StoredNotice]) -> None:
    id = enqueue(ledger)
    fail(ledger, claim(ledger)[0], NOW)
    assert succeed(ledger, claim(ledger, later(30))[0], later(31))
    found = row(ledger, id)
    assert (found["status"], found["attempt_count"]) == ("delivered", 1)
    assert (found["next_retry_at"], found["error_detail"]) == (None, None)
    assert types(posted)[-1] == ("WebhookDeliveryEvent", "delivered")
    assert orjson.loads(posted[-1].payload)["was"] == "failed"


def test_only_the_owner_settles_and_only_once(ledger: Ledger, posted: list[StoredNotice]) -> None:
    id = enqueue(ledger)
    (claimed,) = claim(ledger)
    assert not succeed(ledger, claimed, NOW, owner="boot-2")
    assert succeed(ledger, claimed, NOW)
    assert not fail(ledger, claimed, NOW)
    assert row(ledger, id)["status"] == "delivered"
    assert len(posted) == 2


def test_repeated_settlement_does_not_end_the_next_claim(ledger: Ledger) -> None:
    """The first commit succeeded without an answer, and the row was claimed again since."""
    id = enqueue(ledger)
    (first,) = claim(ledger)
    assert fail(ledger, first, NOW)
    (second,) = claim(ledger, later(31))
    assert not succeed(ledger, first, later(31))
    assert (row(ledger, id)["status"], row(ledger, id)["owner"]) == ("failed", "boot-1")
    assert succeed(ledger, second, later(31))


def test_claim_of_another_boot_is_not_undone(ledger: Ledger) -> None:
    id = enqueue(ledger)
    (claimed,) = claim(ledger)
    ledger.write(lambda tx: deliveries.undo_claim(tx, claimed, "boot-2"))
    assert row(ledger, id)["owner"] == "boot-1"


def test_illegal_status_change_is_an_error(ledger: Ledger) -> None:
    enqueue(ledger)
    (claimed,) = claim(ledger)
    delivered = rules.mark_delivered(0)
    dead = replace(claimed, delivery=replace(claimed.delivery, status=DeliveryStatus.DEAD))
    with pytest.raises(ValueError, match="dead to delivered"):
        ledger.write(lambda tx: deliveries.settle(tx, dead, "boot-1", delivered, NOW))


def test_undone_claim_restores_the_row(ledger: Ledger, posted: list[StoredNotice]) -> None:
    id = enqueue(ledger)
    fail(ledger, claim(ledger)[0], later(1))
    before = row(ledger, id)
    (claimed,) = claim(ledger, later(31))
    ledger.write(lambda tx: deliveries.undo_claim(tx, claimed, "boot-1"))
    assert row(ledger, id) == before
    assert len(posted) == 2


def test_claims_of_a_dead_boot_are_released(ledger: Ledger) -> None:
    id = enqueue(ledger)
    claim(ledger)
    assert ledger.read(deliveries.list_claimed) == {"boot-1": [id]}
    assert ledger.write(lambda tx: deliveries.release(tx, "boot-1", id + 1)) == 0
    assert ledger.write(lambda tx: deliveries.release(tx, "boot-2")) == 0
    assert ledger.write(lambda tx: deliveries.release(tx, "boot-1")) == 1
    assert ledger.read(deliveries.list_claimed) == {}
    (again,) = claim(ledger, later(5), "boot-2")
    assert (again.delivery.id, again.delivery.message_id) == (id, "m-1")


# Retries by an operator


@pytest.mark.parametrize("status", ["dead", "failed", "pending"])
def test_retry_restores_all_six_attempts(
    ledger: Ledger, posted: list[StoredNotice], status: str
) -> None:
    id = enqueue(ledger, due=later(9999))
    execute(ledger, f"UPDATE webhook_deliveries SET status = '{status}', attempt_count = 4")
    was = ledger.write(lambda tx: deliveries.retry_delivery(tx, id, later(7)))
    assert was["status"] == status
    found = row(ledger, id)
    assert (found["status"], found["attempt_count"]) == ("pending", 0)
    assert found["next_retry_at"] == to_text(later(7))
    assert types(posted)[-1] == ("WebhookDeliveryEvent", "pending")
    now = later(7)
    for _ in range(6):
        (claimed,) = claim(ledger, now)
        fail(ledger, claimed, now)
        now += timedelta(hours=7)
    assert row(ledger, id)["status"] == "dead"


def test_delivered_and_claimed_deliveries_cannot_be_retried(ledger: Ledger) -> None:
    id = enqueue(ledger)
    (claimed,) = claim(ledger)
    with pytest.raises(Refused, match="being sent"):
        ledger.write(lambda tx: deliveries.retry_delivery(tx, id, NOW))
    succeed(ledger, claimed, NOW)
    with pytest.raises(Refused, match="delivered"):
        ledger.write(lambda tx: deliveries.retry_delivery(tx, id, NOW))
    with pytest.raises(NotFound):
        ledger.write(lambda tx: deliveries.retry_delivery(tx, 999, NOW))


def test_delivery_of_a_removed_webhook_cannot_be_retried(ledger: Ledger) -> None:
    removed, kept = add(ledger), add(ledger, "release")
    ids = [enqueue(ledger, webhook_id=id) for id in (removed, kept)]
    execute(ledger, "UPDATE webhook_deliveries SET status = 'dead'")
    ledger.write(lambda tx: webhooks.remove_webhook(tx, removed, NOW))
    for dry in (True, False):
        with pytest.raises(Refused, match=f"its webhook {removed} was removed"):
            ledger.write(lambda tx, dry=dry: deliveries.retry_delivery(tx, ids[0], NOW, dry=dry))
    assert row(ledger, ids[0])["status"] == "dead"
    found = ledger.read(lambda tx: deliveries.list_ids(tx, DeliveryStatus.DEAD, None, 100))
    assert found == [ids[1]]


def test_only_dead_deliveries_are_discarded(ledger: Ledger) -> None:
    dead, failed, old = (enqueue(ledger) for _ in range(3))
    execute(ledger, f"UPDATE webhook_deliveries SET status = 'dead' WHERE id <> {failed}")
    execute(ledger, f"UPDATE webhook_deliveries SET status = 'failed' WHERE id = {failed}")
    execute(ledger, f"UPDATE webhook_deliveries SET created_at = '2020' WHERE id = {old}")
    with pytest.raises(Refused, match="is failed; only dead ones"):
        ledger.write(lambda tx: deliveries.discard_delivery(tx, failed))
    with pytest.raises(NotFound):
        ledger.write(lambda tx: deliveries.discard_delivery(tx, 999))

    def discard(until: str | None, *, dry: bool = False) -> list[int]:
        return ledger.write(lambda tx: deliveries.discard_dead(tx, until, 100, dry=dry))

    assert discard(None, dry=True) == [dead, old]
    assert discard("2021") == [old]
    ledger.write(lambda tx: deliveries.discard_delivery(tx, dead, dry=True))
    assert row(ledger, dead)["status"] == "dead"
    ledger.write(lambda tx: deliveries.discard_delivery(tx, dead))
    assert discard(None) == []
    assert row(ledger, failed)["status"] == "failed"


def test_dry_retry_changes_nothing(ledger: Ledger, posted: list[StoredNotice]) -> None:
    id = enqueue(ledger)
    before = row(ledger, id)
    assert ledger.read(lambda tx: deliveries.retry_delivery(tx, id, NOW, dry=True)) == before
    assert row(ledger, id) == before
    assert len(posted) == 1


def test_ids_are_listed_by_status_and_last_attempt(ledger: Ledger) -> None:
    ids = [enqueue(ledger) for _ in range(4)]
    execute(ledger, "UPDATE webhook_deliveries SET status = 'dead'")
    execute(
        ledger,
        f"UPDATE webhook_deliveries SET last_attempted_at = '{to_text(later(3600))}'"
        f" WHERE id >= {ids[2]}",
    )

    def found(since: str | None, limit: int = 100) -> list[int]:
        return ledger.read(lambda tx: deliveries.list_ids(tx, DeliveryStatus.DEAD, since, limit))

    assert found(None) == ids
    assert found(to_text(later(60))) == ids[2:]
    assert found(None, 2) == ids[:2]


# Retention


def test_delivered_and_dead_ones_are_pruned_after_their_retention(ledger: Ledger) -> None:
    ids = {status: enqueue(ledger) for status in ("pending", "failed", "dead", "delivered")}
    for status, id in ids.items():
        execute(ledger, f"UPDATE webhook_deliveries SET status = '{status}' WHERE id = {id}")
    over = (
        "UPDATE webhook_deliveries SET next_retry_at = NULL WHERE status IN ('delivered', 'dead')"
    )
    execute(ledger, over)
    retention = prune.Retention(
        jobs=3600.0,
        logs=3600.0,
        transitions=3600.0,
        breaker_transitions=3600.0,
        facts=None,
        dedupe_ttl=3600.0,
    )

    def pruned(now: datetime) -> set[str]:
        for batch in prune.prune_batches(retention, now):
            ledger.write(batch)
        page = ledger.read(lambda tx: tx.dicts("deliveries", **NO_FILTER))
        return {found["status"] for found in page}

    assert pruned(later(3599)) == set(ids)
    assert pruned(later(3601)) == {"pending", "failed"}
    assert pruned(later(10**9)) == {"pending", "failed"}


NO_FILTER: dict[str, Any] = {
    "status": None,
    "webhook_id": None,
    "since": None,
    "before": None,
    "limit": 100,
}


def test_listing_is_filtered_and_paged(ledger: Ledger) -> None:
    other = add(ledger, "release")
    add(ledger)
    ids = [enqueue(ledger), enqueue(ledger, webhook_id=other), enqueue(ledger)]
    execute(ledger, f"UPDATE webhook_deliveries SET status = 'dead' WHERE id = {ids[2]}")

    def listed(**given: Any) -> list[int]:
        rows = ledger.read(lambda tx: tx.dicts("deliveries", **{**NO_FILTER, **given}))
        return [found["id"] for found in rows]

    assert listed() == ids[::-1]
    assert listed(status="dead") == [ids[2]]
    assert listed(webhook_id=other) == [ids[1]]
    assert listed(since=to_text(later(1))) == []
    assert listed(before=ids[2], limit=1) == [ids[1]]


def test_slot_table_has_one_row_per_send(ledger: Ledger) -> None:
    assert timedelta(seconds=5) == CYCLE
    taken = ledger.write(
        lambda tx: tx.all(
            "take_slots", now=to_text(NOW), before=to_text(NOW), beyond=to_text(NOW), limit=100
        )
    )
    assert len(taken) == SENDS_PER_CYCLE == 5
