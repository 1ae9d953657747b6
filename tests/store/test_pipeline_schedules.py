"""A schedule entry of a pipeline starts each run once, and follows its runs; on both engines."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from ductile.core.schedules.decide import Cron, Every, IfRunning, Schedule
from ductile.store import schedules
from ductile.store.engines.api import Ledger
from ductile.store.schedules import FirePolicy, FireResult
from tests.conftest import CountingEntropy, FakeClock
from tests.store.jobs.harness import FINAL, Pipelines
from tests.waiting import WAIT_LIMIT

POLICY = FirePolicy(max_outstanding=1, healthy=True)
HOURLY = Schedule(
    "pipeline:p",
    "nightly",
    Cron("0 * * * *"),
    ZoneInfo("UTC"),
    payload={"kind": "full"},
    pipeline="p",
)
STEPS = [{"id": "one", "uses": "a"}, {"id": "two", "uses": "b"}]


class TimedPipelines(Pipelines):
    def see(self, schedule: Schedule = HOURLY) -> Schedule:
        self.boot = self.clock.now()
        self.ledger.write(lambda tx: schedules.ensure_entry(tx, schedule, self.boot, self.boot))
        return schedule

    def after(self, seconds: float, schedule: Schedule = HOURLY) -> FireResult:
        self.clock.advance(seconds)
        return self.fire(schedule)

    def fire(self, schedule: Schedule = HOURLY) -> FireResult:
        now, base_id = self.clock.now(), self.entropy.uuid()
        fired = self.ledger.write(
            lambda tx: schedules.fire_due(
                tx, schedule, POLICY, self.tx_config, boot=self.boot, now=now, base_id=base_id
            )
        )
        assert fired is not None
        return fired

    def slots(self) -> list[dict[str, Any]]:
        key = {"plugin": "pipeline:p", "schedule_id": "nightly"}
        return self.ledger.read(lambda tx: tx.dicts("slots_since", since="", **key))

    def entry(self) -> dict[str, Any]:
        [row] = self.ledger.read(lambda tx: tx.dicts("entries"))
        return row

    def runs(self) -> list[dict[str, Any]]:
        none = {"at": "~", "before": "", "since": "", "limit": 100}
        return self.ledger.read(lambda tx: tx.dicts("runs", **none))[::-1]


@pytest.fixture
def t(ledger: Ledger, clock: FakeClock, entropy: CountingEntropy) -> TimedPipelines:
    return TimedPipelines(ledger, clock, entropy, [{"name": "p", "on": "go", "steps": STEPS}])


def test_an_occurrence_starts_one_run_with_the_payload(t: TimedPipelines) -> None:
    t.see()
    assert t.fire().job_ids == ()
    [job_id] = t.after(3600).job_ids
    assert t.fire().job_ids == ()
    [slot] = t.slots()
    assert (slot["job_id"], slot["status"], slot["reason"]) == (job_id, "queued", None)
    [row] = t.rows("job", id=job_id)
    assert (row["plugin"], row["pipeline"], row["submitted_by"]) == ("a", "p", "scheduler")
    assert (row["schedule_id"], row["slot"]) == (None, None)
    assert t.event_of(row)["payload"] == {"kind": "full"}
    assert t.entry()["last_success_at"] is None
    assert t.run() == ["one", "two"]
    assert [run["status"] for run in t.runs()] == ["ended"]
    assert t.entry()["last_success_at"] is not None


def test_a_failed_run_is_not_a_success_and_the_next_one_starts(t: TimedPipelines) -> None:
    t.see()
    t.after(3600)
    t.run(b=FINAL)
    assert [run["status"] for run in t.runs()] == ["failed"]
    assert t.entry()["last_success_at"] is None
    assert len(t.after(3600).job_ids) == 1


def test_an_open_run_holds_the_next_occurrence_back(t: TimedPipelines) -> None:
    t.see()
    t.after(3600)
    assert t.after(3600).job_ids == ()
    assert [slot["reason"] for slot in t.slots()] == [None, "running"]
    t.run()
    assert t.fire().job_ids == ()
    assert len(t.after(3600).job_ids) == 1


def test_with_queue_the_next_run_starts_after_the_open_one(t: TimedPipelines) -> None:
    schedule = t.see(replace(HOURLY, if_running=IfRunning.QUEUE))
    t.after(3600, schedule)
    held = t.after(3600, schedule)
    assert (held.job_ids, held.waits_for_polls) == ((), True)
    t.run()
    [job_id] = t.fire(schedule).job_ids
    assert [slot["job_id"] is not None for slot in t.slots()] == [True, True]
    assert t.slots()[-1]["job_id"] == job_id


def test_with_cancel_the_open_run_ends(t: TimedPipelines) -> None:
    schedule = t.see(replace(HOURLY, if_running=IfRunning.CANCEL))
    [old] = t.after(3600, schedule).job_ids
    [new] = t.after(3600, schedule).job_ids
    [row] = t.rows("job", id=old)
    assert (row["status"], "superseded" in row["last_error"]) == ("dead", True)
    assert [run["status"] for run in t.runs()] == ["failed", "open"]
    assert t.rows("job", id=new)[0]["status"] == "queued"


def test_a_paused_entry_starts_nothing(t: TimedPipelines) -> None:
    t.see()
    t.ledger.write(lambda tx: schedules.set_paused(tx, "pipeline:p", "nightly", paused=True))
    assert t.after(3600).job_ids == ()
    assert [slot["reason"] for slot in t.slots()] == ["paused"]


def test_entries_of_a_plugin_and_a_pipeline_of_one_name_are_separate(t: TimedPipelines) -> None:
    t.see()
    own = t.see(Schedule("p", "nightly", Every(60.0), ZoneInfo("UTC")))
    assert len(t.fire(own).job_ids) == 1
    assert len(t.after(3600).job_ids) == 1
    assert len(t.ledger.read(lambda tx: tx.dicts("entries"))) == 2


def test_two_schedulers_start_an_occurrence_once(t: TimedPipelines) -> None:
    t.see()
    t.clock.advance(3600)
    fired: list[FireResult] = []
    barrier = threading.Barrier(2)

    def fire() -> None:
        barrier.wait(WAIT_LIMIT)
        fired.append(t.fire())

    threads = [threading.Thread(target=fire) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_LIMIT)
    assert sorted(len(one.job_ids) for one in fired) == [0, 1]
    assert len(t.runs()) == 1
