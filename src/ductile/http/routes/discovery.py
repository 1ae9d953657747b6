"""What can be called here and how, for agents and programs: skills and the OpenAPI document."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ductile.core.jobs.commands import HEALTH, INIT
from ductile.http.responses import JsonResponse, build_response, services_of


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
