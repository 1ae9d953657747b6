"""Which gateways are alive while their ledger is verified."""

from __future__ import annotations

import os

import pytest

from ductile.errors import LedgerError
from ductile.operations.verify import living_boots, verify_ledger
from ductile.store import boots
from ductile.store.engines.api import Ledger
from ductile.store.engines.open import open_ledger
from tests.engine.site import OK, Site
from tests.store.conftest import execute


def looked_at(site: Site) -> Ledger:
    state = site.load().settings.state
    return open_ledger(path=state.path, url=state.url, read_only=True)


def test_gateway_that_runs_is_alive_and_those_before_it_are_not(place: Site) -> None:
    with place.opened() as before:
        first = before.gateway.boot
    with place.opened() as site_run:
        now = site_run.gateway.clock.now()
        # One that was killed, whose process id is ours again.
        site_run.gateway.ledger.write(
            lambda tx: boots.begin_boot(tx, id="0-killed", pid=os.getpid(), version="1", now=now)
        )
        execute(
            site_run.gateway.ledger, "UPDATE boots SET started_at = '2020' WHERE id = '0-killed'"
        )
        alive = living_boots(site_run.gateway.ledger, place.state)
        assert alive is not None
        assert [alive(boot) for boot in (first, "0-killed", site_run.gateway.boot)] == [
            False,
            False,
            True,
        ]


def test_no_gateway_is_alive_if_none_runs(place: Site) -> None:
    with place.opened():
        pass
    ledger = looked_at(place)
    assert living_boots(ledger, place.state) is None
    ledger.close()


def test_running_job_of_a_living_gateway_is_not_a_violation(place: Site) -> None:
    gate = place.gate()
    place.plugin("slow", gate.script() + OK)
    with place.running() as site_run:
        job_id = site_run.put("slow")
        gate.arrived()
        report = verify_ledger(site_run.gateway.ledger, place.state)
        assert (report.ok, report.notes) == (True, [])
        execute(site_run.gateway.ledger, "UPDATE job_queue SET owner = 'another'")
        report = verify_ledger(site_run.gateway.ledger, place.state, quick=True)
        assert {found.invariant for found in report.violations} == {"owners", "jobs"}
        owner = site_run.gateway.boot
        execute(site_run.gateway.ledger, f"UPDATE job_queue SET owner = '{owner}'")
        gate.open()
        site_run.ended(job_id)


def test_empty_database_is_not_a_ledger(place: Site) -> None:
    state = place.load().settings.state
    if state.path is not None:
        place.state.mkdir()
        state.path.touch()
    ledger = looked_at(place)
    with pytest.raises(LedgerError, match="not a ductile ledger"):
        verify_ledger(ledger, place.state)
    ledger.close()
