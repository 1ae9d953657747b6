"""An occurrence fires at most once, or records why it does not; on both engines."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import apsw
import pytest

from ductile.clock import to_text
from ductile.core.jobs.judge import Rules, judge
from ductile.core.schedules.breaker import BreakerPolicy
from ductile.core.schedules.decide import (
    LOOKED_BACK,
    At,
    CatchUp,
    Cron,
    Every,
    IfRunning,
    Reason,
    Schedule,
    next_due,
)
from ductile.core.schedules.window import Window
from ductile.model import Cancellation, Outcome
from ductile.store import nodes, notices, schedules
from ductile.store.engines.api import Ledger
from ductile.store.engines.queries import load_queries
from ductile.store.engines.sqlite import SqliteLedger
from ductile.store.jobs import cancel_requests, retries
from ductile.store.jobs.claim import ClaimedJob, ClaimPolicy
from ductile.store.jobs.settle import settle
from ductile.store.schedules import FirePolicy, FireResult
from ductile.store.tx_config import TxConfig
from tests.conftest import CountingEntropy, FakeClock
from tests.store.jobs.harness import BAD, BASE, OK, RULES, JobQueue
from tests.waiting import WAIT_LIMIT

Rule = Every | Cron
UTC_ZONE = ZoneInfo("UTC")
FIRST = "2026-02-08T10:00:00.000000Z"
"""The initial time of the test clock, when entries are first seen."""
MINUTELY = Schedule("echo", "default", Every(60.0), UTC_ZONE)
BREAKER = BreakerPolicy(threshold=2, reset_after=1800.0)
TX_CONFIG = TxConfig(86_400.0, attempts={"echo": 1}, breakers={"echo": BREAKER})
POLICY = FirePolicy(max_outstanding=1, healthy=True)


class Timer(JobQueue):
    """The scheduler's transactions, called directly."""

    boot: datetime
    tx_config = TX_CONFIG

    def see(self, schedule: Schedule = MINUTELY) -> Schedule:
        """Ensure the entry, as a start does."""
        self.boot = self.clock.now()
        self.ledger.write(lambda tx: schedules.ensure_entry(tx, schedule, self.boot, self.boot))
        return schedule

    def reload(self, schedule: Schedule = MINUTELY) -> Schedule:
        now = self.clock.now()
        self.ledger.write(lambda tx: schedules.ensure_entry(tx, schedule, self.boot, now))
        return schedule

    def withdraw(self) -> None:
        """Withdraw every entry, as a configuration without entries does."""
        self.ledger.write(lambda tx: schedules.withdraw_entries(tx, ()))

    def entry(self) -> dict[str, Any]:
        [row] = self.ledger.read(lambda tx: tx.dicts("entries"))
        return row

    def begin(self, schedule: Schedule = MINUTELY) -> Schedule:
        """As `see`; the first fire of `every` is finished."""
        self.see(schedule)
        if isinstance(schedule.rule, Every) and self.fire(schedule).job_ids:
            self.finish()
        return schedule

    def fire(self, schedule: Schedule = MINUTELY, policy: FirePolicy = POLICY) -> FireResult:
        now, boot, base_id = self.clock.now(), self.boot, self.entropy.uuid()
        fired = self.ledger.write(
            lambda tx: schedules.fire_due(
                tx, schedule, policy, self.tx_config, boot=boot, now=now, base_id=base_id
            )
        )
        assert fired is not None
        return fired

    def end(self, claimed: ClaimedJob, outcome: Outcome = OK, rules: Rules = RULES) -> bool:
        verdict = judge(claimed.job, outcome, rules, self.clock.now(), 0.5)
        base_id, tx_config = self.entropy.uuid(), self.tx_config
        return self.ledger.write(lambda tx: settle(tx, verdict, tx_config, base_id)) is not None

    def after(self, seconds: float, schedule: Schedule = MINUTELY, **more: Any) -> FireResult:
        self.clock.advance(seconds)
        return self.fire(schedule, **more)

    def restart_after(self, seconds: float, schedule: Schedule) -> FireResult:
        """Fire at the start of a gateway after a time without one."""
        self.clock.advance(seconds)
        self.boot = self.clock.now()
        return self.fire(schedule)

    def slots(self, schedule: Schedule = MINUTELY) -> list[dict[str, Any]]:
        """Every occurrence that was decided after the entry was first seen."""
        key = {"plugin": schedule.plugin, "schedule_id": schedule.id}
        rows = self.ledger.read(lambda tx: tx.dicts("slots_since", since="", **key))
        return [row for row in rows if row["slot"] != FIRST]

    def reasons(self, schedule: Schedule = MINUTELY) -> list[str | None]:
        return [row["reason"] for row in self.slots(schedule)]

    def count(self) -> int:
        row = self.ledger.read(lambda tx: tx.one("queue_depth"))
        assert row is not None
        return int(row[0])

    def finish(self, outcome: Outcome = OK) -> str:
        claimed = self.must_take()
        self.end(claimed, outcome)
        return claimed.job.id


