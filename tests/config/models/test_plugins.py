"""Settings of plugins and schedules."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from ductile.config.models.schedule import ScheduleSettings
from ductile.errors import Severity
from tests.config.conftest import ConfigDir, only


def schedule(config_dir: ConfigDir, text: str) -> ScheduleSettings:
    return (
        config_dir.load(f"plugins: {{p: {{schedules: [{{{text}}}]}}}}")
        .settings.plugins["p"]
        .schedules[0]
    )


def schedule_error(config_dir: ConfigDir, text: str) -> str:
    return str(only(config_dir.load_errors(f"plugins: {{p: {{schedules: [{{{text}}}]}}}}")))


def test_defaults_of_a_schedule(config_dir: ConfigDir) -> None:
    entry = schedule(config_dir, "every: 5m")
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
def test_intervals(config_dir: ConfigDir, text: str, every: float | str) -> None:
    assert schedule(config_dir, f"every: {text}").every == every


@pytest.mark.parametrize("text", ["yearly", "0s", "5", "-1m"])
def test_invalid_intervals_are_rejected(config_dir: ConfigDir, text: str) -> None:
    assert "every: must be" in schedule_error(config_dir, f"every: {text}")


def test_cron_is_validated_at_load(config_dir: ConfigDir) -> None:
    assert schedule(config_dir, 'cron: "0  6 * * 1-5"').cron == "0 6 * * 1-5"
    assert "cron" in schedule_error(config_dir, 'cron: "61 * * * *"')
    assert "must have 5" in schedule_error(config_dir, 'cron: "* * * *"')


def test_cron_rule_that_never_matches_causes_a_warning(config_dir: ConfigDir) -> None:
    loaded = config_dir.load(
        'plugins: {p: {schedules: [{cron: "0 0 30 2 *"}, {id: b, cron: "0 0 29 2 *"}]}}'
    )
    warning = only(list(loaded.warnings))
    assert warning.severity is Severity.WARNING
    assert "never runs" in warning.message
    assert warning.path == ("plugins", "p", "schedules", 0, "cron")


def test_at_requires_an_offset(config_dir: ConfigDir) -> None:
    assert schedule(config_dir, "at: 2026-02-08T10:00:00Z").at == datetime(
        2026, 2, 8, 10, tzinfo=UTC
    )
    for text in ("2026-02-08", "2026-02-08T10:00:00", "tomorrow", "2026-13-08T10:00:00Z"):
        assert "must be a time with a UTC offset" in schedule_error(config_dir, f"at: {text}")


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
def test_at_is_limited_to_a_safe_range(config_dir: ConfigDir, text: str) -> None:
    assert "at: is out of range" in schedule_error(config_dir, f"at: {text}")
    assert schedule(config_dir, "at: 1970-01-01T00:00:00Z").at is not None


def test_after_is_a_delay(config_dir: ConfigDir) -> None:
    assert schedule(config_dir, "after: 1h30m").after == 5400


@pytest.mark.parametrize(
    "text", ["command: poll", "every: 5m, after: 1m", 'cron: "* * * * *", at: x']
)
def test_schedule_has_exactly_one_trigger(config_dir: ConfigDir, text: str) -> None:
    problems = config_dir.load_errors(f"plugins: {{p: {{schedules: [{{{text}}}]}}}}")
    assert "exactly one of every, cron, at, after" in problems[0].message


@pytest.mark.parametrize("text", ["08:00-22:00", "22:00-06:00", "00:00-24:00"])
def test_windows(config_dir: ConfigDir, text: str) -> None:
    assert schedule(config_dir, f"every: 5m, only_between: {text}").window == text


@pytest.mark.parametrize("text", ["8-22", "08:00", "08:00-08:00", "25:00-26:00", "{start: 08:00}"])
def test_invalid_windows_are_rejected(config_dir: ConfigDir, text: str) -> None:
    assert "only_between: " in schedule_error(config_dir, f"every: 5m, only_between: {text}")


def test_weekdays_by_name_and_number(config_dir: ConfigDir) -> None:
    assert schedule(config_dir, "every: 5m, not_on: [saturday, Sun, 0, 7, 1]").not_on == (
        6,
        7,
        7,
        7,
        1,
    )


def test_invalid_weekday_is_rejected(config_dir: ConfigDir) -> None:
    assert "weekday" in schedule_error(config_dir, "every: 5m, not_on: [8]")


def test_not_on_must_leave_a_day(config_dir: ConfigDir) -> None:
    assert "excludes every day of the week" in schedule_error(
        config_dir, "every: 5m, not_on: [0, 1, 2, 3, 4, 5, 6]"
    )


def test_time_zones(config_dir: ConfigDir) -> None:
    assert schedule(config_dir, "every: 5m, timezone: Europe/Vienna").timezone == "Europe/Vienna"
    for text in ("Mars/Olympus", "../../etc/passwd"):
        assert "is not a known time zone" in schedule_error(
            config_dir, f"every: 5m, timezone: {text}"
        )


def test_run_once_of_a_cron_schedule_causes_no_warning(config_dir: ConfigDir) -> None:
    loaded = config_dir.load('plugins: {p: {schedules: [{cron: "* * * * *", catch_up: run_once}]}}')
    assert loaded.warnings == ()


def test_catch_up_without_every_causes_a_warning(config_dir: ConfigDir) -> None:
    loaded = config_dir.load('plugins: {p: {schedules: [{cron: "* * * * *", catch_up: run_all}]}}')
    warning = only(list(loaded.warnings))
    assert warning.severity is Severity.WARNING
    assert warning.path == ("plugins", "p", "schedules", 0, "catch_up")


def test_repeated_schedule_id_is_rejected(config_dir: ConfigDir) -> None:
    problem = only(config_dir.load_errors("plugins: {p: {schedules: [{every: 5m}, {every: 6m}]}}"))
    assert "'default' is already used" in problem.message
    assert problem.path == ("plugins", "p", "schedules", 1, "id")


def test_timeouts_are_accepted_for_any_command(config_dir: ConfigDir) -> None:
    plugin = config_dir.load("plugins: {p: {timeouts: {poll: 5m, cpu: 15s}}}").settings.plugins["p"]
    assert plugin.timeouts == {"poll": 300, "cpu": 15}


def test_alias_has_its_own_settings(config_dir: ConfigDir) -> None:
    text = "plugins: {a: {config: {x: 1}}, b: {uses: a, config: {x: 2}, parallelism: 3}}"
    plugins = config_dir.load(text).settings.plugins
    assert (plugins["b"].uses, plugins["b"].config, plugins["b"].parallelism) == ("a", {"x": 2}, 3)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("concurrency: {key: '{payloads.account}'}", "{payloads.account} is not a reference"),
        ("concurrency: {key: '{context.account}'}", "context.account is not known"),
        ("concurrency: {key: '{payload.account'}", "a reference is not closed"),
        ("concurrency: {limit: 0}", "limit"),
        ("concurrency: {on_full: drop}", "on_full"),
        ("rate: {limit: 10}", "per"),
        ("rate: {limit: 10, per: 0s}", "per"),
        ("rate: {limit: 10, per: 1m, burst: 0}", "burst"),
        ("rate: {limit: 10, per: 1m, key: '{account}'}", "{account} is not a reference"),
    ],
)
def test_limit_that_can_never_work_is_refused(
    config_dir: ConfigDir, text: str, problem: str
) -> None:
    assert problem in str(only(config_dir.load_errors(f"plugins: {{p: {{{text}}}}}")))


def test_key_of_a_limit_is_not_a_secret(config_dir: ConfigDir) -> None:
    text = "plugins: {p: {concurrency: {key: everything}, config: {key: sesame-open}}}"
    settings = config_dir.load(text).settings
    assert settings.secrets == frozenset({"sesame-open"})
