"""Commands without a running gateway: reads from the ledger's file, and jobs in this process."""

from __future__ import annotations

import fcntl
import io
import os
import sys
import time
from contextlib import nullcontext
from pathlib import Path

import pytest

from ductile.cli import output, target
from ductile.cli.client import GatewayClient
from ductile.store.engines import migrate
from ductile.store.engines.migrate import load_migrations
from ductile.store.engines.sqlite import SqliteLedger
from tests.cli.runner import CliRunner
from tests.postgres import Server


def test_status_shows_the_stored_state_of_a_plugin(cli: CliRunner) -> None:
    answer = '{"status": "ok", "result": 1, "state_updates": {"cursor": 7, "api_key": "hidden"}}'
    cli.plugin("keeps", f"echo '{answer}'")
    assert cli("run", "keeps").code == 0
    shown = cli("status").out
    assert '{"cursor": 7, "api_key": "[REDACTED]"}' in shown
    assert "hidden" not in shown


@pytest.mark.parametrize("line", [("job", "list"), ("audit",), ("status",)])
def test_ledger_of_an_older_version_is_reported(
    cli: CliRunner, monkeypatch: pytest.MonkeyPatch, line: tuple[str, ...]
) -> None:
    older = load_migrations("sqlite")[:7]
    with monkeypatch.context() as patch:
        patch.setattr(migrate, "load_migrations", lambda _: older)
        cli.state.mkdir(mode=0o700, exist_ok=True)
        ledger = SqliteLedger(cli.state / "state.db")
        ledger.start()
        ledger.close()
    done = cli(*line)
    assert done.code == 1
    assert "an older version of ductile has written the ledger; start the gateway" in done.err


class TestWithoutALedger:
    def test_status_creates_no_ledger(self, cli: CliRunner) -> None:
        page = cli("system", "status", "--json").json
        assert page["running_gateway"] is False
        assert page["queue_depth"] == 0
        assert [row["name"] for row in page["plugins"]] == ["bad", "hello"]
        assert page["plugins"][1]["health"]["healthy"] is True
        assert "no gateway is running" in cli("status").out
        assert not cli.state.exists()

    def test_a_long_health_error_is_cut(self, cli: CliRunner) -> None:
        cli.plugin("loud", "head -c 5000 /dev/zero | tr '\\0' x >&2; exit 3", commands="health")
        (line,) = [line for line in cli("status").out.splitlines() if line.startswith("loud")]
        assert "exit code 3" in line
        assert len(line) < 300

    @pytest.mark.parametrize("line", [("job", "list"), ("queue",), ("logs",), ("plugins",)])
    def test_reads_create_no_ledger(self, cli: CliRunner, line: tuple[str, ...]) -> None:
        assert cli(*line).code == 0
        assert cli(*line, "--json").code == 0
        assert not cli.state.exists()

    def test_an_unknown_job_is_not_found(self, cli: CliRunner) -> None:
        done = cli("job", "inspect", "7", "--json")
        assert (done.code, done.json["code"]) == (1, "not_found")

    def test_an_empty_ledger_file_is_read_as_empty(self, cli: CliRunner) -> None:
        cli.write("data/state.db", "")
        assert cli("queue", "--json").json["queue_depth"] == 0

    def test_start_dry_run_changes_nothing(self, cli: CliRunner) -> None:
        (cli.root / "plugins/bad/run.sh").chmod(0o600)
        plan = cli("start", "--dry-run", "--json").json
        assert (plan["plugins"], plan["refused"]) == (["hello"], ["bad"])
        assert "would start" in cli("start", "--dry-run").out
        assert not cli.state.exists()


