"""A client of `/mcp` that sends single requests of streamable HTTP."""

from __future__ import annotations

import http.client
import json
from dataclasses import dataclass, field
from typing import Any

from tests.http.harness import ADMIN, CONFIG, ApiHarness
from tests.waiting import WAIT_LIMIT

MCP_CONFIG = CONFIG.replace("listen: 127.0.0.1:0", "listen: 127.0.0.1:0\n  mcp: true")
HEADERS = {
    "Accept": "application/json, text/event-stream",
    "Content-Type": "application/json",
    "MCP-Protocol-Version": "2025-11-25",
}


class ToolError(Exception):
    """A tool's refusal."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(error)
        self.code, self.error = error["code"], error


@dataclass
class Agent:
    """Has nothing but the MCP tools of one gateway."""

    address: tuple[str, int]
    token: str = ADMIN
    calls: list[str] = field(default_factory=list)

    def ask(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        document = self._send(method, params)
        assert "result" in document, document
        result: dict[str, Any] = document["result"]
        return result

    def fail(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Return the error of a request that the protocol refuses."""
        error: dict[str, Any] = self._send(method, params)["error"]
        return error

    def _send(self, method: str, params: dict[str, Any] | None) -> dict[str, Any]:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params or {}}
        connection = http.client.HTTPConnection(*self.address, timeout=WAIT_LIMIT)
        try:
            headers = {**HEADERS, "Authorization": f"Bearer {self.token}"}
            connection.request("POST", "/mcp", json.dumps(body), headers)
            response = connection.getresponse()
            raw = response.read()
        finally:
            connection.close()
        assert response.status == 200, (response.status, raw)
        document: dict[str, Any] = json.loads(raw)
        return document

    def call(self, tool: str, /, **given: Any) -> dict[str, Any]:
        """Return the structured result of a tool; raise `ToolError` for a refusal."""
        self.calls.append(tool)
        result = self.ask("tools/call", {"name": tool, "arguments": given})
        assert len(json.dumps(result, ensure_ascii=False).encode()) < 8192, tool
        [text] = result["content"]
        content: dict[str, Any] = result["structuredContent"]
        assert json.loads(text["text"]) == content
        if result.get("isError"):
            raise ToolError(content["error"])
        return content

    def tools(self) -> dict[str, dict[str, Any]]:
        return {tool["name"]: tool for tool in self.ask("tools/list")["tools"]}


def agent_of(api: ApiHarness, token: str = ADMIN) -> Agent:
    return Agent(api.address("api"), token)