@pytest.fixture
def t(ledger: Ledger, clock: FakeClock, entropy: CountingEntropy) -> Timer:
    return Timer(ledger, clock, entropy)


def test_every_fires_when_first_seen_and_then_per_interval(t: Timer) -> None:
    t.see()
    assert len(t.fire().job_ids) == 1
    t.finish()
    assert t.after(59.9).job_ids == ()
    assert len(t.after(0.1).job_ids) == 1


def test_cron_waits_for_its_first_occurrence(t: Timer) -> None:
    schedule = t.see(replace(MINUTELY, rule=Cron("* * * * *")))
    assert t.fire(schedule).job_ids == ()
    assert len(t.after(60, schedule).job_ids) == 1


def test_fired_job_is_submitted_by_the_scheduler(t: Timer) -> None:
    schedule = t.begin(replace(MINUTELY, command="sync", payload={"n": 1}))
    t.tx_config = replace(TX_CONFIG, attempts={"echo": 7}, snapshot_id="s1")
    [id] = t.after(60, schedule).job_ids
    job = t.job(id)
    assert (job["plugin"], job["command"], job["payload"]) == ("echo", "sync", {"n": 1})
    assert (job["submitted_by"], job["status"], job["max_attempts"]) == ("scheduler", "queued", 7)
    assert (job["schedule_id"], job["enqueued_snapshot_id"]) == ("default", "s1")
    assert job["slot"] == "2026-02-08T10:01:00.000000Z"


def test_fired_occurrence_names_its_job(t: Timer) -> None:
    t.begin()
    [id] = t.after(60).job_ids
    [row] = t.slots()
    assert (row["slot"], row["job_id"], row["reason"], row["status"]) == (
        "2026-02-08T10:01:00.000000Z",
        id,
        None,
        "queued",
    )


def test_repeated_fire_does_nothing(t: Timer) -> None:
    t.begin()
    t.after(60)
    assert t.fire().job_ids == ()
    assert t.count() == 1


def test_unknown_entry_fires_nothing(t: Timer) -> None:
    t.boot = t.clock.now()
    now = t.clock.now()
    assert (
        t.ledger.write(
            lambda tx: schedules.fire_due(
                tx, MINUTELY, POLICY, TX_CONFIG, boot=now, now=now, base_id=BASE
            )
        )
        is None
    )


def test_concurrent_schedulers_fire_an_occurrence_once(
    t: Timer, open_ledger: Callable[[], Ledger]
) -> None:
    """Several nodes on one database; on SQLite several threads of one process."""
    t.begin()
    t.clock.advance(60)
    ledgers = [t.ledger if t.ledger.engine == "sqlite" else open_ledger() for _ in range(4)]
    barrier = threading.Barrier(len(ledgers))
    fired: list[str] = []
    bases = [t.entropy.uuid() for _ in ledgers]

    def work(node: int) -> None:
        barrier.wait(WAIT_LIMIT)
        found = ledgers[node].write(
            lambda tx: schedules.fire_due(
                tx,
                MINUTELY,
                POLICY,
                TX_CONFIG,
                boot=t.boot,
                now=t.clock.now(),
                base_id=bases[node],
            )
        )
        assert found is not None
        fired.extend(found.job_ids)

    threads = [threading.Thread(target=work, args=(node,)) for node in range(len(ledgers))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_LIMIT)
    assert len(fired) == 1
    assert t.count() == 1


def test_rolled_back_fire_leaves_no_occurrence_and_no_job(t: Timer) -> None:
    t.begin()
    t.clock.advance(60)
    now = t.clock.now()

    def work(tx: Any) -> None:
        schedules.fire_due(tx, MINUTELY, POLICY, TX_CONFIG, boot=t.boot, now=now, base_id=BASE)
        raise RuntimeError("power cut")

    with pytest.raises(RuntimeError):
        t.ledger.write(work)
    assert (t.slots(), t.count()) == ([], 0)
    assert len(t.fire().job_ids) == 1


