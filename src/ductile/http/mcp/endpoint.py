"""`POST /mcp`: the Model Context Protocol over streamable HTTP."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from ductile.errors import NotFound
from ductile.http.responses import services_of


async def serve(request: Request) -> Response:
    """`POST /mcp`: Answer a request of the Model Context Protocol."""
    if not services_of(request).compiled.settings.api.mcp:
        raise NotFound("MCP is not served; set api.mcp: true and reload")
    # Imported at the first request: a gateway without MCP is as light as before.
    from ductile.http.mcp.server import serve_request

    return await serve_request(request)
