"""Reminders of agents, for operators and for agents that ask by themselves."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response

from ductile.clock import to_text
from ductile.core.agents import reminder
from ductile.core.agents.heartbeat import LONGEST_ID
from ductile.core.agents.reminder import (
    LARGEST_PAYLOAD,
    LONGEST_DELAY_MS,
    NewReminder,
    ScheduleError,
    find_next_fire,
)
from ductile.core.jobs.limits import PAGE_BYTES
from ductile.core.values.json_values import Failure
from ductile.engine.services import Services
from ductile.errors import DuctileError, NotFound, UsageError
from ductile.http.requests import (
    LARGEST_PAGE,
    as_object,
    body_of,
    flag_of,
    limit_of,
    payload_in,
    row_id,
    whole,
)
from ductile.http.responses import JsonResponse, gateway_of, made, reading, writing
from ductile.store import reminders
from ductile.store.engines.api import Tx

LARGEST_BODY = 2 * LARGEST_PAYLOAD
WHY = {
    ScheduleError.INVALID_AGENT: f"agent_id must be 1 to {LONGEST_ID} printable characters",
    ScheduleError.INVALID_DELAY: f"delay_ms must be a whole number from 1 to {LONGEST_DELAY_MS}",
    ScheduleError.INVALID_PAYLOAD: f"payload must be an object of at most {LARGEST_PAYLOAD} bytes",
    ScheduleError.TOO_MANY: f"there are {reminders.MOST} reminders already",
}


class InvalidJson(DuctileError):
    code = "invalid_json"
    http_status = 400


class ReminderRefused(DuctileError):
    http_status = 422

    def __init__(self, why: ScheduleError, text: str) -> None:
        super().__init__(text)
        self.code = why.value
        if why is ScheduleError.TOO_MANY:
            self.http_status = 409


async def listing(request: Request) -> Response:
    """`GET /gateway/cron`: reminders by id; `?agent_id=` those of one agent."""
    gateway, query = gateway_of(request), request.query_params
    agent_id, after = query.get("agent_id"), whole(query, "after") or 0
    limit = limit_of(query, LARGEST_PAGE)

    def work(tx: Tx) -> dict[str, Any]:
        rows, behind = reminders.page(
            tx, agent_id=agent_id, after=after, limit=limit, room=PAGE_BYTES
        )
        return {"reminders": [_shown(gateway, row) for row in rows], "cursor": behind}

    return await made(gateway, lambda: gateway.ledger.read(work))


def _shown(gateway: Services, row: dict[str, Any]) -> dict[str, Any]:
    """A reminder without secrets."""
    return {**row, "payload": gateway.compiled.redactor.document(row["payload"])}


async def remind(request: Request) -> Response:
    """`POST /gateway/cron` `{agent_id, delay_ms | schedule, payload?}`: keep a reminder."""
    gateway, body = gateway_of(request), await _object(request)
    new = _asked(body, gateway.clock.now())
    answer = {
        "agent_id": new.agent_id,
        "schedule": new.schedule,
        "next_fire_at": to_text(new.next_fire_at),
        "is_one_time": new.schedule is None,
        "payload": orjson.loads(new.payload),
    }
    if flag_of(body, "dry_run"):
        return JsonResponse({**_shown(gateway, answer), "dry_run": True})
    kept = await asyncio.to_thread(gateway.agents.reminders.schedule, new)
    if isinstance(kept, ScheduleError):
        raise ReminderRefused(kept, WHY[kept])
    return JsonResponse({"id": kept.id, **_shown(gateway, answer)}, 201)


async def forget(request: Request) -> Response:
    """`POST /gateway/cron/{reminder_id}/forget`: it fires no more."""
    gateway, text = gateway_of(request), request.path_params["reminder_id"]
    dry, id = flag_of(await _object(request), "dry_run"), row_id(text) or 0
    if dry:
        found = await reading(gateway, lambda tx: reminders.find(tx, id))
    else:
        found = await writing(gateway, lambda tx: reminders.forget(tx, id))
    if found is None:
        raise NotFound(f"there is no reminder {text!r}")
    return JsonResponse({**_shown(gateway, found), **({"dry_run": True} if dry else {})})


async def _object(request: Request) -> dict[str, Any]:
    raw = await body_of(request, LARGEST_BODY)
    try:
        value = orjson.loads(raw) if raw else {}
    except orjson.JSONDecodeError as error:
        raise InvalidJson(f"the body is not JSON: {error}") from None
    return as_object(value, raw)


def _asked(body: dict[str, Any], now: datetime) -> NewReminder:
    agent_id, payload = body.get("agent_id"), payload_in(body)
    schedule, delay = body.get("schedule"), body.get("delay_ms")
    if (schedule is None) is (delay is None):
        raise UsageError("give either delay_ms or schedule")
    if schedule is None:
        new = reminder.build_once(agent_id, delay, payload, now)
    else:
        first = find_next_fire(schedule, now)
        if isinstance(first, Failure):
            raise ReminderRefused(ScheduleError.INVALID_SCHEDULE, first.reason)
        new = reminder.build_recurring(agent_id, schedule, payload, now)
    if isinstance(new, ScheduleError):
        raise ReminderRefused(new, WHY[new])
    return new
