"""The event `new_health_data`, which has the same fields for every provider.

    provider     withings, garmin
    record       the provider's identifier of the reading
    revision     changes when the provider changes the reading
    measured_at  time of measurement in UTC: 2026-02-08T07:30:00Z
    date         local date of the measurement: 2026-02-08
    measures     values by name; names and units are those of UNITS
    units        units by name, for the names in `measures`
    device       the measuring device, or null

A record with another revision replaces the earlier one.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from protocol import Response

EVENT = "new_health_data"
UNITS = {
    "weight": "kg",
    "height": "m",
    "bmi": "kg/m2",
    "fat_free_mass": "kg",
    "fat_ratio": "%",
    "fat_mass": "kg",
    "muscle_mass": "kg",
    "bone_mass": "kg",
    "hydration": "kg",
    "body_water": "%",
    "visceral_fat": "",
    "metabolic_age": "years",
    "diastolic": "mmHg",
    "systolic": "mmHg",
    "pulse": "bpm",
    "resting_heart_rate": "bpm",
    "max_heart_rate": "bpm",
    "temperature": "degC",
    "body_temperature": "degC",
    "skin_temperature": "degC",
    "spo2": "%",
    "pulse_wave_velocity": "m/s",
    "vo2_max": "ml/min/kg",
    "steps": "steps",
    "distance": "m",
    "calories": "kcal",
    "active_calories": "kcal",
    "floors": "floors",
    "stress": "",
    "body_battery": "",
    "sleep": "s",
}


def build_reading(
    *,
    provider: str,
    record: str,
    revision: str,
    measured_at: str,
    date: str,
    measures: Mapping[str, float],
    device: str | None = None,
) -> dict[str, Any]:
    """The payload of an event."""
    return {
        "provider": provider,
        "record": record,
        "revision": revision,
        "measured_at": measured_at,
        "date": date,
        "measures": dict(measures),
        "units": {name: UNITS[name] for name in measures},
        "device": device,
    }


def emit_reading(response: Response, instance: str, payload: Mapping[str, Any]) -> None:
    """Emit a reading; its dedupe key is unique per record and revision."""
    key = f"{instance}:{payload['record']}:{payload['revision']}"
    response.emit(EVENT, dict(payload), key=key)


def format_utc(seconds: float) -> str:
    """Unix seconds as ISO 8601 in UTC."""
    from datetime import UTC, datetime

    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def update_latest(state: Mapping[str, Any], payload: Mapping[str, Any]) -> dict[str, Any]:
    """The newest value of each measure, including this reading."""
    known: dict[str, Any] = dict(state.get("latest") or {})
    for name, value in payload["measures"].items():
        if payload["measured_at"] >= known.get(name, {}).get("measured_at", ""):
            known[name] = {"value": value, "measured_at": payload["measured_at"]}
    return known
