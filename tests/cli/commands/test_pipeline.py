"""`ductile pipeline list`, `show`, `visualize`, `run` and `dry-run`."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path

import apsw
import pytest

from tests.cli.pipelines import (
    add_pipelines,
    executed_steps,
    graph_by_step,
    is_alive,
    wait_until_running,
)
from tests.cli.runner import CliRunner, read_until, stop


@pytest.fixture
def flow(cli: CliRunner) -> CliRunner:
    return add_pipelines(cli)


def snapshot(flow: CliRunner) -> object:
    """Return the ledger's rows about jobs and plugin state."""
    ledger = apsw.Connection(str(flow.state / "state.db"), flags=apsw.SQLITE_OPEN_READONLY)
    tables = ("job_queue", "job_log", "event_context", "scopes", "plugin_state", "notices")
    return {table: list(ledger.execute(f"SELECT * FROM {table}")) for table in tables}


class TestShow:
    def test_list_shows_triggers_and_conditions(self, flow: CliRunner) -> None:
        rows = flow("pipeline", "list", "--json").json["pipelines"]
        assert [row["name"] for row in rows] == ["chain", "fan", "picky", "slowly", "wide"]
        out = flow("pipeline", "list").out
        assert "on mark.done, if payload.never exists" in out
        assert not flow.state.exists()

    def test_show_has_a_diagram_and_the_steps(self, flow: CliRunner) -> None:
        out = flow("pipeline", "show", "fan").out
        assert "├─ wide: split" in out
        assert "mode:       async" in out
        steps = flow("pipeline", "show", "fan", "--json").json["steps"]
        assert [step["step"] for step in steps] == [
            "first",
            "wide",
            "wide.0.good",
            "wide.1.weak",
            "last",
        ]
        assert steps[0]["baggage"] == {"run.who": "payload.who"}
        unknown = flow("pipeline", "show", "fun", "--json")
        assert (unknown.code, unknown.json["code"]) == (1, "not_found")

    def test_visualize_prints_mermaid_or_text(self, flow: CliRunner) -> None:
        assert flow("pipeline", "visualize", "fan").out.startswith("flowchart TD\n")
        assert flow("pipeline", "visualize", "fan", "--text").out.startswith("fan (on fan.go)\n")
        assert "flowchart" in flow("pipeline", "visualize", "fan", "--json").json["drawing"]


class TestRun:
    def test_run_without_a_running_gateway(self, flow: CliRunner) -> None:
        done = flow("pipeline", "run", "fan", "--json")
        assert (done.code, done.json["code"]) == (1, "not_running")
        assert "pipeline dry-run" in done.json["error"]

    def test_run_waits_and_reports_each_step(self, flow: CliRunner) -> None:
        flow.write("fixed", "")
        with flow.gateway():
            done = flow("pipeline", "run", "fan", "--payload", '{"who": 1}', "-v")
            assert done.code == 0
            assert done.out.startswith("fan succeeded in ")
            for step in ("first: mark", "good wide.0.good: mark", "weak wide.1.weak: flaky"):
                assert f"{step}.handle succeeded in" in done.err
            assert done.err.rstrip().splitlines()[-1].startswith("last: mark.handle succeeded")
            synchronous = flow("pipeline", "run", "chain", "--payload", '{"go": 1, "name": "x"}')
            assert synchronous.out.splitlines()[1] == "two"

    def test_run_reports_failure_and_timeout(self, flow: CliRunner) -> None:
        with flow.gateway():
            failed = flow("pipeline", "run", "fan", "--payload", '{"who": 1}')
            assert failed.code == 1
            assert "wide.1.weak: not fixed (job" in failed.out
            late = flow("pipeline", "run", "slowly", "--timeout", "200ms", "--json")
            assert (late.code, late.json["status"]) == (1, "open")
            pid = wait_until_running(flow)
            assert flow("job", "cancel", late.json["job_id"]).code == 0
            assert not is_alive(pid)
            started = flow("pipeline", "run", "wide", "--async", "--json")
            assert started.json["status"] == "queued"
            assert flow("pipeline", "run", "nope", "--json").json["code"] == "not_found"
            assert "did you mean 'wide'?" in flow("pipeline", "run", "wiide").err
            text = (flow.root / "config.yaml").read_text()
            is_read = flow.root / "secret-is-read"
            secret = f"${{command:sh -c 'echo x > {is_read}; echo x'}}"
            step = f'{{uses: mark, with: {{key: "{secret}"}}}}'
            flow.write("config.yaml", f"{text}  - {{name: fresh, on: x, steps: [{step}]}}\n")
            for action in ("run", "show", "runs", "pause"):
                refused = flow("pipeline", action, "fresh").err
                assert "pipeline fresh is in the files" in refused, action
                assert "run: ductile system reload" in refused
            for command in ("status", "plugin list", "skills list", "schedule list"):
                assert "showing the running gateway" in flow(*command.split()).err, command
            assert not is_read.exists()
            for command in ("config show", "config get plugin_roots", "pipeline dry-run fresh"):
                assert "showing the files" in flow(*command.split()).err, command

    def test_run_with_a_used_dedupe_key_starts_nothing(self, flow: CliRunner) -> None:
        line = ("pipeline", "run", "chain", "--payload", '{"name": "x"}', "--dedupe-key", "k")
        with flow.gateway():
            assert flow(*line).code == 0
            again = flow(*line, "--json")
            assert (again.code, again.json["status"]) == (0, "skipped")
            assert again.json["reason"].startswith("deduplicated: job ")
            result = flow("job", "why", again.json["instance_id"]).out
            assert "an instance of pipeline chain, skipped" in result

    def test_run_with_a_dedupe_ttl(self, flow: CliRunner) -> None:
        line = ("pipeline", "run", "chain", "--payload", '{"name": "x"}', "--dedupe-key", "k")
        with flow.gateway():
            assert flow(*line).code == 0
            assert flow(*line, "--dedupe-ttl", "0s", "--json").json["status"] == "succeeded"
            assert flow(*line, "--dedupe-ttl", "1h", "--json").json["status"] == "skipped"
            odd = flow(*line, "--dedupe-ttl", "soon", "--json")
            assert (odd.code, odd.json["code"]) == (2, "usage")

    def test_run_dry_run_changes_nothing(self, flow: CliRunner) -> None:
        done = flow("pipeline", "run", "fan", "--payload", '{"who": 1}', "--dry-run", "--json")
        assert done.json["first"][0]["baggage_added"] == {"run": {"who": 1}}
        assert not flow.state.exists()


