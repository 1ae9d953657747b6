"""Webhooks and their deliveries: slots, claims, settlements and notices, on both engines."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import apsw
import orjson
import psycopg
import pytest

from ductile.clock import to_text
from ductile.core.delivery import retry_policy as rules
from ductile.core.delivery.retry_policy import DeliveryStatus, compute_signature
from ductile.errors import NotFound, Refused
from ductile.store import retention as prune
from ductile.store.engines import queries
from ductile.store.engines.api import Effects, Ledger, StoredNotice
from ductile.store.engines.postgres import PostgresLedger
from ductile.store.engines.sqlite import SqliteLedger
from ductile.store.outbox import deliveries, webhooks
from ductile.store.outbox.deliveries import CYCLE, SENDS_PER_CYCLE, TOPIC, ClaimedDelivery
from ductile.store.outbox.webhooks import NewWebhook
from tests.store.conftest import execute

NOW = datetime(2026, 2, 8, 10, 0, tzinfo=UTC)
SECRET = "a secret of webhooks"
COLUMNS = {
    "id",
    "webhook_id",
    "session_id",
    "payload",
    "target_url",
    "signature",
    "status",
    "attempt_count",
    "last_attempted_at",
    "next_retry_at",
    "created_at",
    "error_detail",
}


def later(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def add(ledger: Ledger, event: str = "push", **more: Any) -> int:
    new = NewWebhook("github", event, "review", "s-1", **more)
    return ledger.write(lambda tx: webhooks.add_webhook(tx, new, SECRET, NOW))


def enqueue(ledger: Ledger, due: datetime = NOW, webhook_id: int | None = None) -> int:
    """Enqueue a delivery of the test's only webhook, which is added first if needed."""

    def work(tx: Any) -> int:
        if webhook_id is not None:
            webhook = webhooks.find_webhook(tx, webhook_id)
        else:
            webhook = webhooks.find_webhook_of_event(tx, "github", "push")
        return deliveries.enqueue_delivery(
            tx, webhook, '{"a":1}', message_id="m-1", due=due, now=NOW
        )

    if not ledger.read(lambda tx: tx.dicts("webhook_configs")):
        add(ledger, target_url="https://example.com/hook")
    return ledger.write(work)


def claim(ledger: Ledger, now: datetime = NOW, owner: str = "boot-1") -> list[ClaimedDelivery]:
    return ledger.write(lambda tx: deliveries.claim(tx, owner, now))


def fail(ledger: Ledger, claimed: ClaimedDelivery, now: datetime, owner: str = "boot-1") -> bool:
    update = rules.mark_failed(claimed.delivery.attempt_count, "no luck", now)
    return ledger.write(lambda tx: deliveries.settle(tx, claimed, owner, update, now))


def succeed(ledger: Ledger, claimed: ClaimedDelivery, now: datetime, owner: str = "boot-1") -> bool:
    update = rules.mark_delivered(claimed.delivery.attempt_count)
    return ledger.write(lambda tx: deliveries.settle(tx, claimed, owner, update, now))


def row(ledger: Ledger, id: int) -> dict[str, Any]:
    return ledger.read(lambda tx: deliveries.find_delivery(tx, id))


def free_slots(ledger: Ledger) -> None:
    execute(ledger, "UPDATE delivery_slots SET taken_at = '0001-01-01T00:00:00.000000Z'")


@pytest.fixture
def posted(ledger: Ledger) -> list[StoredNotice]:
    heard: list[StoredNotice] = []

    def hear(effects: Effects) -> None:
        heard.extend(notice for notice in effects.notices if notice.topic == TOPIC)

    ledger.listen(hear)
    return heard


def types(posted: list[StoredNotice]) -> list[tuple[str, str]]:
    return [(notice.type, orjson.loads(notice.payload)["status"]) for notice in posted]


# Webhooks


def test_webhook_is_stored_and_listed_without_its_secret(ledger: Ledger) -> None:
    id = add(ledger, plugin="echo", pipeline="flow", target_url="https://example.com/")
    found = ledger.read(lambda tx: webhooks.find_webhook(tx, id))
    assert (found.secret, found.target, found.plugin) == (SECRET, "https://example.com/", "echo")
    assert SECRET not in repr(found)
    (shown,) = ledger.read(lambda tx: tx.dicts("webhook_configs"))
    assert shown["id"] == id
    assert "secret" not in shown
    assert SECRET not in str(shown)


def test_webhook_without_a_url_targets_its_session(ledger: Ledger) -> None:
    id = add(ledger)
    assert ledger.read(lambda tx: webhooks.find_webhook(tx, id)).target == "internal://session/s-1"


def test_second_webhook_for_a_source_and_event_is_refused(ledger: Ledger) -> None:
    add(ledger)
    add(ledger, "release")
    with pytest.raises(Refused):
        add(ledger)


