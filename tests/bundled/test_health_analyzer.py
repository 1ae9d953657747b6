"""The plugin `health-analyzer`."""

from __future__ import annotations

import importlib.util
import json
import time
from datetime import date, timedelta
from types import ModuleType
from typing import Any

import pytest

from tests.bundled.bundled_site import PLUGINS, BundledSite, job_logs, list_events
from tests.bundled.fakes.withings import CLIENT_ID, CLIENT_SECRET, Withings
from tests.engine.site import Running
from tests.waiting import until

NAME = "health-analyzer"
DAY = date(2026, 2, 8)


def load(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location("bundled_trends", PLUGINS / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


trends = load(f"{NAME}/trends.py")


def series(*values: float, start: date = DAY) -> dict[str, list[Any]]:
    """One value per day."""
    days = [(start + timedelta(days=index)).isoformat() for index in range(len(values))]
    pairs = zip(days, values, strict=True)
    return {day: [f"{day}T07:00:00Z", day, value, "1"] for day, value in pairs}


def reading(day: str, revision: str = "1", record: str = "", **measures: Any) -> dict[str, Any]:
    return {
        "provider": "withings",
        "record": record or day,
        "revision": revision,
        "measured_at": f"{day}T07:00:00Z",
        "date": day,
        "measures": measures,
        "units": {"weight": "kg"},
        "device": None,
    }


def handle(running: Running, payload: Any) -> dict[str, Any]:
    return running.run(NAME, "handle", payload)


def kinds(running: Running) -> list[tuple[str, str]]:
    alerts = (event["payload"] for event in list_events(running, NAME) if event["type"] == "alert")
    return [(alert["kind"], alert["date"]) for alert in alerts]


def test_average_is_that_of_daily_means() -> None:
    points = series(80, 82)
    points["twice"] = ["2026-02-09T20:00:00Z", "2026-02-09", 86, "1"]
    assert trends.get_average(points, 7) == 82
    assert trends.get_average(points, 1) == 84


def test_change_is_the_difference_of_two_averages() -> None:
    assert trends.get_change(series(*[80] * 7, *[82] * 7), 7) == 2
    assert trends.get_change(series(80, 82), 7) is None


def test_old_and_excess_points_are_pruned() -> None:
    assert list(trends.prune(series(1, 2, 3, 4), 2, 100)) == ["2026-02-10", "2026-02-11"]
    assert list(trends.prune(series(1, 2, 3, 4), 100, 1)) == ["2026-02-11"]


@pytest.mark.parametrize(
    ("values", "threshold", "limits", "found"),
    [
        ([85.0], {"max": 85}, {}, {}),
        ([85.1], {"max": 85}, {}, {"above": (85.1, 85)}),
        ([69.9], {"min": 70, "max": 85}, {}, {"below": (69.9, 70)}),
        ([80] * 3 + [83] * 3, {}, {"days": 3, "up": 2.5}, {"rising": (3, 2.5)}),
        ([83] * 3 + [80] * 3, {}, {"days": 3, "up": 2, "down": 2}, {"falling": (-3, 2)}),
        ([83] * 3 + [80] * 3, {}, {"days": 3, "down": 3}, {}),
    ],
)
def test_limit_is_exceeded_beyond_its_value(
    values: list[float],
    threshold: dict[str, float],
    limits: dict[str, float],
    found: dict[str, tuple[float, float]],
) -> None:
    assert trends.find_exceeded(series(*values), threshold, limits, 7) == found


def test_alert_is_emitted_once_until_the_limit_is_met_again(
    site: BundledSite,
) -> None:
    site.use(NAME, {"thresholds": {"weight": {"max": 85}}})
    days = [(DAY + timedelta(days=index)).isoformat() for index in range(5)]
    with site.running() as running:
        for day, weight in zip(days, (86, 87, 84, 86, 86), strict=True):
            handle(running, reading(day, weight=weight))
        assert kinds(running) == [("above", days[0]), ("above", days[3])]
        alert = list_events(running, NAME)[0]["payload"]
    assert alert["message"] == "weight is 86 kg, above 85 (2026-02-08)"
    assert (alert["metric"], alert["value"], alert["limit"]) == ("weight", 86, 85)


def test_repeated_reading_is_ignored(site: BundledSite) -> None:
    site.use(NAME, {"thresholds": {"weight": {"max": 85}}})
    with site.running() as running:
        handle(running, reading("2026-02-08", weight=86))
        again = handle(running, reading("2026-02-08", weight=86))
        assert kinds(running) == [("above", "2026-02-08")]
    assert again["result"]["result"] == "0 values added, 0 alerts"
    assert "state_updates" not in again["result"]


def test_new_revision_replaces_a_reading(site: BundledSite) -> None:
    site.use(NAME, {"thresholds": {"weight": {"max": 85}}})
    first = site.direct(NAME, "handle", payload=reading("2026-02-08", weight=86)).response
    changed = site.direct(
        NAME,
        "handle",
        state=first["state_updates"],
        payload=reading("2026-02-08", revision="2", weight=80),
    ).response
    points = changed["state_updates"]["series"]["weight"]
    assert [point[trends.VALUE] for point in points.values()] == [80]
    assert changed["state_updates"]["active"] == {"weight": []}


def test_late_reading_causes_no_alert(
    site: BundledSite,
) -> None:
    site.use(NAME, {"thresholds": {"weight": {"max": 85}}})
    first = site.direct(NAME, "handle", payload=reading("2026-02-08", weight=80)).response
    late = site.direct(
        NAME, "handle", state=first["state_updates"], payload=reading("2026-02-01", weight=99)
    ).response
    assert "events" not in late
    assert len(late["state_updates"]["series"]["weight"]) == 2


def test_summary_is_emitted_once_for_the_same_data(site: BundledSite) -> None:
    site.use(NAME, {"window_days": 2, "metrics": ["weight"]})
    with site.running() as running:
        running.run(NAME)
        for index, weight in enumerate((80, 81, 82, 84)):
            day = (DAY + timedelta(days=index)).isoformat()
            handle(running, reading(day, weight=weight, steps=100))
        for _ in range(2):
            running.run(NAME)
        summaries = list_events(running, NAME)
    assert [event["type"] for event in summaries] == ["health_summary"]
    payload = summaries[0]["payload"]
    assert payload["metrics"] == {
        "weight": {
            "latest": 84,
            "date": "2026-02-11",
            "average": 83,
            "change": 2.5,
            "min": 82,
            "max": 84,
            "count": 2,
            "unit": "kg",
        }
    }
    assert payload["message"] == "weight 84 kg (2-day average 83, +2.5)"


@pytest.mark.parametrize(
    "payload",
    [
        {},
        "text",
        {"record": 7},
        {**reading("2026-02-08"), "date": "yesterday"},
        {**reading("2026-02-08"), "measured_at": "07:00"},
    ],
)
def test_invalid_event_is_not_retried(site: BundledSite, payload: Any) -> None:
    site.use(NAME)
    done = site.direct(NAME, "handle", payload=payload)
    assert (done.response["status"], done.response["retry"]) == ("error", False)


def test_values_that_are_not_numbers_are_ignored(site: BundledSite) -> None:
    site.use(NAME)
    invalid = reading("2026-02-08", weight="80", steps=True, pulse=1e300, spo2=97, stress=None)
    state = site.direct(NAME, "handle", payload=invalid).response["state_updates"]
    assert list(state["series"]) == ["spo2"]


def test_size_of_the_state_is_limited(site: BundledSite) -> None:
    site.use(NAME)
    measures = {f"metric-{index}-{'x' * 100}": 1.0 + index for index in range(100)}
    full = {
        f"metric-{index}": {
            f"{'k' * 36}{point:04}": ["2026-02-08T07:00:00Z", "2026-02-08", 12345.678, "r" * 12]
            for point in range(180)
        }
        for index in range(32)
    }
    state = {"series": full, "units": dict.fromkeys(full, "kg"), "active": {}}
    payload = reading("2026-02-08", record="r" * 500)
    payload["measures"] = {**measures, "metric-1": 7}
    done = site.direct(NAME, "handle", state=state, payload=payload)
    updates = done.response["state_updates"]
    assert len(updates["series"]) == 32
    assert len(updates["series"]["metric-1"]) == 180
    assert len(json.dumps(updates).encode()) < 1_000_000


@pytest.mark.parametrize(
    "config",
    [
        {"window_days": 0},
        {"history_days": 3},
        {"thresholds": []},
        {"thresholds": {"weight": {"maximum": 85}}},
        {"thresholds": {"weight": {"max": "85"}}},
        {"changes": {"weight": {"days": 0, "up": 1}}},
        {"metrics": "weight"},
    ],
)
def test_invalid_configuration_is_not_retried(site: BundledSite, config: dict[str, Any]) -> None:
    site.use(NAME, config)
    done = site.direct(NAME, "init")
    assert (done.code, done.response["retry"]) == (78, False)


def test_measure_of_withings_causes_an_alert(site: BundledSite) -> None:
    with Withings() as withings:
        site.use(
            "withings",
            {
                "client_id": CLIENT_ID,
                "client_secret": CLIENT_SECRET,
                "refresh_token": withings.issue().refresh,
                "base_url": withings.url,
            },
        )
        site.use(NAME, {"thresholds": {"weight": {"max": 80}}})
        log = site.folder / "requests"
        site.plugin("sink", f'cat >> \'{log}\'\necho \'{{"status": "ok", "result": "ok"}}\'\n')
        site.settings["routes"] = [
            {"from": "withings", "event_type": "new_health_data", "to": NAME},
            {"from": NAME, "event_type": "alert", "to": "sink"},
        ]
        withings.weigh(1, at=int(time.time()) - 3600)
        with site.running() as running:
            for _ in range(2):
                running.run("withings")
            until(lambda: [row["status"] for row in job_logs(running, "sink")] == ["succeeded"])
    requests = [json.loads(line) for line in log.read_text().splitlines()]
    assert len(requests) == 1
    assert requests[0]["event"]["type"] == "alert"
    assert requests[0]["payload"]["value"] == 81.25
