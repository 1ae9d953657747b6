"""Pause and resume over HTTP: what is shown, recorded and held, and that a pause survives."""

from __future__ import annotations

from typing import Any

from ductile.core.flow.pauses import PauseKind
from ductile.operations.flow.pauses import PauseChange
from tests.engine.site import OK, Site


def ready(site: Site) -> None:
    site.settings["service"]["max_workers"] = 2
    site.plugin("echo", OK)
    site.plugin("other", OK)
    site.settings["pipelines"] = [{"name": "line", "on": "go", "steps": [{"uses": "echo"}]}]


def queued(served: Any, job_id: str) -> str:
    job = served.get(f"/job/{job_id}").json
    assert job["status"] == "queued"
    return str(job["waits_for"])


def test_jobs_of_a_paused_plugin_wait_and_name_the_pause(site: Site, serve) -> None:
    ready(site)
    served = serve()
    paused = served.post("/plugins/echo/pause", {"reason": "upgrade", "duration": "2h"}).json
    assert (paused["kind"], paused["name"], paused["reason"]) == ("plugin", "echo", "upgrade")
    held = served.post("/plugin/echo/poll").json["job_id"]
    free = served.post("/plugin/other/poll").json["job_id"]
    served.running.ended(free)
    expected = (
        f"plugin echo is paused since {paused['paused_at']} by {paused['paused_by']} (upgrade) "
        f"until {paused['until']}; `ductile plugin resume echo` resumes it"
    )
    assert queued(served, held) == expected
    assert f"It is queued: {expected}." in served.get(f"/job/{held}/why").json["why"]
    row = served.get("/plugin/echo").json
    assert row["paused"] == paused
    assert row["reason"] == expected
    assert served.get("/pauses").json == {"pauses": [paused]}
    resumed = served.post("/plugins/echo/resume").json
    assert resumed == {"kind": "plugin", "name": "echo", "resumed": True}
    served.running.ended(held)
    assert served.get("/plugin/echo").json["paused"] is None


def test_paused_pipeline_and_paused_gateway_hold_their_jobs(site: Site, serve) -> None:
    ready(site)
    served = serve()
    served.post("/pipelines/line/pause", {})
    run = served.post("/pipeline/line?async=true", {"payload": {}}).json
    assert "pipeline line is paused" in queued(served, run["job_id"])
    assert served.get("/pipelines").json["pipelines"][0]["paused"]["name"] == "line"
    served.post("/system/pause", {"reason": "move"})
    assert served.get("/system/status").json["paused"]["reason"] == "move"
    other = served.post("/plugin/other/poll").json["job_id"]
    assert "the gateway is paused" in queued(served, other)
    served.post("/pipelines/line/resume")
    assert "the gateway is paused" in queued(served, run["job_id"])
    served.post("/system/resume")
    served.running.ended(other)
    served.running.ended(run["job_id"])


def test_pause_ends_by_itself(site: Site, serve) -> None:
    ready(site)
    served = serve()
    served.post("/plugins/echo/pause", {"duration": 0.4})
    held = served.post("/plugin/echo/poll").json["job_id"]
    served.running.ended(held)
    assert served.get("/pauses").json == {"pauses": []}


def test_pause_survives_a_restart(site: Site, serve) -> None:
    ready(site)
    with site.running() as running:
        gateway = running.gateway
        change = PauseChange(gateway, PauseKind.PLUGIN, "echo", "user:ada")
        pause = change.build_pause(None, None, None)
        gateway.ledger.write(lambda tx: change.pause(tx, pause))
    served = serve()
    held = served.post("/plugin/echo/poll").json["job_id"]
    assert "plugin echo is paused" in queued(served, held)


def test_pause_is_recorded_in_the_audit_log_and_the_event_stream(site: Site, serve) -> None:
    ready(site)
    served = serve()
    served.post("/plugins/echo/pause", {"reason": "upgrade"})
    served.post("/plugins/echo/resume")
    entries = served.get("/audit").json["entries"]
    assert [(e["action"], e["target"]) for e in entries] == [
        ("plugin.resume", "echo"),
        ("plugin.pause", "echo"),
    ]
    assert entries[1]["details"] == {"reason": "upgrade"}
    types = [notice["type"] for notice in served.get("/notices?last=10").json["notices"]]
    assert types == ["flow.paused", "flow.resumed"]


def test_invalid_pause_is_refused(site: Site, serve) -> None:
    ready(site)
    served = serve()
    assert served.post("/plugins/nothing/pause").status == 404
    assert served.post("/pipelines/nothing/pause").status == 404
    both = {"duration": "1h", "until": "2099-01-01T00:00:00Z"}
    assert served.post("/plugins/echo/pause", both).status == 400
    assert served.post("/plugins/echo/pause", {"until": "2020-01-01T00:00:00Z"}).status == 400
    assert served.post("/plugins/echo/pause", {"for": "1h"}).status == 400
    assert served.post("/plugins/nothing/resume").json["resumed"] is False


def test_dry_run_pauses_nothing(site: Site, serve) -> None:
    ready(site)
    served = serve()
    assert served.post("/system/pause", {"dry_run": True}).json["dry_run"] is True
    assert served.get("/pauses").json == {"pauses": []}
