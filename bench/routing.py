"""What it costs to find where an event goes, among few and among many pipelines and routes."""

from __future__ import annotations

import time
from datetime import UTC, datetime

from bench.findings import Check, Findings, median, table
from ductile.core.pipelines.build_router import build_router
from ductile.core.pipelines.compiler.compile import compile_pipelines
from ductile.core.pipelines.lineage import Done
from ductile.core.pipelines.pipeline import Compiled
from ductile.core.pipelines.router import Router
from ductile.core.pipelines.routes import Route
from ductile.model import Event

PLUGINS = {"a": frozenset({"handle"}), "b": frozenset({"handle"})}
EVENT = Event("event.3", {"n": 1}, None, "a", datetime(2026, 2, 8, tzinfo=UTC), "e-1")
DONE = Done(job_id="j-1", plugin="a", submitted_by="api", hops=0, context={})


def measure(*, quick: bool) -> Findings:
    rounds, calls = (5, 500) if quick else (15, 2000)
    few, many = _router(10), _router(10_000)
    figures: dict[str, list[float]] = {"10": [], "10,000": []}
    for _ in range(rounds):
        for name, router in (("10", few), ("10,000", many)):
            began = time.perf_counter()
            for _ in range(calls):
                router.route(DONE, (EVENT,))
            figures[name].append((time.perf_counter() - began) / calls * 1e6)
    rows = [{"pipelines and routes": n, "us an event": median(f)} for n, f in figures.items()]
    print(table(rows))
    found = Findings("routing")
    ratio = median(figures["10,000"]) / median(figures["10"])
    found.checks = [Check("an event against 10,000, of against 10", ratio, at_most=2.0)]
    found.details = {"rows": rows}
    return found


def _router(count: int) -> Router:
    pipelines = [
        {"name": f"p{n}", "on": f"event.{n}", "steps": [{"uses": "b"}]} for n in range(count)
    ]
    compiled = compile_pipelines(pipelines, PLUGINS)
    assert isinstance(compiled, Compiled)
    return build_router([Route("a", f"event.{n}", "b") for n in range(count)], compiled)
