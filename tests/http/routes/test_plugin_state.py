"""Correcting the state of a plugin over HTTP."""

from __future__ import annotations

from tests.engine.site import OK, Site
from tests.waiting import until

STORES = """echo '{"status":"ok","state_updates":{"cursor":1,"own":true}}'"""


def test_key_is_set_and_removed_and_the_rest_of_the_state_is_kept(site: Site, serve) -> None:
    site.plugin("echo", STORES)
    served = serve()
    served.running.ended(served.post("/plugin/echo/poll").json["job_id"])
    planned = served.post("/plugins/echo/state", {"key": "cursor", "value": 7, "dry_run": True})
    assert planned.json == {
        "plugin": "echo",
        "key": "cursor",
        "existed": True,
        "removed": False,
        "dry_run": True,
    }

    def state() -> object:
        return served.get("/system/plugin-facts/echo").json["state"]

    assert state() == {"cursor": 1, "own": True}
    served.post("/plugins/echo/state", {"key": "cursor", "value": {"a": "canary-value"}})
    assert state() == {"cursor": {"a": "canary-value"}, "own": True}
    assert served.post("/plugins/echo/state", {"key": "cursor", "remove": True}).status == 202
    assert state() == {"own": True}
    assert served.post("/plugins/echo/state", {"key": "cursor", "remove": True}).status == 404
    assert served.post("/plugins/nope/state", {"key": "a", "value": 1}).status == 404
    entries = [e for e in served.get("/audit").json["entries"] if e["action"] == "plugin.state"]
    assert [entry["target"] for entry in entries] == ["echo", "echo"]
    assert "canary-value" not in str(entries)


def test_a_change_is_refused_while_a_job_of_the_plugin_runs(site: Site, serve) -> None:
    site.plugin("echo", OK)
    site.plugin("slow", "exec sleep 60")
    served = serve()
    job = served.post("/plugin/slow/poll").json["job_id"]
    until(lambda: served.get(f"/job/{job}").json["status"] == "running")
    refused = served.post("/plugins/slow/state", {"key": "a", "value": 1})
    assert refused.status == 409
    assert f"job {job} of plugin slow is running" in refused.json["error"]
    assert served.get("/system/plugin-facts/slow").json["state"] == {}
    assert served.post("/plugins/echo/state", {"key": "a", "value": 1}).status == 202
    served.post(f"/job/{job}/cancel")
