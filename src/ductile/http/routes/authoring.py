"""Changing a gateway from afar: its configuration, and new plugins.

The operations are loaded at their first use: a gateway needs them for nothing else.
"""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response

from ductile.config import load
from ductile.errors import ConfigError, Refused, UsageError
from ductile.http.middleware.auth import access_of
from ductile.http.middleware.context import app_context_of
from ductile.http.middleware.lease import charge
from ductile.http.responses import JsonResponse, read_ledger, services_of, write_ledger
from ductile.store.access.tokens import Spending

if TYPE_CHECKING:
    from ductile.http.models.bodies import NewPluginBody, PluginTestBody, SettingBody
    from ductile.http.models.queries import DiffQuery, HistoryQuery, PlanQuery


async def check_config(request: Request) -> Response:
    """`GET /config/check`: Check the files of the configuration; `ok` is false with problems."""
    from ductile.operations.config.check import check

    services = services_of(request)
    path, environ, now = services.compiled.loaded.path, services.environ, services.clock.now()

    def work() -> dict[str, Any]:
        try:
            checked = check(lambda: load(path, environ=environ), environ=environ, now=now)
        except ConfigError as error:
            return {"ok": False, "problems": [problem.document() for problem in error.problems]}
        return {"ok": True, "problems": [problem.document() for problem in checked.warnings]}

    return JsonResponse(await app_context_of(request).run_blocking(work))


async def plan_config(request: Request, query: PlanQuery) -> Response:
    """`GET /config/plan`: Compare the files with the configuration in force; 409 with problems.

    Only the local socket accepts a `directory`, since other callers could probe any file.
    """
    from ductile.operations.plan.plan import make_plan

    if query.directory is not None and not access_of(request).local:
        raise Refused("a directory can be given on the local socket only")
    if query.directory is not None and (
        not query.directory.startswith("/") or "\0" in query.directory
    ):
        raise UsageError("directory must be absolute")
    directory = Path(query.directory) if query.directory is not None else None
    context = app_context_of(request)
    return JsonResponse(await context.run_blocking(make_plan, context.services, directory))


async def list_history(request: Request, query: HistoryQuery) -> Response:
    """`GET /config/history`: List the configurations that were in force, newest first."""
    from ductile.store import snapshots

    services = services_of(request)
    rows = await read_ledger(services, lambda tx: snapshots.list_snapshots(tx, query.limit))
    return JsonResponse({"snapshots": rows})


async def diff_config(request: Request, query: DiffQuery) -> Response:
    """`GET /config/diff`: Compare two configurations that were in force; 404 if one is unknown."""
    from ductile.operations.plan.history import diff_snapshots

    services = services_of(request)
    redactor = services.compiled.redactor
    return JsonResponse(
        await read_ledger(services, lambda tx: diff_snapshots(tx, query.from_, query.to, redactor))
    )


async def set_setting(request: Request, body: SettingBody) -> Response:
    """`POST /config/set`: Change one setting in the file that defines it; a reload applies it."""
    from ductile.operations.config.edit import change_setting

    services = services_of(request)
    changed = await app_context_of(request).run_blocking(
        change_setting,
        services.compiled.loaded.path,
        body.path,
        body.value,
        environ=services.environ,
        now=services.clock.now(),
        dry=body.dry_run,
    )
    return JsonResponse({**changed, "dry_run": True} if body.dry_run else changed)


async def create_plugin(request: Request, body: NewPluginBody) -> Response:
    """`POST /plugins`: Create a plugin from a template in the first of `plugin_roots`."""
    from ductile.http.models.bodies import PluginLanguage
    from ductile.operations.authoring import plugins as authoring

    created = await app_context_of(request).run_blocking(
        authoring.scaffold_plugin,
        services_of(request).compiled,
        body.name,
        (body.language or PluginLanguage.PYTHON).value,
        dry=body.dry_run,
    )
    return JsonResponse(created, 200 if body.dry_run else 201)


async def validate_plugin(request: Request) -> Response:
    """`GET /plugins/{plugin}/validate`: Report every problem of a plugin's files."""
    from ductile.operations.authoring import plugins as authoring

    services = services_of(request)
    search_path = services.environ.get("PATH")
    name = request.path_params["plugin"]
    return JsonResponse(
        await app_context_of(request).run_blocking(
            authoring.validate_plugin, services.compiled, name, search_path
        )
    )


async def test_plugin(request: Request, body: PluginTestBody) -> Response:
    """`POST /plugins/{plugin}/test/{command}`: Run a plugin once, as a test.

    The process is real, and may change what it reaches outside; nothing is recorded here.
    """
    from ductile.operations.authoring import plugins as authoring
    from ductile.operations.dry_run.plugin import PluginTest

    services, now = services_of(request), services_of(request).clock.now()
    plugin, command = request.path_params["plugin"], request.path_params["command"]
    with app_context_of(request).plugin_test():
        await read_ledger(services, lambda tx: authoring.refuse_paused(tx, plugin, now))
        # Before the process starts, since a test has no transaction of its own.
        await write_ledger(services, charge(request, lambda _tx: None, Spending.RUNS, lambda _: 1))
        tested = await asyncio.to_thread(
            authoring.test_plugin,
            services.compiled,
            PluginTest(plugin, command, body.payload, {}),
            authorize=partial(access_of(request).authorize_command, request.scope, plugin, command),
            environ=services.environ,
            now=now,
            entropy=services.entropy,
        )
    return JsonResponse(tested)
