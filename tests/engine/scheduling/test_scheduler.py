"""The scheduler, tick by tick on a fake clock, over a real ledger."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest

from ductile.engine.config.compiled import INIT_PENDING
from ductile.errors import LedgerBusy
from ductile.operations.reports import waits_for
from ductile.store import schedules
from ductile.store.engines.api import Ledger
from ductile.store.jobs import read, retries
from tests.engine.scheduling.harness import BAD, DAY, HOUR, YEAR, SchedulerHarness
from tests.engine.site import OK, Site
from tests.waiting import until


def test_every_fires_once_per_interval(make_scheduler) -> None:
    harness = make_scheduler({"every": "5m"})
    harness.run(2 * HOUR)
    assert harness.fires()[:2] == ["2026-02-08T10:00:00.000000Z", "2026-02-08T10:05:00.000000Z"]
    assert harness.reasons() == {None: 1 + 24}


def test_loop_ticks_when_a_schedule_is_due(make_scheduler) -> None:
    harness = make_scheduler({"every": "5m"})
    harness.run(2 * HOUR)
    # One tick per fire, and one per tick interval (60 s).
    assert harness.ticks <= 24 * 2 + 125


def test_idle_tick_returns_the_tick_interval(make_scheduler) -> None:
    harness = make_scheduler({"every": "1h"})
    harness.tick()
    assert harness.tick() == 60.0


def test_tick_returns_the_time_until_the_next_schedule(make_scheduler) -> None:
    harness = make_scheduler({"every": "90s"})
    harness.run(60)
    assert harness.tick() == pytest.approx(30.0)


def test_cron_fires_at_its_times(make_scheduler) -> None:
    harness = make_scheduler({"cron": "30 * * * *"})
    harness.run(DAY)
    assert len(harness.fires()) == 24
    assert harness.fires()[0] == "2026-02-08T10:30:00.000000Z"


def test_several_schedules_are_independent(make_scheduler) -> None:
    harness = make_scheduler(
        {"id": "a", "every": "10m"}, {"id": "b", "cron": "0 * * * *", "command": "sync"}
    )
    harness.run(6 * HOUR)
    assert (len(harness.fires(id="a")), len(harness.fires(id="b"))) == (1 + 36, 6)


def test_payload_and_command_of_a_schedule_reach_its_job(make_scheduler) -> None:
    harness = make_scheduler({"every": "1m", "command": "sync", "payload": {"n": 1}})
    harness.tick()
    [slot] = harness.slots()
    job = harness.ledger.read(lambda tx: read.load_job(tx, slot["job_id"]))
    assert (job.command, job.payload, job.submitted_by) == ("sync", {"n": 1}, "scheduler")


def test_jitter_is_at_most_half_in_each_direction(make_scheduler) -> None:
    harness = make_scheduler({"cron": "0 * * * *", "jitter": "10m"})
    harness.run(3 * DAY)
    assert len(harness.fires()) == 72
    for row in harness.slots():
        moved = datetime.fromisoformat(row["created_at"]) - datetime.fromisoformat(row["slot"])
        assert abs(moved.total_seconds()) <= 301


# Reasons not to fire


def test_outstanding_job_skips_the_next_occurrences(make_scheduler) -> None:
    harness = make_scheduler({"every": "5m"})
    harness.run(HOUR, outcome=None)
    assert harness.reasons() == {None: 1, "running": 12}
    harness.finish()
    harness.run(300)
    assert len(harness.fires()) == 2


@pytest.mark.parametrize("rule", [{"every": "1h"}, {"cron": "0 * * * *"}], ids=str)
def test_due_schedules_of_one_plugin_run_one_after_another(
    make_scheduler, rule: dict[str, str]
) -> None:
    harness = make_scheduler(*({"id": id, **rule} for id in "abc"))
    harness.run(DAY)
    fires = [len(harness.fires(id=id)) for id in "abc"]
    assert min(fires) >= 23
    for id in "abc":
        for row in harness.slots(id=id):
            late = datetime.fromisoformat(row["created_at"]) - datetime.fromisoformat(row["slot"])
            assert late <= timedelta(seconds=10)


def test_unready_plugin_is_scheduled_once_it_is_ready(make_scheduler) -> None:
    harness = make_scheduler({"every": "5m"})
    harness.unready["echo"] = "its init failed"
    harness.run(HOUR)
    assert harness.reasons() == {"unhealthy": 13}
    harness.unready.clear()
    harness.run(HOUR)
    assert len(harness.fires()) == 12


def test_occurrence_during_init_waits_for_its_end(make_scheduler) -> None:
    harness = make_scheduler({"every": "5m"})
    harness.unready["echo"] = INIT_PENDING
    harness.run(60)
    assert harness.slots() == []
    harness.unready.clear()
    harness.scheduler.release_waiting()
    harness.run(1)
    assert len(harness.fires()) == 1


def test_refused_plugin_is_not_scheduled(make_scheduler, site: Site) -> None:
    harness = make_scheduler({"every": "5m"})
    (site.plugins / "echo" / "run").chmod(0o644)
    harness.reload()
    harness.run(HOUR)
    assert set(harness.reasons()) == {"unhealthy"}


def test_open_breaker_skips_a_failing_plugin(make_scheduler) -> None:
    harness = make_scheduler(
        {"every": "1m"}, circuit_breaker={"threshold": 3, "reset_after": "30m"}
    )
    harness.run(2 * HOUR, outcome=BAD)
    # Three failures open the breaker, then one probe every half hour.
    assert 3 + 3 <= len(harness.fires()) <= 3 + 4
    assert harness.reasons()["breaker_open"] > 100


def test_schedule_fires_only_within_its_window(make_scheduler) -> None:
    harness = make_scheduler({"every": "30m", "only_between": "12:00-14:00", "timezone": "UTC"})
    harness.run(2 * DAY)
    hours = {datetime.fromisoformat(slot).hour for slot in harness.fires()}
    assert hours <= {12, 13, 14}
    assert 6 <= len(harness.fires()) <= 10


# The operator


def set_paused(harness: SchedulerHarness, paused: bool) -> None:
    assert harness.ledger.write(
        lambda tx: schedules.set_paused(tx, "echo", "default", paused=paused)
    )
    harness.scheduler.refresh()


def test_paused_schedule_fires_again_when_resumed(make_scheduler) -> None:
    harness = make_scheduler({"every": "5m"})
    harness.run(600)
    set_paused(harness, True)
    harness.run(HOUR)
    assert len(harness.fires()) == 3
    set_paused(harness, False)
    harness.run(HOUR)
    assert len(harness.fires()) in (14, 15, 16)


# Reloads


def test_unchanged_schedule_keeps_its_time_through_a_reload(make_scheduler) -> None:
    harness = make_scheduler({"every": "10m"})
    for _ in range(9):
        harness.run(60)
        harness.reload()
    harness.run(60)
    assert len(harness.fires()) == 2


def test_removed_schedule_does_not_fire(make_scheduler, site: Site) -> None:
    harness = make_scheduler({"every": "5m"})
    harness.run(HOUR)
    site.settings["plugins"]["echo"]["schedules"] = []
    harness.reload()
    harness.run(HOUR)
    assert len(harness.fires()) == 1 + 12


def test_added_schedule_fires(make_scheduler, site: Site) -> None:
    harness = make_scheduler({"every": "5m"})
    site.settings["plugins"]["echo"]["schedules"].append({"id": "b", "every": "1m"})
    harness.reload()
    harness.run(600)
    assert len(harness.fires(id="b")) == 1 + 10


def test_shortened_interval_that_has_passed_fires_at_once(make_scheduler, site: Site) -> None:
    harness = make_scheduler({"every": "1h"})
    harness.run(50 * 60)
    site.settings["plugins"]["echo"]["schedules"] = [{"every": "20m"}]
    harness.reload()
    harness.run(19 * 60)
    assert len(harness.fires()) == 2
    harness.run(60)
    assert len(harness.fires()) == 3


def test_disabled_plugin_is_not_scheduled(make_scheduler, site: Site) -> None:
    harness = make_scheduler({"every": "5m"})
    site.settings["plugins"]["echo"]["enabled"] = False
    harness.reload()
    harness.run(HOUR)
    assert harness.slots() == []


def test_restart_neither_loses_nor_duplicates_an_occurrence(make_scheduler) -> None:
    harness = make_scheduler({"cron": "*/10 * * * *"})
    for _ in range(36):
        harness.run(300)
        harness.start()
    assert len(harness.fires()) == len(set(harness.fires())) == 18


def test_downtime_is_caught_up_only_if_configured(make_scheduler) -> None:
    every = {"id": "all", "every": "5m", "command": "sync", "catch_up": "run_all"}
    harness = make_scheduler({"every": "5m"}, every)
    harness.run(300)
    harness.clock.advance(DAY + 1)
    harness.start()
    harness.run(0)
    assert len(harness.fires()) == 2 + 1
    assert len(harness.fires(id="all")) == 2 + 100


# The wall clock


def jump_clock(harness: SchedulerHarness, seconds: float) -> None:
    """Set the wall clock; the monotonic clock continues."""
    harness.clock.moment += timedelta(seconds=seconds)


# Not a whole hour, because the repeated hour would have the same occurrences.
JUMPS = [HOUR + 1.5, -HOUR - 1.5, 10 * YEAR + 1.5, -10 * YEAR - 1.5]
RULES = [{"every": "5m"}, {"every": "1h"}, {"cron": "*/5 * * * *"}, {"cron": "0 * * * *"}]


@pytest.mark.parametrize("rule", RULES, ids=lambda r: "-".join(r.values()).replace(" ", "_"))
@pytest.mark.parametrize("seconds", JUMPS)
def test_clock_jump_neither_floods_nor_stalls(
    make_scheduler, rule: dict[str, str], seconds: float
) -> None:
    harness = make_scheduler(rule)
    harness.run(4 * HOUR)
    before = len(harness.fires())
    jump_clock(harness, seconds)
    harness.run(0)
    assert len(harness.fires()) - before <= 1
    after = len(harness.fires())
    harness.run(4 * HOUR)
    regular = 48 if "5" in str(rule) else 4
    # The occurrences of the repeated hour have fired already.
    again = regular // 4 + 1 if -2 * HOUR < seconds < 0 and "cron" in rule else 1
    assert regular - again <= len(harness.fires()) - after <= regular + 1


def test_retry_time_far_ahead_does_not_block_the_schedule(make_scheduler, site: Site) -> None:
    """Its `next_retry_at` comes from a clock that was set back since."""
    harness = make_scheduler({"every": "1h"})
    site.settings["plugins"]["echo"]["retry"] = {"max_attempts": 4}
    harness.reload()
    harness.run(HOUR, outcome=BAD)
    jump_clock(harness, -10 * YEAR)
    for _ in range(40):
        harness.run(DAY, outcome=None)
        now = harness.clock.now()
        harness.ledger.write(lambda tx, now=now: retries.promote_due(tx, now))
        harness.finish()
    assert len(harness.fires()) > 5


# Ledger errors


class FailingLedger:
    """A ledger whose next writes fail."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger, self.errors = ledger, list[Exception]()

    def write(self, harness: Any) -> Any:
        if self.errors:
            raise self.errors.pop()
        return self._ledger.write(harness)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ledger, name)


