"""One job in one document, to be attached to a report."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from ductile.http.middleware.auth import require_scope
from ductile.http.responses import build_response, services_of


async def bundle_job(request: Request) -> Response:
    """`GET /job/{job_id}/bundle`: Download a job with its request, state, files and log.

    Without secrets that are known. Needs `jobs:ro` as well; 409 for a job that has not ended.
    """
    from ductile.operations.compare.bundle import make_bundle

    require_scope(request, "jobs:ro")
    services, job_id = services_of(request), request.path_params["job_id"]
    document = await asyncio.to_thread(make_bundle, services, job_id)
    response = await build_response(services, lambda: document)
    # The id is that of a job: it has no quotes.
    response.headers["Content-Disposition"] = f'attachment; filename="job-{job_id}.json"'
    return response
