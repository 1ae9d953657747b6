"""Reminders of agents."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import TYPE_CHECKING, Any

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
from ductile.errors import DuctileError, NotFound
from ductile.http.requests import row_id
from ductile.http.responses import (
    JsonResponse,
    build_response,
    change_response,
    run_transaction,
    services_of,
)
from ductile.store import reminders
from ductile.store.engines.api import Tx

if TYPE_CHECKING:
    from ductile.http.models.bodies import ActionBody, NewReminderBody
    from ductile.http.models.queries import ReminderQuery

REASONS = {
    ScheduleError.INVALID_AGENT: f"agent_id must be 1 to {LONGEST_ID} printable characters",
    ScheduleError.INVALID_DELAY: f"delay_ms must be a whole number from 1 to {LONGEST_DELAY_MS}",
    ScheduleError.INVALID_PAYLOAD: f"payload must be an object of at most {LARGEST_PAYLOAD} bytes",
    ScheduleError.TOO_MANY: f"there are {reminders.MAX_REMINDERS} reminders; remove some first",
}


class ReminderRefused(DuctileError):
    http_status = 422

    def __init__(self, reason: ScheduleError, text: str) -> None:
        super().__init__(text)
        self.code = reason.value
        if reason is ScheduleError.TOO_MANY:
            self.http_status = 409


async def list_reminders(request: Request, query: ReminderQuery) -> Response:
    """`GET /gateway/cron`: List reminders by id."""
    services = services_of(request)

    def work(tx: Tx) -> dict[str, Any]:
        rows, cursor = reminders.list_page(
            tx,
            agent_id=query.agent_id,
            after=query.after or 0,
            limit=query.limit,
            max_bytes=PAGE_BYTES,
        )
        return {"reminders": [_redact(services, row) for row in rows], "cursor": cursor}

    return await build_response(services, lambda: services.ledger.read(work))


def _redact(services: Services, row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "payload": services.compiled.redactor.document(row["payload"])}


async def create_reminder(request: Request, body: NewReminderBody) -> Response:
    """`POST /gateway/cron`: Create a reminder that fires once, or by a cron expression."""
    services = services_of(request)
    new = _new_reminder(body, services.clock.now())
    shown = {
        "agent_id": new.agent_id,
        "schedule": new.schedule,
        "next_fire_at": to_text(new.next_fire_at),
        "is_one_time": new.schedule is None,
        "payload": orjson.loads(new.payload),
    }
    if body.dry_run:
        return change_response(_redact(services, shown), dry_run=True)
    created = await asyncio.to_thread(services.agents.reminders.schedule, new)
    if isinstance(created, ScheduleError):
        raise ReminderRefused(created, REASONS[created])
    return JsonResponse({"id": created.id, **_redact(services, shown)}, 201)


def _new_reminder(body: NewReminderBody, now: datetime) -> NewReminder:
    if body.schedule is None:
        new = reminder.build_once(body.agent_id, body.delay_ms, body.payload, now)
    else:
        first = find_next_fire(body.schedule, now)
        if isinstance(first, Failure):
            raise ReminderRefused(ScheduleError.INVALID_SCHEDULE, first.reason)
        new = reminder.build_recurring(body.agent_id, body.schedule, body.payload, now)
    if isinstance(new, ScheduleError):
        raise ReminderRefused(new, REASONS[new])
    return new


async def forget_reminder(request: Request, body: ActionBody) -> Response:
    """`POST /gateway/cron/{reminder_id}/forget`: Remove a reminder; it fires no more."""
    services, text = services_of(request), request.path_params["reminder_id"]
    id = row_id(text) or 0

    def work(tx: Tx) -> dict[str, Any] | None:
        return (
            reminders.find_reminder(tx, id) if body.dry_run else reminders.delete_reminder(tx, id)
        )

    found = await run_transaction(services, work, dry_run=body.dry_run)
    if found is None:
        raise NotFound(f"there is no reminder {text!r}")
    shown = _redact(services, found)
    return change_response(shown, dry_run=body.dry_run)
