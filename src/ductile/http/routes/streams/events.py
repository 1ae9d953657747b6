"""The event stream: `GET /events` as server-sent events, `GET /notices` as pages.

A subscriber keeps its position. It reads the ring of recent notices, and the ledger if the ring
does not reach back to its position; without new notices nothing reads the ledger. Its access is
checked again before each batch.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import orjson
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from ductile.core.jobs.limits import PAGE_BYTES, fitting
from ductile.core.values.redact import Redactor
from ductile.core.values.suggest import did_you_mean
from ductile.errors import DuctileError, UsageError
from ductile.http.crash_log import log_crash
from ductile.http.go_events import encode_go_event
from ductile.http.middleware.auth import principal_of, reauthorize, require_scope
from ductile.http.middleware.context import AppContext, app_context_of
from ductile.http.middleware.subscribers import BATCH_INTERVAL
from ductile.http.responses import build_response, read_ledger, services_of
from ductile.http.routes.streams.changes import ChangeFeed
from ductile.http.routes.streams.progress import ProgressFeed
from ductile.model import MIB
from ductile.store import notices as stored
from ductile.store.engines.api import BEGINNING, Position, StoredNotice, Tx

if TYPE_CHECKING:
    from ductile.http.models.queries import EventQuery, NoticeQuery

HEARTBEAT_INTERVAL = 15.0
MAX_BATCH = 500
MAX_BATCH_BYTES = MIB
"""Bytes of payloads that a subscriber is sent at once."""
MAX_NOTICES = 1000
MAX_ENCODED_IN_LOOP = 64 * 1024
"""Bytes of payloads above which a batch is encoded in a thread."""
GO_BACKLOG = 100
"""Past events that a new client gets in the form of the Go program, which kept as many."""
Feeds = Sequence[ProgressFeed | ChangeFeed]
Encoder = Callable[[StoredNotice], str]
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


class _EventStream(StreamingResponse):
    """A stream that gives its place back, also if its client leaves before the first byte."""

    def __init__(self, content: AsyncIterator[bytes], leave: Callable[[], None]) -> None:
        super().__init__(_log_failure(content), media_type="text/event-stream", headers=HEADERS)
        self._leave = leave

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._leave()


async def _log_failure(content: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Log what ends the content early: the server would only close the connection."""
    try:
        async for piece in content:
            yield piece
    except Exception as error:
        log_crash("event stream failed", error)
        raise


async def open_stream(
    request: Request, prepare: Callable[[], Awaitable[AsyncIterator[bytes]]]
) -> Response:
    """Take a place, then prepare the content: a refusal must not read the ledger."""
    if request.method == "HEAD":
        # Nothing is sent after the headers, so that a lost client would never be noticed.
        await prepare()
        return Response(headers=HEADERS, media_type="text/event-stream")
    principal, subscribers = principal_of(request), app_context_of(request).subscribers
    assert principal is not None, "access control admits only known callers"
    subscribers.enter(principal)
    try:
        return _EventStream(await prepare(), partial(subscribers.leave, principal))
    except BaseException:
        subscribers.leave(principal)
        raise


async def stream_events(request: Request, query: EventQuery) -> Response:
    """`GET /events`: Stream events from now on, or from `Last-Event-ID` (or `after`) on."""
    topics = frozenset(topic for text in query.topic for topic in _read_topics(text))
    encode = encode_go_event if query.format else _event
    feeds = _create_feeds(app_context_of(request), query)
    _require_scopes(request, feeds)

    async def prepare() -> AsyncIterator[bytes]:
        return _stream(request, topics, await _find_start(request, query), encode, feeds)

    return await open_stream(request, prepare)


def _create_feeds(context: AppContext, query: EventQuery) -> Feeds:
    feeds: list[ProgressFeed | ChangeFeed] = []
    if query.progress:
        feeds.append(ProgressFeed(context))
    if query.changes:
        feeds.append(ChangeFeed(context, query.changes))
    return feeds


def _require_scopes(request: Request, feeds: Feeds) -> None:
    for scope in sorted({scope for feed in feeds for scope in feed.scopes}):
        require_scope(request, scope)


async def _read_feeds(feeds: Feeds) -> str:
    return "".join([await feed.read() for feed in feeds])


async def _find_start(request: Request, query: EventQuery) -> Position:
    services, header = services_of(request), request.headers.get("last-event-id")
    last = header or query.after
    if last is not None:
        newest = await read_ledger(services, stored.last_position)
        return _resume(parse_position(last, "Last-Event-ID" if header else "after"), newest)
    default = GO_BACKLOG if query.format else 0
    backlog = min(default if query.last is None else query.last, MAX_NOTICES)
    return await read_ledger(services, partial(stored.last_position, skipped=backlog))


def _read_topics(text: str) -> list[str]:
    """Return the topics in a query parameter; an unknown one would never have an event."""
    topics = [topic for topic in text.split(",") if topic]
    # An agent's id, and so its topic, may contain a comma.
    if stored.is_topic(text):
        return [text, *topics]
    for topic in topics:
        if not stored.is_topic(topic):
            known = ", ".join((*stored.TOPICS, "agent:ID:scheduled", "session:ID"))
            close = did_you_mean(topic, stored.TOPICS)
            raise UsageError(f"unknown topic {topic!r}{close}; topics: {known}")
    return topics


