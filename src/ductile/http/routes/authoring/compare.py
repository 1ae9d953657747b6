"""Changed plugins on recorded requests."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from ductile.http.middleware.audit import with_entry
from ductile.http.middleware.auth import access_of
from ductile.http.middleware.budget import charge
from ductile.http.middleware.context import app_context_of
from ductile.http.requests import local_directory, wait_for_disconnect
from ductile.http.responses import JsonResponse, read_ledger, services_of
from ductile.store.access.tokens import Spending

if TYPE_CHECKING:
    from ductile.engine.config.compiled import CompiledConfig
    from ductile.http.models.authoring_bodies import PluginComparisonBody
    from ductile.operations.compare.temporary_slot import TemporarySlot
    from ductile.store.engines.api import Tx

T = TypeVar("T")


async def compare_plugin(request: Request, body: PluginComparisonBody) -> Response:
    """`POST /plugins/{plugin}/compare`: Run the plugin's files on the requests of past jobs.

    Newest first, at most 20 jobs and a few seconds per call; `cursor` leads to the next page.
    Nothing is sent or scheduled, and nothing committed but an audit entry. The token also needs
    the scope of each command. It ends when the caller disconnects.
    """
    from ductile.core.values.differences import IgnoredPaths
    from ductile.operations.authoring.plugins import refuse_paused
    from ductile.operations.compare.plugin import PluginComparison
    from ductile.operations.compare.plugin import compare_plugin as compare
    from ductile.operations.compare.temporary_slot import TemporarySlot

    services, access = services_of(request), access_of(request)
    plugin, now = request.path_params["plugin"], services.clock.now()
    wanted = PluginComparison(
        plugin,
        local_directory(request, body.directory),
        limit=body.limit,
        since=body.since,
        before=body.before,
        ignored=IgnoredPaths(body.ignore),
        allow_network=body.allow_network,
    )

    def begin(changed: CompiledConfig, commands: Sequence[str]) -> None:
        for command in commands:
            access.authorize_command(request.scope, plugin, command, changed.registry)
        # The audit entry, and a page from the budget of a lease: a process will run.
        paid = charge(request, _do_nothing, Spending.RUNS, lambda _: 1)
        services.ledger.write(with_entry(paid, services.clock.now()))

    slot = TemporarySlot()
    services.on_stop.append(slot.interrupt)
    try:
        with app_context_of(request).plugin_test():
            if body.allow_network:
                # Only then it reaches what the pause keeps it from.
                await read_ledger(services, lambda tx: refuse_paused(tx, plugin, now))
            comparing = asyncio.to_thread(compare, services, wanted, slot, begin)
            return JsonResponse(await _until_disconnected(request, comparing, slot))
    finally:
        # Also if the caller's request was cancelled.
        slot.interrupt()
        services.on_stop.remove(slot.interrupt)


async def _until_disconnected(
    request: Request, comparing: Coroutine[Any, Any, T], slot: TemporarySlot
) -> T:
    """The result; a caller that disconnects ends the process that runs."""
    result = asyncio.create_task(comparing)
    disconnect = asyncio.create_task(wait_for_disconnect(request))
    try:
        await asyncio.wait({result, disconnect}, return_when=asyncio.FIRST_COMPLETED)
        if not result.done():
            slot.interrupt()
        return await result
    finally:
        disconnect.cancel()
        result.cancel()


def _do_nothing(_tx: Tx) -> None:
    pass