@pytest.mark.parametrize("error", [LedgerBusy("busy"), RuntimeError("a bug")], ids=["busy", "bug"])
def test_occurrence_that_raised_an_error_fires_later(make_scheduler, error: Exception) -> None:
    harness = make_scheduler({"every": "5m"})
    failing = FailingLedger(harness.ledger)
    harness.ledger = failing
    harness.start()
    failing.errors.append(error)
    expected = pytest.raises(LedgerBusy) if isinstance(error, LedgerBusy) else nullcontext()
    with expected:
        harness.tick()
    harness.clock.advance(60)
    harness.run(HOUR)
    assert len(harness.fires()) >= 11


# In a running gateway


def test_running_gateway_fires_schedules(site: Site) -> None:
    site.plugin("echo", OK, schedules=[{"every": "50ms"}])
    with site.running() as running:
        seen: set[str] = set()
        for _ in range(3):
            notice = running.notice("job.succeeded")
            seen.add(str(notice.job_id))
            running._received = [n for n in running._received if n.job_id not in seen]
    assert len(seen) == 3


def test_queued_run_starts_when_the_run_before_it_has_ended(site: Site) -> None:
    site.settings["service"]["max_workers"] = 4
    gate = site.gate()
    every = {"id": "often", "every": "50ms", "if_running": "queue"}
    site.plugin("echo", gate.script() + OK, schedules=[every])
    with site.running() as running:
        gate.arrived()
        pending = partial(
            running.gateway.ledger.read, lambda tx: tx.dicts("pending_jobs", limit=10)
        )
        until(lambda: len(pending()) == 2)
        first, second = pending()
        assert (first["status"], second["status"]) == ("running", "queued")
        gateway = running.gateway
        [waits] = gateway.ledger.read(
            lambda tx: waits_for.with_reasons(
                tx,
                [second],
                gateway.compiled,
                gateway.unready,
                served=True,
                now=gateway.clock.now(),
            )
        )
        reason = f"job {first['id']} of the same schedule has not ended (if_running: queue)"
        assert waits["waits_for"].startswith(f"{reason} since ")
        gateway.loops["scheduler"].stop()
        gate.open(1)
        assert running.ended(first["id"])["status"] == "succeeded"
        gate.arrived()
        gate.open(1)
        assert running.ended(second["id"])["status"] == "succeeded"


def test_newer_occurrence_kills_the_process_of_the_older_one(site: Site) -> None:
    gate = site.gate()
    site.plugin("echo", gate.script(), schedules=[{"every": "300ms", "if_running": "cancel"}])
    with site.running() as running:
        old = int(gate.arrived())
        gate.arrived()
        notice = running.notice("job.dead")
        job = running.job(str(notice.job_id))
        assert "superseded" in job["last_error"]
        assert old not in site.alive()
        running.gateway.loops["scheduler"].stop()
        gate.open(5)
