"""Plugins: list and show them, the facts that they have recorded, and the state that they keep."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response

from ductile.core.jobs.limits import PAGE_BYTES, document
from ductile.core.values.redact import hide_secret_keys
from ductile.core.values.suggest import did_you_mean
from ductile.engine.services import Services
from ductile.errors import NotFound
from ductile.http.responses import (
    JsonResponse,
    action_response,
    build_response,
    read_ledger,
    run_transaction,
    services_of,
)
from ductile.operations.reports import plugin_list
from ductile.operations.reports.plugin_state import StateChange
from ductile.plugins.manifest import Command
from ductile.store.engines.api import Tx
from ductile.store.jobs import plugin_state

if TYPE_CHECKING:
    from ductile.http.models.bodies import PluginStateBody
    from ductile.http.models.queries import FactQuery


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
        from ductile.http.openapi import document as openapi

        return openapi.describe_plugin(found, request.app.state.endpoints)

    return await build_response(services, content)


async def list_facts(request: Request, query: FactQuery) -> Response:
    """`GET /system/plugin-facts/{plugin}`: List a plugin's facts, newest first, and its state.

    A page has at most 4 MiB, unless one fact alone is larger.
    """
    services, plugin = services_of(request), request.path_params["plugin"]

    def work(tx: Tx) -> tuple[dict[str, Any], list[dict[str, Any]], int | None]:
        rows, cursor = plugin_state.list_facts(
            tx,
            plugin,
            fact_type=query.fact_type,
            before=query.before or None,
            limit=query.limit,
            # Each fact is in the response twice.
            max_bytes=PAGE_BYTES // 2,
        )
        return plugin_state.load_state(tx, plugin), rows, cursor

    state, rows, cursor = await read_ledger(services, work)
    # The facts of a plugin that was removed stay readable.
    if not rows and plugin not in services.compiled.registry.plugins:
        raise _unknown_plugin(services, plugin)

    def content() -> Any:
        shown = {"state": hide_secret_keys(state), "facts": [_redact(row) for row in rows]}
        return services.compiled.redactor.document({"plugin": plugin, **shown, "cursor": cursor})

    return await build_response(services, content)


def _redact(row: dict[str, Any]) -> dict[str, Any]:
    """Return a fact without secrets; `fact` is its name in the Go program."""
    fact = hide_secret_keys(document(row["fact_json"]))
    return {**row, "fact": fact, "fact_json": fact}


async def change_state(request: Request, body: PluginStateBody) -> Response:
    """`POST /plugins/{name}/state`: Set or remove one key of a plugin's state.

    Refused while a job of the plugin runs, which may write its state.
    """
    services, dry_run = services_of(request), body.dry_run
    change = StateChange(
        services,
        request.path_params["name"],
        body.key,
        body.value,
        removes=body.remove,
        dry=dry_run,
    )
    done = await run_transaction(services, change, dry_run=dry_run)
    return action_response({**done, "removed": body.remove}, dry_run=dry_run)
