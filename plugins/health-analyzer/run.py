#!/usr/bin/env python3
"""Emits alerts for limits and trends of health data, once each. See README.md."""

from __future__ import annotations

import sys

sys.path.insert(0, __file__.rpartition("/")[0] + "/../lib")
import trends
from protocol import ConfigError, Failure, Request, Response, serve

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

WINDOW_DAYS = 7
HISTORY_DAYS = 90
MAX_METRICS = 32
MAX_POINTS = 180
"""Per metric; the gateway stores at most 1 MiB of state."""
MAX_KEY = 40
MAX_TEXT = 64
MAX_VALUE = 1e12
THRESHOLD_KEYS = {"min", "max"}
CHANGE_KEYS = {"days", "up", "down"}
MESSAGES = {
    "above": "{metric} is {value} {unit}, above {limit}",
    "below": "{metric} is {value} {unit}, below {limit}",
    "rising": "{metric} increased by {value} {unit} on average, more than {limit}",
    "falling": "{metric} changed by {value} {unit} on average, a decrease of more than {limit}",
}


class Rules:
    """The configured limits."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.window = _read_integer(config, "window_days", WINDOW_DAYS, 1, 90)
        self.history = _read_integer(config, "history_days", HISTORY_DAYS, 2 * self.window, 400)
        self.thresholds = _read_limits(config, "thresholds", THRESHOLD_KEYS)
        self.changes = _read_limits(config, "changes", CHANGE_KEYS)
        metrics = config.get("metrics")
        if metrics is not None and not (isinstance(metrics, list) and metrics):
            raise ConfigError("config.metrics must be a list of names")
        self.metrics: set[str] | None = None if metrics is None else set(map(str, metrics))

    def wants(self, metric: str) -> bool:
        return self.metrics is None or metric in self.metrics


class Reading:
    """A validated event. Raises `Failure` if it is not a reading."""

    def __init__(self, payload: Any) -> None:
        given = payload if isinstance(payload, dict) else {}
        texts = [given.get(key) for key in ("provider", "record", "measured_at", "date")]
        if not all(isinstance(text, str) and text for text in texts):
            raise Failure(
                "the event is not a valid new_health_data; its fields are described in README.md",
                retry=False,
            )
        self.provider, self.record, self.measured_at, self.date = map(str, texts)
        self.revision = str(given.get("revision"))[:MAX_TEXT]
        self.units = given["units"] if isinstance(given.get("units"), dict) else {}
        measures = given.get("measures")
        self.measures = {
            name[:MAX_TEXT]: value
            for name, value in (measures if isinstance(measures, dict) else {}).items()
            if _is_number(value)
        }
        self._check_dates()

    @property
    def key(self) -> str:
        """The identifier of the reading, hashed if it is long."""
        whole = f"{self.provider}:{self.record}"
        if len(whole) <= MAX_KEY:
            return whole
        import hashlib

        return hashlib.sha256(whole.encode("utf-8", "replace")).hexdigest()[:MAX_KEY]

    def _check_dates(self) -> None:
        from datetime import UTC, date, datetime

        try:
            date.fromisoformat(self.date)
            time = datetime.fromisoformat(self.measured_at)
        except ValueError:
            raise Failure("date or measured_at of the event is not valid", retry=False) from None
        aware = time if time.tzinfo else time.replace(tzinfo=UTC)
        self.measured_at = aware.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) < MAX_VALUE


def _read_integer(config: Mapping[str, Any], key: str, default: int, least: int, most: int) -> int:
    value = config.get(key, max(default, least))
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ConfigError(f"config.{key} must be a whole number from {least} to {most}")
    return value


def _read_limits(config: Mapping[str, Any], section: str, allowed: set[str]) -> dict[str, Any]:
    table = config.get(section, {})
    if not isinstance(table, dict):
        raise ConfigError(f"config.{section} must map metrics to limits")
    for metric, limits in table.items():
        good = isinstance(limits, dict) and set(limits) <= allowed
        if not good or not all(map(_is_number, limits.values())) or limits.get("days", 1) < 1:
            known = ", ".join(sorted(allowed))
            raise ConfigError(f"config.{section}.{metric} must have numbers with the keys {known}")
    return table


class Analysis:
    """The stored readings and the limits that they exceed."""

    def __init__(self, state: Mapping[str, Any], rules: Rules) -> None:
        self._rules = rules
        stored = state.get("series") or {}
        self.series: dict[str, dict[str, list[Any]]] = {
            metric: dict(points) for metric, points in stored.items()
        }
        self.units: dict[str, str] = dict(state.get("units") or {})
        self.active: dict[str, list[str]] = dict(state.get("active") or {})
        """The exceeded limits by metric, for which alerts were emitted."""
        self.added = 0

    def add(self, reading: Reading) -> list[dict[str, Any]]:
        """Add a reading and return the alerts that it causes."""
        alerts: list[dict[str, Any]] = []
        for metric, value in reading.measures.items():
            points = self.series.get(metric, {})
            known = points.get(reading.key)
            if known is not None and known[trends.REVISION] == reading.revision:
                continue
            if not self._rules.wants(metric) or (not points and len(self.series) >= MAX_METRICS):
                continue
            self.added += 1
            point = [reading.measured_at, reading.date, value, reading.revision]
            points = trends.prune({**points, reading.key: point}, self._rules.history, MAX_POINTS)
            self.series[metric] = points
            self.units[metric] = str(reading.units.get(metric) or "")[:MAX_TEXT]
            # A late reading counts for trends but causes no alert.
            if trends.get_newest(points) == point:
                alerts += self._find_alerts(metric, reading)
        return alerts

    def state(self) -> dict[str, Any]:
        return {"series": self.series, "units": self.units, "active": self.active}

    def _find_alerts(self, metric: str, reading: Reading) -> list[dict[str, Any]]:
        rules, series = self._rules, self.series[metric]
        found = trends.find_exceeded(
            series,
            rules.thresholds.get(metric, {}),
            rules.changes.get(metric, {}),
            rules.window,
        )
        reported = self.active.get(metric, [])
        self.active[metric] = list(found)
        return [
            self._build_alert(metric, kind, value, limit, reading)
            for kind, (value, limit) in found.items()
            if kind not in reported
        ]

    def _build_alert(
        self, metric: str, kind: str, value: float, limit: float, reading: Reading
    ) -> dict[str, Any]:
        unit = self.units[metric]
        message = MESSAGES[kind].format(metric=metric, value=value, unit=unit, limit=limit)
        return {
            "metric": metric,
            "kind": kind,
            "value": value,
            "limit": limit,
            "unit": unit,
            "average": trends.get_average(self.series[metric], self._rules.window),
            "date": reading.date,
            "measured_at": reading.measured_at,
            "provider": reading.provider,
            "record": reading.record,
            "severity": "warning",
            "title": f"Health: {metric} {kind}",
            "message": f"{' '.join(message.split())} ({reading.date})",
        }


def handle(request: Request) -> Response:
    reading = Reading(request.payload)
    analysis = Analysis(request.state, Rules(request.config))
    alerts = analysis.add(reading)
    state = analysis.state() if analysis.added else None
    response = Response(f"{analysis.added} values added, {len(alerts)} alerts", state=state)
    for alert in alerts:
        name = f"{alert['metric']}:{alert['kind']}"
        response.emit(
            "alert", alert, key=f"{request.instance}:{name}:{reading.key}:{reading.revision}"
        )
    return response


def poll(request: Request) -> Response:
    rules = Rules(request.config)
    analysis = Analysis(request.state, rules)
    metrics = {
        metric: {**trends.summarize(series, rules.window), "unit": analysis.units[metric]}
        for metric, series in sorted(analysis.series.items())
        if rules.wants(metric)
    }
    fingerprint = _hash_metrics(metrics)
    if not metrics or fingerprint == request.state.get("summarized"):
        return Response("no new values since the last summary")
    date = max(one["date"] for one in metrics.values())
    response = Response(f"summary of {len(metrics)} metrics", state={"summarized": fingerprint})
    payload = {
        "date": date,
        "window_days": rules.window,
        "metrics": metrics,
        "title": f"Health summary of {date}",
        "message": "\n".join(
            _format_line(name, one, rules.window) for name, one in metrics.items()
        ),
    }
    response.emit("health_summary", payload, key=f"{request.instance}:summary:{fingerprint}")
    return response


def _format_line(metric: str, one: Mapping[str, Any], window: int) -> str:
    change = "" if one["change"] is None else f", {one['change']:+g}"
    latest = f"{metric} {one['latest']:g} {one['unit']}".rstrip()
    return f"{latest} ({window}-day average {one['average']:g}{change})"


def _hash_metrics(metrics: Mapping[str, Any]) -> str:
    import hashlib
    import json

    return hashlib.sha256(json.dumps(metrics, sort_keys=True).encode()).hexdigest()[:16]


def init(request: Request) -> Response:
    Rules(request.config)
    return Response("the configuration is valid")


def report(request: Request) -> Response:
    analysis = Analysis(request.state, Rules(request.config))
    points = sum(map(len, analysis.series.values()))
    exceeded = [f"{metric} {kind}" for metric, kinds in analysis.active.items() for kind in kinds]
    limits = f"; exceeded limits: {', '.join(sorted(exceeded))}" if exceeded else ""
    return Response(f"{points} values of {len(analysis.series)} metrics{limits}")


if __name__ == "__main__":
    serve({"handle": handle, "poll": poll, "init": init, "health": report})