def test_occurrence_does_not_fire_again_after_the_clock_is_set_back(t: Timer) -> None:
    hourly = t.begin(replace(MINUTELY, rule=Cron("0 * * * *")))
    t.clock.advance(3600)
    assert len(t.fire(hourly).job_ids) == 1
    t.finish()
    t.clock.moment -= timedelta(minutes=30)
    assert t.fire(hourly).job_ids == ()
    assert t.after(30 * 60, hourly).job_ids == ()
    assert len(t.slots(hourly)) == 1
    assert len(t.after(3600, hourly).job_ids) == 1


def test_fired_occurrence_keeps_its_job(t: Timer) -> None:
    t.begin()
    [id] = t.after(60).job_ids
    key = {"plugin": "echo", "schedule_id": "default", "ids": f'["{t.slots()[0]["slot"]}"]'}
    t.ledger.write(lambda tx: tx.run("slots_passed", reason="running", now="x", **key))
    assert (t.slots()[0]["job_id"], t.slots()[0]["reason"]) == (id, None)


def test_held_occurrence_may_fire_later(t: Timer) -> None:
    once = t.begin(replace(MINUTELY, rule=At(t.clock.now() + timedelta(seconds=60))))
    unhealthy = replace(POLICY, healthy=False)
    assert t.after(60, once, policy=unhealthy).passed[0][1] is Reason.UNHEALTHY
    due = next_due(once, t.fire(once, unhealthy).anchors, t.clock.now())
    assert due is not None
    t.clock.advance((due - t.clock.now()).total_seconds())
    assert len(t.fire(once).job_ids) == 1


# Why an occurrence does not fire


def test_occurrence_is_held_while_a_job_is_queued(t: Timer) -> None:
    t.begin()
    t.after(60)
    assert t.after(60).job_ids == ()
    assert t.reasons() == [None, "running"]


def test_occurrence_is_held_while_a_job_runs(t: Timer) -> None:
    t.begin()
    t.after(60)
    t.must_take()
    assert t.after(60).job_ids == ()
    assert t.reasons() == [None, "running"]


def test_occurrence_is_held_while_a_job_waits_for_its_retry(t: Timer) -> None:
    t.begin()
    t.tx_config = replace(TX_CONFIG, attempts={})
    t.after(60)
    t.finish(BAD)
    assert t.after(60).job_ids == ()


def test_finished_job_holds_nothing(t: Timer) -> None:
    t.begin()
    t.after(60)
    t.finish()
    assert len(t.after(60).job_ids) == 1


def test_outstanding_jobs_are_limited_by_the_configuration(t: Timer) -> None:
    t.begin()
    policy = replace(POLICY, max_outstanding=2)
    assert [len(t.after(60, policy=policy).job_ids) for _ in range(3)] == [1, 1, 0]


def test_polls_of_other_entries_count(t: Timer) -> None:
    other = replace(MINUTELY, id="other")
    t.begin()
    t.begin(other)
    t.clock.advance(60)
    assert len(t.fire().job_ids) == 1
    assert t.fire(other).job_ids == ()
    assert t.reasons(other) == ["running"]
    t.must_take()
    assert t.after(1, other).job_ids == ()


def test_occurrence_fires_when_polls_of_other_entries_end(t: Timer) -> None:
    other = replace(MINUTELY, id="other", rule=Cron("* * * * *"))
    t.begin()
    t.see(other)
    t.clock.advance(60)
    t.fire()
    assert t.fire(other).job_ids == ()
    t.finish()
    assert len(t.after(10, other).job_ids) == 1
    assert t.reasons(other) == [None]


def test_polls_of_other_producers_count(t: Timer) -> None:
    t.begin()
    t.put()
    assert t.after(60).job_ids == ()
    by_hand = t.must_take()
    assert t.after(1).job_ids == ()
    t.end(by_hand)
    assert len(t.after(1).job_ids) == 1


def test_poll_of_another_producer_that_waits_for_its_retry_counts(t: Timer) -> None:
    t.begin()
    t.put()
    t.finish(BAD)
    assert t.after(60).job_ids == ()


def test_jobs_of_other_plugins_and_commands_are_no_polls(t: Timer) -> None:
    t.begin()
    t.put(plugin="other")
    t.put(command="sync")
    assert len(t.after(60).job_ids) == 1


