"""`GET /events`: everything that happens, as server-sent events.

A follower keeps its position. It drains the ring of recent notices, and the ledger where the ring
does not reach back to it; nobody asks the ledger while nothing happens. Whether it may still
follow is asked before it is told anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from functools import partial
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from ductile.core.jobs.limits import PAGE_BYTES, fitting
from ductile.core.values.redact import Redactor
from ductile.errors import DuctileError, UsageError
from ductile.http.middleware.auth import reauthorize
from ductile.http.middleware.context import app_context_of
from ductile.http.middleware.subscribers import PAUSE
from ductile.http.requests import whole
from ductile.http.responses import gateway_of, made, reading
from ductile.model import MIB
from ductile.store import notices as stored
from ductile.store.engines.api import BEGINNING, Position, StoredNotice, Tx

HEARTBEAT = 15.0
AT_ONCE = 500
NOTICES_AT_ONCE = 1000
ROOM = MIB
"""Bytes of payloads that a follower is told at once."""
AT_HAND = 64 * 1024
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


class Crowded(DuctileError):
    code = "too_many_followers"
    http_status = 503


async def follow(request: Request) -> Response:
    """`GET /events`: from now on, or from `Last-Event-ID` (or `?after=`); `?topic=a,b`."""
    gateway, stream = gateway_of(request), app_context_of(request).stream
    last = request.headers.get("last-event-id") or request.query_params.get("after")
    asked = request.query_params.getlist("topic")
    # The whole text too: an agent's id, and so its topic, may hold a comma.
    topics = {t for text in asked for t in (text, *text.split(",")) if t}
    newest = await reading(gateway, stored.last)
    name = "Last-Event-ID" if request.headers.get("last-event-id") else "after"
    position = newest if last is None else _resumed(position_of(last, name), newest)
    if not stream.enter():
        raise Crowded("too many follow the events already")
    told = _told(request, frozenset(topics), position)
    return StreamingResponse(told, media_type="text/event-stream", headers=HEADERS)


def position_of(cursor: str, name: str) -> Position:
    """What `Position` was written as; the caller's text is only a text, given as `name`."""
    parts = cursor.split("-")
    if len(parts) > 2 or not all(p.isascii() and p.isdecimal() and len(p) < 19 for p in parts):
        raise UsageError(f"{name} must be the id of an event")
    return Position(int(parts[0]) if len(parts) == 2 else 0, int(parts[-1]))


def _resumed(position: Position, newest: Position) -> Position:
    """Where to go on from; all there is came after a position that is beyond the end.

    Its rows are gone, and the ids have begun anew: by a restore, or in another ledger.
    """
    return BEGINNING if position > newest else position


async def _told(
    request: Request, topics: frozenset[str], position: Position
) -> AsyncIterator[bytes]:
    gateway, stream = gateway_of(request), app_context_of(request).stream
    try:
        # Whoever is cut off before the first event has a place to go on from all the same.
        yield f": following\nid: {position}\n\n".encode()
        while not stream.closing:
            work_signal = stream.work_signal()
            found = gateway.notice_bus.read_since(position)
            if found is None:
                behind = partial(stored.after, position=position, limit=AT_ONCE, room=ROOM)
                found = await reading(gateway, behind)
            found = found[: fitting((len(n.payload) for n in found), ROOM)]
            wanted = [n for n in found if not topics or n.topic in topics]
            text = await _written(wanted, gateway.compiled.redactor)
            if found:
                position = found[-1].position
            elif not await _rung(work_signal):
                # Carries the position past what the filter left out.
                text = f": alive\nid: {position}\n\n"
            if text:
                await reauthorize(request)
                yield text.encode()
            if found:
                await asyncio.sleep(PAUSE)
    except DuctileError:
        # The answer has begun, so that it can only end. Whoever comes back is told why.
        return
    finally:
        stream.leave()


async def _written(notices: list[StoredNotice], redactor: Redactor) -> str:
    """As the stream has them, without secrets; many are written off the loop."""

    def write() -> str:
        return redactor.text("".join(map(_event, notices)))

    if sum(len(notice.payload) for notice in notices) > AT_HAND:
        return await asyncio.to_thread(write)
    return write()


async def _rung(work_signal: asyncio.Event) -> bool:
    """Whether something has happened, within the time between two signs of life."""
    with suppress(TimeoutError):
        await asyncio.wait_for(work_signal.wait(), HEARTBEAT)
    return work_signal.is_set()


def _event(notice: StoredNotice) -> str:
    # What is stored is JSON on one line, so that it is one line of data.
    topic = orjson.dumps(notice.topic).decode()
    about = f'{{"id":{notice.id},"topic":{topic},"type":"{notice.type}",'
    data = f'{about}"at":"{notice.created_at}","data":{notice.payload}}}'
    return f"id: {notice.position}\nevent: {notice.type}\ndata: {data}\n\n"


async def notices(request: Request) -> Response:
    """`GET /notices?after=ID`: what was announced since; `?last=N` the newest N.

    `cursor` is the `after` of the next question.
    """
    gateway, after = gateway_of(request), request.query_params.get("after")
    skipped = min(whole(request.query_params, "last") or 0, NOTICES_AT_ONCE)
    given = None if after is None else position_of(after, "after")

    def work(tx: Tx) -> dict[str, Any]:
        start = stored.last(tx, skipped) if given is None else _resumed(given, stored.last(tx))
        found = stored.after(tx, start, NOTICES_AT_ONCE, PAGE_BYTES)
        cursor = found[-1].position if found else start
        return {"notices": [_notice(notice) for notice in found], "cursor": str(cursor)}

    return await made(gateway, lambda: gateway.ledger.read(work))


def _notice(notice: StoredNotice) -> dict[str, Any]:
    return {
        "id": notice.id,
        "topic": notice.topic,
        "type": notice.type,
        "job_id": notice.job_id,
        "created_at": notice.created_at,
        "payload": orjson.loads(notice.payload),
    }
