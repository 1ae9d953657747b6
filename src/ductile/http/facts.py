"""What plugins have observed: their facts, which are kept for good (002 §5.9)."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ductile.core.bounds import document
from ductile.core.redact import hide_secret_keys
from ductile.errors import NotFound
from ductile.http.answers import JsonResponse, gateway_of, reading
from ductile.http.questions import limit_of
from ductile.store import state
from ductile.store.ledger import Tx


async def listing(request: Request) -> Response:
    """`GET /system/plugin-facts/{plugin}`: the newest first, and the state they came to."""
    gateway, plugin = gateway_of(request), request.path_params["plugin"]
    query = request.query_params
    limit, wanted = limit_of(query), query.get("fact_type")

    def work(tx: Tx) -> dict[str, Any]:
        rows = (
            tx.dicts("facts_of", plugin=plugin, limit=limit)
            if wanted is None
            else tx.dicts("facts_of_type", plugin=plugin, fact_type=wanted, limit=limit)
        )
        known = hide_secret_keys(state.of(tx, plugin))
        return {"plugin": plugin, "state": known, "facts": [_shown(row) for row in rows]}

    found = await reading(gateway, work)
    # What a plugin that is gone has observed stays to be seen.
    if not found["facts"] and plugin not in gateway.blueprint.registry.plugins:
        raise NotFound(f"there is no plugin {plugin!r}")
    return JsonResponse(gateway.blueprint.redactor.document(found))


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "fact_json": hide_secret_keys(document(row["fact_json"]))}
