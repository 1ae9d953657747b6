"""Recorded runs through a changed configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

from ductile.http.middleware.auth import require_scope
from ductile.http.middleware.context import app_context_of
from ductile.http.requests import local_directory
from ductile.http.responses import JsonResponse
from ductile.operations.reports.runs import parse_cursor

if TYPE_CHECKING:
    from ductile.http.models.queries import RunComparisonQuery


async def compare_runs(request: Request, query: RunComparisonQuery) -> Response:
    """`GET /pipelines/{name}/compare`: What the files would do with the events of past runs.

    Newest first, at most 20 per call; no plugin runs. Needs `jobs:ro` as well. Only the local
    socket accepts a `directory`.
    """
    from ductile.operations.compare import runs

    require_scope(request, "jobs:ro")
    wanted = runs.RunComparison(
        request.path_params["name"],
        local_directory(request, query.directory),
        run=query.run,
        limit=query.limit,
        since=query.since,
        before=parse_cursor(query.before),
    )
    context = app_context_of(request)
    return JsonResponse(await context.run_blocking(runs.compare_runs, context.services, wanted))
