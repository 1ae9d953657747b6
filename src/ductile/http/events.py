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

import orjson
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from ductile.errors import DuctileError, UsageError
from ductile.http.answers import gateway_of, reading
from ductile.http.guard import permit_again
from ductile.http.stream import PAUSE
from ductile.store import notices
from ductile.store.ledger import BEGINNING, Position, StoredNotice

SCOPE = "events:ro"
HEARTBEAT = 15.0
AT_ONCE = 500
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


class Crowded(DuctileError):
    code = "too_many_followers"
    http_status = 503


async def follow(request: Request) -> Response:
    """`GET /events`: from now on, or from `Last-Event-ID` (or `?after=`); `?topic=a,b`."""
    gateway, stream = gateway_of(request), request.app.state.lobby.stream
    last = request.headers.get("last-event-id") or request.query_params.get("after")
    asked = request.query_params.getlist("topic")
    # The whole text too: an agent's id, and so its topic, may hold a comma.
    topics = {t for text in asked for t in (text, *text.split(",")) if t}
    newest = await reading(gateway, notices.last)
    position = newest if last is None else position_of(last)
    if position > newest:
        # Its rows are all gone, and the ids have begun anew: all there is came after it.
        position = BEGINNING
    if not stream.enter():
        raise Crowded("too many follow the events already")
    told = _told(request, frozenset(topics), position)
    return StreamingResponse(told, media_type="text/event-stream", headers=HEADERS)


def position_of(cursor: str) -> Position:
    """What `Position` was written as; the caller's text is only a text."""
    parts = cursor.split("-")
    if len(parts) > 2 or not all(p.isascii() and p.isdecimal() and len(p) < 19 for p in parts):
        raise UsageError("Last-Event-ID must be the id of an event")
    return Position(int(parts[0]) if len(parts) == 2 else 0, int(parts[-1]))


async def _told(
    request: Request, topics: frozenset[str], position: Position
) -> AsyncIterator[bytes]:
    gateway, stream = gateway_of(request), request.app.state.lobby.stream
    try:
        # Whoever is cut off before the first event has a place to go on from all the same.
        yield f": following\nid: {position}\n\n".encode()
        while not stream.closing:
            bell = stream.bell()
            found = gateway.bridge.since(position)
            if found is None:
                behind = partial(notices.after, position=position, limit=AT_ONCE)
                found = await reading(gateway, behind)
            text = "".join(_event(n) for n in found if not topics or n.topic in topics)
            if found:
                position = found[-1].position
            elif not await _rung(bell):
                # Carries the position past what the filter left out.
                text = f": alive\nid: {position}\n\n"
            if text:
                await permit_again(request, SCOPE)
                yield gateway.blueprint.redactor.text(text).encode()
            if found:
                await asyncio.sleep(PAUSE)
    except DuctileError:
        # The answer has begun, so that it can only end. Whoever comes back is told why.
        return
    finally:
        stream.leave()


async def _rung(bell: asyncio.Event) -> bool:
    """Whether something has happened, within the time between two signs of life."""
    with suppress(TimeoutError):
        await asyncio.wait_for(bell.wait(), HEARTBEAT)
    return bell.is_set()


def _event(notice: StoredNotice) -> str:
    # What is stored is JSON on one line, so that it is one line of data.
    topic = orjson.dumps(notice.topic).decode()
    about = f'{{"id":{notice.id},"topic":{topic},"type":"{notice.type}",'
    data = f'{about}"at":"{notice.created_at}","data":{notice.payload}}}'
    return f"id: {notice.position}\nevent: {notice.type}\ndata: {data}\n\n"
