"""`GET /events`: everything that happens, as server-sent events.

A follower keeps a cursor. It drains the ring of recent notices, and the ledger where the ring
does not reach back to its cursor; nobody asks the ledger while nothing happens.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from ductile.errors import DuctileError, UsageError
from ductile.http.answers import gateway_of, reading
from ductile.http.stream import PAUSE, Stream
from ductile.runtime.gateway import Gateway
from ductile.store import notices
from ductile.store.ledger import StoredNotice

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
    topics = {t for text in request.query_params.getlist("topic") for t in text.split(",") if t}
    newest = await reading(gateway, lambda tx: tx.all("last_notice")[0][0])
    cursor = newest if last is None else _cursor(last)
    if cursor > newest:
        # Its rows are all gone, and the ids have begun anew: all there is came after it.
        cursor = 0
    if not stream.enter():
        raise Crowded("too many follow the events already")
    told = _told(gateway, stream, frozenset(topics), cursor)
    return StreamingResponse(told, media_type="text/event-stream", headers=HEADERS)


def _cursor(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 19):
        raise UsageError("Last-Event-ID must be the id of an event")
    return int(text)


async def _told(
    gateway: Gateway, stream: Stream, topics: frozenset[str], cursor: int
) -> AsyncIterator[bytes]:
    try:
        yield b": following\n\n"
        while not stream.closing:
            bell = stream.bell()
            found = gateway.bridge.since(cursor)
            if found is None:
                found = await reading(gateway, partial(notices.after, cursor=cursor, limit=AT_ONCE))
            if found:
                cursor = found[-1].id
                text = "".join(_event(n) for n in found if not topics or n.topic in topics)
                if text:
                    yield gateway.blueprint.redactor.text(text).encode()
                await asyncio.sleep(PAUSE)
                continue
            try:
                await asyncio.wait_for(bell.wait(), HEARTBEAT)
            except TimeoutError:
                # Carries the cursor past what the filter left out.
                yield b": alive\nid: %d\n\n" % cursor
    finally:
        stream.leave()


def _event(notice: StoredNotice) -> str:
    # What is stored is JSON on one line, so that it is one line of data.
    about = f'{{"id":{notice.id},"topic":"{notice.topic}","type":"{notice.type}",'
    data = f'{about}"at":"{notice.created_at}","data":{notice.payload}}}'
    return f"id: {notice.id}\nevent: {notice.type}\ndata: {data}\n\n"
