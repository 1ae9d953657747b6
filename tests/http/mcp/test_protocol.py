"""Both generations of the protocol, with the official client, over HTTP and stdio."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from importlib import util
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from ductile.cli import main
from ductile.cli.client import GatewayClient
from ductile.cli.commands.mcp import SocketRequests
from ductile.config import load
from ductile.errors import ConfigError
from ductile.http.mcp.server import ProtocolHandlers
from tests.http.harness import ADMIN, ApiHarness, running_api, write
from tests.http.mcp.agent import MCP_CONFIG

ERAS = ["legacy", "2026-07-28", "auto"]
DUCTILE = str(Path(sys.executable).with_name("ductile"))


@pytest.fixture(scope="module")
def api() -> Iterator[ApiHarness]:
    with running_api(MCP_CONFIG) as api:
        yield api


async def work(client: Client) -> dict[str, Any]:
    listed = await client.list_tools()
    assert len(listed.tools) == 16
    ran = await client.call_tool("run", {"plugin": "echo", "command": "poll", "wait_s": 25})
    refused = await client.call_tool("run", {"plugin": "nobody", "command": "poll"})
    assert refused.is_error
    assert len((await client.list_resource_templates()).resource_templates) == 4
    assert (await client.read_resource("ductile://docs/rules")).contents
    assert (await client.get_prompt("write_plugin", {"name": "mine"})).messages
    content: dict[str, Any] = ran.structured_content
    return content


@pytest.mark.parametrize("era", ERAS)
def test_official_client_over_http(api: ApiHarness, era: str) -> None:
    host, port = api.address("api")

    async def use() -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {ADMIN}"}
        async with httpx2.AsyncClient(headers=headers) as http:
            transport = streamable_http_client(f"http://{host}:{port}/mcp", http_client=http)
            async with Client(transport, mode=era) as client:
                return await work(client)

    assert anyio.run(use)["status"] == "succeeded"


@pytest.mark.parametrize("era", ERAS)
def test_official_client_over_stdio(api: ApiHarness, era: str) -> None:
    async def use() -> dict[str, Any]:
        arguments = ["mcp", "--config", str(api.root)]
        async with Client(
            StdioServerParameters(command=DUCTILE, args=arguments), mode=era
        ) as client:
            return await work(client)

    assert anyio.run(use)["status"] == "succeeded"


def test_dry_run_names_the_gateway(api: ApiHarness, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["mcp", "--config", str(api.root), "--dry-run"]) == 0
    assert capsys.readouterr().out == f"would use {api.gateway.socket_path}\n"


def test_list_of_tools_says_that_the_gateway_is_stopped(tmp_path: Path) -> None:
    handlers = ProtocolHandlers(SocketRequests(GatewayClient(tmp_path / "ductile.sock")))
    with pytest.raises(MCPError, match="no gateway responds at"):
        anyio.run(handlers.list_tools, None, None)


def test_gateway_without_mcp_does_not_import_the_sdk() -> None:
    code = "import sys, ductile.http.app, ductile.cli.main; print('mcp' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_missing_extra_names_the_command_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    find_spec = util.find_spec
    for module in ("ductile.config.validate", "ductile.cli.commands.mcp"):
        monkeypatch.setattr(
            f"{module}.find_spec", lambda name: None if name == "mcp" else find_spec(name)
        )
    write(tmp_path, "config.yaml", MCP_CONFIG)
    (tmp_path / "plugins").mkdir()
    with pytest.raises(ConfigError, match=r"pip install 'ductile-gateway\[mcp\]'"):
        load(tmp_path, environ={})
    assert main(["mcp", "--config", str(tmp_path)]) == 1
    assert "pip install 'ductile-gateway[mcp]'" in capsys.readouterr().err
