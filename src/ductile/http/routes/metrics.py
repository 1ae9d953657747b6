"""`GET /metrics`: samples for Prometheus."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from ductile.engine.observability.prometheus import CONTENT_TYPE
from ductile.http.middleware.context import app_context_of


async def show_metrics(request: Request) -> Response:
    """`GET /metrics`: Return the metrics for Prometheus; public with `api.metrics: public`."""
    context = app_context_of(request)
    text = await asyncio.to_thread(context.metrics.render, context.subscribers.count)
    return PlainTextResponse(text, media_type=CONTENT_TYPE)
