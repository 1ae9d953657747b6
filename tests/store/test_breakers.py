"""Circuit breakers and their history, as scheduled jobs end; on both engines."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from ductile.core.schedules.breaker import BreakerPolicy, Result, State
from ductile.model import Ending, Outcome
from ductile.store import breakers
from ductile.store.engines.api import Ledger
from ductile.store.engines.postgres import PostgresLedger
from tests.conftest import CountingEntropy, FakeClock
from tests.store.jobs.harness import BAD, OK
from tests.store.test_schedules import MINUTELY, TX_CONFIG, Timer
from tests.waiting import WAIT_LIMIT, until

PATIENT = BreakerPolicy(threshold=3, reset_after=1800.0)
LATE = Outcome(Ending.TIMED_OUT, duration=60.0)


@pytest.fixture
def t(ledger: Ledger, clock: FakeClock, entropy: CountingEntropy) -> Timer:
    timer = Timer(ledger, clock, entropy)
    timer.tx_config = replace(TX_CONFIG, breakers={"echo": PATIENT, "fresh": PATIENT})
    timer.begin()
    return timer


def scheduled(t: Timer, *outcomes: Outcome) -> list[str]:
    """Run one scheduled job per outcome; returns their ids."""
    ids = []
    for outcome in outcomes:
        [id] = t.after(60).job_ids
        t.end(t.must_take(), outcome)
        ids.append(id)
    return ids


def state(t: Timer, command: str = "poll", plugin: str = "echo") -> tuple[State, int]:
    for row in t.ledger.read(lambda tx: tx.dicts("breakers", plugin=plugin)):
        if row["command"] == command:
            return State(row["state"]), row["failure_count"]
    return State.CLOSED, 0


def history(t: Timer) -> list[dict[str, Any]]:
    rows = t.ledger.read(lambda tx: tx.dicts("breaker_transitions", plugin="echo", limit=100))
    return rows[::-1]


def test_unknown_breaker_is_closed(t: Timer) -> None:
    assert state(t) == (State.CLOSED, 0)
    assert history(t) == []


def test_breaker_can_be_read_in_a_read_transaction(t: Timer) -> None:
    found = t.ledger.read(lambda tx: breakers.load_breaker(tx, "echo", "poll"))
    assert (found.state, found.failure_count) == (State.CLOSED, 0)


def test_failures_below_the_threshold_are_counted(t: Timer) -> None:
    scheduled(t, BAD, BAD)
    assert (state(t), history(t)) == ((State.CLOSED, 2), [])


@pytest.mark.parametrize("outcome", [BAD, LATE], ids=["failed", "timed_out"])
def test_failures_at_the_threshold_open_the_breaker(t: Timer, outcome: Outcome) -> None:
    ids = scheduled(t, outcome, outcome, outcome)
    assert state(t) == (State.OPEN, 3)
    [row] = history(t)
    assert (row["from_state"], row["to_state"]) == ("closed", "open")
    assert (row["reason"], row["job_id"], row["failure_count"]) == (
        "failure_threshold",
        ids[-1],
        3,
    )


def test_success_resets_the_count(t: Timer) -> None:
    scheduled(t, BAD, BAD, OK, BAD, BAD)
    assert state(t) == (State.CLOSED, 2)


def test_jobs_are_counted_not_attempts(t: Timer) -> None:
    t.tx_config = replace(t.tx_config, attempts={})
    [_] = t.after(60).job_ids
    for _ in range(3):
        t.end(t.must_take(), BAD)
        t.clock.advance(3600)
        t.ledger.write(
            lambda tx: tx.run("promote_due_retries", now="9999", horizon="9999", limit=10)
        )
    assert state(t) == (State.CLOSED, 0)
    t.end(t.must_take(), BAD)
    assert state(t) == (State.CLOSED, 1)


def test_failures_of_other_producers_do_not_count(t: Timer) -> None:
    for _ in range(5):
        t.put(attempts=1)
        t.end(t.must_take(), BAD)
    assert state(t) == (State.CLOSED, 0)


def test_success_of_another_producer_does_not_close_the_breaker(t: Timer) -> None:
    scheduled(t, BAD, BAD, BAD)
    t.put()
    t.end(t.must_take(), OK)
    assert state(t)[0] is State.OPEN


def test_commands_are_counted_separately(t: Timer) -> None:
    scheduled(t, BAD, BAD, BAD)
    assert state(t, "sync") == (State.CLOSED, 0)


def test_every_transition_is_recorded_and_announced(t: Timer) -> None:
    ids = scheduled(t, BAD, BAD, BAD)
    t.clock.advance(1800)
    ids += scheduled(t, BAD)
    t.clock.advance(1800)
    ids += scheduled(t, OK)
    assert [(r["from_state"], r["to_state"], r["reason"], r["job_id"]) for r in history(t)] == [
        ("closed", "open", "failure_threshold", ids[2]),
        ("open", "half_open", "cooldown_elapsed", ids[3]),
        ("half_open", "open", "failure_threshold", ids[3]),
        ("open", "half_open", "cooldown_elapsed", ids[4]),
        ("half_open", "closed", "success", ids[4]),
    ]
    notices = t.ledger.read(lambda tx: tx.all("notices_after", xact=0, after=0, limit=1000))
    kinds = [row[2] for row in notices if row[1] == "breakers"]
    assert kinds == [
        "breaker.open",
        "breaker.half_open",
        "breaker.open",
        "breaker.half_open",
        "breaker.closed",
    ]


def test_transition_commits_with_the_job_that_caused_it(t: Timer) -> None:
    scheduled(t, BAD, BAD)

    def work(tx: Any) -> None:
        breakers.record_result(
            tx,
            plugin="echo",
            command="poll",
            job_id="x",
            result=Result.FAILURE,
            policy=PATIENT,
            now=t.clock.now(),
        )
        raise RuntimeError("power cut")

    with pytest.raises(RuntimeError):
        t.ledger.write(work)
    assert (state(t), history(t)) == ((State.CLOSED, 2), [])


def test_reset_closes_the_breaker_and_clears_the_count(t: Timer) -> None:
    scheduled(t, BAD, BAD, BAD)
    t.clock.advance(1)
    assert t.ledger.write(lambda tx: breakers.reset_breakers(tx, "echo", t.clock.now())) == ["poll"]
    assert state(t) == (State.CLOSED, 0)
    assert history(t)[-1]["reason"] == "manual_reset"
    assert len(t.after(60).job_ids) == 1


def test_reset_of_a_closed_breaker_records_no_transition(t: Timer) -> None:
    scheduled(t, BAD, BAD)
    assert t.ledger.write(lambda tx: breakers.reset_breakers(tx, "echo", t.clock.now())) == []
    assert (state(t), history(t)) == ((State.CLOSED, 0), [])


def test_reset_does_not_affect_other_plugins(t: Timer) -> None:
    scheduled(t, BAD, BAD, BAD)
    assert t.ledger.write(lambda tx: breakers.reset_breakers(tx, "other", t.clock.now())) == []
    assert state(t)[0] is State.OPEN


def test_reset_closes_the_breaker_of_every_command(t: Timer) -> None:
    for command in ("poll", "sync"):
        schedule = t.begin(replace(MINUTELY, id=command, command=command))
        for _ in range(3):
            assert len(t.after(60, schedule).job_ids) == 1
            t.finish(BAD)
    assert t.ledger.write(lambda tx: breakers.reset_breakers(tx, "echo", t.clock.now())) == [
        "poll",
        "sync",
    ]


def test_plugin_with_several_open_breakers_is_listed_once(t: Timer) -> None:
    assert t.ledger.read(breakers.list_open_plugins) == []
    for command in ("poll", "sync"):
        schedule = t.begin(replace(MINUTELY, id=command, command=command))
        for _ in range(3):
            assert len(t.after(60, schedule).job_ids) == 1
            t.finish(BAD)
    assert t.ledger.read(breakers.list_open_plugins) == ["echo"]


def test_concurrent_failures_are_both_counted(t: Timer) -> None:
    """Also for the first two jobs, when there is no row yet that could be locked."""
    other_began, errors = threading.Event(), list[BaseException]()

    def ended(tx: Any, id: str) -> None:
        breakers.record_result(
            tx,
            plugin="fresh",
            command="poll",
            job_id=id,
            result=Result.FAILURE,
            policy=PATIENT,
            now=t.clock.now(),
        )

    def second() -> None:
        def work(tx: Any) -> None:
            other_began.set()
            ended(tx, "b")

        try:
            t.ledger.write(work)
        except BaseException as error:  # noqa: BLE001 - asserted below
            errors.append(error)

    thread = threading.Thread(target=second)

    def first(tx: Any) -> None:
        ended(tx, "a")
        if not thread.is_alive():
            thread.start()
        if isinstance(t.ledger, PostgresLedger):
            assert other_began.wait(WAIT_LIMIT)
            until_somebody_waits(t.ledger.url)

    t.ledger.write(first)
    thread.join(WAIT_LIMIT)
    assert errors == []
    assert state(t, plugin="fresh") == (State.CLOSED, 2)


def until_somebody_waits(url: str) -> None:
    query = (
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )
    with psycopg.connect(url, autocommit=True) as connection:
        until(lambda: (connection.execute(query).fetchone() or (0,))[0])