def test_jobs_of_events_do_not_hold_a_scheduled_handle(t: Timer) -> None:
    schedule = replace(MINUTELY, command="handle")
    t.begin(schedule)
    t.put(command="handle")
    assert len(t.after(60, schedule).job_ids) == 1
    assert t.after(60, schedule).job_ids == ()


def test_overlap_queue_is_held_by_a_queued_job_only(t: Timer) -> None:
    schedule = t.begin(replace(MINUTELY, if_running=IfRunning.QUEUE))
    t.after(60, schedule)
    t.must_take()
    assert len(t.after(60, schedule).job_ids) == 1
    assert t.after(60, schedule).job_ids == ()
    assert t.reasons(schedule) == [None, None, "running"]


def test_polls_are_counted_by_indexes(t: Timer) -> None:
    if not isinstance(t.ledger, SqliteLedger):
        pytest.skip("PostgreSQL reads a table this small whole, whatever there is")
    values = {"plugin": "echo", "schedule_id": "default", "command": "poll"}
    connection = apsw.Connection(str(t.ledger.path))
    sql = f"EXPLAIN QUERY PLAN {load_queries('sqlite')['other_polls']}"
    plan = [row[3] for row in connection.execute(sql, values)]
    connection.close()
    used = [step.split(" INDEX ")[1].split()[0] for step in plan if " INDEX " in step]
    assert used == [f"job_queue_{n}" for n in ("scheduled", "other_polls")]


def test_queued_run_waits_for_the_run_before_it(t: Timer) -> None:
    schedule = t.begin(replace(MINUTELY, if_running=IfRunning.QUEUE))
    serial = ClaimPolicy("boot-1", serial={"echo": {schedule.id}})
    t.tx_config = replace(TX_CONFIG, attempts={"echo": 2})
    t.after(60, schedule)
    first = t.must_take(serial)
    [second] = t.after(60, schedule).job_ids
    t.put(plugin="other")
    assert t.must_take(serial).job.plugin == "other"
    assert t.take_all(4, 4, serial) == []
    # Its retry is part of the run.
    t.end(first, BAD)
    assert t.take_all(4, 4, serial) == []
    now = t.clock.now() + timedelta(hours=1)
    t.ledger.write(lambda tx: retries.promote_due(tx, now))
    again = t.must_take(serial)
    assert again.job.id == first.job.id
    assert t.take_all(4, 4, serial) == []
    t.end(again)
    assert t.must_take(serial).job.id == second


def test_runs_of_other_schedules_do_not_wait_for_each_other(t: Timer) -> None:
    schedule = t.begin()
    policy, serial = replace(POLICY, max_outstanding=2), ClaimPolicy("b", serial={"echo": {"x"}})
    t.after(60, schedule, policy=policy)
    t.after(60, schedule, policy=policy)
    assert len(t.take_all(4, 0, serial)) == 2


def test_overlap_cancel_replaces_a_queued_job(t: Timer) -> None:
    schedule = t.begin(replace(MINUTELY, if_running=IfRunning.CANCEL))
    [old] = t.after(60, schedule).job_ids
    fired = t.after(60, schedule)
    assert len(fired.job_ids) == 1
    job = t.job(old)
    assert (job["status"], job["last_error"]) == ("dead", Cancellation.SUPERSEDED.value)
    assert t.must_take().job.id == fired.job_ids[0]


def test_overlap_cancel_requests_the_end_of_a_running_job(t: Timer) -> None:
    schedule = t.begin(replace(MINUTELY, if_running=IfRunning.CANCEL))
    [old] = t.after(60, schedule).job_ids
    t.must_take()
    before = t.ledger.read(notices.last_position)
    assert len(t.after(60, schedule).job_ids) == 1
    posted = t.ledger.read(lambda tx: notices.list_after(tx, before))
    assert cancel_requests.REQUESTED in [notice.type for notice in posted]
    owner = t.job(old)["owner"]
    [request] = t.ledger.read(lambda tx: nodes.list_requests(tx, owner))
    assert (request.job_id, request.why) == (old, Cancellation.SUPERSEDED)
    assert t.job(old)["status"] == "running"


def test_overlap_cancel_ends_a_job_that_waits_for_its_retry(t: Timer) -> None:
    schedule = t.begin(replace(MINUTELY, if_running=IfRunning.CANCEL))
    t.tx_config = replace(TX_CONFIG, attempts={})
    [old] = t.after(60, schedule).job_ids
    t.finish(BAD)
    t.after(60, schedule)
    job = t.job(old)
    assert (job["status"], job["next_retry_at"]) == ("dead", None)


