"""The nodes that share the ledger."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from ductile.http.responses import JsonResponse, services_of
from ductile.operations.cluster.nodes import report_nodes


async def list_nodes(request: Request) -> Response:
    """`GET /nodes`: List the nodes that share the ledger, with their state and running jobs."""
    return JsonResponse(await asyncio.to_thread(report_nodes, services_of(request)))
