"""The fires that a plan predicts are those that the scheduler makes after the reload."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest

from ductile.clock import from_text
from ductile.engine.config.compiled import CompiledConfig, build
from ductile.operations.plan.fires import Key, PlannedEntry, compare_schedules, fire_times
from ductile.operations.plan.plan import read_entries
from tests.engine.scheduling.harness import HOUR, SchedulerHarness
from tests.engine.site import OK, Site

PLUGINS = ("one", "two", "three", "four", "five", "six")
BEFORE_DST = datetime(2026, 3, 28, 9, 0, tzinfo=UTC)
"""Clocks in Europe change in the next night."""
RULES: tuple[dict[str, str], ...] = (
    {"every": "47m"},
    {"every": "2h", "jitter": "10m"},
    {"every": "1h", "only_between": "08:00-12:00"},
    {"cron": "*/40 * * * *"},
    {"cron": "30 2 * * *"},
    {"cron": "0 1,2,3,14 * * *", "jitter": "20m"},
    {"cron": "0 * * * *", "only_between": "22:00-04:00"},
    {"at": "2026-03-29T03:30:00+02:00"},
    {"at": "2026-03-27T03:30:00Z"},
    {"after": "5h"},
)
ZONES = ("Europe/Berlin", "America/New_York", "UTC")

Make = Callable[..., SchedulerHarness]


def entries_of(harness: SchedulerHarness, compiled: CompiledConfig) -> dict[Key, PlannedEntry]:
    boot, now = harness.scheduler.boot, harness.clock.now()
    return read_entries(harness.ledger, compiled, boot, now)


def change_at_random(site: Site, random: Random) -> None:
    for name in PLUGINS:
        choice = random.random()
        if choice < 0.6:
            entry = {**random.choice(RULES), "timezone": random.choice(ZONES)}
            site.settings["plugins"][name] = {"schedules": [entry]}
        elif choice < 0.8:
            site.settings["plugins"][name] = {}
        site.settings["plugins"][name]["retry"] = {"max_attempts": 1}


def actual_fires(harness: SchedulerHarness, since: datetime) -> dict[str, list[datetime]]:
    return {
        name: [
            moment
            for row in harness.slots(name)
            if row["job_id"] and (moment := from_text(row["created_at"])) >= since
        ]
        for name in PLUGINS
    }


@pytest.mark.parametrize("seed", range(4))
def test_predicted_fires_happen_after_random_changes(
    site: Site, make_scheduler: Make, seed: int
) -> None:
    random = Random(seed)
    for name in PLUGINS:
        site.plugin(name, OK)
    harness = make_scheduler({"every": "5h"})
    harness.clock.moment = BEFORE_DST
    harness.start()
    for _ in range(3):
        change_at_random(site, random)
        since = harness.clock.now()
        predicted = entries_of(harness, harness.compiled())
        hours = random.choice((7, 20))
        until = since + timedelta(hours=hours)
        expected = {name: list[datetime]() for name in PLUGINS}
        for (plugin, _), entry in predicted.items():
            if plugin in expected:
                times = fire_times(entry, since).times
                expected[plugin] = [moment for moment in times if moment < until]
        harness.reload()
        harness.run(hours * HOUR - 0.001)
        assert any(expected.values())
        assert actual_fires(harness, since) == expected
        harness.clock.advance(0.001)


def plan_change(
    site: Site, harness: SchedulerHarness, *entries: dict[str, Any]
) -> list[dict[str, Any]]:
    old = entries_of(harness, harness.adopted)
    site.settings["plugins"]["echo"]["schedules"] = list(entries)
    new = build(site.load(), boot_marker="", environ=site.environ)
    return compare_schedules(old, entries_of(harness, new), harness.clock.now())


def test_moved_cron_entry_shows_the_fires_of_both_sides_of_a_clock_change(
    site: Site, make_scheduler: Make
) -> None:
    harness = make_scheduler({"cron": "30 5 * * *", "timezone": "Europe/Berlin"})
    harness.clock.moment = BEFORE_DST
    harness.start()
    [row] = plan_change(site, harness, {"cron": "30 5 * * *", "timezone": "UTC"})
    assert (row["change"], row["fields"], row["exact"]) == ("changed", ["timezone"], True)
    assert row["disappear"]["count"] == row["appear"]["count"] == 7
    assert row["disappear"]["first"][0] == {
        "fires_at": "2026-03-29T03:30:00.000000Z",
        "local": "2026-03-29T05:30:00+02:00",
    }
    assert row["appear"]["first"][0]["fires_at"] == "2026-03-29T05:30:00.000000Z"


def test_unchanged_entry_is_not_listed(site: Site, make_scheduler: Make) -> None:
    harness = make_scheduler({"every": "5m"})
    harness.run(HOUR)
    assert plan_change(site, harness, {"every": "5m"}) == []


def test_change_without_other_fires_is_listed(site: Site, make_scheduler: Make) -> None:
    harness = make_scheduler({"cron": "0 * * * *"})
    [row] = plan_change(site, harness, {"cron": "0 * * * *", "if_running": "queue"})
    assert (row["fields"], row["appear"]["count"], row["disappear"]["count"]) == (
        ["if_running"],
        0,
        0,
    )


def test_fires_of_every_minute_are_all_compared(site: Site, make_scheduler: Make) -> None:
    harness = make_scheduler({"every": "5h"})
    [*_, row] = plan_change(site, harness, {"cron": "* * * * *"})
    assert row["appear"]["count"] + row["disappear"]["count"] > 10_000
    assert from_text(row["compared_until"]) == harness.clock.now() + timedelta(days=7)


def test_frequent_entry_is_compared_as_far_as_its_fires_are_known(
    site: Site, make_scheduler: Make
) -> None:
    harness = make_scheduler({"every": "1s"})
    harness.run(1)
    [row] = plan_change(site, harness, {"every": "2s"})
    assert row["exact"] is False
    assert row["appear"]["count"] == 0
    assert 5000 < row["disappear"]["count"] <= 5051
    assert from_text(row["compared_until"]) < harness.clock.now() + timedelta(hours=3)


def test_many_frequent_entries_are_compared_less_far(
    site: Site, make_scheduler: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = make_scheduler({"every": "1s"})
    harness.run(1)
    monkeypatch.setattr("ductile.operations.plan.fires.ALL_FIRES", 90)
    rows = plan_change(site, harness, *({"id": f"{n}", "every": "2s"} for n in range(2)))
    # The one that is removed, and two that are added.
    assert sorted(row["appear"]["count"] for row in rows) == [0, 30, 30]


def test_schedules_of_a_refused_plugin_do_not_fire(site: Site, make_scheduler: Make) -> None:
    harness = make_scheduler({"cron": "0 * * * *"})
    (site.plugins / "echo" / "manifest.yaml").write_text("name: nonsense\n")
    [row] = plan_change(site, harness, {"cron": "0 * * * *"})
    # The one at the end of the seven days is not among them.
    assert (row["fields"], row["disappear"]["count"]) == ([], 24 * 7 - 1)
