"""The scheduler's ticks on a clock that the test holds, over a real ledger."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import datetime, timedelta
from typing import Any

import pytest

from ductile.engine.config.compiled import INIT_PENDING
from ductile.errors import LedgerBusy
from ductile.store import notices, schedules
from ductile.store.engines.api import BEGINNING, Ledger
from ductile.store.jobs import read, retries
from ductile.store.jobs.cancel_requests import REQUESTED
from tests.engine.clockwork import BAD, DAY, HOUR, YEAR, Clockwork
from tests.engine.site import OK, Site


def test_every_fires_once_per_interval(make) -> None:
    work = make({"every": "5m"})
    work.run(2 * HOUR)
    assert work.fires()[:2] == ["2026-02-08T10:00:00.000000Z", "2026-02-08T10:05:00.000000Z"]
    assert work.reasons() == {None: 1 + 24}


def test_loop_ticks_when_a_schedule_is_due(make) -> None:
    work = make({"every": "5m"})
    work.run(2 * HOUR)
    # A wake-up a fire, and one a tick interval (60 s).
    assert work.ticks <= 24 * 2 + 125


def test_idle_tick_returns_the_tick_interval(make) -> None:
    work = make({"every": "1h"})
    work.tick()
    assert work.tick() == 60.0


def test_tick_returns_the_time_until_the_next_schedule(make) -> None:
    work = make({"every": "90s"})
    work.run(60)
    assert work.tick() == pytest.approx(30.0)


def test_cron_fires_at_its_times(make) -> None:
    work = make({"cron": "30 * * * *"})
    work.run(DAY)
    assert len(work.fires()) == 24
    assert work.fires()[0] == "2026-02-08T10:30:00.000000Z"


def test_at_fires_once(make) -> None:
    work = make({"at": "2026-02-08T12:00:00Z"})
    work.run(DAY)
    assert work.fires() == ["2026-02-08T12:00:00.000000Z"]
    [entry] = work.ledger.read(lambda tx: tx.dicts("entries"))
    assert entry["exhausted"] == 1


def test_after_fires_once_per_start_and_not_at_a_reload(make) -> None:
    work = make({"after": "30s"})
    work.run(HOUR)
    work.reload()
    work.run(HOUR)
    assert len(work.fires()) == 1
    work.start()
    work.run(HOUR)
    assert len(work.fires()) == 2


def test_several_schedules_are_independent(make) -> None:
    work = make({"id": "a", "every": "10m"}, {"id": "b", "cron": "0 * * * *", "command": "sync"})
    work.run(6 * HOUR)
    assert (len(work.fires(id="a")), len(work.fires(id="b"))) == (1 + 36, 6)


def test_payload_and_command_of_a_schedule_reach_its_job(make) -> None:
    work = make({"every": "1m", "command": "sync", "payload": {"n": 1}})
    work.tick()
    [slot] = work.slots()
    job = work.ledger.read(lambda tx: read.load_job(tx, slot["job_id"]))
    assert (job.command, job.payload, job.submitted_by) == ("sync", {"n": 1}, "scheduler")


def test_jitter_is_at_most_half_in_each_direction(make) -> None:
    work = make({"cron": "0 * * * *", "jitter": "10m"})
    work.run(3 * DAY)
    assert len(work.fires()) == 72
    for row in work.slots():
        moved = datetime.fromisoformat(row["created_at"]) - datetime.fromisoformat(row["slot"])
        assert abs(moved.total_seconds()) <= 301


# What stands in the way


def test_outstanding_job_skips_the_next_occurrences(make) -> None:
    work = make({"every": "5m"})
    work.run(HOUR, outcome=None)
    assert work.reasons() == {None: 1, "running": 12}
    work.finish()
    work.run(300)
    assert len(work.fires()) == 2


def test_unready_plugin_is_scheduled_once_it_is_ready(make) -> None:
    work = make({"every": "5m"})
    work.unready["echo"] = "its init failed"
    work.run(HOUR)
    assert work.reasons() == {"unhealthy": 13}
    work.unready.clear()
    work.run(HOUR)
    assert len(work.fires()) == 12


def test_occurrence_during_init_waits_for_its_end(make) -> None:
    work = make({"every": "5m"})
    work.unready["echo"] = INIT_PENDING
    work.run(60)
    assert work.slots() == []
    work.unready.clear()
    work.scheduler.release_waiting()
    work.run(1)
    assert len(work.fires()) == 1


def test_refused_plugin_is_not_scheduled(make, site: Site) -> None:
    work = make({"every": "5m"})
    (site.plugins / "echo" / "run").chmod(0o644)
    work.reload()
    work.run(HOUR)
    assert set(work.reasons()) == {"unhealthy"}


def test_overlap_cancel_requests_the_end_of_the_running_job(make) -> None:
    work = make({"every": "5m", "if_running": "cancel"})
    work.run(0, outcome=None)
    old = work.claim()
    work.run(300, outcome=None)
    told = work.ledger.read(lambda tx: notices.list_after(tx, BEGINNING))
    asked = [notice for notice in told if notice.type == REQUESTED]
    assert [notice.job_id for notice in asked] == [old]
    assert len(work.fires()) == 2


def test_open_breaker_skips_a_failing_plugin(make) -> None:
    work = make({"every": "1m"}, circuit_breaker={"threshold": 3, "reset_after": "30m"})
    work.run(2 * HOUR, outcome=BAD)
    # Three that open it, then a probe each half hour.
    assert 3 + 3 <= len(work.fires()) <= 3 + 4
    assert work.reasons()["breaker_open"] > 100


def test_breaker_closes_after_a_successful_probe(make) -> None:
    work = make({"every": "1m"}, circuit_breaker={"threshold": 3, "reset_after": "30m"})
    work.run(10 * 60, outcome=BAD)
    fired = len(work.fires())
    work.run(HOUR)
    assert len(work.fires()) - fired >= 30


def test_schedule_fires_only_within_its_window(make) -> None:
    work = make({"every": "30m", "only_between": "12:00-14:00", "timezone": "UTC"})
    work.run(2 * DAY)
    hours = {datetime.fromisoformat(slot).hour for slot in work.fires()}
    assert hours <= {12, 13, 14}
    assert 6 <= len(work.fires()) <= 10


# The operator


def paused(work: Clockwork, paused: bool) -> None:
    assert work.ledger.write(lambda tx: schedules.set_paused(tx, "echo", "default", paused=paused))
    work.scheduler.refresh()


def test_paused_schedule_fires_again_when_resumed(make) -> None:
    work = make({"every": "5m"})
    work.run(600)
    paused(work, True)
    work.run(HOUR)
    assert len(work.fires()) == 3
    paused(work, False)
    work.run(HOUR)
    assert len(work.fires()) in (14, 15, 16)


def test_occurrences_of_a_pause_are_not_caught_up(make) -> None:
    work = make({"every": "5m", "catch_up": "run_all"})
    paused(work, True)
    work.run(DAY)
    paused(work, False)
    work.run(300)
    assert len(work.fires()) <= 2


# Reloads


def test_unchanged_schedule_keeps_its_time_through_a_reload(make) -> None:
    work = make({"every": "10m"})
    for _ in range(9):
        work.run(60)
        work.reload()
    work.run(60)
    assert len(work.fires()) == 2


def test_removed_schedule_does_not_fire(make, site: Site) -> None:
    work = make({"every": "5m"})
    work.run(HOUR)
    site.settings["plugins"]["echo"]["schedules"] = []
    work.reload()
    work.run(HOUR)
    assert len(work.fires()) == 1 + 12


def test_added_schedule_fires(make, site: Site) -> None:
    work = make({"every": "5m"})
    site.settings["plugins"]["echo"]["schedules"].append({"id": "b", "every": "1m"})
    work.reload()
    work.run(600)
    assert len(work.fires(id="b")) == 1 + 10


def test_shortened_interval_that_has_passed_fires_at_once(make, site: Site) -> None:
    work = make({"every": "1h"})
    work.run(50 * 60)
    site.settings["plugins"]["echo"]["schedules"] = [{"every": "20m"}]
    work.reload()
    work.run(19 * 60)
    assert len(work.fires()) == 2
    work.run(60)
    assert len(work.fires()) == 3


def test_disabled_plugin_is_not_scheduled(make, site: Site) -> None:
    work = make({"every": "5m"})
    site.settings["plugins"]["echo"]["enabled"] = False
    work.reload()
    work.run(HOUR)
    assert work.slots() == []


def test_restart_neither_loses_nor_duplicates_an_occurrence(make) -> None:
    work = make({"cron": "*/10 * * * *"})
    for _ in range(36):
        work.run(300)
        work.start()
    assert len(work.fires()) == len(set(work.fires())) == 18


def test_downtime_is_caught_up_only_if_configured(make) -> None:
    work = make({"every": "5m"}, {"id": "all", "every": "5m", "catch_up": "run_all"})
    work.run(300)
    work.clock.advance(DAY)
    work.start()
    work.run(0)
    assert len(work.fires()) == 2 + 1
    assert len(work.fires(id="all")) == 2 + 100


# The wall clock


def jump(work: Clockwork, seconds: float) -> None:
    """The wall clock is set; the monotonic one goes on as ever."""
    work.clock.moment += timedelta(seconds=seconds)


# A little more than even, or the hour that comes again would bring the very same instants.
JUMPS = [HOUR + 1.5, -HOUR - 1.5, 10 * YEAR + 1.5, -10 * YEAR - 1.5]
RULES = [{"every": "5m"}, {"every": "1h"}, {"cron": "*/5 * * * *"}, {"cron": "0 * * * *"}]


@pytest.mark.parametrize("rule", RULES, ids=lambda r: "-".join(r.values()).replace(" ", "_"))
@pytest.mark.parametrize("seconds", JUMPS)
def test_clock_jump_neither_floods_nor_stalls(make, rule: dict[str, str], seconds: float) -> None:
    work = make(rule)
    work.run(4 * HOUR)
    before = len(work.fires())
    jump(work, seconds)
    work.run(0)
    assert len(work.fires()) - before <= 1
    after = len(work.fires())
    work.run(4 * HOUR)
    regular = 48 if "5" in str(rule) else 4
    # Slots of the hour that comes again have fired already.
    again = regular // 4 + 1 if -2 * HOUR < seconds < 0 and "cron" in rule else 1
    assert regular - again <= len(work.fires()) - after <= regular + 1


@pytest.mark.parametrize("seconds", JUMPS)
def test_occurrences_are_unique_through_clock_jumps(make, seconds: float) -> None:
    work = make({"cron": "*/5 * * * *"}, {"id": "e", "every": "5m"})
    for _ in range(3):
        work.run(HOUR)
        jump(work, seconds)
    work.run(HOUR)
    for id in ("default", "e"):
        assert len(work.fires(id=id)) == len(set(work.fires(id=id)))


def test_at_does_not_fire_again_after_the_clock_is_set_back(make) -> None:
    work = make({"at": "2026-02-08T12:00:00Z"})
    work.run(3 * HOUR)
    jump(work, -2 * HOUR)
    work.run(5 * HOUR)
    assert len(work.fires()) == 1


def test_open_breaker_does_not_wait_for_a_clock_set_back(make) -> None:
    work = make({"every": "1m"}, circuit_breaker={"threshold": 1, "reset_after": "30m"})
    work.run(120, outcome=BAD)
    jump(work, -10 * YEAR)
    work.run(HOUR)
    assert len(work.fires()) > 20


def test_retry_time_far_ahead_does_not_block_the_schedule(make, site: Site) -> None:
    """Its `next_retry_at` is of a clock that was set back since."""
    work = make({"every": "1h"})
    site.settings["plugins"]["echo"]["retry"] = {"max_attempts": 4}
    work.reload()
    work.run(HOUR, outcome=BAD)
    jump(work, -10 * YEAR)
    for _ in range(40):
        work.run(DAY, outcome=None)
        now = work.clock.now()
        work.ledger.write(lambda tx, now=now: retries.promote_due(tx, now))
        work.finish()
    assert len(work.fires()) > 5


# A ledger that fails


class Failing:
    """The ledger, whose next writes fail."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger, self.errors = ledger, list[Exception]()

    def write(self, work: Any) -> Any:
        if self.errors:
            raise self.errors.pop()
        return self._ledger.write(work)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ledger, name)


