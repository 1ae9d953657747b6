"""`POST /mcp`: the Model Context Protocol over streamable HTTP."""

from __future__ import annotations

import asyncio
from importlib import import_module

from starlette.requests import Request
from starlette.responses import Response

from ductile.errors import NotFound
from ductile.http.responses import services_of


async def serve(request: Request) -> Response:
    """`POST /mcp`: Answer a request of the Model Context Protocol."""
    if not services_of(request).compiled.settings.api.mcp:
        raise NotFound(
            "MCP is not served; set api.mcp: true and reload",
            run="ductile config set api.mcp true && ductile system reload",
        )
    # Imported at the first request, so that a gateway without MCP is as light as before, and in a
    # thread, so that other requests do not wait half a second for it.
    server = await asyncio.to_thread(import_module, "ductile.http.mcp.server")
    response: Response = await server.serve_request(request)
    return response
