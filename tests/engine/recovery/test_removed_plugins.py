"""Queued jobs of plugins that are removed, missing, disabled or refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import apsw
import pytest

from ductile.errors import Refused
from ductile.operations import status
from ductile.operations.jobs import JobRetry, end_queued
from ductile.operations.overview import overview
from ductile.operations.reports import waits_for
from tests.engine.recovery.job_table import ROW, JobTable
from tests.engine.site import OK, Site


@pytest.fixture
def table(site: Site) -> JobTable:
    site.plugin("echo", OK)
    return JobTable(site)


def recover(site: Site, *ids: str) -> list[dict[str, Any]]:
    with site.opened() as running:
        return [running.job(id) for id in ids]


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
        why = waits_for.waits_for(job, gateway.compiled, gateway.unready)
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


def test_jobs_of_a_bundled_plugin_that_was_removed_are_dead(site: Site) -> None:
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
        why = waits_for.waits_for(running.job("a"), gateway.compiled, gateway.unready)
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
