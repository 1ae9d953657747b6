"""A stop: running jobs get their grace, then are requeued; no process remains."""

from __future__ import annotations

import threading

import pytest

from ductile.clock import from_text
from ductile.model import Cancellation
from ductile.runner.client import SlotClient
from tests.engine.site import OK, Running, Site
from tests.waiting import WAIT_LIMIT


def stop_in_thread(running: Running) -> threading.Thread:
    thread = threading.Thread(target=running.end)
    thread.start()
    assert running.gateway.stopping.wait(WAIT_LIMIT)
    return thread


def run_after_restart(site: Site, id: str) -> dict:
    with site.opened() as running:
        return running.job(id)


def test_job_that_ends_within_the_grace_is_settled(site: Site) -> None:
    gate = site.gate()
    site.plugin("echo", gate.script() + OK)
    with site.running() as running:
        id = running.put("echo")
        gate.arrived()
        thread = stop_in_thread(running)
        gate.open()
        thread.join(WAIT_LIMIT)
    assert run_after_restart(site, id)["status"] == "succeeded"


@pytest.fixture
def graces(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Records the grace between SIGTERM and SIGKILL, and shortens it."""
    recorded: list[float] = []
    cancel = SlotClient.cancel

    def record_grace(slot: SlotClient, grace: float) -> None:
        recorded.append(grace)
        cancel(slot, min(grace, 0.1))

    monkeypatch.setattr(SlotClient, "cancel", record_grace)
    return recorded


@pytest.mark.parametrize("stubborn", ["", "trap '' TERM\n"])
def test_job_beyond_the_grace_is_requeued_without_counting(
    site: Site, graces: list[float], stubborn: str
) -> None:
    gate = site.gate()
    site.settings["service"]["shutdown_grace"] = "100ms"
    site.plugin("echo", stubborn + gate.script() + OK, retry={"max_attempts": 1})
    with site.running() as running:
        id = running.put("echo")
        gate.arrived()
        running.end()
    assert site.alive() == []
    assert graces == [0.0]
    job = run_after_restart(site, id)
    assert (job["status"], job["attempt"], job["max_attempts"]) == ("queued", 2, 2)
    assert (job["next_retry_at"], job["started_at"]) == (None, None)


def test_requeued_job_runs_at_the_next_start(site: Site) -> None:
    gate = site.gate()
    site.settings["service"]["shutdown_grace"] = "0s"
    site.plugin("echo", gate.script() + OK, retry={"max_attempts": 1})
    with site.running() as running:
        id = running.put("echo")
        gate.arrived()
    with site.running() as running:
        gate.arrived()
        gate.open()
        assert running.ended(id)["status"] == "succeeded"


def test_repeated_stops_use_no_attempts(site: Site) -> None:
    gate = site.gate()
    site.settings["service"]["shutdown_grace"] = "0s"
    site.plugin("echo", gate.script() + "exit 1", retry={"max_attempts": 2, "backoff_base": "60s"})
    with site.running() as running:
        id = running.put("echo")
        gate.arrived()
    for _ in range(3):
        with site.running() as running:
            gate.arrived()
    with site.running() as running:
        gate.arrived()
        gate.open()
        job = running.tried(id)
    assert (job["attempt"], job["max_attempts"]) == (6, 6)
    due = from_text(job["next_retry_at"]) - from_text(job["attempts"][-1]["completed_at"])
    assert 60 <= due.total_seconds() <= 120


def test_nothing_is_claimed_after_a_stop_begins(site: Site) -> None:
    gate = site.gate()
    site.settings["service"]["max_workers"] = 1
    site.plugin("echo", gate.script() + OK)
    with site.running() as running:
        first, second = running.put("echo"), running.put("echo")
        gate.arrived()
        thread = stop_in_thread(running)
        gate.open(2)
        thread.join(WAIT_LIMIT)
    assert run_after_restart(site, first)["status"] == "succeeded"
    job = run_after_restart(site, second)
    assert (job["status"], job["attempt"]) == ("queued", 1)


def test_escaped_processes_are_killed_at_a_stop(site: Site) -> None:
    gate = site.gate()
    site.settings["service"]["shutdown_grace"] = "0s"
    site.plugin("echo", "setsid sleep 600 >/dev/null 2>&1 &\n" + gate.script())
    with site.running() as running:
        running.put("echo")
        gate.arrived()
    assert site.alive() == []


def test_idle_gateway_stops_at_once(site: Site) -> None:
    site.plugin("echo", OK)
    # Longer than the time limit of this test: a stop that waits for it would fail.
    site.settings["service"]["shutdown_grace"] = "1h"
    with site.running() as running:
        running.run("echo")


def test_stop_without_jobs_ends_the_boot(site: Site) -> None:
    site.plugin("echo", OK)
    with site.running():
        pass
    with site.opened() as running:
        assert running.gateway.ledger.read(lambda tx: tx.all("running_owners")) == []


# Cancelling one job


def test_cancelled_running_job_is_dead_with_the_reason(site: Site) -> None:
    gate = site.gate()
    site.plugin("echo", gate.script())
    with site.running() as running:
        id = running.put("echo")
        gate.arrived()
        assert running.gateway.cancel_running(id, Cancellation.OPERATOR)
        job = running.ended(id)
        assert (job["status"], job["last_error"], job["attempt"]) == ("dead", "cancelled", 1)
        assert site.alive() == []


def test_cancel_affects_one_job_only(site: Site) -> None:
    gate = site.gate()
    site.plugin("echo", gate.script() + OK)
    with site.running() as running:
        one, other = running.put("echo"), running.put("echo")
        gate.arrived(), gate.arrived()
        assert running.gateway.cancel_running(one, Cancellation.OPERATOR)
        running.ended(one)
        gate.open()
        assert running.ended(other)["status"] == "succeeded"


def test_cancel_of_a_job_that_does_not_run_here_does_nothing(site: Site) -> None:
    site.plugin("echo", OK)
    with site.running() as running:
        id = running.run("echo")["id"]
        assert not running.gateway.cancel_running(id, Cancellation.OPERATOR)
        assert not running.gateway.cancel_running("nosuch", Cancellation.OPERATOR)


def test_plugin_that_ignores_a_cancel_is_killed_after_five_seconds(
    site: Site, graces: list[float]
) -> None:
    gate = site.gate()
    site.plugin("echo", "trap '' TERM\n" + gate.script())
    with site.running() as running:
        id = running.put("echo")
        gate.arrived()
        running.gateway.cancel_running(id, Cancellation.OPERATOR)
        assert running.ended(id)["status"] == "dead"
    assert graces == [5.0]