def parse_position(cursor: str, name: str) -> Position:
    parts = cursor.split("-")
    if len(parts) > 2 or not all(p.isascii() and p.isdecimal() and len(p) < 19 for p in parts):
        raise UsageError(f"{name} must be an event id")
    return Position(int(parts[0]) if len(parts) == 2 else 0, int(parts[-1]))


def _resume(position: Position, newest: Position) -> Position:
    """Return where to continue; a position beyond the end starts from the beginning.

    Its rows are gone and the ids have started again, by a restore or in another ledger.
    """
    return BEGINNING if position > newest else position


async def _stream(
    request: Request,
    topics: frozenset[str],
    position: Position,
    encode: Encoder,
    feeds: Feeds,
) -> AsyncIterator[bytes]:
    services, subscribers = services_of(request), app_context_of(request).subscribers
    try:
        # The first id lets a client resume that is disconnected before the first event.
        # A feed reports what changes after its first look.
        yield f": following\nid: {position}\n\n{await _read_feeds(feeds)}".encode()
        while not subscribers.closing:
            changed = subscribers.changed()
            found = services.notice_bus.read_since(position)
            if found is None:
                read = partial(
                    stored.list_after, position=position, limit=MAX_BATCH, max_bytes=MAX_BATCH_BYTES
                )
                found = await read_ledger(services, read)
            found = found[: fitting((len(n.payload) for n in found), MAX_BATCH_BYTES)]
            wanted = [n for n in found if not topics or n.topic in topics]
            text = await _encode(wanted, services.compiled.redactor, encode)
            if found:
                position = found[-1].position
                # Also where there is always another event.
                text += await _read_feeds(feeds)
            elif not (text := await _wait_for_change(changed, feeds)) and not changed.is_set():
                # The heartbeat carries the position past events that the filter left out.
                text = f": alive\nid: {position}\n\n"
            await reauthorize(request)
            _require_scopes(request, feeds)
            if text:
                yield text.encode()
            if found:
                await asyncio.sleep(BATCH_INTERVAL)
    except DuctileError:
        # The response has begun and can only end. A client that reconnects gets the error.
        return


async def _encode(notices: list[StoredNotice], redactor: Redactor, one: Encoder) -> str:
    """Return the events without secrets; large batches are encoded in a thread."""

    def encode() -> str:
        found = [one(notice) for notice in notices]
        whole = "".join(found)
        if redactor.text(whole) == whole:
            return whole
        return "".join(_redact_event(event, redactor) for event in found)

    if sum(len(notice.payload) for notice in notices) > MAX_ENCODED_IN_LOOP:
        return await asyncio.to_thread(encode)
    return encode()


def _redact_event(event: str, redactor: Redactor) -> str:
    # The id is the position, from which a client resumes.
    id, name, data, end = event.split("\n", 3)
    shown = redactor.json(data.removeprefix("data: "))
    return f"{id}\n{redactor.text(name)}\ndata: {shown}\n{end}"


async def _wait_for_change(changed: asyncio.Event, feeds: Feeds) -> str:
    """Return at new notices, with the events of a feed, or when the next heartbeat is due."""
    loop = asyncio.get_running_loop()
    end, text = loop.time() + HEARTBEAT_INTERVAL, ""
    while not (text or changed.is_set()) and (left := end - loop.time()) > 0:
        with suppress(TimeoutError):
            wait = min(left, *(feed.interval for feed in feeds)) if feeds else left
            await asyncio.wait_for(changed.wait(), wait)
        text = await _read_feeds(feeds)
    return text


def _event(notice: StoredNotice) -> str:
    # The stored payload is JSON on one line, so that it fits one line of data.
    topic = orjson.dumps(notice.topic).decode()
    head = f'{{"id":{notice.id},"topic":{topic},"type":"{notice.type}",'
    data = f'{head}"at":"{notice.created_at}","data":{notice.payload}}}'
    return f"id: {notice.position}\nevent: {notice.type}\ndata: {data}\n\n"


async def list_notices(request: Request, query: NoticeQuery) -> Response:
    """`GET /notices`: List notices after a cursor, or the newest ones.

    `cursor` is the `after` of the next request.
    """
    services = services_of(request)
    last = min(query.last or 0, MAX_NOTICES)
    given = None if query.after is None else parse_position(query.after, "after")

    def work(tx: Tx) -> dict[str, Any]:
        start = (
            stored.last_position(tx, last)
            if given is None
            else _resume(given, stored.last_position(tx))
        )
        found = stored.list_after(tx, start, MAX_NOTICES, PAGE_BYTES)
        cursor = found[-1].position if found else start
        return {"notices": [_describe(notice) for notice in found], "cursor": str(cursor)}

    return await build_response(services, lambda: services.ledger.read(work))


def _describe(notice: StoredNotice) -> dict[str, Any]:
    return {
        "id": notice.id,
        "topic": notice.topic,
        "type": notice.type,
        "job_id": notice.job_id,
        "created_at": notice.created_at,
        "payload": orjson.loads(notice.payload),
    }
