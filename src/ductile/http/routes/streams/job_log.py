"""`GET /job/{job_id}/log/stream`: the log of a job as it is written, attempt after attempt.

What is sent while an attempt runs is the beginning of what is stored at its end. The id of an event
is the attempt and the number of characters sent of its log, so that a client resumes anywhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any, NamedTuple

import orjson
from starlette.requests import Request
from starlette.responses import Response

from ductile._fast_dataclass import dataclass
from ductile.core.jobs.live_log import Progress, find_progress
from ductile.core.jobs.state_machine import ENDED
from ductile.engine.dispatch.live_attempts import RunningLog
from ductile.errors import DuctileError, NotFound, UsageError
from ductile.http.middleware.auth import reauthorize
from ductile.http.middleware.context import app_context_of
from ductile.http.responses import read_ledger, services_of
from ductile.http.routes.streams.events import HEARTBEAT_INTERVAL, open_stream
from ductile.operations.reports.job_list import describe_progress
from ductile.store.engines.api import Tx
from ductile.store.jobs import read

LIVE_INTERVAL = 0.1
"""Seconds between two looks at the output of a running process."""
STORED_INTERVAL = 0.5
"""Seconds between two reads of the ledger while the job does not run here."""
ATTEMPTS_PER_READ = 20


class _StoredLogs(NamedTuple):
    status: str
    attempt: int
    attempts: list[dict[str, Any]]
    """The ended attempts from the requested one on."""

    @property
    def is_complete(self) -> bool:
        return self.status in ENDED and len(self.attempts) < ATTEMPTS_PER_READ


async def stream_job_log(request: Request) -> Response:
    """`GET /job/{job_id}/log/stream`: Stream a job's log as it is written, until the job ends."""
    services, job_id = services_of(request), request.path_params["job_id"]
    position = _parse_position(request.headers.get("last-event-id"))

    async def prepare() -> AsyncIterator[bytes]:
        await read_ledger(services, lambda tx: _read_logs(tx, job_id, position.attempt))
        return _stream(request, job_id, position)

    return await open_stream(request, prepare)


@dataclass(slots=True)
class _Position:
    """How far a client has read."""

    attempt: int = 1
    sent: int = 0
    """Characters of the attempt's log."""
    progress: Progress | None = None

    def __str__(self) -> str:
        return f"{self.attempt}-{self.sent}"

    def move_to(self, attempt: int) -> None:
        if attempt != self.attempt:
            self.attempt, self.sent, self.progress = attempt, 0, None


def _parse_position(text: str | None) -> _Position:
    if text is None:
        return _Position()
    attempt, _, sent = text.partition("-")
    if not all(part.isascii() and part.isdecimal() and len(part) < 10 for part in (attempt, sent)):
        raise UsageError("Last-Event-ID must be the id of an event of this stream")
    return _Position(max(1, int(attempt)), int(sent))


def _read_logs(tx: Tx, job_id: str, attempt: int) -> _StoredLogs:
    job = read.load_job(tx, job_id)
    if job is None:
        raise NotFound(f"there is no job {job_id}")
    rows = tx.dicts("attempt_logs", id=job_id, attempt=attempt, limit=ATTEMPTS_PER_READ)
    return _StoredLogs(job.status, job.attempt, rows)


async def _stream(request: Request, job_id: str, position: _Position) -> AsyncIterator[bytes]:
    services, subscribers = services_of(request), app_context_of(request).subscribers
    quiet_since = services.clock.monotonic()
    try:
        # The first id lets a client resume that is disconnected before the first event.
        yield f": following\nid: {position}\n\n".encode()
        while not subscribers.closing:
            live = await asyncio.to_thread(services.running_log, job_id)
            stored = None
            if live is None or live.attempt != position.attempt:
                stored = await read_ledger(
                    services, lambda tx: _read_logs(tx, job_id, position.attempt)
                )
            text = "".join(_events(position, live, stored))
            if not text and services.clock.monotonic() - quiet_since > HEARTBEAT_INTERVAL:
                text = ": alive\n\n"
            await reauthorize(request)
            if text:
                quiet_since = services.clock.monotonic()
                yield text.encode()
            if stored is not None and stored.is_complete:
                return
            await asyncio.sleep(STORED_INTERVAL if live is None else LIVE_INTERVAL)
    except DuctileError:
        # The response has begun and can only end. A client that reconnects gets the error.
        return


def _events(
    position: _Position, live: RunningLog | None, stored: _StoredLogs | None
) -> Iterator[str]:
    """Events for what the client does not have yet; `position` is moved."""
    for row in stored.attempts if stored else ():
        position.move_to(row["attempt"])
        yield from _log_events(position, row["stderr"] or "")
        yield _event(
            "attempt",
            position,
            attempt=row["attempt"],
            status=row["status"],
            logs=orjson.loads(row["logs"] or "[]"),
        )
        position.move_to(row["attempt"] + 1)
    if live is not None and live.attempt >= position.attempt:
        position.move_to(live.attempt)
        yield from _log_events(position, live.text)
        yield from _progress_events(position, live)
    if stored is not None and stored.is_complete:
        yield _event("end", position, status=stored.status, attempt=stored.attempt)


def _log_events(position: _Position, text: str) -> Iterator[str]:
    if len(text) > position.sent:
        new, position.sent = text[position.sent :], len(text)
        yield _event("log", position, attempt=position.attempt, stream="stderr", text=new)


def _progress_events(position: _Position, live: RunningLog) -> Iterator[str]:
    progress = find_progress(live.text)
    if progress is not None and progress != position.progress:
        position.progress = progress
        yield _event("progress", position, **describe_progress(progress, live.elapsed))


def _event(name: str, position: _Position, **fields: Any) -> str:
    return f"id: {position}\nevent: {name}\ndata: {orjson.dumps(fields).decode()}\n\n"
