"""Schedules whose configuration, zone, clock, machine or program is not what it was."""

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
from tests.engine.clockwork import DAY, HOUR, YEAR, Clockwork
from tests.engine.site import OK, Site
from tests.store.conftest import execute

NOON = "2026-02-08T12:00:00Z"


def rewrite(work: Clockwork, *entries: dict[str, Any]) -> None:
    work.site.settings["plugins"]["echo"]["schedules"] = list(entries)
    work.reload()


def away(work: Clockwork, seconds: float) -> None:
    """The configuration lacks all entries for so long."""
    entries = work.site.settings["plugins"]["echo"]["schedules"]
    rewrite(work)
    work.run(seconds)
    rewrite(work, *entries)


def sleep(work: Clockwork, seconds: float) -> None:
    """The machine sleeps, so that the monotonic clock stands still."""
    work.clock.moment += timedelta(seconds=seconds)


def stop(work: Clockwork, seconds: float) -> None:
    """No gateway runs for so long; then one starts."""
    work.clock.advance(seconds)
    work.start()


# One-shots


def test_at_does_not_fire_again_in_another_time_zone(make, site: Site) -> None:
    work = make({"at": NOON})
    work.run(3 * HOUR)
    site.environ["TZ"] = "Europe/Vienna"
    work.start()
    work.run(DAY)
    assert len(work.slots()) == 1


@pytest.mark.parametrize(
    "same",
    [
        {"at": NOON, "timezone": "Europe/Vienna"},
        {"at": "2026-02-08T13:00:00+01:00"},
        {"at": "2026-02-08T07:00:00-05:00", "jitter": "10m"},
    ],
    ids=["zone", "offset", "jitter"],
)
def test_at_does_not_fire_again_when_the_same_time_is_rewritten(make, same: dict[str, str]) -> None:
    work = make({"at": NOON})
    work.run(3 * HOUR)
    rewrite(work, same)
    work.run(DAY)
    assert len(work.slots()) == 1


def test_at_with_a_later_time_fires_again(make) -> None:
    work = make({"at": NOON})
    work.run(3 * HOUR)
    rewrite(work, {"at": "2026-02-08T16:00:00Z"})
    work.run(DAY)
    assert work.fires() == ["2026-02-08T12:00:00.000000Z", "2026-02-08T16:00:00.000000Z"]


def test_after_does_not_fire_again_when_removed_or_rewritten(make, site: Site) -> None:
    work = make({"after": "30s"})
    work.run(HOUR)
    away(work, 60)
    work.run(HOUR)
    for enabled in (False, True):
        site.settings["plugins"]["echo"]["enabled"] = enabled
        work.reload()
        work.run(HOUR)
    rewrite(work, {"after": "5h"})
    work.run(DAY)
    assert len(work.fires()) == 1
    work.start()
    work.run(6 * HOUR)
    assert len(work.fires()) == 2


def test_after_fires_once_although_the_clock_is_set_back(make) -> None:
    work = make({"after": "30m"})
    work.run(60)
    sleep(work, -10 * YEAR)
    work.run(HOUR)
    [slot] = work.slots()
    # As long after the start as it says, by whatever clock.
    assert slot["created_at"] == "2016-02-11T10:30:00.000000Z"
    for _ in range(3):
        away(work, 60)
        work.run(HOUR)
    assert len(work.slots()) == 1


# Rewritten, and away for a while


def test_every_continues_from_its_last_fire_in_another_time_zone(make, site: Site) -> None:
    work = make({"every": "weekly"})
    work.run(DAY)
    site.environ["TZ"] = "Europe/Vienna"
    work.start()
    work.run(5 * DAY)
    assert len(work.fires()) == 1
    work.run(DAY)
    assert work.fires()[1:] == ["2026-02-15T10:00:00.000000Z"]


@pytest.mark.parametrize("every", ["2d", "monthly"])
def test_changed_interval_counts_from_the_last_fire(make, every: str) -> None:
    work = make({"every": "daily"})
    work.run(3 * HOUR)
    rewrite(work, {"every": every})
    work.run(40 * DAY)
    due = {"2d": "2026-02-10T10:00:00.000000Z", "monthly": "2026-03-08T10:00:00.000000Z"}
    assert work.fires()[1] == due[every]


@pytest.mark.parametrize("catch_up", ["skip", "run_once", "run_all"])
def test_every_is_not_caught_up_after_it_was_removed(make, catch_up: str) -> None:
    work = make({"every": "1h", "catch_up": catch_up})
    work.run(3 * HOUR)
    before = len(work.slots())
    away(work, 10 * DAY)
    work.run(60)
    assert len(work.slots()) == before + 1
    assert work.reasons() == {None: before + 1}


