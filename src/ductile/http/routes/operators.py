"""For operators: the configuration, what the queue does, metrics."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from ductile.clock import from_text, to_text
from ductile.config import Settings
from ductile.config.models.units import parse_duration
from ductile.config.redact import redact_settings
from ductile.core.pipelines.compile import Pipeline
from ductile.engine.observability.prometheus import CONTENT_TYPE
from ductile.errors import UsageError
from ductile.http.middleware.context import app_context_of
from ductile.http.responses import JsonResponse, gateway_of, reading


async def config_view(request: Request) -> Response:
    """`GET /config/view`: the configuration in force, redacted, and what it compiles to."""
    compiled = gateway_of(request).compiled
    router = compiled.tx_config.router
    return JsonResponse(
        {
            "config": redact_settings(compiled.settings),
            "config_hash": compiled.loaded.config_hash,
            "snapshot_id": compiled.snapshot_id,
            "compiled_routes": {name: _compiled(p) for name, p in sorted(router.pipelines.items())},
            "routes": [
                {"source": {"source_plugin": source, "event_type": kind}, "to": list(plugins)}
                for (source, kind), plugins in sorted(router.routes.items())
            ],
            "warnings": [str(warning) for warning in compiled.warnings],
        }
    )


def _compiled(pipeline: Pipeline) -> dict[str, Any]:
    return {
        "pipeline": pipeline.name,
        "source": {
            "event_type": pipeline.on,
            "hook": pipeline.hook,
            "source_plugin": pipeline.from_plugin,
        },
        "if": str(pipeline.condition) if pipeline.condition else None,
        "entry": pipeline.entry,
        "steps": [
            {
                "step": node.path,
                "kind": node.kind.value,
                "plugin": node.plugin or None,
                "command": node.command if node.plugin else None,
                "if": str(node.condition) if node.condition else None,
                "next": node.next,
                "otherwise": node.otherwise,
            }
            for node in pipeline.nodes.values()
        ],
    }


async def analytics_summary(request: Request) -> Response:
    """`GET /analytics/summary`: attempts that ended within `?window=24h`, by plugin and status."""
    gateway, window = gateway_of(request), request.query_params.get("window", "24h")
    try:
        since = to_text(gateway.clock.now() - timedelta(seconds=parse_duration(window)))
    except (ValueError, OverflowError) as error:
        raise UsageError(f"window: {error}") from None
    rows = await reading(gateway, lambda tx: tx.dicts("ends_by_plugin", since=since))
    total: dict[str, int] = {}
    for row in rows:
        total[row["status"]] = total.get(row["status"], 0) + row["attempts"]
        row["mean_ms"] = None if row["mean_ms"] is None else round(float(row["mean_ms"]), 1)
    return JsonResponse({"since": since, "window": window, "total": total, "plugins": rows})


async def analytics_queue(request: Request) -> Response:
    """`GET /analytics/queue`: what waits and runs by plugin, and how long the first waits."""
    gateway = gateway_of(request)
    rows, now = await reading(gateway, lambda tx: tx.dicts("queue_by_plugin")), gateway.clock.now()
    depth = {"queued": 0, "running": 0}
    for row in rows:
        depth[row["status"]] += row["jobs"]
        row["oldest_seconds"] = round(max((now - from_text(row["oldest"])).total_seconds(), 0), 3)
    return JsonResponse({**depth, "plugins": rows})


def metrics_are_public(settings: Settings) -> bool:
    return settings.api.metrics == "public"


async def metrics(request: Request) -> Response:
    """`GET /metrics`: for Prometheus; open to all with `api.metrics: public`."""
    app_context = app_context_of(request)
    text = await asyncio.to_thread(app_context.metrics.render, app_context.stream.followers)
    return PlainTextResponse(text, media_type=CONTENT_TYPE)
