"""`ductile pipeline runs`, `cancel` and `retry`."""

from __future__ import annotations

import pytest

from tests.cli.pipelines import add_pipelines, wait_until_running
from tests.cli.runner import CliRunner


@pytest.fixture
def flow(cli: CliRunner) -> CliRunner:
    return add_pipelines(cli)


def test_runs_are_listed_shown_and_retried(flow: CliRunner) -> None:
    with flow.gateway():
        good = flow("pipeline", "run", "chain", "--payload", '{"name": "x"}', "--json").json
        assert flow("pipeline", "run", "fan", "--payload", '{"who": "me"}').code == 1
        [failed] = flow("pipeline", "runs", "--status", "failed", "--json").json["runs"]
        listed = flow("pipeline", "runs")
        assert failed["instance_id"] in listed.out
        assert good["instance_id"] in listed.out
        chain = flow("pipeline", "runs", "chain", "--json").json["runs"]
        assert [run["pipeline"] for run in chain] == ["chain"]

        shown = flow("pipeline", "runs", failed["instance_id"][-8:])
        assert "not_run" in shown.out
        assert failed["failed_step"] in shown.out
        planned = flow("pipeline", "retry", failed["instance_id"], "--dry-run").out
        assert planned == f"1 job of run {failed['instance_id']} would be queued again\n"
        assert flow("pipeline", "retry", failed["instance_id"]).code == 0
        again = flow("pipeline", "retry", good["instance_id"], "--json")
        assert (again.code, again.json["code"]) == (1, "refused")


def test_job_list_shows_and_filters_by_pipeline(flow: CliRunner) -> None:
    with flow.gateway():
        assert flow("run", "mark").code == 0
        assert flow("pipeline", "run", "chain", "--payload", '{"name": "x"}').code == 0
        steps = flow("job", "list", "--pipeline", "chain", "--json").json["jobs"]
        assert {job["pipeline"] for job in steps} == {"chain"}
        lines = flow("job", "list").out.splitlines()
        assert "PIPELINE" in lines[0]
        assert "chain/two" in lines[1]
        assert flow("job", "list", "--until", "1h").out == "no jobs\n"
        unknown = flow("job", "list", "--pipeline", "chian", "--json")
        assert (unknown.code, "chain" in unknown.json["error"]) == (2, True)


def test_run_is_cancelled(flow: CliRunner) -> None:
    with flow.gateway():
        started = flow("pipeline", "run", "slowly", "--async", "--json").json
        wait_until_running(flow)
        done = flow("pipeline", "cancel", started["instance_id"], "--json").json
        assert done["job_ids"] == [started["job_id"]]


def test_runs_are_readable_without_a_gateway(flow: CliRunner) -> None:
    assert flow("run", "mark").code == 0
    assert flow("pipeline", "runs").out == "no pipeline runs\n"
    refused = flow("pipeline", "runs", "nope-nope", "--json")
    assert (refused.code, refused.json["code"]) == (1, "not_found")
    assert "did you mean 'chain'?" in flow("pipeline", "runs", "chian").err


@pytest.mark.parametrize("line", [("--status", "open"), ("--since", "soon"), ("--limit", "0")])
def test_invalid_filter_is_refused(flow: CliRunner, line: tuple[str, ...]) -> None:
    assert flow("pipeline", "runs", *line).code == 2
