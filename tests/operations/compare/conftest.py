"""A gateway whose plugin has run, with a secret in every place that a job leaves behind."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy

import pytest

from ductile.model import SubmittedBy
from ductile.operations.pipelines import PipelineStart
from ductile.store.jobs.runs import find_run
from tests.engine.site import Running, Site
from tests.operations.compare.scenario import PIPELINE, SECRET, WORKER
from tests.operations.ledger_copies import on_postgres
from tests.waiting import until


@pytest.fixture(params=["sqlite", "postgres"])
def worked(request: pytest.FixtureRequest, site: Site) -> Iterator[Running]:
    """`worker` has succeeded twice as a step and once alone, and failed once."""
    if request.param == "postgres":
        on_postgres(site, request.getfixturevalue("postgres"))
    env = {"OWN": SECRET, "A_TOKEN": "canary-of-the-environment"}
    own = {"config": {"api_key": SECRET}, "env": env, "retry": {"max_attempts": 2}}
    site.plugin("worker", WORKER, **own)
    site.settings["service"]["workspaces"] = True
    site.settings["pipelines"] = [deepcopy(PIPELINE)]
    with site.running() as running:
        work(running)
        yield running


def work(running: Running) -> None:
    """A run with both steps, a job without a pipeline, and one that fails."""
    gateway = running.gateway
    payload = {"size": 3, "carried": SECRET, "password": "canary-of-the-payload"}
    started = gateway.ledger.write(PipelineStart(gateway, "main", payload, SubmittedBy.API))

    def has_ended() -> bool:
        run = gateway.ledger.read(lambda tx: find_run(tx, started.instance_id))
        return run is not None and run["status"] == "ended"

    until(has_ended)
    assert running.run("worker")["status"] == "succeeded"
    assert running.run("worker", payload={"bad": 1})["status"] == "failed"