class TestRun:
    def test_run_prints_the_result(self, cli: CliRunner) -> None:
        done = cli("plugin", "run", "hello")
        assert done.code == 0
        assert "hello poll succeeded" in done.out
        assert '"greeting": "hi"' in done.out
        assert "info  said hi" in done.out
        assert done.err == ""

    def test_run_prints_the_job_as_json(self, cli: CliRunner) -> None:
        done = cli("run", "hello", "--json")
        assert done.json["status"] == "succeeded"
        assert done.json["result"]["result"] == {"greeting": "hi"}
        assert done.json["submitted_by"] == "cli"
        inspected = cli("job", "inspect", done.json["job_id"], "--json").json
        (node,) = inspected.pop("graph")
        assert (node["job_id"], node["depth"]) == (done.json["job_id"], 0)
        assert {**inspected, "deduplicated": False} == done.json

    def test_a_failed_job_exits_1_and_stays_queued_for_its_retry(self, cli: CliRunner) -> None:
        done = cli("plugin", "run", "bad")
        assert done.code == 1
        assert "bad poll failed" in done.out
        assert "no luck" in done.out
        assert "it broke" in done.out
        assert "attempt 2 of 2 is due at" in done.out
        (row,) = cli("queue", "list", "--json").json["jobs"]
        assert row["waits_for"].startswith("its retry is due")

    def test_times_in_notes_are_local(
        self, cli: CliRunner, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("TZ", "Asia/Kolkata")
        time.tzset()
        try:
            assert cli("plugin", "run", "bad").code == 1
            (row,) = cli("queue", "list", "--json").json["jobs"]
            retry, local = row["next_retry_at"], output.format_time(row["next_retry_at"])
            result = cli("job", "list").out
        finally:
            monkeypatch.undo()
            time.tzset()
        assert retry not in result
        assert f"its retry is due at {local}" in " ".join(result.split())

    def test_run_does_not_run_other_jobs(self, cli: CliRunner) -> None:
        waiting = cli("plugin", "run", "hello", "--async", "--json").json
        assert cli("plugin", "run", "hello").code == 0
        assert cli("job", "inspect", waiting["job_id"], "--json").json["status"] == "queued"
        (row,) = cli("queue", "--json").json["jobs"]
        assert row["waits_for"] == "no gateway is running"

    def test_jobs_that_follow_stay_queued(self, cli: CliRunner) -> None:
        config = cli.root / "config.yaml"
        route = "routes: [{from: work_signal, event_type: work_signal.rang, to: hello}]\n"
        cli.write("config.yaml", config.read_text() + route)
        cli.plugin("work_signal", 'echo \'{"status":"ok","events":[{"type":"work_signal.rang"}]}\'')
        assert "event work_signal.rang" in cli("run", "work_signal").out
        (caused,) = cli("queue", "--json").json["jobs"]
        assert (caused["plugin"], caused["command"]) == ("hello", "handle")

    def test_init_runs_first(self, cli: CliRunner) -> None:
        cli.plugin("deep", 'echo \'{"status":"ok","result":"x"}\'', commands="init, poll")
        assert "its init has not run yet" in cli("plugin", "list").out
        assert cli("plugin", "run", "deep").code == 0
        ran = cli("job", "list", "--plugin", "deep", "--json").json["jobs"]
        assert [(row["command"], row["status"]) for row in ran] == [
            ("poll", "succeeded"),
            ("init", "succeeded"),
        ]
        assert cli("plugin", "list", "--json").json["plugins"][1]["state"] == "ready"

    def test_a_failed_init_leaves_the_job_queued(self, cli: CliRunner) -> None:
        cli.plugin("deep", 'echo \'{"status":"error","error":"dry"}\'', commands="init, poll")
        done = cli("plugin", "run", "deep")
        assert done.code == 1
        assert "deep poll queued" in done.out
        assert "plugin deep is unhealthy: its init failed: dry" in done.out

    def test_a_used_dedupe_key_does_not_run_again(self, cli: CliRunner) -> None:
        first = cli("run", "hello", "--dedupe-key", "k", "--json").json
        again = cli("run", "hello", "--dedupe-key", "k", "--json")
        assert again.code == 0
        assert again.json["job_id"] == first["job_id"]
        assert (first["deduplicated"], again.json["deduplicated"]) == (False, True)
        assert "not run again" in cli("run", "hello", "--dedupe-key", "k").out
        assert cli("run", "hello", "--dedupe-key", "k", "--dedupe-ttl", "x").code == 2

    def test_a_timeout_queues_the_job_again(self, cli: CliRunner) -> None:
        cli.plugin("slow", "exec sleep 60")
        done = cli("plugin", "run", "slow", "--timeout", "300ms", "--json")
        assert done.code == 1
        assert done.json["status"] == "queued"
        assert (done.json["attempt"], done.json["max_attempts"]) == (2, 5)

    def test_run_dry_run_changes_nothing(self, cli: CliRunner) -> None:
        done = cli("run", "hello", "--payload", '{"a": 1}', "--dry-run", "--json")
        assert done.json == {
            "dry_run": True,
            "plugin": "hello",
            "command": "poll",
            "payload": {"a": 1},
            "deduplicated": False,
            "job_id": None,
        }
        assert "would run hello poll" in cli("run", "hello", "--dry-run").out
        assert not cli.state.exists()

    @pytest.mark.parametrize("served", [False, True])
    def test_run_dry_run_reports_a_duplicate(self, cli: CliRunner, served: bool) -> None:
        key = ("--dedupe-key", "k")
        done = cli("run", "hello", *key, "--json").json["job_id"]
        with cli.gateway() if served else nullcontext():
            planned = cli("run", "hello", *key, "--dry-run", "--json").json
            assert (planned["deduplicated"], planned["job_id"]) == (True, done)
            expected = f"would not run hello poll: job {done} has this dedupe key\n"
            assert cli("run", "hello", *key, "--dry-run").out == expected
            other = ("--dedupe-key", "other", "--dry-run")
            assert cli("run", "hello", *other).out == "would run hello poll\n"

    def test_verbose_prints_logs_to_stderr(self, cli: CliRunner) -> None:
        done = cli("plugin", "run", "hello", "--json", "-v")
        assert done.json["status"] == "succeeded"
        assert '"message":"job succeeded"' in done.err


class TestPayload:
    @pytest.fixture
    def echo(self, cli: CliRunner) -> CliRunner:
        cli.plugin("echo", 'printf \'{"status":"ok","result":%s}\' "$request"')
        return cli

    def payload(self, cli: CliRunner, text: str) -> object:
        done = cli("run", "echo", "--payload", text, "--json")
        assert done.code == 0, done
        return done.json["result"]["result"]["payload"]

    def test_payload_from_text_file_and_stdin(
        self, echo: CliRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        file = tmp_path / "p.json"
        file.write_text('{"sky": "☔"}')
        assert self.payload(echo, '{"a": [1, 2.5, null]}') == {"a": [1, 2.5, None]}
        assert self.payload(echo, f"@{file}") == {"sky": "☔"}
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b'{"b": true}')))
        assert self.payload(echo, "-") == {"b": True}

    @pytest.mark.parametrize(("text", "code"), [("{", 2), ("NaN", 2), ("@/not/there", 1)])
    def test_an_invalid_payload_is_refused(self, echo: CliRunner, text: str, code: int) -> None:
        assert echo("run", "echo", "--payload", text).code == code

    @pytest.mark.parametrize("levels", [101, 255, 1000])
    def test_a_payload_nested_too_deep_is_refused(self, echo: CliRunner, levels: int) -> None:
        done = echo("run", "echo", "--payload", "[" * levels + "]" * levels)
        assert done.code == 2
        assert "the payload is nested more than 100 levels deep" in done.err

    def test_a_payload_that_is_too_large_is_refused(self, echo: CliRunner, tmp_path: Path) -> None:
        file = tmp_path / "p.json"
        file.write_text('"' + "x" * 1024 * 1024 + '"')
        done = echo("run", "echo", "--payload", f"@{file}", "--json")
        assert (done.code, done.json["code"]) == (1, "body_too_large")


