"""`ductile mcp`: the Model Context Protocol over stdio, for an agent on the same machine."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from typing import TYPE_CHECKING

from ductile.cli import output
from ductile.cli.client import GatewayClient
from ductile.cli.command import CommandContext, write
from ductile.config.validate import INSTALL_MCP
from ductile.errors import Refused

if TYPE_CHECKING:
    from ductile.http.mcp.route_caller import RouteRequest

MAX_REQUESTS = 32
"""Requests at a time: with fewer threads, calls that wait would hold back the one that cancels."""


@write("mcp")
def mcp(context: CommandContext) -> None:
    """Serve the Model Context Protocol to an agent over stdio."""
    if find_spec("mcp") is None:
        raise Refused(f"ductile mcp needs the extra mcp; install it: {INSTALL_MCP}")
    client = context.require_gateway("no gateway is running; start one: ductile system start")
    if context.dry_run:
        document = {"dry_run": True, "gateway": str(client.path)}
        context.show(document, lambda _: output.print_line(f"would use {client.path}"))
        return
    from mcp.server.stdio import stdio_server

    from ductile.http.mcp.server import build_server

    async def serve() -> None:
        threads = ThreadPoolExecutor(MAX_REQUESTS, "mcp")
        asyncio.get_running_loop().set_default_executor(threads)
        server = build_server(SocketRequests(client))
        async with stdio_server() as (incoming, outgoing):
            await server.run(incoming, outgoing, server.create_initialization_options())

    asyncio.run(serve())


class SocketRequests:
    """Requests to a running gateway, each on a connection of its own."""

    def __init__(self, client: GatewayClient) -> None:
        self._client = client

    async def send(self, request: RouteRequest) -> tuple[int, bytes]:
        body = request.body or None
        return await asyncio.to_thread(
            self._client.request, request.method, request.target, body, request.headers
        )
