"""Pipelines in a running gateway: reloads, dedupe keys and large responses."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from ductile.core.jobs import judge
from ductile.core.pipelines.step_io import MAX_COPIED
from ductile.engine.dispatch import attempt
from ductile.errors import Refused
from ductile.model import SubmittedBy
from ductile.operations import job_tree
from ductile.operations.cluster.nodes import forget_node
from ductile.operations.dry_run import step
from ductile.operations.jobs import JobReplay, JobRetry
from ductile.operations.pipelines import PipelineStart, StartedPipeline
from ductile.operations.why import explain_job
from tests.engine.site import OK, PYTHON, Running, Site
from tests.waiting import until

Step = dict[str, Any]


def steps(site: Site, *steps: Step) -> None:
    site.settings["pipelines"] = [{"name": "p", "on": "go", "steps": list(steps)}]


def start(running: Running, **more: Any) -> StartedPipeline:
    gateway = running.gateway
    return gateway.ledger.write(PipelineStart(gateway, "p", {}, SubmittedBy.API, **more))


def instance(running: Running, id: str) -> dict[str, Any]:
    return running.gateway.ledger.read(lambda tx: job_tree.instance(tx, id))


def wait_for_end(running: Running, id: str) -> dict[str, Any]:
    """Wait for the end of the instance."""
    until(lambda: instance(running, id)["status"] != "open")
    return instance(running, id)


def list_results(found: dict[str, Any]) -> list[tuple[str, str]]:
    return [(job["step"], job["status"]) for job in found["jobs"]]


def read_reason(running: Running, id: str) -> str:
    gateway = running.gateway
    now = gateway.clock.now()
    return "\n".join(explain_job(gateway.ledger, id, gateway.compiled, {}, now=now)["why"])


def reload(site: Site, running: Running) -> None:
    site.write()
    running.gateway.reload()


def make_recorder(site: Site, name: str) -> Path:
    """A plugin that writes a line per run."""
    path = site.folder / f"{name}.ran"
    site.plugin(name, f"echo run >> '{path}'\n{OK}")
    return path


def test_queued_job_does_not_run_as_a_changed_step(
    site: Site,
) -> None:
    gate = site.gate()
    site.settings["service"]["max_workers"] = 1
    site.plugin("slow", gate.script() + OK)
    ran = [make_recorder(site, name) for name in ("b", "x")]
    steps(site, {"uses": "slow"}, {"uses": "b"})
    with site.running() as running:
        started = start(running)
        gate.arrived()
        running.put("slow")
        gate.open()
        gate.arrived()
        steps(site, {"uses": "slow"}, {"uses": "x"}, {"uses": "b"})
        reload(site, running)
        gate.open()
        found = wait_for_end(running, started.instance_id)
        assert (found["status"], list_results(found)) == (
            "failed",
            [("step_1", "succeeded"), ("step_2", "failed")],
        )
        lost = "step step_2 of pipeline p is now x.handle, not b.handle"
        assert found["jobs"][-1]["last_error"] == lost
        assert lost in read_reason(running, found["jobs"][-1]["job_id"])
        assert [path.exists() for path in ran] == [False, False]


def test_retry_does_not_run_as_a_changed_step(site: Site) -> None:
    gate = site.gate()
    failing = gate.script() + "exit 1\n"
    site.plugin("b", failing, retry={"max_attempts": 2, "backoff_base": "1ms"})
    ran = make_recorder(site, "x")
    steps(site, {"id": "one", "uses": "b"})
    with site.running() as running:
        started = start(running)
        gate.arrived()
        steps(site, {"id": "one", "uses": "x"})
        reload(site, running)
        gate.open()
        found = wait_for_end(running, started.instance_id)
        [job] = found["jobs"]
        assert (job["status"], job["attempt"]) == ("failed", 2)
        assert job["last_error"] == "step one of pipeline p is now x.handle, not b.handle"
        assert not ran.exists()


def test_job_of_a_changed_step_cannot_be_retried_or_replayed(
    site: Site,
) -> None:
    site.plugin("b", "exit 78\n")
    site.plugin("x", OK)
    steps(site, {"id": "one", "uses": "b"})
    with site.running() as running:
        started = start(running)
        wait_for_end(running, started.instance_id)
        [id] = started.job_ids
        steps(site, {"id": "one", "uses": "x"})
        reload(site, running)
        gateway = running.gateway
        for refused in (
            lambda: gateway.ledger.write(JobRetry(gateway, id)),
            lambda: gateway.ledger.write(JobReplay(gateway, id, SubmittedBy.API, "user:ada")),
            lambda: step.step(gateway, gateway.compiled.tx_config.router.pipelines["p"], "one", id),
        ):
            with pytest.raises(Refused, match=r"is now x\.handle, not b\.handle"):
                refused()


def test_join_runs_after_a_reload_that_renames_its_split(site: Site) -> None:
    gate = site.gate()
    site.plugin("slow", gate.script() + OK)
    ran = make_recorder(site, "j")
    branches = [{"uses": "slow"}, {"uses": "slow"}]
    steps(site, {"id": "fan", "split": branches}, {"id": "after", "uses": "j"})
    with site.running() as running:
        started = start(running)
        gate.arrived()
        gate.arrived()
        steps(site, {"id": "other", "split": branches}, {"id": "after", "uses": "j"})
        reload(site, running)
        gate.open(2)
        found = wait_for_end(running, started.instance_id)
        assert (found["status"], list_results(found)[-1]) == ("succeeded", ("after", "succeeded"))
        assert ran.read_text() == "run\n"


def test_join_of_a_removed_pipeline_fails_with_the_reason(site: Site) -> None:
    gate = site.gate()
    site.plugin("slow", gate.script() + OK)
    site.plugin("j", OK)
    steps(site, {"id": "fan", "split": [{"uses": "slow"}]}, {"id": "after", "uses": "j"})
    with site.running() as running:
        started = start(running)
        gate.arrived()
        site.settings["pipelines"] = []
        reload(site, running)
        gate.open()
        found = wait_for_end(running, started.instance_id)
        assert (found["status"], list_results(found)[-1]) == ("failed", ("after", "failed"))
        join = found["jobs"][-1]["job_id"]
        assert "step after no longer exists in pipeline p" in read_reason(running, join)
        running.notice("job.failed", join)
        running.notice("pipeline.failed", started.instance_id)


def test_removed_split_fails_the_instance_with_the_reason(site: Site) -> None:
    gate = site.gate()
    site.plugin("slow", gate.script() + OK)
    fan, then = (
        {"id": "fan", "split": [{"uses": "slow"}]},
        {"id": "then", "split": [{"uses": "slow"}]},
    )
    steps(site, fan, then)
    with site.running() as running:
        started = start(running)
        gate.arrived()
        steps(site, fan)
        reload(site, running)
        gate.open()
        found = wait_for_end(running, started.instance_id)
        lost = "step then no longer exists in pipeline p"
        assert (found["status"], found["reason"]) == ("failed", lost)
        assert lost in read_reason(running, started.instance_id)
        assert lost in running.notice("pipeline.failed", started.instance_id).payload


def test_on_failure_runs_with_the_files_of_the_failed_step(site: Site) -> None:
    seen = site.folder / "seen.json"
    save = f"""{PYTHON}
