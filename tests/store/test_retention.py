"""Pruning each kind of row in small batches; on both engines."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import apsw
import psycopg
import pytest

from ductile.clock import to_text
from ductile.core.jobs.judge import Rules
from ductile.core.jobs.retry import RetryPolicy
from ductile.core.schedules.breaker import BreakerPolicy, Result
from ductile.core.values.redact import Redactor
from ductile.model import Ending, Outcome
from ductile.store import boots, breakers
from ductile.store import retention as prune
from ductile.store.engines.api import Ledger
from ductile.store.engines.postgres import PostgresLedger
from ductile.store.engines.sqlite import SqliteLedger
from tests.conftest import CountingEntropy, FakeClock
from tests.store.conftest import execute
from tests.store.jobs.harness import BAD, OK, job_filters
from tests.store.test_schedules import Timer

DAY = 86_400.0
RETENTION = prune.Retention(
    jobs=30 * DAY,
    logs=30 * DAY,
    transitions=30 * DAY,
    breaker_transitions=90 * DAY,
    facts=None,
    dedupe_ttl=DAY,
)


@pytest.fixture
def t(ledger: Ledger, clock: FakeClock, entropy: CountingEntropy) -> Timer:
    return Timer(ledger, clock, entropy)


def pruned(t: Timer, retention: prune.Retention = RETENTION) -> int:
    """Run every batch once; returns how many rows were deleted."""
    now = t.clock.now()
    return sum(t.ledger.write(batch) for batch in prune.prune_batches(retention, now))


def rows(t: Timer, query: str, **values: Any) -> list[Any]:
    return t.ledger.read(lambda tx: tx.dicts(query, **values))


def count(t: Timer, table: str) -> int:
    sql = f"SELECT count(*) FROM {table}"
    if isinstance(t.ledger, PostgresLedger):
        with psycopg.connect(t.ledger.url) as other:
            [found] = other.execute(sql).fetchone() or (0,)
        return int(found)
    assert isinstance(t.ledger, SqliteLedger)
    connection = apsw.Connection(str(t.ledger.path), flags=apsw.SQLITE_OPEN_READONLY)
    [(number,)] = connection.execute(sql).fetchall()
    connection.close()
    return int(str(number))


def job_ids(t: Timer) -> set[str]:
    return {row["id"] for row in rows(t, "jobs", **job_filters(limit=10_000))}


def logs(t: Timer) -> list[Any]:
    return rows(t, "attempts", before=2**62, limit=10_000)


def ended(t: Timer, outcome: Outcome = OK, **more: Any) -> str:
    id = t.put(attempts=1, **more).job_id
    t.end(t.must_take(), outcome)
    return id


# Jobs


@pytest.mark.parametrize("outcome", [OK, BAD], ids=["succeeded", "dead"])
def test_finished_job_is_pruned_after_its_retention(t: Timer, outcome: Outcome) -> None:
    id = ended(t, outcome)
    t.clock.advance(30 * DAY)
    pruned(t)
    assert job_ids(t) == {id}
    t.clock.advance(1)
    pruned(t)
    assert job_ids(t) == set()


def test_retention_counts_from_the_end_of_a_job(t: Timer) -> None:
    t.put()
    t.clock.advance(100 * DAY)
    t.end(t.must_take())
    pruned(t)
    assert len(job_ids(t)) == 1


def test_queued_and_running_jobs_are_never_pruned(t: Timer) -> None:
    running, retrying, queued = t.put().job_id, t.put().job_id, t.put().job_id
    assert t.must_take().job.id == running
    t.end(t.must_take(), BAD)
    t.clock.advance(10_000 * DAY)
    pruned(t)
    assert job_ids(t) == {running, retrying, queued}


def test_job_with_an_active_dedupe_key_is_kept(t: Timer) -> None:
    retention = replace(RETENTION, jobs=DAY, dedupe_ttl=5 * DAY)
    id = ended(t, dedupe_key="k")
    t.clock.advance(4 * DAY)
    pruned(t, retention)
    assert job_ids(t) == {id}
    assert t.ledger.read(lambda tx: tx.one("job", id=id)) is not None
    t.clock.advance(2 * DAY)
    pruned(t, retention)
    assert job_ids(t) == set()


def test_job_with_a_longer_dedupe_ttl_is_kept(t: Timer) -> None:
    id = ended(t, dedupe_key="k", dedupe_ttl=60 * DAY)
    t.clock.advance(59 * DAY)
    pruned(t)
    assert job_ids(t) == {id}
    assert t.put(dedupe_key="k", dedupe_ttl=60 * DAY).deduplicated
    t.clock.advance(2 * DAY)
    pruned(t)
    assert id not in job_ids(t)


def test_dedupe_ttl_without_a_key_has_no_effect(t: Timer) -> None:
    ended(t, dedupe_ttl=60 * DAY)
    t.clock.advance(31 * DAY)
    pruned(t)
    assert job_ids(t) == set()


def test_pruned_job_is_read_from_its_log(t: Timer) -> None:
    id = ended(t)
    t.clock.advance(10 * DAY)
    pruned(t, replace(RETENTION, jobs=5 * DAY))
    job = t.job(id)
    assert (job["id"], job["status"], job["pruned"]) == (id, "succeeded", True)
    assert job["result"] == {"status": "ok", "result": "done"}


def test_job_with_a_time_in_another_format_is_pruned(t: Timer) -> None:
    execute(
        t.ledger,
        "INSERT INTO job_queue (id, plugin, command, payload, status, attempt, max_attempts,"
        " submitted_by, created_at, completed_at) VALUES ('script-1', 'echo', 'poll', '{}',"
        " 'succeeded', 1, 4, 'cli', '2020-01-01 10:00:00', '2020-01-01 10:00:00')",
    )
    pruned(t)
    assert job_ids(t) == set()


def script_ended(t: Timer, completed_at: str) -> None:
    execute(
        t.ledger,
        "INSERT INTO job_queue (id, plugin, command, status, submitted_by, created_at, dedupe_key,"
        " dedupe_ttl, completed_at) VALUES ('script', 'echo', 'poll', 'succeeded', 'cli',"
        f" '2026-02-08 08:00:00', 'k', 60, '{completed_at}')",
    )


@pytest.mark.parametrize(
    ("completed_at", "kept"),
    [
        ("2026-02-08 09:30:00", True),
        ("2026-02-08 08:59:59", False),
        ("2026-02-08T02:00:00-08:00", True),
        ("2026-02-08T00:59:59-08:00", False),
    ],
)
def test_time_in_another_format_decides_the_pruning(
    t: Timer, completed_at: str, kept: bool
) -> None:
    """The retention is an hour, and the time is 10:00."""
    script_ended(t, completed_at)
    pruned(t, replace(RETENTION, jobs=3600.0, dedupe_ttl=3600.0))
    assert job_ids(t) == ({"script"} if kept else set())


NEVER = [
    "2020-13-01T10:00:00.000000Z",
    "2020-02-30T10:00:00.000000Z",
    "2020-xx-01T10:00:00.000000Z",
]
"""End times in our format that do not exist."""


@pytest.mark.parametrize("completed_at", ["0garbage", *NEVER])
def test_job_with_an_unreadable_end_is_pruned_one_retention_later(
    t: Timer, completed_at: str
) -> None:
    script_ended(t, completed_at)
    pruned(t)
    assert job_ids(t) == {"script"}
    t.clock.advance(31 * DAY)
    pruned(t)
    assert job_ids(t) == set()


@pytest.mark.parametrize("completed_at", NEVER)
def test_job_with_a_nonexistent_end_does_not_block_pruning(
    t: Timer, monkeypatch: pytest.MonkeyPatch, completed_at: str
) -> None:
    monkeypatch.setattr(prune, "WINDOW", 0)
    script_ended(t, completed_at)
    ended(t, dedupe_key="k", dedupe_ttl=60)
    t.clock.advance(31 * DAY)
    pruned(t)
    assert job_ids(t) == {"script"}


# Other kinds of rows


def test_logs_have_their_own_retention(t: Timer) -> None:
    ended(t)
    t.clock.advance(10 * DAY)
    pruned(t, replace(RETENTION, logs=5 * DAY))
    assert logs(t) == []
    assert len(job_ids(t)) == 1


def test_transitions_have_their_own_retention(t: Timer) -> None:
    id = ended(t)
    t.clock.advance(10 * DAY)
    pruned(t, replace(RETENTION, transitions=5 * DAY))
    assert t.job(id)["transitions"] == []
    assert len(logs(t)) == 1


def test_notices_have_the_retention_of_logs(t: Timer) -> None:
    ended(t)
    assert t.ledger.read(lambda tx: tx.all("notices_after", xact=0, after=0, limit=100))
    t.clock.advance(31 * DAY)
    pruned(t)
    assert t.ledger.read(lambda tx: tx.all("notices_after", xact=0, after=0, limit=100)) == []


def test_breaker_transitions_have_their_own_retention(t: Timer) -> None:
    t.ledger.write(
        lambda tx: breakers.record_result(
            tx,
            plugin="echo",
            command="poll",
            job_id="x",
            result=Result.FAILURE,
            policy=BreakerPolicy(threshold=1),
            now=t.clock.now(),
        )
    )
    t.clock.advance(90 * DAY)
    pruned(t)
    assert len(rows(t, "breaker_transitions", plugin="echo", limit=10)) == 1
    t.clock.advance(1)
    pruned(t)
    assert rows(t, "breaker_transitions", plugin="echo", limit=10) == []
    assert len(rows(t, "breakers", plugin="echo")) == 1


def test_occurrences_are_pruned_and_the_entry_is_kept(t: Timer) -> None:
    t.begin()
    t.after(60)
    t.finish()
    t.clock.advance(31 * DAY)
    pruned(t)
    assert count(t, "schedule_slots") == 0
    [entry] = rows(t, "entries")
    assert entry["last_fire"] == "2026-02-08T10:01:00.000000Z"


def test_dedupe_drops_are_pruned(t: Timer) -> None:
    ended(t, dedupe_key="k")
    assert t.put(dedupe_key="k").deduplicated
    assert count(t, "dedupe_drops") == 1
    t.clock.advance(31 * DAY)
    pruned(t)
    assert count(t, "dedupe_drops") == 0


def test_ended_boots_are_pruned_and_open_ones_kept(t: Timer) -> None:
    for id in ("old", "new"):
        now = t.clock.now()
        t.ledger.write(
            lambda tx, id=id, now=now: boots.begin_boot(tx, id=id, pid=1, version="1", now=now)
        )
    t.ledger.write(lambda tx: boots.end_boot(tx, "old", t.clock.now()))
    t.clock.advance(31 * DAY)
    pruned(t)
    assert count(t, "boots") == 1


# Contexts and scopes


def context(t: Timer, id: str, parent: str | None = None) -> None:
    named = "NULL" if parent is None else f"'{parent}'"
    execute(
        t.ledger,
        "INSERT INTO event_context (id, parent_id, pipeline_name, step_id, accumulated_json,"
        f" created_at) VALUES ('{id}', {named}, 'p', 's', '{{}}', '2020-01-01T00:00:00.000000Z')",
    )


def scope(t: Timer, id: str, *, context_id: str, ended: bool) -> None:
    at = "'2020-01-01T00:00:00.000000Z'" if ended else "NULL"
    status = "ended" if ended else "open"
    execute(
        t.ledger,
        "INSERT INTO scopes (id, pipeline, context_id, status, created_at, ended_at) VALUES"
        f" ('{id}', 'p', '{context_id}', '{status}', '2020-01-01T00:00:00.000000Z', {at})",
    )


def has_context(t: Timer, id: str) -> bool:
    return t.ledger.read(lambda tx: tx.one("context", id=id)) is not None


def test_unreferenced_context_is_pruned(t: Timer) -> None:
    context(t, "c")
    pruned(t)
    assert not has_context(t, "c")


def test_chain_of_contexts_is_pruned_from_its_end(t: Timer) -> None:
    context(t, "root")
    context(t, "child", "root")
    pruned(t)
    assert (has_context(t, "root"), has_context(t, "child")) == (True, False)
    pruned(t)
    assert not has_context(t, "root")


def test_context_of_an_existing_job_is_kept(t: Timer) -> None:
    id = t.put().job_id
    context(t, id)
    pruned(t)
    assert has_context(t, id)


def test_entry_context_of_a_queued_job_is_kept(t: Timer) -> None:
    """For example, its plugin is refused for longer than its parent job is kept."""
    id = t.put().job_id
    context(t, "came-with")
    execute(t.ledger, f"UPDATE job_queue SET entered_context_id = 'came-with' WHERE id = '{id}'")
    pruned(t)
    assert has_context(t, "came-with")


def test_context_of_an_open_split_is_kept(t: Timer) -> None:
    context(t, "entered-the-split")
    scope(t, "split", context_id="entered-the-split", ended=False)
    pruned(t)
    assert has_context(t, "entered-the-split")


def test_ended_scope_is_pruned_and_open_one_kept(t: Timer) -> None:
    scope(t, "over", context_id="x", ended=True)
    scope(t, "open", context_id="x", ended=False)
    pruned(t)
    assert count(t, "scopes") == 1


def in_a_branch(t: Timer, *, split_ended: bool) -> str:
    """A job that ended long ago in a finished branch; its split may be open."""
    scope(t, "split", context_id="x", ended=split_ended)
    scope(t, "branch", context_id="x", ended=True)
    execute(t.ledger, "UPDATE scopes SET parent_id = 'split' WHERE id = 'branch'")
    id = t.put().job_id
    t.end(t.must_take(), OK)
    execute(t.ledger, f"UPDATE job_queue SET scope_id = 'branch' WHERE id = '{id}'")
    t.clock.advance(31 * DAY)
    return id


def test_job_needed_by_a_join_is_kept_with_its_log(t: Timer) -> None:
    id = in_a_branch(t, split_ended=False)
    pruned(t)
    assert (count(t, "job_queue"), count(t, "job_log")) == (1, 1)
    assert rows(t, "ended_jobs_of_scope", id="split")[0]["id"] == id


def test_job_of_an_ended_split_is_pruned_with_its_log(t: Timer) -> None:
    in_a_branch(t, split_ended=True)
    pruned(t)
    assert (count(t, "job_queue"), count(t, "job_log")) == (0, 0)


def uses_workspace(t: Timer, id: str) -> bool:
    return bool(rows(t, "workspace_in_use", id=id))


@pytest.mark.parametrize("split_ended", [False, True])
def test_workspace_before_a_split_is_in_use_until_its_join(t: Timer, split_ended: bool) -> None:
    child = in_a_branch(t, split_ended=split_ended)
    execute(t.ledger, "UPDATE scopes SET parent_job_id = 'before' WHERE id = 'split'")
    execute(t.ledger, f"UPDATE job_queue SET parent_job_id = 'before' WHERE id = '{child}'")
    assert uses_workspace(t, "before") is not split_ended


def test_workspace_of_a_finished_branch_is_not_in_use(t: Timer) -> None:
    assert not uses_workspace(t, in_a_branch(t, split_ended=False))


def fact(t: Timer, kind: str) -> None:
    rules = Rules(RetryPolicy(), Redactor(), fact_type=kind, mirror_fact=True)
    body = b'{"status": "ok", "result": "", "state_updates": {"n": 1}}'
    t.put()
    t.end(t.must_take(), Outcome(Ending.EXITED, exit_code=0, stdout=body), rules)


def kinds(t: Timer) -> list[tuple[int, str]]:
    found = rows(t, "facts_of", plugin="echo", before=9999, limit=1000)
    return [(row["seq"], row["fact_type"]) for row in found][::-1]


def test_facts_are_kept_permanently_by_default(t: Timer) -> None:
    fact(t, "a")
    fact(t, "a")
    t.clock.advance(10_000 * DAY)
    pruned(t)
    assert kinds(t) == [(1, "a"), (2, "a")]


def test_newest_fact_of_each_type_is_kept(t: Timer) -> None:
    for kind in ("a", "b", "a", "b", "a"):
        fact(t, kind)
    t.clock.advance(100 * DAY)
    pruned(t, replace(RETENTION, facts=DAY))
    assert kinds(t) == [(4, "b"), (5, "a")]


def test_fact_seq_keeps_rising_after_pruning(t: Timer) -> None:
    for _ in range(3):
        fact(t, "a")
    t.clock.advance(100 * DAY)
    pruned(t, replace(RETENTION, facts=DAY))
    fact(t, "a")
    assert kinds(t) == [(3, "a"), (4, "a")]


def test_recent_facts_are_kept(t: Timer) -> None:
    fact(t, "a")
    t.clock.advance(100 * DAY)
    fact(t, "a")
    fact(t, "a")
    pruned(t, replace(RETENTION, facts=DAY))
    assert kinds(t) == [(2, "a"), (3, "a")]


# Batches


def transitions(t: Timer, count: int, *, days_ago: float, start: int = 0) -> None:
    at = to_text(t.clock.now() - timedelta(days=days_ago))

    def fill(tx: Any) -> None:
        for n in range(start, start + count):
            tx.run(
                "insert_transition",
                job_id=f"j{n}",
                from_status="queued",
                to_status="running",
                attempt=1,
                reason=None,
                now=at,
            )

    t.ledger.write(fill)


def test_batch_is_limited_and_oldest_first(t: Timer) -> None:
    transitions(t, prune.BATCH + 50, days_ago=100)
    assert pruned(t) == prune.BATCH
    last = prune.BATCH - 1
    left = [len(rows(t, "job_transitions", id=f"j{n}")) for n in (0, last, last + 1, last + 50)]
    assert left == [0, 0, 1, 1]
    assert pruned(t) == 50
    assert pruned(t) == 0


def test_rows_of_a_fast_clock_do_not_block_pruning(t: Timer) -> None:
    """The clock was ten years ahead for an hour; rows from then must not block the pruning."""
    transitions(t, prune.BATCH, days_ago=-3650)
    transitions(t, prune.BATCH, days_ago=100, start=prune.BATCH)
    for _ in range(5):
        pruned(t)
    assert rows(t, "job_transitions", id=f"j{prune.BATCH + 1}") == []


def test_each_kind_of_row_is_pruned_in_its_own_transaction(t: Timer) -> None:
    ended(t)
    t.clock.advance(31 * DAY)
    batches = prune.prune_batches(RETENTION, t.clock.now())
    assert len(batches) >= 9
    assert t.ledger.write(batches[0]) == 1
    assert len(logs(t)) == 1


# Webhooks


def test_newest_request_of_each_endpoint_is_kept(t: Timer) -> None:
    def accept(endpoint: str, id: str) -> None:
        now = to_text(t.clock.now())
        t.ledger.write(
            lambda tx: tx.run(
                "insert_receipt", endpoint=endpoint, delivery_id=id, job_id=None, now=now
            )
        )
        t.ledger.write(
            lambda tx: tx.run(
                "insert_webhook_signature", endpoint=endpoint, signature=id, before="", now=now
            )
        )

    for id in ("1", "2", "3"):
        t.clock.advance(1)
        accept("/hook/x", id)
        accept("/hook/y", id)
    newest = to_text(t.clock.now())
    t.clock.advance(31 * DAY)
    accept("/hook/x", "4")
    assert pruned(t) == 2 * 5
    ids = '["/hook/x", "/hook/y", "/hook/z"]'
    found = {
        path: set(times)
        for path, *times in t.ledger.read(lambda tx: tx.all("last_accepted", ids=ids))
    }
    assert found == {
        "/hook/x": {to_text(t.clock.now())},
        "/hook/y": {newest},
        "/hook/z": {None},
    }
    assert count(t, "webhook_receipts") == count(t, "webhook_signatures") == 2
