"""The catalog as a server of the official SDK, which speaks the protocol's versions.

This is the only module that imports the SDK: it takes half a second and 30 MB.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any

import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS
from starlette.requests import Request
from starlette.responses import Response

import ductile
from ductile.errors import DuctileError
from ductile.http.crash_log import log_loop_error
from ductile.http.mcp import catalog
from ductile.http.mcp.refusals import describe_refusal, explain_protocol_error
from ductile.http.mcp.results import Json
from ductile.http.mcp.route_caller import InnerRequests, RouteCaller
from ductile.http.mcp.tool import GatewayTool
from ductile.http.requests import MAX_BODY
from ductile.operations.authoring.recipes import RECIPES, RULES

ERROR_BEGINS = 300
"""Bytes of a response within which its error begins, if it is one."""
_TEXT, _FLAG, _OBJECT = {"type": "string"}, {"type": "boolean"}, {"type": "object"}
_ROWS = {"type": "array"}
OUTPUTS: Mapping[str, Json] = {
    **dict.fromkeys(("job_id", "run_id", "status", "diff", "cursor"), _TEXT),
    **dict.fromkeys(("done", "ok"), _FLAG),
    **dict.fromkeys(("queue", "plugin", "pipeline"), _OBJECT),
    **dict.fromkeys(("failures", "open_breakers", "found", "jobs", "runs", "steps"), _ROWS),
    **dict.fromkeys(("schedules", "occurrences", "deliveries", "webhooks", "agents"), _ROWS),
    **dict.fromkeys(("reminders", "entries", "approvals"), _ROWS),
    **dict.fromkeys(("ids", "files"), _ROWS),
    "count": {"type": "integer"},
}
"""The schemas of the keys of results. Other keys may follow; null and empty ones are left out."""


class _SdkLog(logging.Handler):
    """Writes the SDK's messages as our own log lines; a traceback could contain a payload."""

    def emit(self, record: logging.LogRecord) -> None:
        log_loop_error(record.getMessage(), "mcp")


_sdk_log = logging.getLogger("mcp")
_sdk_log.propagate = False
_sdk_log.setLevel(logging.WARNING)
_sdk_log.handlers = [_SdkLog()]


class ProtocolHandlers:
    """Answers the requests of the protocol with the rights of one caller."""

    def __init__(self, caller: RouteCaller) -> None:
        self._caller = caller

    async def list_tools(self, _: Any, __: Any) -> types.ListToolsResult:
        try:
            shown = await catalog.visible_tools(self._caller)
        except DuctileError as error:
            raise _protocol_error(INTERNAL_ERROR, error) from None
        return types.ListToolsResult(tools=[_describe(tool) for tool in shown])

    async def call_tool(self, _: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        outcome = await catalog.call_tool(self._caller, params.name, params.arguments or {})
        return types.CallToolResult(
            content=[types.TextContent(text=outcome.text)],
            structured_content=outcome.content,
            is_error=outcome.is_error,
        )

    async def list_resources(self, _: Any, __: Any) -> types.ListResourcesResult:
        return types.ListResourcesResult(
            resources=[
                types.Resource(
                    name=topic, uri=f"{catalog.SCHEME}docs/{topic}", mime_type="text/markdown"
                )
                for topic in ("rules", *RECIPES)
            ]
        )

    async def list_templates(self, _: Any, __: Any) -> types.ListResourceTemplatesResult:
        return types.ListResourceTemplatesResult(
            resource_templates=[
                types.ResourceTemplate(
                    name=path, uri_template=f"{catalog.SCHEME}{path}", description=about
                )
                for path, about in catalog.TEMPLATES.items()
            ]
        )

    async def read_resource(
        self, _: Any, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        try:
            text = await catalog.read_resource(self._caller, str(params.uri))
        except DuctileError as error:
            raise _protocol_error(INVALID_PARAMS, error) from None
        return types.ReadResourceResult(
            contents=[types.TextResourceContents(uri=params.uri, text=text)]
        )

    async def list_prompts(self, _: Any, __: Any) -> types.ListPromptsResult:
        return types.ListPromptsResult(
            prompts=[
                types.Prompt(
                    name=name,
                    description=about,
                    arguments=[types.PromptArgument(name=argument, required=True)],
                )
                for name, (about, argument, _) in catalog.PROMPTS.items()
            ]
        )

    async def get_prompt(
        self, _: Any, params: types.GetPromptRequestParams
    ) -> types.GetPromptResult:
        try:
            text = catalog.write_prompt(params.name, params.arguments or {})
        except DuctileError as error:
            raise _protocol_error(INVALID_PARAMS, error) from None
        message = types.PromptMessage(role="user", content=types.TextContent(text=text))
        return types.GetPromptResult(messages=[message])


def _protocol_error(code: int, error: DuctileError) -> MCPError:
    """With the code, the fix and the nearest name that a refusal of a tool has."""
    return MCPError(code, error.message, describe_refusal(error)["error"])


def build_server(caller: RouteCaller) -> Server[Any]:
    """Return a server whose calls have the rights of this caller."""
    handlers = ProtocolHandlers(caller)
    return Server(
        "ductile",
        version=ductile.__version__,
        instructions=RULES,
        # Validation by headers would list the tools once more before each call.
        get_tool_input_schema=lambda _: None,
        on_list_tools=handlers.list_tools,
        on_call_tool=handlers.call_tool,
        on_list_resources=handlers.list_resources,
        on_list_resource_templates=handlers.list_templates,
        on_read_resource=handlers.read_resource,
        on_list_prompts=handlers.list_prompts,
        on_get_prompt=handlers.get_prompt,
    )


def _describe(tool: GatewayTool) -> types.Tool:
    required = {"required": list(tool.required)} if tool.required else {}
    return types.Tool(
        name=tool.name,
        description=tool.description,
        input_schema={
            "type": "object",
            "properties": dict(tool.properties),
            **required,
        },
        output_schema=_output_schema(tool),
        annotations=_annotate(tool),
    )


def _output_schema(tool: GatewayTool) -> Json:
    return {"type": "object", "properties": {key: OUTPUTS[key] for key in tool.returns}}


def _annotate(tool: GatewayTool) -> types.ToolAnnotations:
    if tool.is_read_only:
        return types.ToolAnnotations(read_only_hint=True, open_world_hint=False)
    return types.ToolAnnotations(
        read_only_hint=False,
        destructive_hint=tool.is_destructive,
        idempotent_hint=tool.is_repeatable,
        # A plugin may reach anything outside.
        open_world_hint=tool.name in ("run", "retry", "replay", "plugin"),
    )


async def serve_request(request: Request) -> Response:
    """Answer one request of streamable HTTP; sessions are not kept."""
    manager = StreamableHTTPSessionManager(
        build_server(InnerRequests(request)),
        json_response=True,
        stateless=True,
        max_request_body_size=MAX_BODY,
    )
    sent: list[dict[str, Any]] = []

    async def send(message: Any) -> None:
        sent.append(message)

    # The tasks of the SDK end with the request that they belong to.
    async with manager.run():
        await manager.handle_request(request.scope, request.receive, send)
    body = b"".join(message.get("body", b"") for message in sent)
    headers = {
        name.decode("latin-1"): value.decode("latin-1")
        for name, value in sent[0]["headers"]
        if name != b"content-length"
    }
    if b'"error"' in body[:ERROR_BEGINS]:
        body = json.dumps(explain_protocol_error(json.loads(body))).encode()
    return Response(body, sent[0]["status"], headers)
