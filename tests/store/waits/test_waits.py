"""Waits in the ledger, on both engines: each ends once, by the first of several callers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import apsw
import pytest

from ductile.clock import Ids, from_text, to_text
from ductile.core.waits.decision import WaitEnd, WaitStatus
from ductile.core.waits.end import time_is_up
from ductile.model import Event, JobStatus, SubmittedBy
from ductile.operations.waits.approvals import list_approvals
from ductile.store.engines.api import Ledger, Tx
from ductile.store.engines.queries import load_queries
from ductile.store.engines.sqlite import SqliteLedger
from ductile.store.jobs import close, read, requeue, retries
from ductile.store.jobs.spawn import SpawnPoint
from ductile.store.outbox.due_times import DELAYED, move_due_times
from ductile.store.waits import awaited_events, parked_jobs, wait_rows
from ductile.store.waits.wait_rows import WaitRow
from tests.conftest import CountingEntropy, FakeClock
from tests.store.jobs.harness import Pipelines, job_filters
from tests.store.jobs.test_job_tree import Counting

Make = Callable[..., Pipelines]
APPROVAL = {"approval": "Pay?", "timeout": 60.0}


@pytest.fixture
def make(ledger: Ledger, clock: FakeClock, entropy: CountingEntropy) -> Make:
    def build(*steps: dict[str, Any], **more: Any) -> Pipelines:
        pipeline = {"name": "p", "on": "go", "steps": list(steps), **more}
        return Pipelines(ledger, clock, entropy, [pipeline])

    return build


def only_wait(harness: Pipelines) -> WaitRow:
    [row] = open_waits(harness)
    return row


def open_waits(harness: Pipelines) -> list[WaitRow]:
    later = harness.clock.now() + timedelta(days=365)
    return harness.ledger.read(lambda tx: wait_rows.list_due(tx, later, 10_000))


def end(harness: Pipelines, row: WaitRow, status: WaitStatus) -> JobStatus | None:
    base, now = harness.entropy.uuid(), harness.clock.now()
    ended = WaitEnd(status, now, "token:ann")
    return harness.ledger.write(
        lambda tx: close.end_wait(tx, row, ended, harness.tx_config, Ids(base), now)
    )


def cancel(harness: Pipelines, row: WaitRow) -> bool:
    base, now = harness.entropy.uuid(), harness.clock.now()
    job = harness.ledger.read(lambda tx: read.load_job(tx, row.job_id))
    assert job is not None
    return harness.ledger.write(
        lambda tx: close.end_queued(
            tx, job, JobStatus.DEAD, "cancelled", now, harness.tx_config, Ids(base)
        )
    )


def send(harness: Pipelines, type: str, payload: Any) -> None:
    """An event from outside."""
    base, now = harness.entropy.uuid(), harness.clock.now()
    event = Event(type, payload, None, "webhook", now, harness.entropy.uuid())
    routing = harness.tx_config.router.arrive(event, plugin=None, submitted_by=SubmittedBy.API)
    harness.ledger.write(
        lambda tx: close.write_intents(
            tx, routing.intents, SpawnPoint(), harness.tx_config, Ids(base), now
        )
    )


def stored(harness: Pipelines, row: WaitRow) -> WaitRow:
    found = harness.ledger.read(lambda tx: wait_rows.find_wait(tx, row.id))
    assert found is not None
    return found


def jobs_of(harness: Pipelines, step: str) -> list[dict[str, Any]]:
    rows = harness.rows("jobs", **job_filters(limit=100_000))
    return [dict(row) for row in rows if row["step_path"] == step]


def test_parked_job_is_not_claimed_and_keeps_its_run_open(make: Make) -> None:
    harness = make({"id": "hold", "wait": APPROVAL}, {"id": "next", "uses": "a"})
    run = harness.start("p", {})
    assert harness.run() == ["hold"]
    row = only_wait(harness)
    assert harness.take() is None
    assert harness.scope(run) == "open"
    assert row.due_at == to_text(harness.clock.now() + timedelta(seconds=60))
    # Neither the loop for retries nor a clock that was set back makes it ready.
    assert harness.ledger.read(lambda tx: retries.next_retry_at(tx, harness.clock.now())) is None
    assert harness.ledger.write(lambda tx: retries.promote_due(tx, harness.clock.now())) == 0
    assert harness.take() is None
    assert end(harness, row, WaitStatus.APPROVED) is JobStatus.SUCCEEDED
    assert harness.run() == ["next"]
    assert harness.scope(run) == "ended"


def test_queued_groups_distinguish_waiting_and_ready_jobs(make: Make) -> None:
    harness = make({"id": "hold", "wait": APPROVAL}, {"id": "next", "uses": "a"})
    harness.start("p", {})
    harness.run()
    harness.start("p", {})
    harness.start("p", {})
    groups = harness.ledger.read(lambda tx: requeue.list_queued_groups(tx, 10))
    shown = [(group["step_path"], group["is_waiting"], group["jobs"]) for group in groups]
    assert sorted(shown) == [("hold", False, 2), ("hold", True, 1)]
    assert {group["pipeline"] for group in groups} == {"p"}
    assert len({group["example"] for group in groups}) == 2


def test_clock_that_was_set_back_moves_delays_but_not_times(make: Make, clock: FakeClock) -> None:
    until = to_text(clock.now() + timedelta(hours=3))
    harness = make({"split": [{"wait": 7200.0}, {"wait": {"until": until}}]})
    harness.start("p", {})
    harness.run()
    [kind] = [kind for kind in DELAYED if kind.noun == "waits"]
    earlier, now = timedelta(hours=1), harness.clock.now()
    before = {row.kind: row.due_at for row in open_waits(harness)}
    harness.ledger.write(lambda tx: move_due_times(tx, kind, kind.first, earlier, now))
    after = {row.kind: row.due_at for row in open_waits(harness)}
    assert after["until"] == before["until"] == until
    assert from_text(after["for"] or "") == from_text(before["for"] or "") - earlier


def test_event_ends_all_matching_waits_and_no_other(make: Make) -> None:
    condition = {"path": "payload.id", "op": "eq", "value": "{payload.id}"}
    wait = {"event": "paid", "if": condition, "timeout": 60.0}
    harness = make({"id": "hold", "wait": wait}, {"id": "next", "uses": "a"})
    for id in (1, 1, 2):
        harness.start("p", {"id": id})
    harness.run()
    send(harness, "paid", {"id": 3})
    send(harness, "other", {"id": 1})
    assert len(open_waits(harness)) == 3
    send(harness, "paid", {"id": 1})
    assert harness.run() == ["next", "next"]
    assert len(open_waits(harness)) == 1


def test_event_is_compared_with_more_waits_than_one_page(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(awaited_events, "EVENT_PAGE", 2)
    condition = {"path": "payload.id", "op": "eq", "value": "{payload.id}"}
    harness = make({"wait": {"event": "paid", "if": condition, "timeout": 60.0}})
    for id in range(7):
        harness.start("p", {"id": id})
    harness.run()
    for id in reversed(range(7)):
        send(harness, "paid", {"id": id})
        continue_events(harness)
        assert len(open_waits(harness)) == id


def continue_events(harness: Pipelines) -> int:
    """Compare events with further waits, as the loop does; returns the number of transactions."""
    count, now = 0, harness.clock.now()

    def work(tx: Tx) -> bool:
        id = awaited_events.next_event_id(tx)
        return id is not None and close.continue_event(tx, id, harness.tx_config, Ids(base), now)

    base = harness.entropy.uuid()
    while harness.ledger.write(work):
        count += 1
        base = harness.entropy.uuid()
    return count


def test_many_waits_for_one_event_end_in_several_transactions(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(awaited_events, "MOST_ENDED", 2)
    wait = {"event": "paid", "timeout": 60.0}
    harness = make({"id": "first", "wait": wait}, {"id": "second", "wait": wait})
    for _ in range(5):
        harness.start("p", {})
    harness.run()
    send(harness, "paid", {"n": 1})
    assert len(open_waits(harness)) == 3
    # These began after the event: it does not end them, and a decision in between counts.
    harness.clock.advance(1)
    assert harness.run() == ["second", "second"]
    left = [row for row in open_waits(harness) if row.step_path == "first"]
    assert end(harness, left[0], WaitStatus.EXPIRED) is JobStatus.FAILED
    assert continue_events(harness) == 2
    assert [row.step_path for row in open_waits(harness)] == ["second", "second"]
    assert harness.run() == ["second", "second"]
    assert [job["status"] for job in jobs_of(harness, "first")].count("succeeded") == 4


def test_event_ends_waits_that_began_by_a_later_clock(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(awaited_events, "MOST_ENDED", 2)
    wait = {"event": "paid", "timeout": 6000.0}
    harness = make({"id": "first", "wait": wait}, {"id": "second", "wait": wait})
    for _ in range(5):
        harness.start("p", {})
    harness.run()
    # Set back, or the event arrives at a node with another clock.
    harness.clock.advance(-60)
    send(harness, "paid", {})
    assert len(open_waits(harness)) == 3
    assert continue_events(harness) == 2
    assert open_waits(harness) == []


def test_condition_may_read_the_context_of_the_waiting_run(make: Make) -> None:
    condition = {"path": "context.who", "op": "eq", "value": "me"}
    first = {"uses": "a", "baggage": {"who": "payload.who"}}
    harness = make(first, {"wait": {"event": "paid", "if": condition, "timeout": 60.0}})
    for who in ("me", "you"):
        harness.start("p", {"who": who})
    harness.run()
    send(harness, "paid", {})
    assert len(open_waits(harness)) == 1


def test_statements_per_event_do_not_grow_with_the_waits(make: Make) -> None:
    condition = {"path": "context.who", "op": "eq", "value": "me"}
    first = {"uses": "a", "baggage": {"who": "payload.who"}}
    harness = make(first, {"wait": {"event": "paid", "if": condition, "timeout": 60.0}})
    event = Event("paid", {}, None, "webhook", harness.clock.now(), harness.entropy.uuid())

    def count_statements() -> int:
        def work(tx: Tx) -> int:
            counting = Counting(tx)
            assert awaited_events.match_event(cast(Tx, counting), event) == ([], None)
            return counting.asked

        return harness.ledger.read(work)

    harness.start("p", {"who": "you"})
    harness.run()
    few = count_statements()
    for _ in range(20):
        harness.start("p", {"who": "you"})
    harness.run()
    assert count_statements() == few


def test_event_of_a_job_ends_a_wait_in_the_same_transaction(make: Make) -> None:
    wait = {"event": "paid", "timeout": 60.0}
    branches = [{"id": "hold", "wait": wait}, {"id": "pay", "uses": "a"}]
    harness = make({"split": branches}, {"id": "join", "uses": "b"})
    run = harness.start("p", {})
    event = {"type": "paid", "payload": {"n": 1}}
    ran = harness.run(a={"status": "ok", "result": 1, "events": [event]})
    assert ran == ["step_1.0.hold", "step_1.1.pay", "join"]
    assert harness.scope(run) == "ended"


def test_failed_branch_leaves_the_wait_open_until_it_ends(make: Make) -> None:
    branches = [{"id": "hold", "wait": APPROVAL}, {"id": "bad", "uses": "a"}]
    harness = make({"split": branches}, {"id": "join", "uses": "b"})
    run = harness.start("p", {})
    harness.run(a={"status": "error", "error": "no", "retry": False})
    assert harness.scope(run) == "open"
    end(harness, only_wait(harness), WaitStatus.APPROVED)
    assert harness.scope(run) == "failed"
    assert jobs_of(harness, "join") == []


def test_ended_waits_are_pruned_with_their_jobs(make: Make) -> None:
    harness = make({"id": "hold", "wait": APPROVAL})
    harness.start("p", {})
    harness.run()
    row = only_wait(harness)
    end(harness, row, WaitStatus.APPROVED)
    later = to_text(harness.clock.now() + timedelta(days=1))
    prune: dict[str, Any] = {"before": later, "limit": 10}
    assert harness.ledger.write(lambda tx: tx.run("prune_waits", **prune)) == 0
    times = {"dedupe_before": later, "now": later}
    assert harness.ledger.write(lambda tx: tx.run("prune_jobs", **prune, **times)) == 1
    assert harness.ledger.write(lambda tx: tx.run("prune_waits", **prune)) == 1


def race(harness: Pipelines, rounds: int) -> None:
    """Let a timer, two persons, an event and a cancellation race for each wait."""
    for _ in range(rounds):
        harness.start("p", {})
    harness.run()
    rows = open_waits(harness)
    assert len(rows) == rounds
    # Each thread plays another part for each row, so that each of them is first now and then.
    contenders: list[Callable[[WaitRow], object]] = [
        lambda row: end(harness, row, time_is_up(row.kind)),
        lambda row: end(harness, row, WaitStatus.APPROVED),
        lambda row: end(harness, row, WaitStatus.REJECTED),
        lambda row: cancel(harness, row) or None,
    ]
    barrier = threading.Barrier(len(contenders))

    def contend(number: int) -> list[bool]:
        won = []
        for place in range(len(rows)):
            row = rows[place]
            if place % 50 == 0:
                barrier.wait(60)
            won.append(contenders[(number + place) % len(contenders)](row) is not None)
        return won

    with ThreadPoolExecutor(len(contenders)) as threads:
        results = list(threads.map(contend, range(len(contenders))))
    assert [sum(won) for won in zip(*results, strict=True)] == [1] * rounds
    ends = [stored(harness, row).status for row in rows]
    assert set(ends) <= {"approved", "rejected", "expired", "cancelled"}
    statuses = {"approved": "succeeded", "cancelled": "dead"}
    jobs = {job["id"]: job["status"] for job in jobs_of(harness, "hold")}
    assert [jobs[row.job_id] for row in rows] == [statuses.get(end, "failed") for end in ends]
    following = [job["parent_job_id"] for job in jobs_of(harness, "next")]
    parents = [parent for parent in following if parent in {row.job_id for row in rows}]
    approved = [row.job_id for row, end in zip(rows, ends, strict=True) if end == "approved"]
    assert sorted(parents) == sorted(approved)


def test_exactly_one_end_takes_effect(make: Make) -> None:
    race(make({"id": "hold", "wait": APPROVAL}, {"id": "next", "uses": "a"}), 60)


@pytest.mark.torture
def test_exactly_one_end_takes_effect_ten_thousand_times(make: Make) -> None:
    harness = make({"id": "hold", "wait": APPROVAL}, {"id": "next", "uses": "a"})
    for _ in range(100):
        race(harness, 100)
        harness.run()


def test_open_approvals_are_listed_from_the_index_of_open_waits(tmp_path: Path) -> None:
    """Decided approvals, which are kept for months, are not read."""
    ledger = SqliteLedger(tmp_path / "state.db")
    ledger.start()
    ledger.close()
    connection = apsw.Connection(str(tmp_path / "state.db"))
    sql = f"EXPLAIN QUERY PLAN {load_queries('sqlite')['waiting_approvals']}"
    values = {"pipeline": None, "before": None, "before_id": None, "limit": 50}
    plan = "\n".join(str(row[3]) for row in connection.execute(sql, values))
    connection.close()
    assert "INDEX waits_open " in plan
    assert "TEMP B-TREE" not in plan


def test_page_of_approvals_is_described_with_two_queries(make: Make, ledger: Ledger) -> None:
    harness = make({"id": "ask", "wait": APPROVAL})
    runs = [harness.start("p", {}) for _ in range(3)]
    harness.run()

    def work(tx: Tx) -> tuple[dict[str, Any], int]:
        counting = Counting(tx)
        page = list_approvals(
            cast(Tx, counting), limit=2, status="waiting", pipeline=None, before=None
        )
        return page, counting.asked

    page, asked = ledger.read(work)
    assert asked == 2
    found = [row["instance_id"] for row in page["approvals"]]
    assert len(set(found)) == 2
    assert set(found) <= set(runs)


def test_first_decision_counts_until_another_node_acts_on_it(make: Make) -> None:
    harness = make({"id": "hold", "wait": APPROVAL}, {"id": "next", "uses": "a"})
    harness.start("p", {})
    harness.run()
    row, now = only_wait(harness), harness.clock.now()

    def hand_over(status: WaitStatus) -> bool:
        ended = WaitEnd(status, now, "token:ann")
        return harness.ledger.write(lambda tx: parked_jobs.hand_over(tx, row, ended))

    # Both callers have read the wait before either of them decides.
    assert hand_over(WaitStatus.APPROVED)
    assert not hand_over(WaitStatus.REJECTED)
    decided = stored(harness, row).decided
    assert decided is not None
    assert parked_jobs.decode_end(decided).status is WaitStatus.APPROVED
