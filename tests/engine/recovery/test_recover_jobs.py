"""Recovery of the jobs of dead boots, without running them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ductile.clock import from_text
from tests.conftest import CountingEntropy
from tests.engine.recovery.job_table import JobTable
from tests.engine.site import OK, Site


@pytest.fixture
def table(site: Site) -> JobTable:
    site.plugin("echo", OK)
    return JobTable(site)


def recover(site: Site, *ids: str) -> list[dict[str, Any]]:
    with site.opened() as running:
        return [running.job(id) for id in ids]


def test_lost_attempt_counts_and_waits_for_its_backoff(site: Site, table: JobTable) -> None:
    table.insert("a")
    [job] = recover(site, "a")
    assert (job["status"], job["attempt"], job["max_attempts"]) == ("queued", 2, 4)
    assert (job["owner"], job["started_at"]) == (None, None)
    assert "died" in job["last_error"]
    edges = [(t["from_status"], t["to_status"]) for t in job["transitions"]]
    assert edges == [("running", "failed"), ("failed", "queued")]


@pytest.mark.parametrize(("chance", "seconds"), [(0.0, 30.0), (0.5, 45.0), (0.9, 57.0)])
def test_backoff_of_a_recovered_job_has_jitter(
    site: Site, table: JobTable, chance: float, seconds: float
) -> None:
    table.insert("a")
    with site.opened(entropy=CountingEntropy(chance)) as running:
        job = running.job("a")
    wait = from_text(job["next_retry_at"]) - from_text(job["attempts"][0]["completed_at"])
    assert wait.total_seconds() == seconds


def test_recovered_job_is_logged_as_a_warning(
    site: Site, table: JobTable, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    site.settings["service"]["log_level"] = "warn"
    table.insert("a", attempt=2)
    recover(site, "a")
    [line] = [json.loads(line) for line in capsysbinary.readouterr().out.splitlines()]
    assert line["message"] == "recovered a job of a dead gateway"
    assert line["was_running"] is True
    assert (line["level"], line["plugin"], line["job_id"]) == ("warn", "echo", "a")
    assert (line["attempt"], line["boot"]) == (2, "dead-boot")


def test_recovered_job_without_attempts_left_is_dead(site: Site, table: JobTable) -> None:
    table.insert("a", attempt=4)
    [job] = recover(site, "a")
    assert (job["status"], job["attempt"]) == ("dead", 4)
    assert job["attempts"][0]["status"] == "dead"


def test_unstarted_claim_is_requeued_without_counting(site: Site, table: JobTable) -> None:
    table.insert("a", started=None)
    [job] = recover(site, "a")
    assert (job["status"], job["attempt"], job["next_retry_at"]) == ("queued", 1, None)


def test_second_unstarted_claim_of_an_attempt_counts(site: Site, table: JobTable) -> None:
    """The job may be what kills the gateway before it is started."""
    table.insert("a", started=None)
    recover(site, "a")
    table.claim_again("a")
    [job] = recover(site, "a")
    assert (job["status"], job["attempt"]) == ("queued", 2)
    assert job["next_retry_at"] is not None
    edges = [(each["to_status"], each["reason"]) for each in job["transitions"]]
    assert [to for to, _ in edges] == ["queued", "failed", "queued"]


def test_running_job_without_owner_is_recovered(site: Site, table: JobTable) -> None:
    table.insert("a", owner=None)
    [job] = recover(site, "a")
    assert (job["status"], job["attempt"]) == ("queued", 2)


def test_jobs_of_several_boots_are_recovered(site: Site, table: JobTable) -> None:
    table.insert("a", owner="boot-1")
    table.insert("b", owner="boot-2")
    assert [job["status"] for job in recover(site, "a", "b")] == ["queued", "queued"]


def test_recovery_runs_no_jobs(site: Site, table: JobTable) -> None:
    marker = site.folder / "ran"
    site.plugin("echo", f"touch {marker}\n{OK}")
    table.insert("a", started=None)
    recover(site, "a")
    assert not marker.exists()


def test_second_start_recovers_nothing(site: Site, table: JobTable) -> None:
    table.insert("a")
    recover(site, "a")
    [job] = recover(site, "a")
    assert (job["attempt"], len(job["attempts"])) == (2, 1)


def test_queued_jobs_run_after_a_restart(site: Site, table: JobTable) -> None:
    table.insert("a", status="queued", started=None, owner=None)
    with site.running() as running:
        assert running.ended("a")["status"] == "succeeded"


def test_recovered_job_runs_when_due(site: Site, table: JobTable) -> None:
    site.settings["plugins"]["echo"]["retry"] = {"backoff_base": "10ms"}
    table.insert("a")
    with site.running() as running:
        job = running.ended("a")
    assert (job["status"], job["attempt"]) == ("succeeded", 2)


@pytest.mark.parametrize("payload", ["not json", "{"])
def test_malformed_running_job_does_not_prevent_a_start(
    site: Site, table: JobTable, payload: str
) -> None:
    table.insert("odd", payload=payload)
    table.insert("a")
    with site.running() as running:
        assert running.job("a")["status"] == "queued"
        assert running.run("echo")["status"] == "succeeded"


def test_recovery_settles_1000_jobs_per_transaction(site: Site, table: JobTable) -> None:
    """Many more than a gateway has workers; queued rows cost nothing."""

    def transactions() -> int:
        with site.opened() as running:
            left = running.gateway.ledger.read(lambda tx: tx.one("running_count"))
            assert left == (0,)
            return int(str(running.gateway.ledger.health()["transactions"]))

    table.insert("a")
    one = transactions()
    table.insert_many(10_000, running=2_500)
    assert transactions() == one + 2
