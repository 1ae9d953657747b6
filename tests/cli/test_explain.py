"""Explanations with `-v`, and conditions folded into the steps that they decide about."""

from __future__ import annotations

import pytest

from ductile.cli import explain
from ductile.core.pipelines import graph
from tests.cli.pipelines import add_pipelines
from tests.cli.runner import CliRunner


def test_plugin_of_conditions_is_that_of_the_core() -> None:
    assert explain.SWITCH_PLUGIN == graph.SWITCH_PLUGIN


@pytest.fixture
def flow(cli: CliRunner) -> CliRunner:
    return add_pipelines(cli)


@pytest.fixture
def root_job(flow: CliRunner) -> str:
    """The first job of a run whose first step has a condition: the condition."""
    with flow.gateway():
        line = ("pipeline", "run", "chain", "--payload", '{"go": true, "name": "x"}', "--json")
        job_id: str = flow(*line).json["job_id"]
    return job_id


def test_conditions_are_not_in_lists_of_jobs(flow: CliRunner, root_job: str) -> None:
    listed = flow("job", "list")
    assert "core.switch" not in listed.out
    assert listed.out.count("mark") == 2
    assert "not shown: 1 evaluated condition" in listed.err
    assert root_job in flow("job", "list", "--plugin", "core.switch").out
    assert len(flow("job", "list", "--json").json["jobs"]) == 3


def test_graph_shows_conditions_only_if_verbose(flow: CliRunner, root_job: str) -> None:
    graph = flow("job", "inspect", root_job, "--json").json["graph"]
    step = next(node["job_id"] for node in graph if node["step"] == "one")
    shown = flow("job", "inspect", step).out.partition("graph\n")[2]
    assert "core.switch" not in shown
    first, second = shown.splitlines()
    assert first.startswith("*  one: mark handle")
    assert second.startswith("     two: mark handle")
    assert "core.switch" in flow("job", "inspect", root_job).out
    assert "one__switch: core.switch handle" in flow("job", "inspect", step, "-v").out


def test_inspect_explains(flow: CliRunner, root_job: str) -> None:
    notes = flow("job", "inspect", root_job, "-v").err
    assert f"job {root_job}: core.switch.handle, step one__switch of chain; a first job" in notes
    assert "its condition is true" in notes
    assert f"step one of chain; after job {root_job}, by event " in notes
    assert "; hop 1" in notes
    assert "hop" not in flow("job", "inspect", root_job).err


def test_inspect_explains_baggage(flow: CliRunner) -> None:
    (flow.root / "fixed").touch()
    with flow.gateway():
        run = flow("pipeline", "run", "fan", "--payload", '{"who": "ada"}', "--json").json
        notes = flow("job", "inspect", run["job_id"], "-v").err
    assert "  baggage adds run = {" in notes or "  baggage adds run.who = ada" in notes
    assert "branch good" in notes


def test_replay_dry_run_explains(flow: CliRunner, root_job: str) -> None:
    line = ("job", "replay", root_job, "--step", "one", "--dry-run", "-v")
    notes = flow(*line).err
    assert "runs mark.handle as job " in notes
    assert '"name": "x"' in notes
    assert "one: mark.handle; two; at " in notes
    assert "payload: the given one" in flow(*line, "--payload", "{}").err


def test_pipeline_show_folds_conditions_into_their_steps(flow: CliRunner) -> None:
    shown = flow("pipeline", "show", "chain").out
    assert "__switch" not in shown
    [row] = [line for line in shown.splitlines() if line.startswith("one ")]
    assert row.split()[:6] == ["one", "mark.handle", "payload.go", "eq", "true", "two"]
    kinds = [step["kind"] for step in flow("pipeline", "show", "chain", "--json").json["steps"]]
    assert kinds == ["switch", "uses", "uses"]


def test_visualize_draws_a_tree_on_a_terminal(
    flow: CliRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = ("pipeline", "visualize", "chain")
    assert flow(*line).out.startswith("flowchart TD")
    monkeypatch.setattr("ductile.cli.commands.pipeline.definitions.is_terminal", lambda: True)
    assert flow(*line).out.startswith("chain (on chain.go)\n├─")
    assert flow(*line, "--mermaid").out.startswith("flowchart TD")
    assert flow(*line, "--json").json["drawing"].startswith("flowchart TD")
    assert flow(*line, "--text", "--mermaid").code == 2


def test_visualize_explains(flow: CliRunner) -> None:
    notes = flow("pipeline", "visualize", "fan", "-v").err
    assert "wide: split; good -> wide.0.good; weak -> wide.1.weak; join -> last" in notes
    assert "baggage run.who from payload.who" in notes


def test_dry_run_finds_a_step_inside_a_split_by_its_id(flow: CliRunner) -> None:
    for name in ("fan/good", "good", "fan/wide.0.good"):
        done = flow("pipeline", "dry-run", name, "--payload", "{}", "--json")
        assert [item["step"] for item in done.json["first"]] == ["wide.0.good"], name
    several = flow("pipeline", "dry-run", "wide/step_1", "--payload", "{}")
    assert several.code == 1
    assert "use one of: wide/both.0.step_1, wide/both.1.step_1" in several.err
    assert "has no step 'nosuch'" in flow("pipeline", "dry-run", "fan/nosuch").err


def test_replay_of_an_ambiguous_step_is_refused(flow: CliRunner) -> None:
    with flow.gateway():
        run = flow("pipeline", "run", "wide", "--payload", "{}", "--json").json
        done = flow("job", "replay", run["job_id"], "--step", "step_1", "--dry-run")
    assert done.code == 1
    assert "use one of: both.0.step_1, both.1.step_1" in done.err
