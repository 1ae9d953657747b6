"""Reminders: when one is due, and when a recurring one comes next (004, FR-10.5 and FR-10.6)."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from zoneinfo import ZoneInfo

import orjson

from ductile.clock import moment_of
from ductile.core.agents.heartbeat import is_id
from ductile.core.jobs.limits import too_deep
from ductile.core.schedules import cron
from ductile.core.values.json_values import Failure
from ductile.model import Json
from ductile.record import dataclass

LONGEST_DELAY_MS = 10 * 366 * 86_400_000
LONGEST_SCHEDULE = 200
LARGEST_PAYLOAD = 64 * 1024
_UTC = ZoneInfo("UTC")


class ScheduleError(StrEnum):
    """Why a reminder was not taken in. A value: agents err, and nothing breaks."""

    INVALID_AGENT = "invalid_agent_id"
    INVALID_DELAY = "invalid_delay"
    INVALID_SCHEDULE = "invalid_schedule"
    INVALID_PAYLOAD = "invalid_payload"
    TOO_MANY = "too_many_reminders"


@dataclass(frozen=True, slots=True)
class NewReminder:
    agent_id: str
    next_fire_at: datetime
    payload: str
    """JSON text."""
    schedule: str | None
    """A cron rule in UTC; None fires once."""


def once(
    agent_id: Json, delay_ms: Json, payload: Json, now: datetime
) -> NewReminder | ScheduleError:
    """One that fires `delay_ms` milliseconds from now."""
    if not is_id(agent_id):
        return ScheduleError.INVALID_AGENT
    if type(delay_ms) is not int or not 0 < delay_ms <= LONGEST_DELAY_MS:
        return ScheduleError.INVALID_DELAY
    text = _payload_text(payload)
    if text is None:
        return ScheduleError.INVALID_PAYLOAD
    return NewReminder(agent_id, now + timedelta(milliseconds=delay_ms), text, None)


def recurring(
    agent_id: Json, schedule: Json, payload: Json, now: datetime
) -> NewReminder | ScheduleError:
    """One that fires by a cron rule in UTC."""
    if not is_id(agent_id):
        return ScheduleError.INVALID_AGENT
    first = next_fire(schedule, now)
    if isinstance(first, Failure):
        return ScheduleError.INVALID_SCHEDULE
    text = _payload_text(payload)
    if text is None:
        return ScheduleError.INVALID_PAYLOAD
    return NewReminder(agent_id, first, text, " ".join(schedule.split()))


def next_fire(schedule: Json, after: datetime) -> datetime | Failure:
    """The rule's first time after that, or what is wrong with the rule."""
    if not isinstance(schedule, str) or len(schedule) > LONGEST_SCHEDULE:
        return Failure(f"a schedule must be a cron rule of at most {LONGEST_SCHEDULE} characters")
    try:
        fire = _time_after(schedule, after)
    except ValueError as error:
        return Failure(str(error))
    return Failure(f"cron {schedule!r} never comes") if fire is None else fire


@lru_cache(maxsize=256)
def _time_after(schedule: str, after: datetime) -> datetime | None:
    """Kept for a while: many rows have the same rule, and are looked at together."""
    return cron.next_after(cron.parse(schedule), after, _UTC)


@dataclass(frozen=True, slots=True)
class Due:
    """It fires now; `then` is its next time, None where it fires once."""

    then: datetime | None


@dataclass(frozen=True, slots=True)
class Later:
    """It fires at that time."""

    at: datetime


def judge(
    next_fire_at: str, schedule: str | None, *, is_one_time: bool, now: datetime
) -> Due | Later | Failure:
    """What is to be done with a row, whoever wrote it; one that is late fires once."""
    at = moment_of(next_fire_at)
    if at is None:
        return Failure("next_fire_at is no time (ISO 8601)")
    if at > now:
        return Later(at)
    if is_one_time:
        return Due(None)
    then = next_fire(schedule, now)
    return then if isinstance(then, Failure) else Due(then)


def late_by_rule(next_fire_at: str, schedule: str | None, now: datetime) -> datetime | None:
    """When a recurring one comes by its rule, where it waits for longer than that.

    So it does once a clock that was ahead is right again. One that leaves out a single time has
    fired it by a clock that is a little ahead of this one, and does not fire it again.
    """
    at, then = moment_of(next_fire_at), next_fire(schedule, now)
    if at is None or isinstance(then, Failure) or at <= then:
        return None
    second = next_fire(schedule, then)
    return then if isinstance(second, Failure) or at > second else None


def topic_of(agent_id: str) -> str:
    return f"agent:{agent_id}:scheduled"


def _payload_text(payload: Json) -> str | None:
    """An object, as it is stored; None where it is none, or too large or deep."""
    if not isinstance(payload, dict) or too_deep(payload):
        return None
    try:
        text = orjson.dumps(payload)
    except orjson.JSONEncodeError:
        return None
    return text.decode() if len(text) <= LARGEST_PAYLOAD else None