def test_every_is_not_caught_up_after_it_was_removed_by_restarts(make) -> None:
    work = make({"every": "1h", "catch_up": "run_all"})
    work.run(3 * HOUR)
    before, entries = len(work.slots()), work.site.settings["plugins"]["echo"]["schedules"]
    work.site.settings["plugins"]["echo"]["schedules"] = []
    stop(work, HOUR)
    work.site.settings["plugins"]["echo"]["schedules"] = entries
    stop(work, 10 * DAY)
    work.run(60)
    assert len(work.slots()) == before + 1


def test_cron_that_was_removed_waits_for_its_next_occurrence(make) -> None:
    work = make({"cron": "0 3 * * *"})
    work.run(2 * DAY)
    away(work, 10 * DAY)
    work.run(DAY - 1)
    assert [slot[8:13] for slot in work.fires()] == ["09T03", "10T03", "21T03"]
    assert set(work.reasons()) == {None}


def test_pause_survives_removal(make) -> None:
    work = make({"every": "1h"})
    work.run(60)
    execute(work.ledger, "UPDATE schedule_entries SET paused = 1")
    away(work, DAY)
    work.run(DAY)
    assert len(work.fires()) == 1


# Missed


@pytest.mark.parametrize("miss", [stop, sleep])
@pytest.mark.parametrize("catch_up", ["skip", "run_all"])
def test_missed_cron_occurrence_is_not_fired_hours_late(make, miss: Any, catch_up: str) -> None:
    work = make({"cron": "0 3 * * *", "catch_up": catch_up})
    work.run(DAY)
    miss(work, 26 * HOUR)
    work.run(60)
    missed = work.slots()[-1]
    assert (missed["slot"], missed["job_id"]) == ("2026-02-10T03:00:00.000000Z", None)
    assert missed["reason"] == "catch_up_skipped"
    work.run(DAY)
    assert work.fires()[-1] == "2026-02-11T03:00:00.000000Z"


@pytest.mark.parametrize("miss", [stop, sleep])
def test_suspension_under_a_minute_skips_no_cron_occurrence(make, miss: Any) -> None:
    work = make({"cron": "0 3 * * *"})
    work.run(17 * HOUR - 15)
    miss(work, 45)
    work.run(60)
    assert work.fires() == ["2026-02-09T03:00:00.000000Z"]


def test_occurrence_that_waited_for_init_is_not_missed(make) -> None:
    work = make({"cron": "0 3 * * *"})
    work.run(17 * HOUR - 15)
    work.unready["echo"] = "its init has not run yet"
    work.run(20 * 60)
    work.unready.clear()
    work.scheduler.release_waiting()
    work.run(1)
    assert work.fires() == ["2026-02-09T03:00:00.000000Z"]


@pytest.mark.parametrize("rule", [{"cron": "* * * * *"}, {"every": "1m"}], ids=str)
def test_each_missed_occurrence_is_recorded(make, rule: dict[str, str]) -> None:
    work = make(rule)
    work.run(600)
    stop(work, 3 * HOUR)
    work.run(0)
    assert work.reasons()["catch_up_skipped"] == 179


# Held back


def test_weekly_schedule_fires_once_its_plugin_is_ready(make) -> None:
    work = make({"every": "weekly"})
    work.run(7 * DAY - 60)
    work.unready["echo"] = "its init failed"
    work.run(30 * 60)
    assert work.reasons() == {None: 1, "unhealthy": 1}
    work.unready.clear()
    work.run(60)
    assert work.fires() == ["2026-02-08T10:00:00.000000Z", "2026-02-15T10:00:00.000000Z"]
    work.run(6 * DAY)
    assert len(work.fires()) == 2


# An entry that cannot be worked out


class Broken(Window):
    """It stands for whatever may raise."""

    def contains(self, moment: datetime) -> bool:
        raise ZeroDivisionError(moment)


def break_one(work: Clockwork) -> None:
    zone = ZoneInfo("UTC")
    bad = Schedule("echo", "bad", Every(10.0), zone, window=Broken(zone))
    compiled = work.compiled()
    work.adopted = replace(compiled, schedules=(bad, *compiled.schedules))
    work.scheduler.adopt(work.adopted)


