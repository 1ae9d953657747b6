"""`GET /system/plugin-facts/{plugin}`: the facts that a plugin has recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response

from ductile.core.jobs.limits import PAGE_BYTES, document
from ductile.core.values.redact import hide_secret_keys
from ductile.errors import NotFound
from ductile.http.responses import build_response, read_ledger, services_of
from ductile.store.engines.api import Tx
from ductile.store.jobs import facts, plugin_state

if TYPE_CHECKING:
    from ductile.http.models.queries import FactQuery


async def list_facts(request: Request, query: FactQuery) -> Response:
    """`GET /system/plugin-facts/{plugin}`: List a plugin's facts, newest first, and its state.

    A page has at most 4 MiB, unless one fact alone is larger.
    """
    services, plugin = services_of(request), request.path_params["plugin"]

    def work(tx: Tx) -> tuple[dict[str, Any], list[dict[str, Any]], int | None]:
        rows, cursor = facts.list_facts(
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
        raise NotFound(f"there is no plugin {plugin!r}")

    def content() -> Any:
        shown = {"state": hide_secret_keys(state), "facts": [_redact(row) for row in rows]}
        return services.compiled.redactor.document({"plugin": plugin, **shown, "cursor": cursor})

    return await build_response(services, content)


def _redact(row: dict[str, Any]) -> dict[str, Any]:
    """Return a fact without secrets; `fact` is its name in the Go program."""
    fact = hide_secret_keys(document(row["fact_json"]))
    return {**row, "fact": fact, "fact_json": fact}
