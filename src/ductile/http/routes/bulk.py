"""BulkResult jobs at once, by a filter."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ductile.errors import UsageError
from ductile.http.middleware.context import app_context_of
from ductile.http.middleware.idempotency import once
from ductile.http.requests import flag_of, moment, number_of, object_of, status_of, text_of, word
from ductile.http.responses import JsonResponse, gateway_of, reading, writing
from ductile.model import JobStatus, SubmittedBy
from ductile.operations import bulk
from ductile.operations.bulk import BulkResult, Selection

FILTERS = ("plugin", "command", "status", "submitted_by", "before")
MOST_AT_ONCE = 1000
AT_ONCE = 100
"""Where nothing is said."""


async def cancel(request: Request) -> Response:
    """`POST /jobs/cancel`: every queued and running job that the filter finds, up to the limit."""
    gateway, selection = gateway_of(request), _selection(await object_of(request))
    return _answer(selection, await app_context_of(request).aside(bulk.cancel, gateway, selection))


async def retry(request: Request) -> Response:
    """`POST /jobs/retry`: failed and dead jobs by the same filter; an empty one is refused."""
    gateway, selection = gateway_of(request), _selection(await object_of(request))
    work = once(request, bulk.retrying(gateway, selection), BulkResult, dry=selection.dry)
    return _answer(selection, await (reading if selection.dry else writing)(gateway, work))


def _selection(body: dict[str, Any]) -> Selection:
    wanted = body.get("filter")
    if not isinstance(wanted, dict) or not wanted:
        raise UsageError(f"filter must name at least one of {', '.join(FILTERS)}")
    unknown = sorted(wanted.keys() - set(FILTERS))
    if unknown:
        raise UsageError(f"filter does not know {', '.join(unknown)}")
    if any("\0" in text for text in wanted.values() if isinstance(text, str)):
        raise UsageError("no filter holds U+0000")
    status, producer = status_of(wanted), word(wanted, "submitted_by", SubmittedBy)
    return Selection(
        plugin=text_of(wanted, "plugin"),
        command=text_of(wanted, "command"),
        status=None if status is None else JobStatus(status),
        submitted_by=None if producer is None else SubmittedBy(producer),
        before=moment(wanted, "before"),
        limit=number_of(body, "limit", AT_ONCE, most=MOST_AT_ONCE),
        dry=flag_of(body, "dry_run"),
    )


def _answer(selection: Selection, found: BulkResult) -> Response:
    answer = {**asdict(found), "count": len(found.jobs)}
    return JsonResponse({**answer, "dry_run": True} if selection.dry else answer)
