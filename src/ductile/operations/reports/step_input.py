"""What the `with` of a step made of the input of its job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from ductile.core.pipelines.step_io import entered_payload, prepare_step
from ductile.core.values.json_values import Failure
from ductile.engine.config.compiled import CompiledConfig
from ductile.store.engines.api import Tx


def describe_with(
    tx: Tx, compiled: CompiledConfig, job: Mapping[str, Any]
) -> dict[str, Any] | None:
    """The values that `with` sets in the payload of a job; None if its step has no `with`.

    They are not stored but computed, from the job's input and the configuration in force. They are
    `exact` if the job started under this configuration.
    """
    router = compiled.tx_config.router
    step = (job["pipeline"], job["step_path"], job["plugin"], job["command"])
    node = router.node(*step[:2])
    plan = compiled.plans.get(job["plugin"])
    if node is None or node.with_ is None or plan is None or router.lost(*step) is not None:
        return None
    row = tx.one("context", id=job["entered_context_id"] or "")
    prepared = prepare_step(
        node,
        entered_payload(job["command"], job["payload"]),
        orjson.loads(row[0]) if row else {},
        orjson.loads(plan.config),
        hops=job["hops"],
    )
    current = compiled.loaded.config_hash
    exact = tx.one("started_under", id=job["id"], config_hash=current) is not None
    if isinstance(prepared, Failure):
        return {"values": None, "fails": prepared.reason, "exact": exact}
    return {"values": prepared.with_values, "fails": None, "exact": exact}