class TestCommand:
    def test_an_unknown_plugin_gives_a_suggestion(self, cli: CliRunner) -> None:
        done = cli("run", "helo")
        assert done.code == 2
        assert "did you mean 'hello'?" in done.err

    def test_a_refused_plugin_cannot_run(self, cli: CliRunner) -> None:
        (cli.root / "plugins/bad/run.sh").chmod(0o600)
        done = cli("run", "bad", "--json")
        assert done.code == 2
        assert "not executable" in done.json["error"]

    def test_the_default_command_is_poll_handle_or_the_only_one(self, cli: CliRunner) -> None:
        cli.plugin("many", "", commands="b, a")
        cli.plugin("one", "", commands="sync")
        cli.plugin("hand", "", commands="other, handle")
        assert "choose with --command: a, b" in cli("run", "many", "--dry-run").err
        assert cli("run", "one", "--dry-run", "--json").json["command"] == "sync"
        assert cli("run", "hand", "--dry-run", "--json").json["command"] == "handle"
        assert cli("run", "hello", "--command", "x").code == 2


class TestReads:
    def test_jobs_are_filtered_and_paged(self, cli: CliRunner) -> None:
        cli("run", "hello")
        cli("run", "bad")
        listed = cli("job", "list", "--status", "succeeded", "--json").json["jobs"]
        assert [row["plugin"] for row in listed] == ["hello"]
        page = cli("job", "list", "--limit", "1", "--json").json
        assert [row["plugin"] for row in page["jobs"]] == ["bad"]
        before = ("--before", str(page["cursor"]))
        page = cli("job", "list", "--limit", "1", *before, "--json").json
        assert [row["plugin"] for row in page["jobs"]] == ["hello"]
        table = cli("job", "list").out.splitlines()
        assert table[0].split()[:4] == ["JOB", "PLUGIN", "COMMAND", "STATUS"]
        assert len(table) == 3

    def test_logs_are_filtered(self, cli: CliRunner) -> None:
        job = cli("run", "hello", "--json").json
        cli("run", "bad")
        result = cli("job", "logs").out
        assert result.index("said hi") < result.index("no luck")
        assert "no luck" not in cli("job", "logs", job["job_id"]).out
        assert "said hi" not in cli("logs", "bad").out
        assert "said hi" not in cli("job", "logs", "--status", "failed").out
        assert "said hi" in cli("job", "logs", "--since", "1h").out
        assert cli("job", "logs", "--since", "2999-01-01").out == "no attempts\n"
        assert cli("job", "logs", "--since", "soon").code == 2

    def test_inspect_shows_a_job(self, cli: CliRunner) -> None:
        job = cli("run", "bad", "--payload", '{"a": 1}', "--json").json
        shown = cli("job", "inspect", job["job_id"]).out
        for part in (job["job_id"], "no luck", "it broke", '"a": 1', "running -> failed"):
            assert part in shown

    def test_reading_an_invalid_ledger_is_reported(self, cli: CliRunner) -> None:
        cli.write("data/state.db", "this is no database, whatever its name says" * 100)
        done = cli("job", "list", "--json")
        assert (done.code, done.json["code"]) == (1, "ledger")

    @pytest.mark.parametrize("line", [("system", "start"), ("plugin", "run", "hello")])
    def test_writing_to_an_invalid_ledger_is_reported(
        self, cli: CliRunner, line: tuple[str, ...]
    ) -> None:
        cli.write("data/state.db", "this is no database, whatever its name says" * 100)
        done = cli.process(*line, "--json")
        assert (done.code, done.json["code"]) == (1, "ledger")
        assert "cannot be used: file is not a database" in done.json["error"]
        assert "ductile system restore" in done.json["error"]
        assert "Traceback" not in done.err


