"""Recovery at a start: by boot id, without running jobs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import apsw
import pytest

from ductile.clock import from_text
from ductile.errors import Refused
from ductile.operations import status
from ductile.operations.jobs import JobRetry, end_queued
from ductile.operations.overview import overview
from tests.conftest import CountingEntropy
from tests.engine.site import OK, Site

ROW = (
    "INSERT INTO job_queue (id, plugin, command, payload, status, attempt, max_attempts,"
    " submitted_by, created_at, started_at, owner) VALUES"
    " (?, ?, 'poll', ?, ?, ?, 4, 'cli', '2026-02-08T10:00:00.000000Z', ?, ?)"
)
STARTED = "2026-02-08T10:00:01.000000Z"


class JobTable:
    """The job table of a ledger that no gateway uses."""

    def __init__(self, site: Site) -> None:
        with site.opened():
            pass
        self.path = str(site.state / "state.db")

    def insert(
        self,
        id: str,
        plugin: str = "echo",
        *,
        status: str = "running",
        attempt: int = 1,
        started: str | None = STARTED,
        owner: str | None = "dead-boot",
        payload: str = "{}",
    ) -> None:
        connection = apsw.Connection(self.path)
        connection.execute(ROW, (id, plugin, payload, status, attempt, started, owner))
        connection.close()

    def claim_again(self, id: str) -> None:
        connection = apsw.Connection(self.path)
        connection.execute(
            "UPDATE job_queue SET status = 'running', owner = 'next-boot' WHERE id = ?", (id,)
        )
        connection.close()

    def insert_many(self, count: int, running: int) -> None:
        """Insert rows: the first ones running, the others queued."""
        connection = apsw.Connection(self.path)
        with connection:
            connection.executemany(
                ROW,
                [
                    (f"job-{n}", "echo", "{}", "running", 1, STARTED, "dead-boot")
                    if n < running
                    else (f"job-{n}", "echo", "{}", "queued", 1, None, None)
                    for n in range(count)
                ],
            )
        connection.close()


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


# Removed plugins


def unlisted(site: Site, root: str) -> Path:
    """Make a plugin `found` in a root of its own, without an entry under `plugins`."""
    directory = site.plugin("found", OK)
    del site.settings["plugins"]["found"]
    folder = site.folder / root
    folder.mkdir()
    directory.rename(folder / "found")
    site.settings["plugin_roots"] = [str(site.plugins), str(folder)]
    return folder


def queue(site: Site, plugin: str) -> str:
    with site.opened() as running:
        return running.put(plugin)


def test_queued_jobs_wait_while_the_plugin_root_is_missing(
    site: Site, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    site.settings["service"]["log_level"] = "warn"
    root = unlisted(site, "disk")
    id = queue(site, "found")
    root.rename(site.folder / "unmounted")
    capsysbinary.readouterr()
    with site.running() as running:
        gateway = running.gateway
        gateway.reload()
        gateway.config.tick(gateway.clock.now())
        job = running.job(id)
        why = status.waits_for(job, gateway.compiled, gateway.unready)
        now = gateway.clock.now()
        page = status.status(gateway.compiled, gateway.unready, gateway.ledger, {}, now)
        held = overview(gateway)["held"]
    assert job["status"] == "queued"
    reason = f"no plugin root has a plugin named found: {root} does not exist"
    assert why == reason
    assert held == {"found": reason}
    [row] = [row for row in page["plugins"] if row["name"] == "found"]
    assert (row["state"], row["reason"]) == ("missing", f"{reason}; queued jobs: 1")
    lines = [json.loads(line) for line in capsysbinary.readouterr().out.splitlines()]
    [first, *_] = [line for line in lines if line["message"] == "queued jobs wait for their plugin"]
    assert (first["plugin"], first["jobs"], first["reason"]) == ("found", 1, reason)
    (site.folder / "unmounted").rename(root)
    with site.running() as running:
        assert running.ended(id)["status"] == "succeeded"


def test_queued_jobs_wait_while_the_plugin_root_is_empty(site: Site) -> None:
    """The directory under an unmounted file system exists."""
    root = unlisted(site, "disk")
    id = queue(site, "found")
    (root / "found").rename(site.folder / "away")
    assert recover(site, id)[0]["status"] == "queued"


def test_queued_jobs_of_a_listed_plugin_wait_while_a_root_is_missing(site: Site) -> None:
    root = unlisted(site, "disk")
    site.settings["plugins"]["found"] = {}
    id = queue(site, "found")
    root.rename(site.folder / "unmounted")
    assert recover(site, id)[0]["status"] == "queued"
    del site.settings["plugins"]["found"]
    assert recover(site, id)[0]["status"] == "queued"
    root.mkdir()
    assert recover(site, id)[0]["last_error"] == "plugin removed"


def test_queued_jobs_of_a_removed_root_are_dead(
    site: Site, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    site.settings["service"]["log_level"] = "warn"
    unlisted(site, "disk")
    id = queue(site, "found")
    site.settings["plugin_roots"] = [str(site.plugins)]
    capsysbinary.readouterr()
    [job] = recover(site, id)
    assert (job["status"], job["last_error"]) == ("dead", "plugin removed")
    assert [(a["attempt"], a["status"]) for a in job["attempts"]] == [(0, "dead")]
    lines = [json.loads(line) for line in capsysbinary.readouterr().out.splitlines()]
    [line] = [line for line in lines if line["message"] == "ended a queued job"]
    assert (line["level"], line["plugin"], line["job_id"]) == ("warn", "found", id)
    assert line["reason"] == "plugin removed"


def test_queued_jobs_of_a_bundled_plugin_that_is_no_longer_configured_are_dead(site: Site) -> None:
    site.settings["plugin_roots"] = [str(site.plugins), "bundled:"]
    site.settings["plugins"]["fetch"] = {}
    id = queue(site, "fetch")
    del site.settings["plugins"]["fetch"]
    assert recover(site, id)[0]["last_error"] == "plugin removed"


def test_job_of_a_missing_plugin_cannot_be_retried(site: Site) -> None:
    root = unlisted(site, "disk")
    with site.opened() as running:
        id = running.put("found")
        end_queued(running.gateway, (id,))
    (root / "found").rename(site.folder / "away")
    with (
        site.opened() as running,
        pytest.raises(Refused, match="no plugin root has a plugin named found"),
    ):
        running.gateway.ledger.write(JobRetry(running.gateway, id))


def test_job_row_of_an_unknown_plugin_waits(site: Site, table: JobTable) -> None:
    table.insert("a", "unknown", status="queued", started=None, owner=None)
    with site.running() as running:
        assert running.run("echo")["status"] == "succeeded"
        assert running.job("a")["status"] == "queued"


def test_queued_jobs_of_a_disabled_plugin_are_dead(site: Site, table: JobTable) -> None:
    site.plugin("off", OK, enabled=False)
    table.insert("a", "off", status="queued", started=None, owner=None)
    [job] = recover(site, "a")
    assert (job["status"], job["last_error"]) == ("dead", "plugin disabled")


def test_recovered_job_of_a_missing_plugin_waits(site: Site, table: JobTable) -> None:
    table.insert("a", "missing")
    [job] = recover(site, "a")
    assert (job["status"], job["attempt"]) == ("queued", 2)


def test_jobs_of_a_refused_plugin_wait_with_the_reason(site: Site, table: JobTable) -> None:
    site.plugin("bad", OK, manifest="config_keys: {required: [url]}\n")
    table.insert("a", "bad", status="queued", started=None, owner=None)
    with site.running() as running:
        assert running.run("echo")["status"] == "succeeded"
        assert running.job("a")["status"] == "queued"
        gateway = running.gateway
        why = status.waits_for(running.job("a"), gateway.compiled, gateway.unready)
        assert "refused" in str(why)
        assert "url" in str(why)
    site.plugin("bad", OK, config={"url": "x"})
    with site.running() as running:
        assert running.ended("a")["status"] == "succeeded"


def test_all_jobs_of_a_disabled_plugin_end_in_batches(site: Site, table: JobTable) -> None:
    site.plugin("off", OK, enabled=False)
    connection = apsw.Connection(table.path)
    with connection:
        connection.executemany(
            ROW,
            [(f"g{n}", "off", "{}", "queued", 1, None, None) for n in range(2500)],
        )
    connection.close()
    with site.opened() as running:
        assert running.gateway.ledger.read(lambda tx: tx.one("queue_depth")) == (0,)
