"""Pipelines: list and show them."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ductile.core.flow.pauses import Pauses
from ductile.core.pipelines import diagram
from ductile.core.pipelines.pipeline import Pipeline
from ductile.http.middleware.auth import has_scope
from ductile.http.responses import (
    JsonResponse,
    read_ledger,
    services_of,
)
from ductile.operations.dry_run import pipeline as dry_run
from ductile.operations.flow.pauses import show_pause
from ductile.operations.pipelines import find_pipeline
from ductile.store.engines.api import Tx
from ductile.store.flow.pauses import load_pauses
from ductile.store.jobs.runs import SHOWN, find_last_runs

RUNS_SCOPE = "jobs:ro"


async def list_pipelines(request: Request) -> Response:
    """`GET /pipelines`: List pipelines with their trigger, mode, number of steps and last run."""
    services = services_of(request)
    pipelines, now = services.compiled.tx_config.router.pipelines, services.clock.now()
    shows_runs = has_scope(request, RUNS_SCOPE)

    def work(tx: Tx) -> list[dict[str, Any]]:
        pauses = load_pauses(tx, now)
        rows = [_summarize(pipeline, pauses) for _, pipeline in sorted(pipelines.items())]
        if not shows_runs:
            return rows
        last = find_last_runs(tx, pipelines)
        return [{**row, "last_run": _describe_run(last.get(row["name"]))} for row in rows]

    return JsonResponse({"pipelines": await read_ledger(services, work)})


def _describe_run(row: dict[str, Any] | None) -> dict[str, Any] | None:
    if row is None:
        return None
    return {
        "instance_id": row["id"],
        "status": SHOWN[row["status"]].value,
        "started_at": row["created_at"],
        "ended_at": row["ended_at"],
    }


def _summarize(pipeline: Pipeline, pauses: Pauses) -> dict[str, Any]:
    pause = pauses.pipelines.get(pipeline.name)
    return {
        "name": pipeline.name,
        "on": pipeline.on,
        "on_hook": pipeline.hook,
        "from_plugin": pipeline.from_plugin,
        "from_pipeline": pipeline.from_pipeline,
        "if": str(pipeline.condition) if pipeline.condition else None,
        "execution_mode": pipeline.execution_mode,
        "timeout": pipeline.timeout,
        "workspace": pipeline.workspace,
        "max_depth": pipeline.max_depth,
        "paused": None if pause is None else show_pause(pause),
        "steps": len(pipeline.nodes),
    }


async def show_pipeline(request: Request) -> Response:
    """`GET /pipeline/{name}`: Show the compiled steps of a pipeline, and two diagrams of them."""
    services = services_of(request)
    compiled = services.compiled
    pipeline = find_pipeline(compiled.tx_config.router, request.path_params["name"])
    now = services.clock.now()
    pauses = await read_ledger(services, lambda tx: load_pauses(tx, now))
    return JsonResponse(
        {
            **_summarize(pipeline, pauses),
            "steps": dry_run.resolved(compiled, pipeline),
            "mermaid": diagram.mermaid(pipeline),
            "drawing": diagram.tree(pipeline),
        }
    )