class TestLock:
    def test_a_locked_state_directory_names_the_process(
        self, cli: CliRunner, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(target, "LOCK_TIMEOUT", 0.0)
        lock = cli.write("data/ductile.lock", f"{os.getpid()}\n")
        with lock.open() as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            done = cli("run", "hello", "--json")
        assert (done.code, done.json["code"], done.json["pid"]) == (1, "locked", os.getpid())

    def test_a_gateway_that_starts_meanwhile_is_used(
        self, cli: CliRunner, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        lock = cli.write("data/ductile.lock", f"{os.getpid()}\n")
        looks = iter((False, True))
        monkeypatch.setattr(GatewayClient, "is_listening", lambda _path: next(looks))
        with lock.open() as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            done = cli("run", "hello", "--json")
        assert (done.code, done.json["code"]) == (1, "not_running")


class TestPostgres:
    @pytest.fixture
    def shared(self, cli: CliRunner, postgres: Server) -> CliRunner:
        """The same configuration with a ledger on PostgreSQL."""
        cli.write("config.yaml", f"state: {{url: '{postgres.database()}', dir: ./data}}\n")
        return cli

    def test_commands_work_on_postgres(self, shared: CliRunner) -> None:
        assert shared("queue", "--json").json["jobs"] == []
        done = shared("run", "hello", "--json")
        assert (done.code, done.json["status"]) == (0, "succeeded")
        assert shared("status", "--json").json["plugins"][1]["last_run"]["status"] == "succeeded"
        assert "said hi" in shared("logs").out

    def test_queued_jobs_on_postgres_may_run_elsewhere(self, shared: CliRunner) -> None:
        assert shared("run", "hello", "--async").code == 0
        (row,) = shared("queue", "--json").json["jobs"]
        assert row["waits_for"] == "no gateway is running here"