def test_superseded_job_is_not_a_failure_of_its_plugin(t: Timer) -> None:
    schedule = t.begin(replace(MINUTELY, if_running=IfRunning.CANCEL))
    for _ in range(5):
        assert len(t.after(60, schedule).job_ids) == 1
    assert t.reasons(schedule) == [None] * 5


def test_unhealthy_plugin_is_not_scheduled(t: Timer) -> None:
    t.begin()
    fired = t.after(60, policy=replace(POLICY, healthy=False))
    assert (fired.job_ids, t.reasons()) == ((), ["unhealthy"])


def test_occurrence_held_by_an_unhealthy_plugin_fires_when_it_is_healthy(t: Timer) -> None:
    weekly = t.begin(replace(MINUTELY, rule=Every(7 * 86_400.0)))
    unhealthy = replace(POLICY, healthy=False)
    for seconds in (7 * 86_400, 60, 60):
        assert t.after(seconds, weekly, policy=unhealthy).job_ids == ()
    assert t.reasons(weekly) == ["unhealthy"]
    [id] = t.after(60, weekly).job_ids
    [row] = t.slots(weekly)
    assert (row["slot"], row["job_id"]) == ("2026-02-15T10:00:00.000000Z", id)
    assert (row["reason"], row["created_at"]) == (None, "2026-02-15T10:03:00.000000Z")


def test_held_occurrence_keeps_its_reason_when_missed(t: Timer) -> None:
    t.begin()
    unhealthy = replace(POLICY, healthy=False)
    for _ in range(3):
        t.after(60, policy=unhealthy)
    assert t.reasons() == ["unhealthy"] * 3


def test_cron_occurrence_outside_the_window_has_reason_window(t: Timer) -> None:
    window = Window.parse("12:00-14:00", UTC_ZONE)
    schedule = t.begin(replace(MINUTELY, rule=Cron("0 * * * *"), window=window))
    t.after(3600, schedule)
    assert t.reasons(schedule) == ["window"]


def test_paused_entry_fires_nothing_and_records_it(t: Timer) -> None:
    t.begin()
    assert t.ledger.write(lambda tx: schedules.set_paused(tx, "echo", "default", paused=True))
    t.after(60)
    assert t.reasons() == ["paused"]
    assert t.ledger.write(lambda tx: schedules.set_paused(tx, "echo", "default", paused=False))
    assert len(t.after(60).job_ids) == 1


def test_pause_survives_a_restart_and_a_changed_rule(t: Timer) -> None:
    t.begin()
    t.ledger.write(lambda tx: schedules.set_paused(tx, "echo", "default", paused=True))
    for rule in (Every(30.0), Cron("* * * * *")):
        schedule = t.begin(replace(MINUTELY, rule=rule))
        assert t.after(60, schedule).job_ids == ()


def test_unknown_entry_cannot_be_paused(t: Timer) -> None:
    assert not t.ledger.write(lambda tx: schedules.set_paused(tx, "echo", "nosuch", paused=True))


# Circuit breakers


def trip(t: Timer) -> None:
    """Open the breaker with two failed jobs in a row."""
    t.begin()
    for _ in range(2):
        assert len(t.after(60).job_ids) == 1
        t.finish(BAD)


def test_open_breaker_holds_the_occurrence(t: Timer) -> None:
    trip(t)
    assert t.after(60).job_ids == ()
    assert t.reasons()[-1] == "breaker_open"


def test_one_probe_is_admitted_after_the_cooldown(t: Timer) -> None:
    trip(t)
    policy = replace(POLICY, max_outstanding=10)
    assert len(t.after(1800, policy=policy).job_ids) == 1
    assert t.after(60, policy=policy).job_ids == ()
    assert t.reasons()[-1] == "breaker_open"


def test_successful_probe_closes_the_breaker(t: Timer) -> None:
    trip(t)
    t.after(1800)
    t.finish()
    assert len(t.after(60).job_ids) == 1


def test_failed_probe_reopens_the_breaker_for_its_whole_time(t: Timer) -> None:
    trip(t)
    t.after(1800)
    t.finish(BAD)
    assert t.after(1799).job_ids == ()
    assert len(t.after(61).job_ids) == 1


