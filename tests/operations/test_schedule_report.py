"""Schedules for people: what comes, what fired, and why something did not."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from ductile.engine.config import compile_schedules
from ductile.errors import NotFound, Severity
from ductile.operations import schedule_report
from ductile.operations.reports import plugin_list
from ductile.store import schedules
from tests.engine.scheduling.harness import BAD, HOUR, SchedulerHarness
from tests.engine.site import OK, Site

Make = Callable[..., SchedulerHarness]


def listed(work: SchedulerHarness, ledger: Any = "own") -> dict[str, Any]:
    rows = schedule_report.listing(
        work.compiled(),
        work.unready,
        work.ledger if ledger == "own" else ledger,
        work.clock.now(),
    )
    [row] = rows
    return row


def fires(work: SchedulerHarness, count: int) -> list[dict[str, Any]]:
    compiled = work.compiled()
    [schedule] = schedule_report.find(compiled, "echo")
    now = work.clock.now()
    return list(schedule_report.next_fires(schedule, compiled, work.ledger, now, count))


def explained(work: SchedulerHarness) -> list[dict[str, Any]]:
    [schedule] = work.compiled().schedules
    return schedule_report.explain(schedule, work.ledger, work.clock.now())


def test_an_entry_shows_its_rule_its_next_run_and_its_last(make_scheduler: Make) -> None:
    work = make_scheduler({"every": "5m"})
    work.run(HOUR)
    row = listed(work)
    assert (row["plugin"], row["schedule"], row["command"]) == ("echo", "default", "poll")
    assert (row["state"], row["reason"]) == ("active", None)
    assert row["last_fire"] == "2026-02-08T11:00:00.000000Z"
    assert row["last_success"] == "2026-02-08T11:00:00.000000Z"
    assert row["next_run"] == "2026-02-08T11:05:00.000000Z"


def test_without_a_ledger_the_next_run_is_still_reported(make_scheduler: Make) -> None:
    row = listed(make_scheduler({"cron": "5 * * * *"}), ledger=None)
    assert row["next_run"] == "2026-02-08T10:05:00.000000Z"


def test_paused_entry_is_reported_as_paused(make_scheduler: Make) -> None:
    work = make_scheduler({"every": "5m"})
    work.ledger.write(lambda tx: schedules.set_paused(tx, "echo", "default", paused=True))
    row = listed(work)
    assert (row["state"], row["next_run"]) == ("paused", None)


def test_a_one_shot_that_has_fired_is_exhausted(make_scheduler: Make) -> None:
    work = make_scheduler({"at": "2026-02-08T10:30:00Z"})
    work.run(HOUR)
    row = listed(work)
    assert (row["state"], row["next_run"]) == ("exhausted", None)


def test_entry_of_an_unready_plugin_has_the_reason(make_scheduler: Make) -> None:
    work = make_scheduler({"every": "5m"})
    work.unready["echo"] = "its init failed: no luck"
    row = listed(work)
    assert (row["state"], row["reason"]) == ("unhealthy", "its init failed: no luck")


def test_entry_of_a_refused_plugin_has_the_reason(make_scheduler: Make, site) -> None:
    work = make_scheduler({"every": "5m"})
    (site.plugins / "echo" / "run").chmod(0o644)
    row = listed(work)
    assert row["state"] == "refused"
    assert "execut" in row["reason"]


def test_a_held_occurrence_has_its_reason_and_its_due_time(make_scheduler: Make) -> None:
    work = make_scheduler({"every": "1h"})
    work.run(HOUR - 60)
    work.unready["echo"] = "its init failed"
    work.run(600)
    work.unready.clear()
    row = listed(work)
    assert row["next_run"] == "2026-02-08T11:00:00.000000Z"
    assert "11:00:00.000000Z did not fire: the plugin was not ready" in row["reason"]
    work.run(60)
    assert listed(work)["reason"] is None


def test_a_cron_slot_that_was_missed_is_not_the_next(make_scheduler: Make) -> None:
    """Nor is it shown as one by a command without a gateway."""
    work = make_scheduler({"cron": "0 3 * * *"})
    work.run(HOUR)
    work.clock.advance(24 * HOUR)
    assert listed(work)["next_run"] == "2026-02-10T03:00:00.000000Z"


@pytest.mark.parametrize(
    ("rule", "next_run"),
    [
        ({"every": "2d"}, "2026-02-10T10:00:00.000000Z"),
        ({"cron": "0 9 * * *"}, "2026-02-09T09:00:00.000000Z"),
    ],
)
def test_rewritten_rule_is_reported_as_a_start_would_read_it(
    make_scheduler: Make, site: Site, rule: dict[str, str], next_run: str
) -> None:
    work = make_scheduler({"every": "daily"})
    work.run(HOUR)
    site.settings["plugins"]["echo"]["schedules"] = [rule]
    assert listed(work)["next_run"] == next_run
    work.start()
    work.run(3 * 24 * HOUR)
    assert work.fires()[1] == next_run


def test_an_open_breaker_shows(make_scheduler: Make) -> None:
    work = make_scheduler({"every": "1m"}, circuit_breaker={"threshold": 2})
    work.run(180, outcome=BAD)
    row = listed(work)
    assert row["state"] == "breaker_open"
    assert "2 failures" in row["reason"]
    work.site.settings["plugins"]["echo"]["circuit_breaker"] = "off"
    compiled = work.compiled()
    assert listed(work)["state"] == "active"
    assert work.ledger.read(lambda tx: plugin_list.tripped_breakers(tx, compiled, 9)) == []


def test_the_coming_fires_are_those_that_then_come(make_scheduler: Make) -> None:
    work = make_scheduler({"cron": "*/20 * * * *", "jitter": "2m"})
    coming = fires(work, 12)
    assert {(row["exact"], row["depends_on"]) for row in coming} == {(True, None)}
    work.run(5 * HOUR)
    assert work.fires()[:12] == [row["slot"] for row in coming]


def test_only_the_first_fire_of_an_every_entry_is_exact(make_scheduler: Make) -> None:
    work = make_scheduler({"every": "1h", "jitter": "10m"})
    work.run(HOUR)
    first, *later = fires(work, 4)
    assert (first["exact"], first["depends_on"]) == (True, None)
    assert {row["depends_on"] for row in later} == {"the end of the previous run, ±5m"}
    assert not any(row["exact"] for row in later)
    work.clock.advance(HOUR / 2)
    work.run(HOUR)
    assert first["slot"] in work.fires()


def test_no_fire_of_an_every_entry_is_exact_while_it_runs(make_scheduler: Make) -> None:
    work = make_scheduler({"every": "1h"})
    work.tick()
    work.claim()
    assert {row["depends_on"] for row in fires(work, 2)} == {"the end of the previous run"}


@pytest.mark.parametrize(
    ("rule", "first"),
    [
        # The first attempt, of 10:00, failed at once; the breaker is open until 10:30.
        ({"every": "1m"}, "2026-02-08T10:30:00.000000Z"),
        ({"every": "4h"}, "2026-02-08T14:00:00.000000Z"),
        ({"cron": "*/25 * * * *"}, "2026-02-08T10:50:00.000000Z"),
        ({"cron": "*/30 * * * *"}, "2026-02-08T10:30:00.000000Z"),
    ],
    ids=str,
)
def test_open_breaker_delays_the_next_run(
    make_scheduler: Make, rule: dict[str, str], first: str
) -> None:
    work = make_scheduler({"at": "2026-02-08T10:00:00Z"}, circuit_breaker={"threshold": 1})
    work.run(0, outcome=BAD)
    work.site.settings["plugins"]["echo"]["schedules"] = [{"id": "b", **rule}]
    work.reload()
    if rule == {"every": "4h"}:
        work.ledger.write(
            lambda tx: tx.run(
                "move_entry",
                plugin="echo",
                schedule_id="b",
                last_fire=None,
                last_fired_at="2026-02-08T10:00:00.000000Z",
                last_passed=None,
                exhausted=0,
            )
        )
    work.clock.advance(60)
    row = listed(work)
    assert (row["state"], row["next_run"]) == ("breaker_open", first)
    assert "no scheduled run until 2026-02-08 10:30:00" in row["reason"]
    coming = fires(work, 2)
    assert (coming[0]["fires_at"], coming[0]["exact"]) == (first, True)
    assert coming[1]["depends_on"] == "whether the probe of the breaker succeeds"
    work.run(5 * HOUR)
    assert work.fires(id="b")
    decided = [slot["created_at"] for slot in work.slots(id="b") if slot["job_id"]]
    assert first <= decided[0] <= first.replace(":00.000000Z", ":59.999999Z")


@pytest.mark.parametrize(
    ("limits", "next_run"),
    [
        ({"only_between": "12:00-14:00"}, "2026-02-08T12:00:00.000000Z"),
        ({"not_on": ["sunday"]}, "2026-02-09T00:00:00.000000Z"),
    ],
    ids=str,
)
@pytest.mark.parametrize("rule", [{"every": "1h"}, {"cron": "0 * * * *"}], ids=str)
def test_closed_window_delays_the_next_run_and_is_noted(
    make_scheduler: Make, rule: dict[str, str], limits: dict[str, Any], next_run: str
) -> None:
    """The tests begin on a Sunday at ten."""
    work = make_scheduler({**rule, **limits})
    row = listed(work)
    assert (row["state"], row["next_run"]) == ("active", next_run)
    reason = "not on this day of the week" if "not_on" in limits else "outside its window"
    until = next_run[:19].replace("T", " ")
    assert row["reason"] == f"{reason} until {until}+00:00"
    work.run(15 * HOUR)
    assert work.fires()[0] == next_run


def test_run_that_waits_for_its_window_is_explained(make_scheduler: Make) -> None:
    work = make_scheduler({"every": "1h", "only_between": "08:00-11:30"})
    work.run(2 * HOUR)
    rows = explained(work)
    assert [(row["slot"][11:16], row["fired"]) for row in rows] == [
        ("10:00", True),
        ("11:00", True),
        ("12:00", False),
    ]
    assert rows[-1]["reason"] == "window"
    assert rows[-1]["why"] == "outside its window until 2026-02-09 08:00:00+00:00"
    work.run(21 * HOUR)
    assert {row["reason"] for row in explained(work)} == {None}


def test_the_coming_fires_show_the_local_time(make_scheduler: Make) -> None:
    work = make_scheduler({"cron": "0 9 * * *", "timezone": "America/New_York"})
    compiled = work.compiled()
    [schedule] = schedule_report.find(compiled, "echo")
    rows = list(schedule_report.next_fires(schedule, compiled, None, work.clock.now(), 40))
    assert len(rows) == 40
    assert {row["local"][11:16] for row in rows} == {"09:00"}
    # Over the spring change the same local hour is another instant.
    assert {row["fires_at"][11:13] for row in rows} == {"13", "14"}


def test_every_slot_of_the_last_day_is_explained(make_scheduler: Make) -> None:
    work = make_scheduler({"cron": "0 * * * *"})
    work.run(2 * HOUR)
    work.run(2 * HOUR, outcome=None)
    [schedule] = schedule_report.find(work.compiled(), "echo/default")
    rows = schedule_report.explain(schedule, work.ledger, work.clock.now())
    assert [(row["fired"], row["reason"]) for row in rows] == [
        (True, None),
        (True, None),
        (True, None),
        (False, "running"),
    ]
    later = work.clock.now() + timedelta(days=2)
    assert not any(row["fired"] for row in schedule_report.explain(schedule, work.ledger, later))


@pytest.mark.parametrize("name", ["nosuch", "echo/nosuch", "", "/"])
def test_unknown_schedule_is_not_found(make_scheduler: Make, name: str) -> None:
    work = make_scheduler({"every": "1h"})
    with pytest.raises(NotFound):
        schedule_report.find(work.compiled(), name)


class TestAMomentThatIsPast:
    PAST = "2020-01-01T00:00:00Z"

    def test_its_next_run_is_when_it_was_due(self, make_scheduler: Make) -> None:
        """With it the doctor finds occurrences that did not fire."""
        work = make_scheduler({"at": self.PAST})
        assert listed(work)["next_run"] == "2020-01-01T00:00:00.000000Z"

    def test_its_fire_is_explained_by_when_it_was(self, make_scheduler: Make) -> None:
        work = make_scheduler({"at": self.PAST})
        work.run(HOUR)
        [schedule] = work.compiled().schedules
        [row] = schedule_report.explain(schedule, work.ledger, work.clock.now())
        assert (row["slot"], row["fired"]) == ("2020-01-01T00:00:00.000000Z", True)
        assert row["decided_at"].startswith("2026-02-08T10:00")
        later = work.clock.now() + timedelta(days=2)
        assert schedule_report.explain(schedule, work.ledger, later) == []

    def test_it_is_warned_of(self, site: Site) -> None:
        site.plugin(
            "echo", OK, schedules=[{"at": self.PAST}, {"id": "b", "at": "2030-01-01T00:00:00Z"}]
        )
        site.plugin("off", OK, enabled=False, schedules=[{"at": self.PAST}])
        [warning] = compile_schedules.past(site.load(), datetime(2026, 2, 8, tzinfo=UTC))
        assert warning.severity is Severity.WARNING
        assert warning.path == ("plugins", "echo", "schedules", 0, "at")
        assert warning.line is not None
        assert "fires at once" in warning.message
