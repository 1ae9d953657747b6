"""Reminders of agents: validation, and when one fires."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from zoneinfo import ZoneInfo

import orjson

from ductile._fast_dataclass import dataclass
from ductile.clock import moment_of
from ductile.core.agents.heartbeat import is_id
from ductile.core.jobs.limits import too_deep
from ductile.core.schedules import cron
from ductile.core.values.json_values import Failure
from ductile.model import Json

LONGEST_DELAY_MS = 10 * 366 * 86_400_000
LONGEST_SCHEDULE = 200
LARGEST_PAYLOAD = 64 * 1024
_UTC = ZoneInfo("UTC")


class ScheduleError(StrEnum):
    """Why a reminder was not stored; a value, not an exception, because agents make mistakes."""

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
    """A cron expression in UTC; None if it fires once."""


def build_once(
    agent_id: Json, delay_ms: Json, payload: Json, now: datetime
) -> NewReminder | ScheduleError:
    """A reminder that fires once, in `delay_ms` milliseconds."""
    if not is_id(agent_id):
        return ScheduleError.INVALID_AGENT
    if type(delay_ms) is not int or not 0 < delay_ms <= LONGEST_DELAY_MS:
        return ScheduleError.INVALID_DELAY
    text = _encode_payload(payload)
    if text is None:
        return ScheduleError.INVALID_PAYLOAD
    return NewReminder(agent_id, now + timedelta(milliseconds=delay_ms), text, None)


def build_recurring(
    agent_id: Json, schedule: Json, payload: Json, now: datetime
) -> NewReminder | ScheduleError:
    """A reminder that fires by a cron expression in UTC."""
    if not is_id(agent_id):
        return ScheduleError.INVALID_AGENT
    first = find_next_fire(schedule, now)
    if isinstance(first, Failure):
        return ScheduleError.INVALID_SCHEDULE
    text = _encode_payload(payload)
    if text is None:
        return ScheduleError.INVALID_PAYLOAD
    return NewReminder(agent_id, first, text, " ".join(schedule.split()))


def find_next_fire(schedule: Json, after: datetime) -> datetime | Failure:
    """The first time of the cron expression after `after`, or what is wrong with it."""
    if not isinstance(schedule, str) or len(schedule) > LONGEST_SCHEDULE:
        return Failure(
            f"a schedule must be a cron expression of at most {LONGEST_SCHEDULE} characters"
        )
    try:
        fire = _find_time_after(schedule, after)
    except ValueError as error:
        return Failure(str(error))
    return Failure(f"cron expression {schedule!r} never matches") if fire is None else fire


@lru_cache(maxsize=256)
def _find_time_after(schedule: str, after: datetime) -> datetime | None:
    """Cached, because many rows have the same expression and are examined together."""
    return cron.next_after(cron.parse(schedule), after, _UTC)


@dataclass(frozen=True, slots=True)
class FireNow:
    """It fires now."""

    then: datetime | None
    """Its next time; None if it fires once."""


@dataclass(frozen=True, slots=True)
class FireLater:
    """It fires at this time."""

    at: datetime


def judge_reminder(
    next_fire_at: str, schedule: str | None, *, is_one_time: bool, now: datetime
) -> FireNow | FireLater | Failure:
    """What to do with a row, which may be written by a script; a late one fires once."""
    at = moment_of(next_fire_at)
    if at is None:
        return Failure("next_fire_at is not a time (ISO 8601)")
    if at > now:
        return FireLater(at)
    if is_one_time:
        return FireNow(None)
    then = find_next_fire(schedule, now)
    return then if isinstance(then, Failure) else FireNow(then)


def find_earlier_fire(next_fire_at: str, schedule: str | None, now: datetime) -> datetime | None:
    """The next time by the cron expression, if `next_fire_at` is later than that.

    This happens when a clock that was ahead is corrected. A row that skips a single time has fired
    it by a clock slightly ahead of this one, and must not fire it again.
    """
    at, then = moment_of(next_fire_at), find_next_fire(schedule, now)
    if at is None or isinstance(then, Failure) or at <= then:
        return None
    second = find_next_fire(schedule, then)
    return then if isinstance(second, Failure) or at > second else None


def build_topic(agent_id: str) -> str:
    return f"agent:{agent_id}:scheduled"


def _encode_payload(payload: Json) -> str | None:
    """The text to store; None if the payload is not an object, too large or too deep."""
    if not isinstance(payload, dict) or too_deep(payload):
        return None
    try:
        text = orjson.dumps(payload)
    except orjson.JSONEncodeError:
        return None
    return text.decode() if len(text) <= LARGEST_PAYLOAD else None