def test_cancelled_probe_is_replaced_by_the_next(t: Timer) -> None:
    schedule = replace(MINUTELY, if_running=IfRunning.CANCEL)
    trip(t)
    [probe] = t.after(1800, schedule).job_ids
    t.ledger.write(
        lambda tx: tx.run(
            "end_queued_job",
            id=probe,
            attempt=1,
            status="dead",
            error="x",
            now=to_text(t.clock.now()),
        )
    )
    assert len(t.after(60, schedule).job_ids) == 1


def test_probe_is_not_used_for_an_occurrence_held_otherwise(t: Timer) -> None:
    trip(t)
    t.after(1800, policy=replace(POLICY, healthy=False))
    assert t.reasons()[-1] == "unhealthy"
    row = t.ledger.read(lambda tx: tx.dicts("breakers", plugin="echo"))[0]
    assert (row["state"], row["probe_job_id"]) == ("open", None)


# Catching up


def test_only_the_newest_missed_occurrence_fires_by_default(t: Timer) -> None:
    t.begin()
    fired = t.after(600)
    assert len(fired.job_ids) == 1
    assert t.reasons() == ["catch_up_skipped"] * 9 + [None]


def test_run_once_catches_up_once_despite_outstanding_jobs(t: Timer) -> None:
    schedule = t.begin(replace(MINUTELY, catch_up=CatchUp.RUN_ONCE))
    t.after(60, schedule)
    assert len(t.restart_after(601, schedule).job_ids) == 1
    assert t.count() == 2


def test_run_all_catches_up_every_occurrence(t: Timer) -> None:
    schedule = t.begin(replace(MINUTELY, catch_up=CatchUp.RUN_ALL))
    fired = t.restart_after(601, schedule)
    assert len(fired.job_ids) == len(set(fired.job_ids)) == 10
    assert t.reasons(schedule) == [None] * 10


@pytest.mark.parametrize("rule", [Every(60.0), Cron("* * * * *")], ids=str)
def test_ten_years_of_missed_occurrences_are_recorded_for_a_day(t: Timer, rule: Rule) -> None:
    schedule = t.begin(replace(MINUTELY, rule=rule))
    assert len(t.after(10 * 365 * 86_400, schedule).job_ids) == 1
    assert len(t.slots(schedule)) == LOOKED_BACK
    assert t.reasons(schedule) == ["catch_up_skipped"] * (LOOKED_BACK - 1) + [None]


def test_run_once_of_cron_catches_up_despite_outstanding_jobs(t: Timer) -> None:
    nightly = replace(MINUTELY, rule=Cron("0 3 * * *"), catch_up=CatchUp.RUN_ONCE)
    t.see(nightly)
    t.put()
    assert len(t.restart_after(3 * 86_400, nightly).job_ids) == 1
    assert t.reasons(nightly) == ["catch_up_skipped", "catch_up_skipped", None]
    assert t.after(3600, nightly).job_ids == ()


# One-shots


def test_at_fires_once_across_restarts(t: Timer) -> None:
    once = t.begin(replace(MINUTELY, rule=At(datetime(2026, 2, 8, 11, tzinfo=UTC))))
    assert len(t.after(3600, once).job_ids) == 1
    t.finish()
    t.begin(once)
    assert t.after(86_400, once).job_ids == ()


# The history of an entry


def test_known_entry_keeps_its_anchors(t: Timer) -> None:
    t.begin()
    t.clock.advance(50)
    t.begin()
    assert len(t.after(10).job_ids) == 1


def test_next_run_counts_from_the_last_success(t: Timer) -> None:
    t.begin()
    t.after(60)
    claimed = t.must_take()
    t.clock.advance(40)
    t.end(claimed)
    assert t.after(59).job_ids == ()
    assert len(t.after(1).job_ids) == 1


def test_failure_does_not_move_the_next_run(t: Timer) -> None:
    t.begin()
    t.after(60)
    claimed = t.must_take()
    t.clock.advance(40)
    t.end(claimed, BAD)
    assert len(t.after(20).job_ids) == 1


def test_jobs_of_a_schedule_with_a_priority_start_before_recent_ones(t: Timer) -> None:
    urgent = t.begin(replace(MINUTELY, priority=30.0))
    t.clock.advance(59)
    waiting = t.put("other").job_id
    fired = t.after(2, urgent).job_ids
    assert len(fired) == 1
    assert [t.must_take().job.id, t.must_take().job.id] == [*fired, waiting]
