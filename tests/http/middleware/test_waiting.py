"""Why a job waits, as a running gateway tells it."""

from __future__ import annotations

from typing import Any

from tests.engine.site import OK, Gate, Site

ONE_AT_ONCE = "concurrency_safe: false\n"


def told(served: Any, job_id: str) -> set[str | None]:
    """What each of those says that can be asked for it."""
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


def roomy(site: Site) -> Gate:
    site.settings["service"]["max_workers"] = 4
    return site.gate()


def test_a_plugin_that_runs_as_often_at_once_as_it_may(site: Site, serve) -> None:
    gate = roomy(site)
    site.plugin("slow", gate.script() + OK, manifest=ONE_AT_ONCE)
    served = serve()
    first, second = (served.post("/plugin/slow/poll").json["job_id"] for _ in range(2))
    gate.arrived()
    assert told(served, second) == {"plugin slow runs 1 of 1 jobs (parallelism)"}
    assert "waits_for" not in served.get(f"/job/{first}").json
    gate.open(2)
    served.house.ended(second)


def test_a_job_whose_dedupe_key_runs(site: Site, serve) -> None:
    gate, failed = roomy(site), site.folder / "failed"
    once = f"[ -e '{failed}' ] || {{ touch '{failed}'; exit 78; }}\n"
    site.plugin("slow", once + gate.script() + OK)
    served = serve()
    asked = {"dedupe_key": "k"}
    first = served.post("/plugin/slow/poll", asked).json["job_id"]
    served.house.ended(first)
    second = served.post("/plugin/slow/poll", asked).json["job_id"]
    gate.arrived()
    served.post(f"/job/{first}/retry")
    assert told(served, first) == {f"job {second} with the same dedupe key is running"}
    gate.open(2)
    served.house.ended(first)


def test_the_same_key_of_another_command_keeps_nothing_waiting(site: Site, serve) -> None:
    gate = site.gate()
    site.settings["service"]["max_workers"] = 1
    site.plugin("slow", gate.script() + OK)
    served = serve()
    asked = {"dedupe_key": "k"}
    served.post("/plugin/slow/poll", asked)
    gate.arrived()
    other = served.post("/plugin/slow/sync", asked).json["job_id"]
    assert told(served, other) == {"all workers are busy"}
    gate.open(2)
    served.house.ended(other)