def test_schedule_that_raises_an_error_is_logged_and_affects_no_other(
    make, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    work = make({"every": "10s"})
    break_one(work)
    capsysbinary.readouterr()
    work.run(600)
    assert len(work.fires()) == 61
    lines = [json.loads(line) for line in capsysbinary.readouterr().out.splitlines()]
    told = [line for line in lines if line["level"] == "error"]
    # Once a minute.
    assert len(told) == 10
    assert (told[0]["plugin"], told[0]["schedule"]) == ("echo", "bad")
    assert "ZeroDivisionError" in told[0]["trace"]


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
"""The rule and the last fire of entries, as they were written before."""

ENTRIES = [
    {"id": "at", "at": NOON},
    {"id": "offset", "at": "2026-02-08T13:00:00+01:00"},
    {"id": "after", "after": "30s"},
    {"id": "weekly", "every": "weekly"},
    {"id": "hourly", "every": "1h", "catch_up": "run_all"},
    {"id": "month", "every": "monthly"},
    {"id": "nightly", "cron": "0 3 * * *"},
]


def earlier(work: Clockwork) -> None:
    for id, (rule, fired) in EARLIER.items():
        rule = rule.replace("'", "''")
        execute(
            work.ledger,
            "INSERT INTO schedule_entries (plugin, schedule_id, rule, first_seen, last_fire,"
            " last_fired_at, last_success_at, exhausted) VALUES ('echo', "
            f"'{id}', '{rule}', '{fired}', '{fired}', '{fired}', '{fired}',"
            f" {int(id in ('at', 'offset', 'after'))})",
        )
        execute(
            work.ledger,
            "INSERT INTO schedule_slots (plugin, schedule_id, slot, job_id, created_at)"
            f" VALUES ('echo', '{id}', '{fired}', 'j', '{fired}')",
        )


@pytest.mark.parametrize("zone", ["UTC", "Europe/Vienna"])
def test_ledger_of_an_earlier_version_continues_without_firing_again(
    make, site: Site, zone: str
) -> None:
    work = make()
    earlier(work)
    site.environ["TZ"] = zone
    site.settings["plugins"]["echo"]["schedules"] = ENTRIES
    stop(work, 4.5 * HOUR)
    work.run(20)
    fires = {entry["id"]: len(work.fires(id=entry["id"])) - 1 for entry in ENTRIES}
    # Four hours of `run_all` were missed by an hourly entry.
    assert fires == {**dict.fromkeys(EARLIER, 0), "hourly": 4}
    work.run(20)
    assert len(work.fires(id="after")) == 2
    work.run(6 * DAY)
    assert [slot[:10] for slot in work.fires(id="nightly")][1:3] == ["2026-02-09", "2026-02-10"]
    assert [len(work.fires(id=id)) for id in ("at", "offset", "weekly", "month")] == [1, 1, 1, 1]
    work.run(DAY)
    assert work.fires(id="weekly")[1:] == ["2026-02-15T10:00:00.000000Z"]


def test_schedule_rearmed_by_an_earlier_version_does_not_fire_again(make) -> None:
    """By a zone that changed: it knew no longer that the moment had fired, the slot does."""
    work = make()
    earlier(work)
    execute(
        work.ledger,
        "UPDATE schedule_entries SET last_fire = NULL, last_fired_at = NULL, exhausted = 0"
        " WHERE schedule_id IN ('at', 'offset')",
    )
    work.site.settings["plugins"]["echo"]["schedules"] = ENTRIES
    stop(work, 5 * HOUR)
    work.run(DAY)
    assert [len(work.slots(id=id)) for id in ("at", "offset")] == [1, 1]
    rewrite(work, {"id": "at", "at": "2026-03-08T12:00:00Z"})
    work.run(40 * DAY)
    assert work.fires(id="at")[1:] == ["2026-03-08T12:00:00.000000Z"]


# Extremes


def test_shortest_interval_is_one_millisecond(site: Site) -> None:
    site.plugin("echo", OK, schedules=[{"every": "0.1ms"}])
    [schedule] = schedules_of(site.load().settings, ZoneInfo("UTC"))
    assert repr(schedule.rule) == "Every(seconds=0.001)"


@pytest.mark.parametrize("moment", ["1970-01-01T00:00:00Z", "9998-12-31T23:59:59Z"])
@pytest.mark.parametrize("zone", ["Pacific/Kiritimati", "America/New_York"])
def test_times_at_the_limits_of_the_calendar(make, moment: str, zone: str) -> None:
    window = {"only_between": "09:00-09:01", "not_on": ["mon"], "jitter": "8h"}
    work = make({"at": moment, "timezone": zone, **window}, {"id": "e", "every": "1h"})
    work.run(3 * DAY)
    assert len(work.fires(id="e")) == 73
    expected = 1 if datetime.fromisoformat(moment) < datetime.now(UTC) else 0
    assert len(work.fires()) == expected