def test_removed_webhook_is_not_found_and_its_secret_deleted(ledger: Ledger) -> None:
    id = add(ledger)
    ledger.write(lambda tx: webhooks.remove_webhook(tx, id, NOW))
    with pytest.raises(NotFound):
        ledger.read(lambda tx: webhooks.find_webhook(tx, id))
    kept = ledger.read(lambda tx: webhooks.load_webhook(tx, id))
    assert kept is not None
    assert (kept.removed, kept.secret) == (True, "")
    with pytest.raises(NotFound):
        ledger.write(lambda tx: webhooks.remove_webhook(tx, id, NOW))
    assert add(ledger) != id


# The table (docs/specification.md, "Deliveries")


def test_delivery_table_has_the_documented_columns(ledger: Ledger) -> None:
    assert row(ledger, enqueue(ledger)).keys() >= COLUMNS


def test_new_inbound_delivery_is_pending_and_due_in_30_seconds(
    ledger: Ledger,
) -> None:
    id = enqueue(ledger, due=NOW + rules.INBOUND_DELAY)
    found = row(ledger, id)
    assert (found["status"], found["attempt_count"]) == ("pending", 0)
    assert found["created_at"] == to_text(NOW)
    assert found["next_retry_at"] == to_text(later(30))
    assert found["signature"] == compute_signature(SECRET, b'{"a":1}')
    assert claim(ledger, later(29.9)) == []
    assert [claimed.delivery.id for claimed in claim(ledger, later(30))] == [id]


def test_unknown_delivery_status_is_refused(ledger: Ledger) -> None:
    id = enqueue(ledger)
    with pytest.raises((apsw.ConstraintError, psycopg.errors.CheckViolation)):
        execute(ledger, f"UPDATE webhook_deliveries SET status = 'lost' WHERE id = {id}")


def test_delivery_of_an_unknown_webhook_is_refused(ledger: Ledger) -> None:
    def work(tx: Any) -> Any:
        nobody = webhooks.Webhook(99, "a", "b", "c", "d", "secret", None, None, None)
        return deliveries.enqueue_delivery(tx, nobody, "{}", message_id="m", due=NOW, now=NOW)

    with pytest.raises((apsw.ConstraintError, psycopg.errors.ForeignKeyViolation)):
        ledger.write(work)


