"""What plugins have observed: their facts, which are kept for good (002 §5.9)."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ductile.core.jobs.limits import PAGE_BYTES, document
from ductile.core.values.redact import hide_secret_keys
from ductile.errors import NotFound
from ductile.http.requests import before, limit_of
from ductile.http.responses import gateway_of, made, reading
from ductile.store.engines.api import Tx
from ductile.store.jobs import facts, plugin_state


async def listing(request: Request) -> Response:
    """`GET /system/plugin-facts/{plugin}`: the newest first, and the state they came to.

    A page has at most 4 MiB, unless one fact alone has more; `before` (its `cursor`) goes on.
    """
    gateway, plugin = gateway_of(request), request.path_params["plugin"]
    query = request.query_params
    limit, wanted, start = limit_of(query), query.get("fact_type"), before(query)

    def work(tx: Tx) -> tuple[dict[str, Any], list[dict[str, Any]], int | None]:
        page = facts.list_facts(
            tx, plugin, fact_type=wanted, before=start, limit=limit, max_bytes=PAGE_BYTES
        )
        return plugin_state.load_state(tx, plugin), *page

    known, rows, behind = await reading(gateway, work)
    # What a plugin that is gone has observed stays to be seen.
    if not rows and plugin not in gateway.compiled.registry.plugins:
        raise NotFound(f"there is no plugin {plugin!r}")

    def shown() -> Any:
        told = {"state": hide_secret_keys(known), "facts": [_shown(row) for row in rows]}
        return gateway.compiled.redactor.document({"plugin": plugin, **told, "cursor": behind})

    return await made(gateway, shown)


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "fact_json": hide_secret_keys(document(row["fact_json"]))}