@pytest.mark.parametrize("error", [LedgerBusy("busy"), RuntimeError("a bug")], ids=["busy", "bug"])
def test_occurrence_that_raised_an_error_fires_later(make, error: Exception) -> None:
    work = make({"every": "5m"})
    failing = Failing(work.ledger)
    work.ledger = failing
    work.start()
    failing.errors.append(error)
    expected = pytest.raises(LedgerBusy) if isinstance(error, LedgerBusy) else nullcontext()
    with expected:
        work.tick()
    work.clock.advance(60)
    work.run(HOUR)
    assert len(work.fires()) >= 11


# In a gateway that runs


def test_running_gateway_fires_schedules(site: Site) -> None:
    site.plugin("echo", OK, schedules=[{"every": "50ms"}])
    with site.running() as house:
        seen: set[str] = set()
        for _ in range(3):
            notice = house.notice("job.succeeded")
            seen.add(str(notice.job_id))
            house._heard = [n for n in house._heard if n.job_id not in seen]
    assert len(seen) == 3


def test_newer_occurrence_kills_the_process_of_the_older_one(site: Site) -> None:
    gate = site.gate()
    site.plugin("echo", gate.script(), schedules=[{"every": "300ms", "if_running": "cancel"}])
    with site.running() as house:
        old = int(gate.arrived())
        gate.arrived()
        notice = house.notice("job.dead")
        job = house.job(str(notice.job_id))
        assert "superseded" in job["last_error"]
        assert old not in site.alive()
        house.gateway.loops["scheduler"].stop()
        gate.open(5)
