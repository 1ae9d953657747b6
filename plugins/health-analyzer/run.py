#!/usr/bin/env python3
"""Limits and trends of health data, told once each. See README.md."""

from __future__ import annotations

import sys

sys.path.insert(0, __file__.rpartition("/")[0] + "/../lib")
import trends
from protocol import Answer, Failure, Misconfigured, Request, serve

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

WINDOW_DAYS = 7
HISTORY_DAYS = 90
MOST_METRICS = 32
MOST_POINTS = 180
"""Of a metric; the gateway keeps 1 MiB of state."""
LONGEST_KEY = 40
LONGEST_TEXT = 64
LARGEST_VALUE = 1e12
THRESHOLD_KEYS = {"min", "max"}
CHANGE_KEYS = {"days", "up", "down"}
SAID = {
    "above": "{metric} is {value} {unit}, above {limit}",
    "below": "{metric} is {value} {unit}, below {limit}",
    "rising": "{metric} has risen by {value} {unit} on average, more than {limit}",
    "falling": "{metric} has changed by {value} {unit} on average, down by more than {limit}",
}


class Rules:
    """What the configuration wants to be told of."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.window = _whole(config, "window_days", WINDOW_DAYS, 1, 90)
        self.history = _whole(config, "history_days", HISTORY_DAYS, 2 * self.window, 400)
        self.thresholds = _limits(config, "thresholds", THRESHOLD_KEYS)
        self.changes = _limits(config, "changes", CHANGE_KEYS)
        metrics = config.get("metrics")
        if metrics is not None and not (isinstance(metrics, list) and metrics):
            raise Misconfigured("config.metrics must be a list of names")
        self.metrics: set[str] | None = None if metrics is None else set(map(str, metrics))

    def wants(self, metric: str) -> bool:
        return self.metrics is None or metric in self.metrics


class Reading:
    """One event, checked. Raises `Failure` where it is no reading."""

    def __init__(self, payload: Any) -> None:
        given = payload if isinstance(payload, dict) else {}
        texts = [given.get(key) for key in ("provider", "record", "measured_at", "date")]
        if not all(isinstance(text, str) and text for text in texts):
            raise Failure("the event is no new_health_data: see README.md", retry=False)
        self.provider, self.record, self.measured_at, self.date = map(str, texts)
        self.revision = str(given.get("revision"))[:LONGEST_TEXT]
        self.units = given["units"] if isinstance(given.get("units"), dict) else {}
        measures = given.get("measures")
        self.measures = {
            name[:LONGEST_TEXT]: value
            for name, value in (measures if isinstance(measures, dict) else {}).items()
            if _is_number(value)
        }
        self._check_dates()

    @property
    def key(self) -> str:
        """What the reading is known by, however long its name."""
        whole = f"{self.provider}:{self.record}"
        if len(whole) <= LONGEST_KEY:
            return whole
        import hashlib

        return hashlib.sha256(whole.encode("utf-8", "replace")).hexdigest()[:LONGEST_KEY]

    def _check_dates(self) -> None:
        from datetime import UTC, date, datetime

        try:
            date.fromisoformat(self.date)
            moment = datetime.fromisoformat(self.measured_at)
        except ValueError:
            raise Failure("the event's date or measured_at is none", retry=False) from None
        aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        self.measured_at = aware.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) < LARGEST_VALUE


def _whole(config: Mapping[str, Any], key: str, default: int, least: int, most: int) -> int:
    value = config.get(key, max(default, least))
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise Misconfigured(f"config.{key} must be a whole number from {least} to {most}")
    return value


def _limits(config: Mapping[str, Any], section: str, allowed: set[str]) -> dict[str, Any]:
    table = config.get(section, {})
    if not isinstance(table, dict):
        raise Misconfigured(f"config.{section} must map metrics to limits")
    for metric, limits in table.items():
        good = isinstance(limits, dict) and set(limits) <= allowed
        if not good or not all(map(_is_number, limits.values())) or limits.get("days", 1) < 1:
            known = ", ".join(sorted(allowed))
            raise Misconfigured(f"config.{section}.{metric} must hold numbers by: {known}")
    return table


class Analysis:
    """Everything known so far, and what a reading adds to it."""

    def __init__(self, state: Mapping[str, Any], rules: Rules) -> None:
        self._rules = rules
        stored = state.get("series") or {}
        self.series: dict[str, dict[str, list[Any]]] = {
            metric: dict(points) for metric, points in stored.items()
        }
        self.units: dict[str, str] = dict(state.get("units") or {})
        self.active: dict[str, list[str]] = dict(state.get("active") or {})
        """By metric the limits that are broken now, which have been told."""
        self.taken = 0

    def take(self, reading: Reading) -> list[dict[str, Any]]:
        """Take a reading in; the alerts that it gives rise to."""
        alerts: list[dict[str, Any]] = []
        for metric, value in reading.measures.items():
            points = self.series.get(metric, {})
            known = points.get(reading.key)
            if known is not None and known[trends.REVISION] == reading.revision:
                continue
            if not self._rules.wants(metric) or (not points and len(self.series) >= MOST_METRICS):
                continue
            self.taken += 1
            point = [reading.measured_at, reading.date, value, reading.revision]
            points = trends.pruned({**points, reading.key: point}, self._rules.history, MOST_POINTS)
            self.series[metric] = points
            self.units[metric] = str(reading.units.get(metric) or "")[:LONGEST_TEXT]
            # An old reading that comes late adds to the trend, but is no news.
            if trends.newest(points) == point:
                alerts += self._judged(metric, reading)
        return alerts

    def state(self) -> dict[str, Any]:
        return {"series": self.series, "units": self.units, "active": self.active}

    def _judged(self, metric: str, reading: Reading) -> list[dict[str, Any]]:
        rules, series = self._rules, self.series[metric]
        found = trends.breaches(
            series,
            rules.thresholds.get(metric, {}),
            rules.changes.get(metric, {}),
            rules.window,
        )
        told = self.active.get(metric, [])
        self.active[metric] = list(found)
        return [
            self._alert(metric, kind, value, limit, reading)
            for kind, (value, limit) in found.items()
            if kind not in told
        ]

    def _alert(
        self, metric: str, kind: str, value: float, limit: float, reading: Reading
    ) -> dict[str, Any]:
        unit = self.units[metric]
        said = SAID[kind].format(metric=metric, value=value, unit=unit, limit=limit)
        return {
            "metric": metric,
            "kind": kind,
            "value": value,
            "limit": limit,
            "unit": unit,
            "average": trends.average(self.series[metric], self._rules.window),
            "date": reading.date,
            "measured_at": reading.measured_at,
            "provider": reading.provider,
            "record": reading.record,
            "severity": "warning",
            "title": f"Health: {metric} {kind}",
            "message": f"{' '.join(said.split())} ({reading.date})",
        }


def handle(request: Request) -> Answer:
    reading = Reading(request.payload)
    analysis = Analysis(request.state, Rules(request.config))
    alerts = analysis.take(reading)
    state = analysis.state() if analysis.taken else None
    answer = Answer(f"{analysis.taken} values taken in, {len(alerts)} alerts", state=state)
    for alert in alerts:
        name = f"{alert['metric']}:{alert['kind']}"
        answer.emit(
            "alert", alert, key=f"{request.instance}:{name}:{reading.key}:{reading.revision}"
        )
    return answer


def poll(request: Request) -> Answer:
    rules = Rules(request.config)
    analysis = Analysis(request.state, rules)
    metrics = {
        metric: {**trends.summary(series, rules.window), "unit": analysis.units[metric]}
        for metric, series in sorted(analysis.series.items())
        if rules.wants(metric)
    }
    told = _fingerprint(metrics)
    if not metrics or told == request.state.get("summarized"):
        return Answer("nothing was measured since the last summary")
    date = max(one["date"] for one in metrics.values())
    answer = Answer(f"a summary of {len(metrics)} metrics", state={"summarized": told})
    payload = {
        "date": date,
        "window_days": rules.window,
        "metrics": metrics,
        "title": f"Health summary of {date}",
        "message": "\n".join(_line(name, one, rules.window) for name, one in metrics.items()),
    }
    answer.emit("health_summary", payload, key=f"{request.instance}:summary:{told}")
    return answer


def _line(metric: str, one: Mapping[str, Any], window: int) -> str:
    change = "" if one["change"] is None else f", {one['change']:+g}"
    said = f"{metric} {one['latest']:g} {one['unit']}".rstrip()
    return f"{said} ({window}-day average {one['average']:g}{change})"


def _fingerprint(metrics: Mapping[str, Any]) -> str:
    import hashlib
    import json

    return hashlib.sha256(json.dumps(metrics, sort_keys=True).encode()).hexdigest()[:16]


def init(request: Request) -> Answer:
    Rules(request.config)
    return Answer("the configuration is good")


def report(request: Request) -> Answer:
    analysis = Analysis(request.state, Rules(request.config))
    points = sum(map(len, analysis.series.values()))
    broken = [f"{metric} {kind}" for metric, kinds in analysis.active.items() for kind in kinds]
    said = f"; limits broken: {', '.join(sorted(broken))}" if broken else ""
    return Answer(f"{points} values of {len(analysis.series)} metrics are known{said}")


if __name__ == "__main__":
    serve({"handle": handle, "poll": poll, "init": init, "health": report})
