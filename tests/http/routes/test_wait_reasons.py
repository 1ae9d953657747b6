"""Why a job waits: every route gives the same reason."""

from __future__ import annotations

from typing import Any

from tests.engine.site import OK, Gate, Site

ONE_AT_ONCE = "concurrency_safe: false\n"


def reasons_for(served: Any, job_id: str) -> set[str | None]:
    """The reasons that the routes give."""
    (why,) = [
        reason.removeprefix("It is queued: ").removesuffix(".")
        for reason in served.get(f"/job/{job_id}/why").json["why"]
        if reason.startswith("It is queued: ")
    ]
    lists = [
        row["waits_for"]
        for path in ("/queue", "/jobs")
        for row in served.get(path).json["jobs"]
        if row["job_id"] == job_id
    ]
    assert len(lists) == 2
    return {why, served.get(f"/job/{job_id}").json["waits_for"], *lists}


def with_workers(site: Site) -> Gate:
    site.settings["service"]["max_workers"] = 4
    return site.gate()


def test_job_waits_for_the_parallelism_of_its_plugin(site: Site, serve) -> None:
    gate = with_workers(site)
    site.plugin("slow", gate.script() + OK, manifest=ONE_AT_ONCE)
    served = serve()
    first, second = (served.post("/plugin/slow/poll").json["job_id"] for _ in range(2))
    gate.arrived()
    [reason] = reasons_for(served, second)
    assert reason.startswith(f"plugin slow runs 1 of 1 jobs (parallelism): job {first} since 20")
    assert ", whose time limit ends at 20" in reason
    assert "waits_for" not in served.get(f"/job/{first}").json
    gate.open(2)
    served.running.ended(second)


def test_job_waits_for_a_running_job_with_the_same_dedupe_key(site: Site, serve) -> None:
    gate, failed = with_workers(site), site.folder / "failed"
    once = f"[ -e '{failed}' ] || {{ touch '{failed}'; exit 78; }}\n"
    site.plugin("slow", once + gate.script() + OK)
    served = serve()
    asked = {"dedupe_key": "k"}
    first = served.post("/plugin/slow/poll", asked).json["job_id"]
    served.running.ended(first)
    second = served.post("/plugin/slow/poll", asked).json["job_id"]
    gate.arrived()
    served.post(f"/job/{first}/retry")
    [reason] = reasons_for(served, first)
    same, _, deadline = reason.partition(" since ")
    assert same == f"job {second} with the same dedupe key is running"
    assert ", whose time limit ends at " in deadline
    gate.open(2)
    served.running.ended(first)


def test_same_dedupe_key_of_another_command_does_not_block(site: Site, serve) -> None:
    gate = site.gate()
    site.settings["service"]["max_workers"] = 1
    site.plugin("slow", gate.script() + OK)
    served = serve()
    asked = {"dedupe_key": "k"}
    first = served.post("/plugin/slow/poll", asked).json["job_id"]
    gate.arrived()
    other = served.post("/plugin/slow/sync", asked).json["job_id"]
    [reason] = reasons_for(served, other)
    blocker, _, deadline = reason.partition(" since ")
    assert blocker == f"all workers are busy: job {first}"
    assert ", whose time limit ends at 20" in deadline
    why = served.get(f"/job/{other}/why").json
    [limit] = [line for line in why["why"] if line.startswith("The limit is ")]
    assert limit.startswith("The limit is service.max_workers (/")
    assert why["run"].startswith("${EDITOR:-vi} +")
    gate.open(2)
    served.running.ended(other)