class TestDryRun:
    def test_dry_run_evaluates_a_switch(self, flow: CliRunner) -> None:
        for given, path in (('{"go": true}', ["one__switch", "one"]), ("{}", ["one__switch"])):
            plan = flow("pipeline", "dry-run", "chain", "--payload", given, "--json").json
            known = [item["step"] for item in plan["first"] if "fails" not in item]
            assert known == path
        (fails,) = [item for item in plan["first"] if "fails" in item]
        assert (fails["step"], fails["fails"]) == ("two", "with: payload.name does not exist")

    def test_dry_run_shows_payload_context_and_resolution(self, flow: CliRunner) -> None:
        given = flow.write("given.json", '{"who": "ann"}')
        done = flow("pipeline", "dry-run", "fan", "--payload", f"@{given}", "-v")
        assert done.code == 0
        assert "first: mark.handle" in done.out
        assert '"who": "ann"' in done.out
        assert "wide: split; good -> wide.0.good; weak -> wide.1.weak; join -> last" in done.err
        assert "first: baggage adds run = {" in done.err
        assert f"at {flow.root}/config.yaml:" in done.err
        both = flow("pipeline", "dry-run", "wide", "--json").json["first"]
        assert [item["branch"] for item in both] == ["0", "1"]

    @pytest.mark.parametrize(
        ("given", "matched", "words"),
        [
            (
                "{}",
                False,
                "is false (payload.never does not exist): such an event would not start it",
            ),
            ('{"never": 1}', True, "is true"),
        ],
    )
    def test_dry_run_evaluates_the_pipeline_condition(
        self, flow: CliRunner, given: str, matched: bool, words: str
    ) -> None:
        line = ("pipeline", "dry-run", "picky", "--payload", given)
        plan = flow(*line, "--json").json
        assert plan["if"]["condition"] == "payload.never exists"
        assert plan["if"]["matched"] is matched
        assert [item["step"] for item in plan["first"]] == ["step_1"]
        assert f"if payload.never exists {words}" in flow(*line).out

    def test_dry_run_without_a_condition(self, flow: CliRunner) -> None:
        assert flow("pipeline", "dry-run", "fan", "--json").json["if"] is None

    def test_a_step_with_a_payload_is_shown_as_the_first(self, flow: CliRunner) -> None:
        given = ("--payload", '{"name": "ann"}', "--json")
        plan = flow("pipeline", "dry-run", "two", *given).json
        assert (plan["pipeline"], plan["step"]) == ("chain", "two")
        assert [item["step"] for item in plan["first"]] == ["two"]
        assert plan["first"][0]["payload"]["text"] == "hello ann"
        line = ("pipeline", "dry-run", "fan/wide.0.good", "--payload", "{}", "--json")
        inner = flow(*line).json
        assert [item["step"] for item in inner["first"]] == ["wide.0.good"]

    def test_an_ambiguous_step_lists_the_pipelines(self, flow: CliRunner) -> None:
        config = flow.root / "config.yaml"
        config.write_text(config.read_text().replace("{id: end,", "{id: last,"))
        done = flow("pipeline", "dry-run", "last", "--json")
        assert done.code == 1
        assert "fan/last, wide/last" in done.json["error"]
        chosen = flow("pipeline", "dry-run", "wide/last", "--payload", "{}", "--json").json
        assert chosen["pipeline"] == "wide"

    def test_an_unknown_step_is_not_found(self, flow: CliRunner) -> None:
        done = flow("pipeline", "dry-run", "fan/nope", "--json")
        assert done.code == 1
        assert "pipeline fan has no step 'nope'" in done.json["error"]

    def test_wrong_usage_exits_2(self, flow: CliRunner) -> None:
        assert flow("pipeline", "dry-run", "fan", "--job", "x").code == 2
        both = ("pipeline", "dry-run", "first", "--job", "x", "--payload", "{}")
        assert flow(*both).code == 2
        assert flow("pipeline", "dry-run", "fan", "--payload", "{").code == 2
        assert flow("pipeline", "dry-run", "nope").code == 1

    @pytest.mark.parametrize("running", [True, False], ids=["gateway", "alone"])
    def test_a_step_runs_in_a_sandbox_and_nothing_is_committed(
        self, flow: CliRunner, running: bool
    ) -> None:
        gateway = flow.start("system", "start")
        try:
            read_until(gateway, '"message":"ready"')
            root = flow("pipeline", "run", "fan", "--payload", '{"who": 1}', "--json").json[
                "job_id"
            ]
            good = graph_by_step(flow, root)["wide.0.good"]["job_id"]
            if not running:
                stop(gateway)
            workspace, entered = (flow.state / "workspaces" / id for id in (good, root))
            before, count = snapshot(flow), len(executed_steps(flow))
            done = flow("pipeline", "dry-run", "wide.0.good", "--job", root, "--json").json
            assert snapshot(flow) == before
            assert len(executed_steps(flow)) == count + 1
        finally:
            stop(gateway)
        assert done["status"] == "succeeded"
        assert done["state_updates"] == {"last": "good"}
        assert done["request"]["event"]["payload"]["result"] == "first"
        assert done["request"]["context"]["run"] == {"who": 1}
        assert done["sandbox"]["cloned_from"] == str(entered)
        assert done["sandbox"]["files"]["changed"] == ["trail"]
        assert done["sandbox"]["gone"] is None
        assert done["goes_to"] == []
        assert (entered / "trail").read_text().split() == ["first"]
        assert (workspace / "trail").read_text().split() == ["first", "good"]
        assert not Path(done["sandbox"]["directory"]).exists()

    def test_the_sandbox_has_the_files_from_before_the_job(self, flow: CliRunner) -> None:
        keeps = """\
dir=$(printf %s "$request" | sed -n 's/.*"workspace_dir":"\\([^"]*\\)".*/\\1/p')
printf '{"status":"ok","result":"%s"}' "$(ls "$dir" | tr '\\n' ' ')"
echo more >> "$dir/$(ls "$dir" | wc -l)"
"""
        flow.plugin("mark", keeps, protocol=2, commands="poll, handle")
        with flow.gateway():
            given = ("--payload", '{"go": true, "name": "ann"}')
            assert flow("pipeline", "run", "chain", *given).code == 0
        for step, files in (("two", "0 "), ("one", "")):
            done = flow("pipeline", "dry-run", step, "--json").json
            assert done["response"]["result"] == files
            assert len(done["sandbox"]["files"]["added"]) == 1

    def test_missing_workspace_files_are_reported(self, flow: CliRunner) -> None:
        with flow.gateway():
            root = flow("pipeline", "run", "fan", "--payload", '{"who": 1}', "--json").json[
                "job_id"
            ]
        shutil.rmtree(flow.state / "workspaces" / root)
        done = flow("pipeline", "dry-run", "wide.0.good", "--json").json
        assert f"the files of the previous job {root}" in done["sandbox"]["gone"]
        assert done["sandbox"]["files"]["added"] == ["trail"]
        assert "the workspace starts empty" in flow("pipeline", "dry-run", "wide.0.good").out
        assert flow("pipeline", "dry-run", "first", "--json").json["sandbox"]["gone"] is None

    def test_the_newest_job_of_the_step_is_the_default(self, flow: CliRunner) -> None:
        with flow.gateway():
            for name in ("ann", "bob"):
                given = f'{{"name": "{name}"}}'
                assert flow("pipeline", "run", "chain", "--payload", given).code == 0
            old = flow("job", "list", "--json").json["jobs"][-1]["job_id"]
        newest = flow("pipeline", "dry-run", "two", "--json").json
        assert newest["request"]["event"]["payload"]["text"] == "hello bob"
        chosen = flow("pipeline", "dry-run", "two", "--job", old, "--json").json
        assert chosen["request"]["event"]["payload"]["text"] == "hello ann"

    def test_the_search_for_the_newest_job_is_bounded(
        self, flow: CliRunner, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with flow.gateway():
            assert flow("pipeline", "run", "chain", "--payload", '{"name": "ann"}').code == 0
            assert flow("pipeline", "run", "wide").code == 0
        monkeypatch.setattr("ductile.operations.dry_run.step.PAGE", 2)
        line = ("pipeline", "dry-run", "two", "--json")
        assert flow(*line).code == 0
        monkeypatch.setattr("ductile.operations.dry_run.step.MOST_PAGES", 1)
        assert "among the newest 2 of mark to run again" in flow(*line).json["error"]

    def test_a_step_without_jobs_cannot_be_run(self, flow: CliRunner) -> None:
        done = flow("pipeline", "dry-run", "two", "--json")
        assert (done.code, done.json["code"]) == (1, "not_found")
        assert "there is no job of step two of pipeline chain to run again" in done.json["error"]
        split = flow("pipeline", "dry-run", "fan/wide", "--json")
        assert (split.code, split.json["code"]) == (1, "refused")
        assert split.json["error"].endswith("run one of its steps: wide.0.good, wide.1.weak")

    def test_dry_run_shows_where_events_would_go(self, flow: CliRunner) -> None:
        with flow.gateway():
            root = flow("pipeline", "run", "fan", "--payload", '{"who": 1}', "--json").json[
                "job_id"
            ]
        done = flow("pipeline", "dry-run", "fan", "--step", "first", "--job", root, "-v")
        assert done.code == 0
        assert "would go to mark.handle, step wide.0.good of fan" in done.out
        assert "would go to flaky.handle, step wide.1.weak of fan" in done.out
        assert "cloned from" in done.err
        weak = flow("pipeline", "dry-run", "fan", "--step", "wide.1.weak", "--job", root, "--json")
        assert (weak.code, weak.json["error"]) == (1, "not fixed")
        missing = flow("pipeline", "dry-run", "fan", "--step", "last", "--job", root, "--json")
        assert (missing.code, missing.json["code"]) == (1, "not_found")
        none = flow("pipeline", "dry-run", "fan", "--step", "nope", "--job", root, "--json")
        assert "its steps: first" in none.json["error"]

    def test_state_updates_with_secret_names_are_redacted(self, flow: CliRunner) -> None:
        with flow.gateway():
            root = flow("pipeline", "run", "wide", "--json").json["job_id"]
        answer = '{"status":"ok","result":"","state_updates":{"refresh_token":"hunter2-hunter2"}}'
        flow.plugin("mark", f"echo '{answer}'", protocol=2, commands="poll, handle")
        line = ("pipeline", "dry-run", "wide/both.0.step_1", "--job", root)
        done = flow(*line, "--json")
        assert done.json["state_updates"] == {"refresh_token": "[REDACTED]"}
        assert "hunter2" not in done.out + flow(*line, "-v").out

    def test_a_switch_of_a_job_is_evaluated_again(self, flow: CliRunner) -> None:
        with flow.gateway():
            given = json.dumps({"go": False, "name": "x"})
            root = flow("pipeline", "run", "chain", "--payload", given, "--json").json["job_id"]
        line = ("pipeline", "dry-run", "one__switch", "--job", root)
        assert flow(*line, "--json").json["matched"] is False
        assert "matched False" in flow(*line).out

    @pytest.mark.parametrize(("how", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
    def test_an_interrupted_step_leaves_no_process_and_no_sandbox(
        self, flow: CliRunner, how: signal.Signals, code: int
    ) -> None:
        with flow.gateway():
            job = flow("pipeline", "run", "slowly", "--async", "--json").json["job_id"]
            wait_until_running(flow)
            assert flow("job", "cancel", job).code == 0
        trial = flow.start("pipeline", "dry-run", "wait", "--job", job)
        pid = wait_until_running(flow)
        assert stop(trial, how) == code
        assert not is_alive(pid)
        assert not (flow.state / "sandbox").exists()
