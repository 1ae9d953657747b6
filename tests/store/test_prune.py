"""Forgetting, kind by kind, in small batches; on both engines."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import apsw
import psycopg
import pytest

from ductile.clock import to_text
from ductile.core.breaker import Result
from ductile.core.judge import Rules
from ductile.core.redact import Redactor
from ductile.core.retry import RetryPolicy
from ductile.model import BreakerPolicy, Ending, Outcome
from ductile.store import boots, breakers, prune
from ductile.store.ledger import Ledger
from ductile.store.postgres import PostgresLedger
from ductile.store.sqlite import SqliteLedger
from tests.conftest import CountingEntropy, FakeClock
from tests.store.conftest import execute
from tests.store.test_queue import BAD, OK
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
    """One round, as the janitor's; how many rows went."""
    now = t.clock.now()
    return sum(t.ledger.write(batch) for batch in prune.batches(retention, now))


def rows(t: Timer, query: str, **values: Any) -> list[Any]:
    return t.ledger.read(lambda tx: tx.dicts(query, **values))


def count(t: Timer, table: str) -> int:
    sql = f"SELECT count(*) FROM {table}"
    if isinstance(t.ledger, PostgresLedger):
        with psycopg.connect(t.ledger.url) as beside:
            [found] = beside.execute(sql).fetchone() or (0,)
        return int(found)
    assert isinstance(t.ledger, SqliteLedger)
    connection = apsw.Connection(str(t.ledger.path), flags=apsw.SQLITE_OPEN_READONLY)
    [(number,)] = connection.execute(sql).fetchall()
    connection.close()
    return int(str(number))


def job_ids(t: Timer) -> set[str]:
    nothing = dict.fromkeys(("status", "plugin", "command", "submitted_by", "before"))
    return {row["id"] for row in rows(t, "jobs", limit=10_000, **nothing)}


def logs(t: Timer) -> list[Any]:
    nothing = dict.fromkeys(
        ("plugin", "command", "status", "job_id", "since", "before", "before_id")
    )
    return rows(t, "job_logs", limit=10_000, **nothing)


def ended(t: Timer, outcome: Outcome = OK, **more: Any) -> str:
    id = t.put(max_attempts=1, **more).job_id
    t.end(t.must_take(), outcome)
    return id


# Jobs


@pytest.mark.parametrize("outcome", [OK, BAD], ids=["succeeded", "dead"])
def test_an_ended_job_is_forgotten_after_its_retention_and_not_before(
    t: Timer, outcome: Outcome
) -> None:
    id = ended(t, outcome)
    t.clock.advance(30 * DAY)
    pruned(t)
    assert job_ids(t) == {id}
    t.clock.advance(1)
    pruned(t)
    assert job_ids(t) == set()


def test_age_counts_from_the_end_and_not_from_the_enqueue(t: Timer) -> None:
    t.put()
    t.clock.advance(100 * DAY)
    t.end(t.must_take())
    pruned(t)
    assert len(job_ids(t)) == 1


def test_what_waits_or_runs_is_never_forgotten(t: Timer) -> None:
    running, retrying, queued = t.put().job_id, t.put().job_id, t.put().job_id
    assert t.must_take().job.id == running
    t.end(t.must_take(), BAD)
    t.clock.advance(10_000 * DAY)
    pruned(t)
    assert job_ids(t) == {running, retrying, queued}


def test_a_job_whose_key_still_guards_stays(t: Timer) -> None:
    retention = replace(RETENTION, jobs=DAY, dedupe_ttl=5 * DAY)
    id = ended(t, dedupe_key="k")
    t.clock.advance(4 * DAY)
    pruned(t, retention)
    assert job_ids(t) == {id}
    assert t.ledger.read(lambda tx: tx.one("job", id=id)) is not None
    t.clock.advance(2 * DAY)
    pruned(t, retention)
    assert job_ids(t) == set()


def test_a_job_whose_own_time_to_guard_is_longer_stays_for_that(t: Timer) -> None:
    id = ended(t, dedupe_key="k", dedupe_ttl=60 * DAY)
    t.clock.advance(59 * DAY)
    pruned(t)
    assert job_ids(t) == {id}
    assert t.put(dedupe_key="k", dedupe_ttl=60 * DAY).deduplicated
    t.clock.advance(2 * DAY)
    pruned(t)
    assert id not in job_ids(t)


def test_a_time_to_guard_without_a_key_guards_nothing(t: Timer) -> None:
    ended(t, dedupe_ttl=60 * DAY)
    t.clock.advance(31 * DAY)
    pruned(t)
    assert job_ids(t) == set()


def test_a_forgotten_job_is_still_answered_from_its_log(t: Timer) -> None:
    id = ended(t)
    t.clock.advance(10 * DAY)
    pruned(t, replace(RETENTION, jobs=5 * DAY))
    job = t.job(id)
    assert (job["id"], job["status"], job["pruned"]) == (id, "succeeded", True)
    assert job["result"] == {"status": "ok", "result": "done"}


def test_a_row_that_a_script_wrote_in_its_own_form_is_forgotten_too(t: Timer) -> None:
    execute(
        t.ledger,
        "INSERT INTO job_queue (id, plugin, command, payload, status, attempt, max_attempts,"
        " submitted_by, created_at, completed_at) VALUES ('script-1', 'echo', 'poll', '{}',"
        " 'succeeded', 1, 4, 'cli', '2020-01-01 10:00:00', '2020-01-01 10:00:00')",
    )
    pruned(t)
    assert job_ids(t) == set()


