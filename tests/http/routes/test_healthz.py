"""`GET /healthz` is 200 only while a job can be accepted and settled."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from ductile.engine.observability import health
from ductile.errors import LedgerError
from tests.engine.site import OK, Site
from tests.http.conftest import Served
from tests.store.engines.sqlite.harness import Disk, damage_table
from tests.waiting import WAIT_LIMIT, until

Serve = Callable[[], Served]


@pytest.fixture(autouse=True)
def fresh_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have each request make its own probe, and the loop tick often."""
    monkeypatch.setattr(health, "PROBE_MAX_AGE", 0.0)
    monkeypatch.setattr(health, "TICK_SECONDS", 0.05)
    monkeypatch.setattr(health.HealthMonitor.check, "__kwdefaults__", {"probe_max_age": 0.0})


def failing(served: Served) -> dict[str, Any]:
    return {part["part"]: part for part in served.get("/healthz").json.get("failing", ())}


def test_healthy_gateway_has_no_failing_parts_and_leaves_no_rows(site: Site, serve: Serve) -> None:
    site.plugin("echo", OK)
    served = serve()
    for _ in range(3):
        answer = served.get("/healthz")
        assert (answer.status, answer.json["status"]) == (200, "ok")
        assert "failing" not in answer.json
    ledger = served.running.gateway.ledger
    assert served.get("/jobs").json["jobs"] == []
    [boot] = ledger.read(lambda tx: tx.all("open_boots"))
    assert boot[0] == served.running.gateway.boot
    assert "ductile_healthy 1\n" in served.get("/metrics").body.decode()


def test_damaged_page_of_the_job_log_makes_the_gateway_unhealthy(
    site: Site, serve: Serve, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    site.plugin("echo", OK)
    with site.running() as running:
        running.run("echo")
    damage_table(site.state / "state.db", "job_log")
    served = serve()
    answer = served.get("/healthz")
    assert (answer.status, answer.json["status"]) == (503, "error")
    assert failing(served)["settle"]["critical"] is True
    assert "malformed" in answer.json["error"]
    metrics = served.get("/metrics").body.decode()
    assert "ductile_healthy 0\n" in metrics
    assert 'ductile_part_failing{part="settle"} 1\n' in metrics
    assert 'ductile_part_failing{part="accept"} 0\n' in metrics
    job_id = served.post("/plugin/echo/poll").json["job_id"]
    dispatcher = served.running.gateway.dispatcher
    until(lambda: job_id in dispatcher.unsettled_jobs())
    assert served.get(f"/job/{job_id}").json["status"] == "running"
    until(lambda: b'"part of the gateway fails"' in capfdbinary.readouterr().out)


def test_full_disk_makes_the_gateway_unhealthy_until_there_is_space(
    site: Site,
    serve: Serve,
    disk: Disk,
) -> None:
    site.plugin("echo", OK)
    served = serve()
    disk.failing = "full"
    assert served.post("/plugin/echo/poll").status == 507
    answer = served.get("/healthz")
    assert (answer.status, answer.json["code"]) == (503, "ledger_full")
    assert until(lambda: failing(served).get("commit"))["critical"] is True
    disk.failing = ""
    until(lambda: served.get("/healthz").status == 200)


def test_moved_ledger_file_refuses_jobs_until_it_is_back(site: Site, serve: Serve) -> None:
    site.plugin("echo", OK)
    served = serve()
    ledger, elsewhere = site.state / "state.db", site.folder / "elsewhere.db"
    ledger.rename(elsewhere)
    refused = served.post("/plugin/echo/poll")
    assert (refused.status, refused.json["code"]) == (503, "ledger_moved")
    assert str(elsewhere) in refused.json["error"]
    assert served.get("/healthz").status == 503
    assert failing(served)["ledger file"]["code"] == "ledger_moved"
    monitor = served.running.gateway.health
    assert monitor is not None
    begun = {outage.part: outage.since for outage in monitor.outages.read()}
    failing(served)
    elsewhere.rename(ledger)
    until(lambda: served.get("/healthz").status == 200)
    ended = {outage.part: outage for outage in monitor.outages.read()}["ledger file"]
    assert ended.since == begun["ledger file"]
    assert ended.ended_at is not None
    job_id = served.post("/plugin/echo/poll").json["job_id"]
    assert served.running.ended(job_id)["status"] == "succeeded"


def test_ledger_that_does_not_answer_makes_the_gateway_unhealthy(
    site: Site, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "PROBE_TIMEOUT", 0.2)
    served, go_on = serve(), threading.Event()
    served.running.gateway.ledger.submit(
        lambda _: go_on.wait(WAIT_LIMIT), lambda _result, _error: None
    )
    try:
        # The answer of a moment ago may be used again.
        until(lambda: served.get("/healthz").status == 503)
        assert served.get("/healthz").json["error"] == "the ledger does not answer"
    finally:
        go_on.set()
    until(lambda: served.get("/healthz").status == 200)


def test_loop_that_fails_is_reported_and_critical_only_if_jobs_need_it(
    site: Site, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = serve()
    loops = served.running.gateway.loops

    def fail(_now: object) -> float:
        raise LedgerError("page 7 is damaged")

    monkeypatch.setattr(loops["retention"], "_tick", fail)
    loops.wake("retention")
    until(lambda: "retention" in failing(served))
    answer = served.get("/healthz")
    assert (answer.status, failing(served)["retention"]["critical"]) == (200, False)
    monkeypatch.setattr(loops["scheduler"], "_tick", fail)
    loops.wake("scheduler")
    until(lambda: "scheduler" in failing(served))
    answer = served.get("/healthz")
    assert (answer.status, answer.json["error"]) == (503, "page 7 is damaged")
