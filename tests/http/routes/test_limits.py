"""Limits in a running gateway: what they hold, and what names them."""

from __future__ import annotations

from typing import Any

from tests.engine.site import OK, Site


def prepare(site: Site, script: str, **settings: Any) -> None:
    site.settings["service"]["max_workers"] = 4
    site.plugin("sync", script)
    site.settings["plugins"]["sync"] = settings


def put(served: Any, account: str) -> str:
    body = {"payload": {"account": account}}
    return str(served.post("/plugin/sync/poll", body).json["job_id"])


def reason_for(served: Any, job_id: str) -> str:
    why = served.get(f"/job/{job_id}/why").json["why"]
    (found,) = [line for line in why if line.startswith("It is queued: ")]
    (row,) = [row for row in served.get("/queue").json["jobs"] if row["job_id"] == job_id]
    assert found == f"It is queued: {row['waits_for']}."
    return str(row["waits_for"])


def test_one_sync_per_account(site: Site, serve) -> None:
    gate = site.gate()
    prepare(site, gate.script() + OK, concurrency={"key": "{payload.account}"})
    served = serve()
    first, second, other = put(served, "a"), put(served, "a"), put(served, "b")
    gate.arrived()
    gate.arrived()
    full, _, blocker = reason_for(served, second).partition(": job ")
    assert full == "plugin sync runs 1 of 1 jobs with the key 'a' (concurrency)"
    assert blocker.startswith(f"{first} since ")
    assert " whose time limit ends at " in blocker
    gate.open(3)
    for id in (first, other, second):
        assert served.running.ended(id)["status"] == "succeeded"


def test_rate_limit_names_the_next_start_and_wakes_the_dispatcher(site: Site, serve) -> None:
    prepare(site, OK, rate={"limit": 2, "per": "1s"})
    served = serve()
    first, second = put(served, "a"), put(served, "a")
    served.running.ended(first)
    job = served.get(f"/job/{second}").json
    if job["status"] == "queued":
        assert "the rate limit of 2 per 1s of plugin sync allows the next start at" in str(
            job["waits_for"]
        )
    served.running.ended(second)


def test_retry_after_closes_the_plugin_and_delays_the_retry(site: Site, serve) -> None:
    answer = '{"status": "error", "error": "busy", "retry_after": 3600}'
    prepare(site, f"echo '{answer}'\n")
    served = serve()
    first = put(served, "a")
    served.running.tried(first)
    second = put(served, "b")
    job = served.get(f"/job/{first}").json
    assert job["next_retry_at"] is not None
    reason = reason_for(served, second)
    assert reason.startswith("plugin sync requested that no job starts before ")
    assert reason.endswith("(retry_after)")


def test_newer_job_cancels_the_running_one(site: Site, serve) -> None:
    gate = site.gate()
    prepare(
        site,
        gate.script() + OK,
        concurrency={"key": "{payload.account}", "on_full": "cancel"},
    )
    served = serve()
    first = put(served, "a")
    gate.arrived()
    second = put(served, "a")
    ended = served.running.ended(first)
    assert (ended["status"], ended["last_error"]) == (
        "dead",
        "superseded by a newer job with the same key",
    )
    gate.arrived()
    gate.open(1)
    assert served.running.ended(second)["status"] == "succeeded"


def test_priority_of_a_request_and_of_a_pipeline(site: Site, serve) -> None:
    gate = site.gate()
    site.settings["service"]["max_workers"] = 1
    site.plugin("sync", gate.script("$(date +%s%N)") + OK)
    steps = [{"uses": "sync"}]
    site.settings["pipelines"] = [
        {"name": "urgent", "on": "go", "steps": steps, "priority": "20m"},
    ]
    served = serve()
    first = put(served, "a")
    gate.arrived()
    plain = put(served, "a")
    soon = served.post("/plugin/sync/poll", {"priority": "10m"}).json["job_id"]
    run = served.post("/pipeline/urgent?async=true", {"payload": {}}).json["job_id"]
    gate.open(4)
    ended = {id: served.running.ended(id)["started_at"] for id in (first, plain, soon, run)}
    order = sorted(ended, key=lambda id: str(ended[id]))
    assert order[0] == first
    assert order[-1] == plain
    refused = served.post("/plugin/sync/poll", {"priority": "400d"})
    assert refused.status == 400
    assert served.post("/pipeline/urgent", {"priority": "1m"}).status == 202
    assert served.post("/pipeline/urgent", {"priority": "400d"}).status == 400
