"""Reloading the configuration of every node, each from its own files."""

from __future__ import annotations

import threading
from typing import Any

import orjson

from ductile.clock import to_text
from ductile.engine.services import Services
from ductile.errors import ConfigError, DuctileError
from ductile.operations.cluster.nodes import report_nodes
from ductile.store import nodes
from ductile.store.engines.api import Tx
from ductile.store.nodes import NodeRequest, RequestKind

ANSWER_SECONDS = 20.0
POLL_SECONDS = 0.05
NO_ANSWER = {"status": "no answer", "problems": ["the node has not answered the request yet"]}


def reload_all(services: Services, *, dry: bool) -> dict[str, Any]:
    """Have every node that has not stopped reload; returns the answer of each, by name.

    One node that refuses its configuration does not stop the others.
    """
    rows = [row for row in report_nodes(services)["nodes"] if row["state"] != "stopped"]
    if dry:
        return {"nodes": [{"name": row["name"], "status": "would reload"} for row in rows]}
    others = {row["boot"]: row["name"] for row in rows if row["boot"] != services.boot}
    requests = [NodeRequest(services.entropy.uuid(), boot, RequestKind.RELOAD) for boot in others]
    now = to_text(services.clock.now())

    def ask(tx: Tx) -> None:
        for request in requests:
            nodes.add_request(tx, request, now)

    if requests:
        services.ledger.write(ask)
    answers = {services.node: _reload_here(services)}
    found = _wait_for_answers(services, [request.id for request in requests])
    for request in requests:
        answer = found.get(request.id)
        answers[others[request.boot]] = NO_ANSWER if answer is None else orjson.loads(answer)
    return {"nodes": [{"name": name, **answers[name]} for name in sorted(answers)]}


def _reload_here(services: Services) -> dict[str, Any]:
    try:
        warnings = services.reload()
    except ConfigError as error:
        return {"status": "refused", "problems": [str(problem) for problem in error.problems]}
    except DuctileError as error:
        return {"status": "refused", "problems": [error.message]}
    return {"status": "reloaded", "problems": [], "warnings": [str(one) for one in warnings]}


def _wait_for_answers(services: Services, ids: list[str]) -> dict[str, str]:
    give_up = services.clock.monotonic() + ANSWER_SECONDS
    while True:
        found = services.ledger.read(lambda tx: nodes.find_answers(tx, ids))
        if len(found) == len(ids) or services.clock.monotonic() > give_up:
            return found
        services.clock.wait(threading.Event(), POLL_SECONDS)
