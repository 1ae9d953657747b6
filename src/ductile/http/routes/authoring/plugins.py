"""Creating, validating and testing plugins.

The operations are loaded at their first use: a gateway needs them for nothing else.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

from ductile.errors import UsageError
from ductile.http.middleware.auth import access_of
from ductile.http.middleware.budget import charge
from ductile.http.middleware.context import app_context_of
from ductile.http.responses import JsonResponse, read_ledger, services_of, write_ledger
from ductile.store.access.tokens import Spending

if TYPE_CHECKING:
    from ductile.http.models.authoring_bodies import NewPluginBody, PluginTestBody


async def create_plugin(request: Request, body: NewPluginBody) -> Response:
    """`POST /plugins`: Create a plugin from a template in the first of `plugin_roots`."""
    from ductile.http.models.authoring_bodies import PluginLanguage
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
    from ductile.operations.dry_run.webhook import read_webhook

    services, now = services_of(request), services_of(request).clock.now()
    plugin, command = request.path_params["plugin"], request.path_params["command"]
    wanted = PluginTest(plugin, command, body.payload, {})
    if body.webhook is not None:
        if body.payload != {}:
            raise UsageError("payload and webhook cannot be combined")
        settings = services.compiled.settings
        sent = read_webhook(settings, plugin, command, body.webhook)
        wanted = PluginTest(plugin, command, sent.payload, {}, sent.context)
    with app_context_of(request).plugin_test():
        await read_ledger(services, lambda tx: authoring.refuse_paused(tx, plugin, now))
        # Before the process starts, since a test has no transaction of its own.
        await write_ledger(services, charge(request, lambda _tx: None, Spending.RUNS, lambda _: 1))
        tested = await asyncio.to_thread(
            authoring.test_plugin,
            services.compiled,
            wanted,
            authorize=partial(access_of(request).authorize_command, request.scope, plugin, command),
            environ=services.environ,
            now=now,
            entropy=services.entropy,
        )
    return JsonResponse(tested)
