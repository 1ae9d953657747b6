"""For agents and programs: what can be called here, and how."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ductile.core.jobs.commands import HEALTH, INIT
from ductile.errors import NotFound
from ductile.http.openapi import document
from ductile.http.responses import JsonResponse, gateway_of
from ductile.operations import status
from ductile.plugins.manifest import Command


async def plugin(request: Request) -> Response:
    """`GET /plugin/{plugin}`: its state, and each command with its schemas."""
    gateway, name = gateway_of(request), request.path_params["plugin"]
    rows = status.plugins(gateway.compiled, gateway.unready)
    row = next((row for row in rows if row["name"] == name), None)
    if row is None:
        raise NotFound(f"there is no plugin {name!r}")
    loaded = gateway.compiled.registry.plugins.get(name)
    commands = [_command(c) for c in loaded.manifest.commands] if loaded else []
    return JsonResponse({**row, "commands": commands})


def _command(command: Command) -> dict[str, Any]:
    return {
        "name": command.name,
        "type": command.type.value,
        "description": command.description,
        "input_schema": command.input_schema,
        "output_schema": command.output_schema,
        "idempotent": command.idempotent,
    }


async def plugin_openapi(request: Request) -> Response:
    """`GET /plugin/{p}/openapi.json`: OpenAPI 3.1 of this plugin's commands."""
    name = request.path_params["plugin"]
    found = gateway_of(request).compiled.registry.plugins.get(name)
    if found is None:
        raise NotFound(f"there is no plugin {name!r}")
    return JsonResponse(document.of_plugin(found))


async def whole_openapi(request: Request) -> Response:
    """`GET /openapi.json`: OpenAPI 3.1 of every route."""
    return JsonResponse(document.of_table(request.app.state.endpoints))


async def skills(request: Request) -> Response:
    """`GET /skills`: what an agent can have done here: commands and pipelines."""
    compiled = gateway_of(request).compiled
    commands = [
        {
            "name": f"{name}.{command.name}",
            "kind": "command",
            "description": command.description or found.manifest.description,
            "type": command.type.value,
            "input_schema": command.input_schema,
            "output_schema": command.output_schema,
            "method": "POST",
            "path": f"/plugin/{name}/{command.name}",
        }
        for name, found in sorted(compiled.registry.plugins.items())
        for command in found.manifest.commands
        if command.name not in (INIT, HEALTH)
    ]
    pipelines = [
        {
            "name": name,
            "kind": "pipeline",
            "description": f"{pipeline.execution_mode} pipeline of {len(pipeline.nodes)} steps",
            "type": "write",
            "method": "POST",
            "path": f"/pipeline/{name}",
        }
        for name, pipeline in sorted(compiled.tx_config.router.pipelines.items())
    ]
    return JsonResponse({"skills": [*commands, *pipelines]})


async def ai_plugin(request: Request) -> Response:
    """`GET /.well-known/ai-plugin.json`: where an agent begins to read."""
    name = gateway_of(request).compiled.settings.service.name
    text = "Runs the plugins and pipelines of this gateway, and tells how their jobs ended."
    return JsonResponse(
        {
            "schema_version": "v1",
            "name_for_human": name,
            "name_for_model": "".join(c if c.isalnum() else "_" for c in name),
            "description_for_human": text,
            "description_for_model": f"{text} List what there is with GET /skills; POST a "
            "skill's path with {'payload': ...}; ask GET /job/{job_id} how it went.",
            "auth": {"type": "user_http", "authorization_type": "bearer"},
            "api": {"type": "openapi", "url": "/openapi.json"},
        }
    )
