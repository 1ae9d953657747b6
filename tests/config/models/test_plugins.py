"""Plugins and their schedules."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from ductile.config.models.plugin import ScheduleSettings
from ductile.errors import Severity
from tests.config.conftest import Home, only


def schedule(home: Home, text: str) -> ScheduleSettings:
    return (
        home.load(f"plugins: {{p: {{schedules: [{{{text}}}]}}}}").settings.plugins["p"].schedules[0]
    )


def wrong(home: Home, text: str) -> str:
    return str(only(home.refused(f"plugins: {{p: {{schedules: [{{{text}}}]}}}}")))


def test_a_schedule_has_every_default(home: Home) -> None:
    entry = schedule(home, "every: 5m")
    assert (entry.id, entry.command, entry.payload, entry.jitter) == ("default", "poll", {}, 0)
    assert (entry.catch_up, entry.if_running) == ("skip", "skip")
    assert (entry.window, entry.timezone, entry.not_on) == (None, None, ())


@pytest.mark.parametrize(
    ("text", "every"),
    [
        ("0.1ms", 0.0001),
        ("500ms", 0.5),
        ("5m", 300.0),
        ("hourly", 3600.0),
        ("daily", 86400.0),
        ("weekly", 604800.0),
        ("monthly", "monthly"),
    ],
)
def test_intervals(home: Home, text: str, every: float | str) -> None:
    assert schedule(home, f"every: {text}").every == every


@pytest.mark.parametrize("text", ["yearly", "0s", "5", "-1m"])
def test_what_is_no_interval(home: Home, text: str) -> None:
    assert "every: must be" in wrong(home, f"every: {text}")


def test_cron_is_judged_at_load(home: Home) -> None:
    assert schedule(home, 'cron: "0  6 * * 1-5"').cron == "0 6 * * 1-5"
    assert "cron" in wrong(home, 'cron: "61 * * * *"')
    assert "5 wanted" in wrong(home, 'cron: "* * * *"')


def test_a_cron_rule_that_never_comes_is_warned_of(home: Home) -> None:
    loaded = home.load(
        'plugins: {p: {schedules: [{cron: "0 0 30 2 *"}, {id: b, cron: "0 0 29 2 *"}]}}'
    )
    warning = only(list(loaded.warnings))
    assert warning.severity is Severity.WARNING
    assert "never comes" in warning.message
    assert warning.path == ("plugins", "p", "schedules", 0, "cron")


def test_at_is_a_moment_with_its_offset(home: Home) -> None:
    assert schedule(home, "at: 2026-02-08T10:00:00Z").at == datetime(2026, 2, 8, 10, tzinfo=UTC)
    for text in ("2026-02-08", "2026-02-08T10:00:00", "tomorrow", "2026-13-08T10:00:00Z"):
        assert "must be a moment" in wrong(home, f"at: {text}")


@pytest.mark.parametrize(
    "text",
    [
        "0001-01-01T00:00:00+12:00",
        "1969-12-31T23:59:59Z",
        "1970-01-01T00:00:00+00:01",
        "9999-01-01T00:00:00Z",
        "9999-12-31T23:59:59-12:00",
    ],
)
def test_at_lies_where_every_zone_has_a_date_for_it(home: Home, text: str) -> None:
    assert "at: is too far from now" in wrong(home, f"at: {text}")
    assert schedule(home, "at: 1970-01-01T00:00:00Z").at is not None


def test_after_is_a_delay(home: Home) -> None:
    assert schedule(home, "after: 1h30m").after == 5400


@pytest.mark.parametrize(
    "text", ["command: poll", "every: 5m, after: 1m", 'cron: "* * * * *", at: x']
)
def test_exactly_one_trigger(home: Home, text: str) -> None:
    problems = home.refused(f"plugins: {{p: {{schedules: [{{{text}}}]}}}}")
    assert "exactly one of every, cron, at, after" in problems[0].message


@pytest.mark.parametrize("text", ["08:00-22:00", "22:00-06:00", "00:00-24:00"])
def test_windows(home: Home, text: str) -> None:
    assert schedule(home, f"every: 5m, only_between: {text}").window == text


@pytest.mark.parametrize("text", ["8-22", "08:00", "08:00-08:00", "25:00-26:00", "{start: 08:00}"])
def test_what_is_no_window(home: Home, text: str) -> None:
    assert "only_between: " in wrong(home, f"every: 5m, only_between: {text}")


def test_weekdays_by_name_and_number(home: Home) -> None:
    assert schedule(home, "every: 5m, not_on: [saturday, Sun, 0, 7, 1]").not_on == (6, 7, 7, 7, 1)


def test_what_is_no_weekday(home: Home) -> None:
    assert "weekday" in wrong(home, "every: 5m, not_on: [8]")


def test_a_week_must_keep_a_day(home: Home) -> None:
    assert "no day of the week" in wrong(home, "every: 5m, not_on: [0, 1, 2, 3, 4, 5, 6]")


def test_time_zones(home: Home) -> None:
    assert schedule(home, "every: 5m, timezone: Europe/Vienna").timezone == "Europe/Vienna"
    for text in ("Mars/Olympus", "../../etc/passwd"):
        assert "is no time zone" in wrong(home, f"every: 5m, timezone: {text}")


def test_catch_up_without_every_is_warned_about(home: Home) -> None:
    loaded = home.load('plugins: {p: {schedules: [{cron: "* * * * *", catch_up: run_all}]}}')
    warning = only(list(loaded.warnings))
    assert warning.severity is Severity.WARNING
    assert warning.path == ("plugins", "p", "schedules", 0, "catch_up")


def test_two_schedules_of_one_name_are_refused(home: Home) -> None:
    problem = only(home.refused("plugins: {p: {schedules: [{every: 5m}, {every: 6m}]}}"))
    assert "'default' is already taken" in problem.message
    assert problem.path == ("plugins", "p", "schedules", 1, "id")


def test_timeouts_of_any_command(home: Home) -> None:
    plugin = home.load("plugins: {p: {timeouts: {poll: 5m, cpu: 15s}}}").settings.plugins["p"]
    assert plugin.timeouts == {"poll": 300, "cpu": 15}


def test_an_alias_has_its_own_everything(home: Home) -> None:
    text = "plugins: {a: {config: {x: 1}}, b: {uses: a, config: {x: 2}, parallelism: 3}}"
    plugins = home.load(text).settings.plugins
    assert (plugins["b"].uses, plugins["b"].config, plugins["b"].parallelism) == ("a", {"x": 2}, 3)
