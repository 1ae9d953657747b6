"""Figures about attempts and the queue."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

from ductile.http.middleware.context import app_context_of
from ductile.http.requests import parse_window
from ductile.http.responses import JsonResponse, services_of
from ductile.operations.reports import analytics

if TYPE_CHECKING:
    from ductile.http.models.queries import SummaryQuery


async def show_summary(request: Request, query: SummaryQuery) -> Response:
    """`GET /analytics/summary`: Count the attempts that ended in a window, by plugin and status."""
    window = parse_window(query.window)
    found = await asyncio.to_thread(analytics.summarize_attempts, services_of(request), window)
    return JsonResponse({"since": found["since"], "window": query.window, **found})


async def show_hours(request: Request) -> Response:
    """`GET /analytics/hours`: Count the attempts that ended in each of the last 24 hours."""
    hourly, now = app_context_of(request).hourly_outcomes, services_of(request).clock.now()
    return JsonResponse(await asyncio.to_thread(hourly.summarize, now))


async def show_queue(request: Request) -> Response:
    """`GET /analytics/queue`: Count queued and running jobs by plugin, with the oldest job."""
    return JsonResponse(await asyncio.to_thread(analytics.summarize_queue, services_of(request)))
