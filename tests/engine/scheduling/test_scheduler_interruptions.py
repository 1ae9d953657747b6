"""Schedules after downtime, errors, and an upgrade from an earlier version."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from ductile.core.schedules.decide import Every, Schedule
from ductile.core.schedules.window import Window
from ductile.engine.config.compile_schedules import schedules_of
from tests.engine.scheduling.harness import DAY, HOUR, YEAR, SchedulerHarness
from tests.engine.site import OK, Site
from tests.store.conftest import execute

NOON = "2026-02-08T12:00:00Z"


def rewrite(harness: SchedulerHarness, *entries: dict[str, Any]) -> None:
    harness.site.settings["plugins"]["echo"]["schedules"] = list(entries)
    harness.reload()


def suspend_for(harness: SchedulerHarness, seconds: float) -> None:
    """Suspend the machine: the monotonic clock does not advance."""
    harness.clock.moment += timedelta(seconds=seconds)


def stop_for(harness: SchedulerHarness, seconds: float) -> None:
    """Stop the gateway for this long, then start it."""
    harness.clock.advance(seconds)
    harness.start()


def test_after_fires_once_although_the_clock_is_set_back(make_scheduler) -> None:
    entry = {"after": "30m"}
    harness = make_scheduler(entry)
    harness.run(60)
    suspend_for(harness, -10 * YEAR)
    harness.run(HOUR)
    [slot] = harness.slots()
    # At the configured time after the start.
    assert slot["created_at"] == "2016-02-11T10:30:00.000000Z"
    for _ in range(3):
        rewrite(harness)
        harness.run(60)
        rewrite(harness, entry)
        harness.run(HOUR)
    assert len(harness.slots()) == 1


def test_every_is_not_caught_up_after_it_was_removed_by_restarts(make_scheduler) -> None:
    harness = make_scheduler({"every": "1h", "catch_up": "run_all"})
    harness.run(3 * HOUR)
    before, entries = len(harness.slots()), harness.site.settings["plugins"]["echo"]["schedules"]
    harness.site.settings["plugins"]["echo"]["schedules"] = []
    stop_for(harness, HOUR)
    harness.site.settings["plugins"]["echo"]["schedules"] = entries
    stop_for(harness, 10 * DAY)
    harness.run(60)
    assert len(harness.slots()) == before + 1


# Missed


@pytest.mark.parametrize("miss", [stop_for, suspend_for])
@pytest.mark.parametrize("catch_up", ["skip", "run_all"])
def test_missed_cron_occurrence_is_not_fired_hours_late(
    make_scheduler, miss: Any, catch_up: str
) -> None:
    harness = make_scheduler({"cron": "0 3 * * *", "catch_up": catch_up})
    harness.run(DAY)
    miss(harness, 26 * HOUR)
    harness.run(60)
    missed = harness.slots()[-1]
    assert (missed["slot"], missed["job_id"]) == ("2026-02-10T03:00:00.000000Z", None)
    assert missed["reason"] == "catch_up_skipped"
    harness.run(DAY)
    assert harness.fires()[-1] == "2026-02-11T03:00:00.000000Z"


@pytest.mark.parametrize("miss", [stop_for, suspend_for])
def test_suspension_under_a_minute_skips_no_cron_occurrence(make_scheduler, miss: Any) -> None:
    harness = make_scheduler({"cron": "0 3 * * *"})
    harness.run(17 * HOUR - 15)
    miss(harness, 45)
    harness.run(60)
    assert harness.fires() == ["2026-02-09T03:00:00.000000Z"]


def test_occurrence_that_waited_for_init_is_not_missed(make_scheduler) -> None:
    harness = make_scheduler({"cron": "0 3 * * *"})
    harness.run(17 * HOUR - 15)
    harness.unready["echo"] = "its init has not run yet"
    harness.run(20 * 60)
    harness.unready.clear()
    harness.scheduler.release_waiting()
    harness.run(1)
    assert harness.fires() == ["2026-02-09T03:00:00.000000Z"]


# Postponed


def test_weekly_schedule_fires_once_its_plugin_is_ready(make_scheduler) -> None:
    harness = make_scheduler({"every": "weekly"})
    harness.run(7 * DAY - 60)
    harness.unready["echo"] = "its init failed"
    harness.run(30 * 60)
    assert harness.reasons() == {None: 1, "unhealthy": 1}
    harness.unready.clear()
    harness.run(60)
    assert harness.fires() == ["2026-02-08T10:00:00.000000Z", "2026-02-15T10:00:00.000000Z"]
    harness.run(6 * DAY)
    assert len(harness.fires()) == 2


# Schedules that raise an error


class BrokenWindow(Window):
    """Represents any error in a schedule."""

    def contains(self, moment: datetime) -> bool:
        raise ZeroDivisionError(moment)


def break_one(harness: SchedulerHarness) -> None:
    zone = ZoneInfo("UTC")
    bad = Schedule("echo", "bad", Every(10.0), zone, window=BrokenWindow(zone))
    compiled = harness.compiled()
    harness.adopted = replace(compiled, schedules=(bad, *compiled.schedules))
    harness.scheduler.adopt(harness.adopted)


def test_schedule_that_raises_an_error_is_logged_and_affects_no_other(
    make_scheduler, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    harness = make_scheduler({"every": "10s"})
    break_one(harness)
    capsysbinary.readouterr()
    harness.run(600)
    assert len(harness.fires()) == 61
    lines = [json.loads(line) for line in capsysbinary.readouterr().out.splitlines()]
    errors = [line for line in lines if line["level"] == "error"]
    # Once per minute.
    assert len(errors) == 10
    assert (errors[0]["plugin"], errors[0]["schedule"]) == ("echo", "bad")
    assert "ZeroDivisionError" in errors[0]["trace"]


# Ledgers of an earlier version


AT = "At(moment=datetime.datetime(2026, 2, 8, {}, tzinfo=datetime.timezone{}))"
HOUR_AHEAD = "(datetime.timedelta(seconds=3600))"
EARLIER = {
    "at": (f'["{AT.format("12, 0", ".utc")}","UTC"]', "2026-02-08T12:00:00.000000Z"),
    "offset": (f'["{AT.format("13, 0", HOUR_AHEAD)}","UTC"]', "2026-02-08T12:00:00.000000Z"),
    "after": ('["After(seconds=30.0)","UTC"]', "2026-02-08T10:00:30.000000Z"),
    "weekly": ('["Every(seconds=604800.0)","UTC"]', "2026-02-08T10:00:00.000000Z"),
    "hourly": ('["Every(seconds=3600.0)","UTC"]', "2026-02-08T10:00:00.000000Z"),
    "month": ('["Monthly()","UTC"]', "2026-02-08T10:00:00.000000Z"),
    "nightly": ('["Cron(expr=\'0 3 * * *\')","UTC"]', "2026-02-08T03:00:00.000000Z"),
}
"""Write the rule and the last fire as an earlier version did."""

ENTRIES = [
    {"id": "at", "at": NOON},
    {"id": "offset", "at": "2026-02-08T13:00:00+01:00"},
    {"id": "after", "after": "30s"},
    {"id": "weekly", "every": "weekly"},
    {"id": "hourly", "every": "1h", "catch_up": "run_all"},
    {"id": "month", "every": "monthly"},
    {"id": "nightly", "cron": "0 3 * * *"},
]


def downgrade_ledger(harness: SchedulerHarness) -> None:
    for id, (rule, fired) in EARLIER.items():
        rule = rule.replace("'", "''")
        execute(
            harness.ledger,
            "INSERT INTO schedule_entries (plugin, schedule_id, rule, first_seen, last_fire,"
            " last_fired_at, last_success_at, exhausted) VALUES ('echo', "
            f"'{id}', '{rule}', '{fired}', '{fired}', '{fired}', '{fired}',"
            f" {int(id in ('at', 'offset', 'after'))})",
        )
        execute(
            harness.ledger,
            "INSERT INTO schedule_slots (plugin, schedule_id, slot, job_id, created_at)"
            f" VALUES ('echo', '{id}', '{fired}', 'j', '{fired}')",
        )


@pytest.mark.parametrize("zone", ["UTC", "Europe/Vienna"])
def test_ledger_of_an_earlier_version_continues_without_firing_again(
    make_scheduler, site: Site, zone: str
) -> None:
    harness = make_scheduler()
    downgrade_ledger(harness)
    site.environ["TZ"] = zone
    site.settings["plugins"]["echo"]["schedules"] = ENTRIES
    stop_for(harness, 4.5 * HOUR)
    harness.run(20)
    fires = {entry["id"]: len(harness.fires(id=entry["id"])) - 1 for entry in ENTRIES}
    # Four hours of `run_all` were missed by an hourly entry.
    assert fires == {**dict.fromkeys(EARLIER, 0), "hourly": 4}
    harness.run(20)
    assert len(harness.fires(id="after")) == 2
    harness.run(6 * DAY)
    assert [slot[:10] for slot in harness.fires(id="nightly")][1:3] == ["2026-02-09", "2026-02-10"]
    assert [len(harness.fires(id=id)) for id in ("at", "offset", "weekly", "month")] == [1, 1, 1, 1]
    harness.run(DAY)
    assert harness.fires(id="weekly")[1:] == ["2026-02-15T10:00:00.000000Z"]


def test_schedule_rearmed_by_an_earlier_version_does_not_fire_again(make_scheduler) -> None:
    """After a change of the time zone its last fire was lost; its occurrence remains."""
    harness = make_scheduler()
    downgrade_ledger(harness)
    execute(
        harness.ledger,
        "UPDATE schedule_entries SET last_fire = NULL, last_fired_at = NULL, exhausted = 0"
        " WHERE schedule_id IN ('at', 'offset')",
    )
    harness.site.settings["plugins"]["echo"]["schedules"] = ENTRIES
    stop_for(harness, 5 * HOUR)
    harness.run(DAY)
    assert [len(harness.slots(id=id)) for id in ("at", "offset")] == [1, 1]
    rewrite(harness, {"id": "at", "at": "2026-03-08T12:00:00Z"})
    harness.run(40 * DAY)
    assert harness.fires(id="at")[1:] == ["2026-03-08T12:00:00.000000Z"]


# Extremes


def test_shortest_interval_is_one_millisecond(site: Site) -> None:
    site.plugin("echo", OK, schedules=[{"every": "0.1ms"}])
    [schedule] = schedules_of(site.load().settings, ZoneInfo("UTC"))
    assert repr(schedule.rule) == "Every(seconds=0.001)"


@pytest.mark.parametrize("moment", ["1970-01-01T00:00:00Z", "9998-12-31T23:59:59Z"])
@pytest.mark.parametrize("zone", ["Pacific/Kiritimati", "America/New_York"])
def test_times_at_the_limits_of_the_calendar(make_scheduler, moment: str, zone: str) -> None:
    window = {"only_between": "09:00-09:01", "not_on": ["mon"], "jitter": "8h"}
    hourly = {"id": "e", "every": "1h", "command": "sync"}
    harness = make_scheduler({"at": moment, "timezone": zone, **window}, hourly)
    harness.run(3 * DAY)
    assert len(harness.fires(id="e")) == 73
    expected = 1 if datetime.fromisoformat(moment) < datetime.now(UTC) else 0
    assert len(harness.fires()) == expected