MANY = """
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 30000)
INSERT INTO webhook_deliveries (webhook_id, session_id, payload, target_url, signature, status,
                                attempt_count, next_retry_at, created_at)
SELECT 1, 's', '{}', 'https://example.com/', '',
       CASE i % 4 WHEN 0 THEN 'pending' WHEN 1 THEN 'failed' WHEN 2 THEN 'dead'
                  ELSE 'delivered' END,
       0, CASE WHEN i % 4 < 2 THEN '2026-02-08T09:00:' || CAST(10 + i % 50 AS TEXT)
               || '.000000Z' END, '2026-02-08T09:00:00.000000Z' FROM n
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
        return "\n".join(row[0] for row in server.execute(f"EXPLAIN {sql}", values))  # type: ignore[arg-type]


def test_poll_uses_the_compound_index(ledger: Ledger) -> None:
    """The index is used for the first few rows of each status, and for nothing else."""
    add(ledger)
    execute(ledger, MANY)
    # SQLite also without statistics; a PostgreSQL server collects them by itself.
    if ledger.engine == "sqlite":
        check_poll_plans(ledger)
    execute(ledger, "ANALYZE")
    check_poll_plans(ledger)


def check_poll_plans(ledger: Ledger) -> None:
    due = plan(ledger, "due_deliveries", now=to_text(NOW), limit=5)
    for shown in (due, plan(ledger, "next_delivery")):
        assert shown.count("webhook_deliveries_due") == 2, shown
        assert "SCAN webhook_deliveries" not in shown
        assert "Seq Scan on webhook_deliveries" not in shown


def test_due_rows_are_claimed_oldest_first(ledger: Ledger) -> None:
    ids = [enqueue(ledger, due=later(-seconds)) for seconds in (1, 9, 5, 7, 3)]
    execute(ledger, f"UPDATE webhook_deliveries SET status = 'failed' WHERE id IN ({ids[1]})")
    execute(ledger, f"UPDATE webhook_deliveries SET status = 'failed' WHERE id IN ({ids[4]})")
    found = [claimed.delivery.id for claimed in claim(ledger)]
    assert found == [ids[1], ids[3], ids[2], ids[4], ids[0]]


# Claims and slots


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


# Times that scripts write


OTHER_FORMATS = [
    "2026-02-08 10:00:30",
    "2026-02-08T10:00:30Z",
    "2026-02-08T10:00:30.000Z",
    "2026-02-08T02:00:30-08:00",
    "2026-02-08T18:00:30.000000+08:00",
    "20260208T100030Z",
    " 2026-02-08T10:00:30.000000Z",
]
NO_TIMES = [
    "1700000000",
    "0garbage",
    "",
    "soon",
    "0001-01-01T00:00:00+08:00",
    "2026-02-30T10:00:00.000000Z",
    "9999-99-99T99:99:99.999999Z",
]


def script_sets(ledger: Ledger, id: int, written: str | None, status: str = "pending") -> None:
    value = "NULL" if written is None else f"'{written}'"
    execute(
        ledger,
        f"UPDATE webhook_deliveries SET status = '{status}', next_retry_at = {value}"
        f" WHERE id = {id}",
    )


def normalize(ledger: Ledger) -> dict[int, datetime | None]:
    """Normalize batches until none is left."""
    changed: dict[int, datetime | None] = {}
    while ids := ledger.read(deliveries.list_foreign_times):
        changed |= ledger.write(lambda tx, ids=ids: deliveries.normalize_due_times(tx, ids, NOW))
    return changed


def next_at(ledger: Ledger, now: datetime = NOW) -> datetime | None:
    return ledger.read(lambda tx: deliveries.next_due_at(tx, now))


def enqueue_with_times(ledger: Ledger, times: list[str], status: str = "pending") -> list[int]:
    """One delivery per time, as a script has written it."""
    ids = [enqueue(ledger) for _ in times]
    for id, written in zip(ids, times, strict=True):
        script_sets(ledger, id, written, status)
    return ids


@pytest.mark.parametrize("status", ["pending", "failed"])
def test_time_in_another_format_is_normalized(ledger: Ledger, status: str) -> None:
    ids = enqueue_with_times(ledger, OTHER_FORMATS, status)
    assert normalize(ledger) == dict.fromkeys(ids, later(30))
    assert next_at(ledger) == later(30)
    assert claim(ledger, later(29)) == []
    assert [found.id for found in claim(ledger, later(30))] == ids[:SENDS_PER_CYCLE]


def test_time_in_another_format_is_not_due_before_it_is_normalized(ledger: Ledger) -> None:
    enqueue_with_times(ledger, OTHER_FORMATS)
    ours = enqueue(ledger, due=later(3))
    assert next_at(ledger) == later(3)
    assert [found.id for found in claim(ledger, later(29))] == [ours]


@pytest.mark.parametrize("status", ["pending", "failed"])
def test_delivery_without_a_time_is_due_now(ledger: Ledger, status: str) -> None:
    id = enqueue(ledger, due=later(900))
    script_sets(ledger, id, None, status)
    assert normalize(ledger) == {id: NOW}
    assert next_at(ledger) == NOW
    assert [found.id for found in claim(ledger)] == [id]


def test_unreadable_time_is_due_now(ledger: Ledger) -> None:
    for cycle, written in enumerate(NO_TIMES):
        ids = enqueue_with_times(ledger, [written])
        assert normalize(ledger) == dict.fromkeys(ids, None), written
        assert [found.id for found in claim(ledger, later(5 * cycle))] == ids, written


def test_unreadable_time_does_not_block_others(ledger: Ledger) -> None:
    for cycle, written in enumerate(NO_TIMES):
        now = later(5 * cycle)
        enqueue_with_times(ledger, [written])
        ours = enqueue(ledger, due=now)
        found = next_at(ledger, now)
        assert found is not None, written
        assert found <= now, written
        assert ours in [found.id for found in claim(ledger, now)], written


@pytest.mark.parametrize("written", ["x'00ff'", "CAST(x'ff' AS TEXT)"])
def test_time_that_is_not_text_is_due_now(ledger: Ledger, written: str) -> None:
    if ledger.engine == "postgres":
        pytest.skip("its text is always text")
    odd, ours = enqueue(ledger), enqueue(ledger)
    execute(ledger, f"UPDATE webhook_deliveries SET next_retry_at = {written} WHERE id = {odd}")
    assert next_at(ledger) == NOW
    assert normalize(ledger) == {odd: None}
    assert [found.id for found in claim(ledger)] == [odd, ours]


def test_normal_times_and_finished_deliveries_are_not_normalized(ledger: Ledger) -> None:
    enqueue(ledger, due=later(5))
    for status in ("delivered", "dead"):
        script_sets(ledger, enqueue(ledger), "soon", status)
        script_sets(ledger, enqueue(ledger), None, status)
    assert ledger.read(deliveries.list_foreign_times) == []


def test_row_that_ended_since_is_not_normalized(ledger: Ledger) -> None:
    id = enqueue(ledger)
    script_sets(ledger, id, None)
    ids = ledger.read(deliveries.list_foreign_times)
    script_sets(ledger, id, None, "delivered")
    assert ledger.write(lambda tx: deliveries.normalize_due_times(tx, ids, NOW)) == {}
    assert row(ledger, id)["next_retry_at"] is None


def test_foreign_times_are_searched_among_outstanding_rows_only(ledger: Ledger) -> None:
    add(ledger)
    execute(ledger, MANY.replace("CASE i % 4", "CASE i % 100"))
    for statement in ("ANALYZE",) if ledger.engine == "postgres" else ("SELECT 1", "ANALYZE"):
        execute(ledger, statement)
        shown = plan(ledger, "foreign_deliveries", limit=500)
        assert "webhook_deliveries_due" in shown, shown
        assert "SCAN webhook_deliveries" not in shown
        assert "Seq Scan" not in shown


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


def test_delivered_ones_are_pruned_and_dead_ones_are_kept(ledger: Ledger) -> None:
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
    assert pruned(later(3601)) == {"pending", "failed", "dead"}
    assert pruned(later(10**9)) == {"pending", "failed", "dead"}


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
