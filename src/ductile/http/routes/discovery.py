"""What can be called here and how, for agents and programs."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ductile.core.jobs.commands import HEALTH, INIT
from ductile.core.values.suggest import did_you_mean
from ductile.engine.services import Services
from ductile.errors import NotFound
from ductile.http.responses import JsonResponse, build_response, services_of
from ductile.operations.reports import plugin_list
from ductile.plugins.manifest import Command


async def list_plugins(request: Request) -> Response:
    """`GET /plugins`: List every plugin that was found or configured, and why one cannot run."""
    return JsonResponse({"plugins": await _read_plugins(services_of(request))})


async def show_plugin(request: Request) -> Response:
    """`GET /plugin/{plugin}`: Show the state of a plugin, and its commands with their schemas."""
    services, name = services_of(request), request.path_params["plugin"]
    rows = await _read_plugins(services)
    row = next((row for row in rows if row["name"] == name), None)
    if row is None:
        raise _unknown_plugin(services, name)
    loaded = services.compiled.registry.plugins.get(name)
    commands = [_describe(command) for command in loaded.manifest.commands] if loaded else []
    return JsonResponse({**row, "commands": commands})


async def _read_plugins(services: Services) -> list[dict[str, Any]]:
    return await asyncio.to_thread(
        plugin_list.list_plugins,
        services.compiled,
        services.unready,
        services.ledger,
        services.clock.now(),
        services.warm_slots,
    )


def _unknown_plugin(services: Services, name: str) -> NotFound:
    known = services.compiled.registry.plugins
    return NotFound(f"there is no plugin {name!r}{did_you_mean(name, known)}")


def _describe(command: Command) -> dict[str, Any]:
    return {
        "name": command.name,
        "type": command.type.value,
        "description": command.description,
        "input_schema": command.input_schema,
        "output_schema": command.output_schema,
        "idempotent": command.idempotent,
    }


async def show_plugin_openapi(request: Request) -> Response:
    """`GET /plugin/{plugin}/openapi.json`: Return the OpenAPI 3.1 document of a plugin."""
    services, name = services_of(request), request.path_params["plugin"]
    found = services.compiled.registry.plugins.get(name)
    if found is None:
        raise _unknown_plugin(services, name)

    def content() -> dict[str, Any]:
        from ductile.http.openapi import document

        return document.describe_plugin(found, request.app.state.endpoints)

    return await build_response(services, content)


async def show_openapi(request: Request) -> Response:
    """`GET /openapi.json`: Return the OpenAPI 3.1 document of every route."""

    def content() -> dict[str, Any]:
        # Imported here: it loads the response models, which a gateway needs for nothing else.
        from ductile.http.openapi import document

        return document.describe_routes(request.app.state.endpoints)

    return await build_response(services_of(request), content)


async def list_skills(request: Request) -> Response:
    """`GET /skills`: List the commands and pipelines that an agent can run."""
    compiled = services_of(request).compiled
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


async def show_ai_plugin(request: Request) -> Response:
    """`GET /.well-known/ai-plugin.json`: Return the plugin manifest for agents."""
    name = services_of(request).compiled.settings.service.name
    text = "Runs the plugins and pipelines of this gateway and reports the results of their jobs."
    return JsonResponse(
        {
            "schema_version": "v1",
            "name_for_human": name,
            "name_for_model": "".join(c if c.isalnum() else "_" for c in name),
            "description_for_human": text,
            "description_for_model": f"{text} List the skills with GET /skills; POST to a skill's "
            "path with {'payload': ...}; read the result with GET /job/{job_id}.",
            "auth": {"type": "user_http", "authorization_type": "bearer"},
            "api": {"type": "openapi", "url": "/openapi.json"},
        }
    )