request = json.load(sys.stdin)
event = request["event"]["payload"]
file = open(request["workspace_dir"] + "/file").read()
json.dump([event["failed_step"], event["error"], event["payload"], file], open({str(seen)!r}, "w"))
print(json.dumps({{"status": "ok", "result": "saved"}}))
"""
    fail = f"""{PYTHON}
open(json.load(sys.stdin)["workspace_dir"] + "/file", "w").write("made")
print(json.dumps({{"status": "error", "error": "no disk", "retry": False}}))
"""
    site.plugin("fail", fail)
    site.plugin("save", save)
    pipeline = {"name": "p", "on": "go", "workspace": True, "steps": [{"id": "x", "uses": "fail"}]}
    site.settings["pipelines"] = [{**pipeline, "on_failure": [{"uses": "save"}]}]
    with site.running() as running:
        started = start(running)
        assert wait_for_end(running, started.instance_id)["status"] == "failed"
        until(seen.exists)
        until(lambda: "(succeeded)" in read_reason(running, started.job_ids[0]))
        assert "step step_1 of p.on_failure" in read_reason(running, started.job_ids[0])
    assert json.loads(seen.read_text()) == ["x", "no disk", {}, "made"]


def test_duplicate_pipeline_start_returns_the_existing_job(site: Site) -> None:
    for name in "abj":
        site.plugin(name, OK)
    steps(site, {"id": "fan", "split": [{"uses": "a"}, {"uses": "b"}]}, {"uses": "j"})
    with site.running() as running:
        first = start(running, dedupe_key="k")
        wait_for_end(running, first.instance_id)
        again = start(running, dedupe_key="k")
        assert (again.job_ids, again.existing_job_id) == ((), first.job_ids[0])
        found = instance(running, again.instance_id)
        assert (found["status"], found["jobs"]) == ("skipped", [])
        assert first.job_ids[0] in read_reason(running, again.instance_id)


def test_response_that_expands_beyond_the_limit_fails(site: Site) -> None:
    size = MAX_COPIED // 100
    site.plugin(
        "many",
        PYTHON + "json.load(sys.stdin)\nevents = [{'type': 'x'}] * 200\n"
        f"print(json.dumps({{'status': 'ok', 'result': 'z' * {size}, 'events': events}}))\n",
        retry={"max_attempts": 1},
    )
    site.plugin("a", OK)
    site.settings["routes"] = [{"from": "many", "event_type": "x", "to": "a"}]
    with site.running() as running:
        job = running.run("many")
        assert (job["status"], "copied into 200 events" in job["last_error"]) == ("dead", True)
        assert [
            type for type, id in running.list_notices() if type == "job.queued" and id != job["id"]
        ] == []


# Several nodes


@pytest.fixture
def behind(site: Site, url: str) -> Site:
    """A node with the old configuration."""
    site.plugin("a", OK)
    site.settings["state"] = {"url": url, "dir": str(site.state)}
    return site


@pytest.fixture
def ahead(another: Callable[[], Site], url: str) -> Site:
    """A node with the new configuration that does not run jobs."""
    site = another()
    site.plugin("a", OK)
    site.settings["state"] = {"url": url, "dir": str(site.state)}
    steps(site, {"id": "one", "uses": "a"})
    return site


GONE = "step one no longer exists in pipeline p"


def test_unknown_step_waits_for_a_node_that_knows_it(
    behind: Site, ahead: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judge, "SHORTAGE_SECONDS", 0.05)
    steps(behind, {"id": "other", "uses": "a"})
    with behind.running() as running, ahead.opened() as other:
        started = start(other)
        [id] = started.job_ids
        waiting = running.tried(id)
        assert (waiting["status"], waiting["last_error"]) == ("queued", GONE)
        assert waiting["attempt"] - waiting["max_attempts"] == 1 - 4
        assert GONE in read_reason(running, id)
        steps(behind, {"id": "one", "uses": "a"})
        reload(behind, running)
        assert wait_for_end(running, started.instance_id)["status"] == "succeeded"


def test_steps_of_an_unknown_pipeline_are_left_to_the_node_that_knows_it(
    behind: Site, ahead: Site
) -> None:
    """A claim takes neither the step nor waits behind it, whatever is idle."""
    with behind.running() as running, ahead.opened() as other:
        started = [start(other) for _ in range(3)]
        job_ids = [id for one in started for id in one.job_ids]
        last = running.put("a")
        assert running.ended(last)["status"] == "succeeded"
        for id in job_ids:
            job = running.job(id)
            assert (job["status"], job["transitions"]) == ("queued", []), "it was claimed"
            assert f"only node {other.gateway.node} has pipeline p" in read_reason(running, id)
        other.gateway.start()
        for one in started:
            assert wait_for_end(other, one.instance_id)["status"] == "succeeded"
        nodes_of_jobs = {each["node"] for id in job_ids for each in other.job(id)["attempts"]}
        assert nodes_of_jobs == {other.gateway.node}


def test_step_of_a_pipeline_that_no_node_has_any_more_fails(
    behind: Site, ahead: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempt, "LEFT_TO_OTHERS", timedelta(0))
    with behind.running() as running:
        with ahead.opened() as other:
            started, name = start(other), other.gateway.node
        [id] = started.job_ids
        assert f"no living node has pipeline p: {name} is stopped" in read_reason(running, id)
        forget_node(running.gateway, name, dry=False)
        running.gateway.work_signal.notify_all()
        [job] = wait_for_end(running, started.instance_id)["jobs"]
        assert (job["status"], job["last_error"]) == ("failed", GONE)


def test_step_unknown_to_all_nodes_fails(
    behind: Site, ahead: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempt, "LEFT_TO_OTHERS", timedelta(0))
    steps(behind, {"id": "other", "uses": "a"})
    with behind.running() as running, ahead.opened() as other:
        started = start(other)
        found = wait_for_end(running, started.instance_id)
        [job] = found["jobs"]
        assert (job["status"], job["attempt"], job["last_error"]) == ("failed", 1, GONE)