# The rest, kind by kind


def test_logs_have_a_retention_of_their_own(t: Timer) -> None:
    ended(t)
    t.clock.advance(10 * DAY)
    pruned(t, replace(RETENTION, logs=5 * DAY))
    assert logs(t) == []
    assert len(job_ids(t)) == 1


def test_transitions_have_a_retention_of_their_own(t: Timer) -> None:
    id = ended(t)
    t.clock.advance(10 * DAY)
    pruned(t, replace(RETENTION, transitions=5 * DAY))
    assert t.job(id)["transitions"] == []
    assert len(logs(t)) == 1


def test_notices_go_with_the_logs(t: Timer) -> None:
    ended(t)
    assert t.ledger.read(lambda tx: tx.all("notices_after", after=0, limit=100))
    t.clock.advance(31 * DAY)
    pruned(t)
    assert t.ledger.read(lambda tx: tx.all("notices_after", after=0, limit=100)) == []


def test_breaker_transitions_stay_ninety_days(t: Timer) -> None:
    t.ledger.write(
        lambda tx: breakers.job_ended(
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


def test_slots_go_and_an_entry_stays_with_what_it_remembers(t: Timer) -> None:
    t.begin()
    t.after(60)
    t.finish()
    t.clock.advance(31 * DAY)
    pruned(t)
    assert t.slots() == []
    [entry] = rows(t, "entries")
    assert entry["last_fire"] == "2026-02-08T10:01:00.000000Z"


def test_records_of_drops_go(t: Timer) -> None:
    ended(t, dedupe_key="k")
    assert t.put(dedupe_key="k").deduplicated
    assert count(t, "dedupe_drops") == 1
    t.clock.advance(31 * DAY)
    pruned(t)
    assert count(t, "dedupe_drops") == 0


def test_boots_that_ended_go_and_the_living_stay(t: Timer) -> None:
    for id in ("old", "new"):
        now = t.clock.now()
        t.ledger.write(
            lambda tx, id=id, now=now: boots.begin(tx, id=id, pid=1, version="1", now=now)
        )
    t.ledger.write(lambda tx: boots.end(tx, "old", t.clock.now()))
    t.clock.advance(31 * DAY)
    pruned(t)
    assert count(t, "boots") == 1


def fact(t: Timer, kind: str) -> None:
    rules = Rules(RetryPolicy(), Redactor(), fact_type=kind, mirror_fact=True)
    body = b'{"status": "ok", "result": "", "state_updates": {"n": 1}}'
    t.put()
    t.end(t.must_take(), Outcome(Ending.EXITED, exit_code=0, stdout=body), rules)


def kinds(t: Timer) -> list[tuple[int, str]]:
    found = rows(t, "facts_of", plugin="echo", limit=1000)
    return [(row["seq"], row["fact_type"]) for row in found][::-1]


def test_facts_stay_for_ever_unless_the_config_says_otherwise(t: Timer) -> None:
    fact(t, "a")
    fact(t, "a")
    t.clock.advance(10_000 * DAY)
    pruned(t)
    assert kinds(t) == [(1, "a"), (2, "a")]


def test_the_newest_fact_of_each_type_always_stays(t: Timer) -> None:
    for kind in ("a", "b", "a", "b", "a"):
        fact(t, kind)
    t.clock.advance(100 * DAY)
    pruned(t, replace(RETENTION, facts=DAY))
    assert kinds(t) == [(4, "b"), (5, "a")]


def test_seq_goes_on_rising_after_older_facts_went(t: Timer) -> None:
    for _ in range(3):
        fact(t, "a")
    t.clock.advance(100 * DAY)
    pruned(t, replace(RETENTION, facts=DAY))
    fact(t, "a")
    assert kinds(t) == [(3, "a"), (4, "a")]


def test_young_facts_stay(t: Timer) -> None:
    fact(t, "a")
    t.clock.advance(100 * DAY)
    fact(t, "a")
    fact(t, "a")
    pruned(t, replace(RETENTION, facts=DAY))
    assert kinds(t) == [(2, "a"), (3, "a")]


# Batches


def test_a_batch_deletes_no_more_than_its_bound_and_the_oldest_first(t: Timer) -> None:
    old = to_text(t.clock.now() - timedelta(days=100))
    older = to_text(t.clock.now() - timedelta(days=200))

    def fill(tx: Any) -> None:
        for n in range(prune.BATCH + 50):
            tx.run(
                "insert_transition",
                job_id=f"j{n}",
                from_status="queued",
                to_status="running",
                attempt=1,
                reason=None,
                now=older if n >= 50 else old,
            )

    t.ledger.write(fill)
    assert pruned(t) == prune.BATCH
    left = [len(rows(t, "job_transitions", id=f"j{n}")) for n in (0, 49, 50, prune.BATCH + 49)]
    assert left == [1, 1, 0, 0]
    assert pruned(t) == 50
    assert pruned(t) == 0


def test_each_kind_is_a_transaction_of_its_own(t: Timer) -> None:
    ended(t)
    t.clock.advance(31 * DAY)
    batches = prune.batches(RETENTION, t.clock.now())
    assert len(batches) >= 9
    assert t.ledger.write(batches[0]) == 1
    assert len(logs(t)) == 1
