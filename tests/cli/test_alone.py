"""Without a running gateway: reads from the ledger's file, and one job in this process."""

from __future__ import annotations

import fcntl
import io
import sys
import time
from pathlib import Path

import pytest

from ductile.cli import output, target
from ductile.cli.client import GatewayClient
from tests.cli.running import House
from tests.postgres import Server


class TestBeforeAnyLedger:
    def test_status(self, house: House) -> None:
        page = house("system", "status", "--json").json
        assert page["running_gateway"] is False
        assert page["queue_depth"] == 0
        assert [row["name"] for row in page["plugins"]] == ["bad", "hello"]
        assert page["plugins"][1]["health"]["healthy"] is True
        assert "no gateway is running" in house("status").out
        assert not house.state.exists()

    def test_whatever_a_plugin_says_of_its_health_its_line_is_short(self, house: House) -> None:
        house.plugin("loud", "head -c 5000 /dev/zero | tr '\\0' x >&2; exit 3", commands="health")
        (line,) = [line for line in house("status").out.splitlines() if line.startswith("loud")]
        assert "exit code 3" in line
        assert len(line) < 300

    @pytest.mark.parametrize("line", [("job", "list"), ("queue",), ("logs",), ("plugins",)])
    def test_other_reads(self, house: House, line: tuple[str, ...]) -> None:
        assert house(*line).code == 0
        assert house(*line, "--json").code == 0
        assert not house.state.exists()

    def test_a_job_that_is_not_there(self, house: House) -> None:
        done = house("job", "inspect", "7", "--json")
        assert (done.code, done.json["code"]) == (1, "not_found")

    def test_a_ledger_that_was_begun_and_no_more(self, house: House) -> None:
        house.write("data/state.db", "")
        assert house("queue", "--json").json["queue_depth"] == 0

    def test_a_start_that_is_only_thought_of(self, house: House) -> None:
        (house.root / "plugins/bad/run.sh").chmod(0o600)
        plan = house("start", "--dry-run", "--json").json
        assert (plan["plugins"], plan["refused"]) == (["hello"], ["bad"])
        assert "would start" in house("start", "--dry-run").out
        assert not house.state.exists()


class TestRun:
    def test_the_result_is_shown(self, house: House) -> None:
        done = house("plugin", "run", "hello")
        assert done.code == 0
        assert "hello poll succeeded" in done.out
        assert '"greeting": "hi"' in done.out
        assert "info  said hi" in done.out
        assert done.err == ""

    def test_the_whole_job_in_json(self, house: House) -> None:
        done = house("run", "hello", "--json")
        assert done.json["status"] == "succeeded"
        assert done.json["result"]["result"] == {"greeting": "hi"}
        assert done.json["submitted_by"] == "cli"
        inspected = house("job", "inspect", done.json["job_id"], "--json").json
        (node,) = inspected.pop("graph")
        assert (node["job_id"], node["depth"]) == (done.json["job_id"], 0)
        assert {**inspected, "deduplicated": False} == done.json

    def test_a_failure_is_told_and_its_retry_is_left_to_a_gateway(self, house: House) -> None:
        done = house("plugin", "run", "bad")
        assert done.code == 1
        assert "bad poll failed" in done.out
        assert "no luck" in done.out
        assert "it broke" in done.out
        assert "attempt 2 of 2 is due at" in done.out
        (row,) = house("queue", "list", "--json").json["jobs"]
        assert row["waits_for"].startswith("its retry is due")

    def test_the_times_of_a_line_are_of_one_zone(
        self, house: House, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("TZ", "Asia/Kolkata")
        time.tzset()
        try:
            assert house("plugin", "run", "bad").code == 1
            (row,) = house("queue", "list", "--json").json["jobs"]
            retry, local = row["next_retry_at"], output.format_time(row["next_retry_at"])
            told = house("job", "list").out
        finally:
            monkeypatch.undo()
            time.tzset()
        assert retry not in told
        assert f"its retry is due at {local}" in " ".join(told.split())

    def test_nothing_but_this_job_is_run(self, house: House) -> None:
        waiting = house("plugin", "run", "hello", "--async", "--json").json
        assert house("plugin", "run", "hello").code == 0
        assert house("job", "inspect", waiting["job_id"], "--json").json["status"] == "queued"
        (row,) = house("queue", "--json").json["jobs"]
        assert row["waits_for"] == "no gateway is running"

    def test_what_it_causes_stays_queued(self, house: House) -> None:
        config = house.root / "config.yaml"
        route = "routes: [{from: work_signal, event_type: work_signal.rang, to: hello}]\n"
        house.write("config.yaml", config.read_text() + route)
        house.plugin(
            "work_signal", 'echo \'{"status":"ok","events":[{"type":"work_signal.rang"}]}\''
        )
        assert "event work_signal.rang" in house("run", "work_signal").out
        (caused,) = house("queue", "--json").json["jobs"]
        assert (caused["plugin"], caused["command"]) == ("hello", "handle")

    def test_init_comes_first(self, house: House) -> None:
        house.plugin("deep", 'echo \'{"status":"ok","result":"x"}\'', commands="init, poll")
        assert "its init has not run yet" in house("plugin", "list").out
        assert house("plugin", "run", "deep").code == 0
        ran = house("job", "list", "--plugin", "deep", "--json").json["jobs"]
        assert [(row["command"], row["status"]) for row in ran] == [
            ("poll", "succeeded"),
            ("init", "succeeded"),
        ]
        assert house("plugin", "list", "--json").json["plugins"][1]["state"] == "ready"

    def test_an_init_that_fails_leaves_the_job_queued(self, house: House) -> None:
        house.plugin("deep", 'echo \'{"status":"error","error":"dry"}\'', commands="init, poll")
        done = house("plugin", "run", "deep")
        assert done.code == 1
        assert "deep poll queued" in done.out
        assert "plugin deep is unhealthy: its init failed: dry" in done.out

    def test_a_dedupe_key_runs_once(self, house: House) -> None:
        first = house("run", "hello", "--dedupe-key", "k", "--json").json
        again = house("run", "hello", "--dedupe-key", "k", "--json")
        assert again.code == 0
        assert again.json["job_id"] == first["job_id"]
        assert (first["deduplicated"], again.json["deduplicated"]) == (False, True)
        assert "not run again" in house("run", "hello", "--dedupe-key", "k").out
        assert house("run", "hello", "--dedupe-key", "k", "--dedupe-ttl", "x").code == 2

    def test_out_of_time_it_goes_back_to_the_queue(self, house: House) -> None:
        house.plugin("slow", "exec sleep 60")
        done = house("plugin", "run", "slow", "--timeout", "300ms", "--json")
        assert done.code == 1
        assert done.json["status"] == "queued"
        assert (done.json["attempt"], done.json["max_attempts"]) == (2, 5)

    def test_a_dry_run_changes_nothing(self, house: House) -> None:
        done = house("run", "hello", "--payload", '{"a": 1}', "--dry-run", "--json")
        assert done.json == {
            "dry_run": True,
            "plugin": "hello",
            "command": "poll",
            "payload": {"a": 1},
        }
        assert "would run hello poll" in house("run", "hello", "--dry-run").out
        assert not house.state.exists()

    def test_logs_come_only_on_request_and_on_stderr(self, house: House) -> None:
        done = house("plugin", "run", "hello", "--json", "-v")
        assert done.json["status"] == "succeeded"
        assert '"message":"job succeeded"' in done.err


class TestPayload:
    @pytest.fixture
    def echo(self, house: House) -> House:
        house.plugin("echo", 'printf \'{"status":"ok","result":%s}\' "$request"')
        return house

    def payload(self, house: House, text: str) -> object:
        done = house("run", "echo", "--payload", text, "--json")
        assert done.code == 0, done
        return done.json["result"]["result"]["payload"]

    def test_as_text_from_a_file_and_from_stdin(
        self, echo: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        file = tmp_path / "p.json"
        file.write_text('{"sky": "☔"}')
        assert self.payload(echo, '{"a": [1, 2.5, null]}') == {"a": [1, 2.5, None]}
        assert self.payload(echo, f"@{file}") == {"sky": "☔"}
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b'{"b": true}')))
        assert self.payload(echo, "-") == {"b": True}

    @pytest.mark.parametrize(("text", "code"), [("{", 2), ("NaN", 2), ("@/not/there", 1)])
    def test_that_is_none(self, echo: House, text: str, code: int) -> None:
        assert echo("run", "echo", "--payload", text).code == code

    @pytest.mark.parametrize("levels", [101, 255, 1000])
    def test_one_that_nests_too_deep_is_refused(self, echo: House, levels: int) -> None:
        done = echo("run", "echo", "--payload", "[" * levels + "]" * levels)
        assert done.code == 2
        assert "the payload is nested more than 100 levels deep" in done.err

    def test_that_is_too_large(self, echo: House, tmp_path: Path) -> None:
        file = tmp_path / "p.json"
        file.write_text('"' + "x" * 1024 * 1024 + '"')
        done = echo("run", "echo", "--payload", f"@{file}", "--json")
        assert (done.code, done.json["code"]) == (1, "body_too_large")


class TestChoice:
    def test_of_a_plugin_that_is_not_there(self, house: House) -> None:
        done = house("run", "helo")
        assert done.code == 2
        assert "did you mean 'hello'?" in done.err

    def test_of_a_refused_one(self, house: House) -> None:
        (house.root / "plugins/bad/run.sh").chmod(0o600)
        done = house("run", "bad", "--json")
        assert done.code == 2
        assert "not executable" in done.json["error"]

    def test_of_a_command(self, house: House) -> None:
        house.plugin("many", "", commands="b, a")
        house.plugin("one", "", commands="sync")
        house.plugin("hand", "", commands="other, handle")
        assert "choose with --command: a, b" in house("run", "many", "--dry-run").err
        assert house("run", "one", "--dry-run", "--json").json["command"] == "sync"
        assert house("run", "hand", "--dry-run", "--json").json["command"] == "handle"
        assert house("run", "hello", "--command", "x").code == 2


class TestReads:
    def test_jobs_by_filter_and_page(self, house: House) -> None:
        house("run", "hello")
        house("run", "bad")
        listed = house("job", "list", "--status", "succeeded", "--json").json["jobs"]
        assert [row["plugin"] for row in listed] == ["hello"]
        page = house("job", "list", "--limit", "1", "--json").json
        assert [row["plugin"] for row in page["jobs"]] == ["bad"]
        before = ("--before", str(page["cursor"]))
        page = house("job", "list", "--limit", "1", *before, "--json").json
        assert [row["plugin"] for row in page["jobs"]] == ["hello"]
        table = house("job", "list").out.splitlines()
        assert table[0].split()[:4] == ["JOB", "PLUGIN", "COMMAND", "STATUS"]
        assert len(table) == 3

    def test_logs_by_filter(self, house: House) -> None:
        job = house("run", "hello", "--json").json
        house("run", "bad")
        told = house("job", "logs").out
        assert told.index("said hi") < told.index("no luck")
        assert "no luck" not in house("job", "logs", job["job_id"]).out
        assert "said hi" not in house("logs", "bad").out
        assert "said hi" not in house("job", "logs", "--status", "failed").out
        assert "said hi" in house("job", "logs", "--since", "1h").out
        assert house("job", "logs", "--since", "2999-01-01").out == "no attempts\n"
        assert house("job", "logs", "--since", "soon").code == 2

    def test_a_job_in_full(self, house: House) -> None:
        job = house("run", "bad", "--payload", '{"a": 1}', "--json").json
        shown = house("job", "inspect", job["job_id"]).out
        for part in (job["job_id"], "no luck", "it broke", '"a": 1', "running -> failed"):
            assert part in shown

    def test_a_ledger_that_is_none(self, house: House) -> None:
        house.write("data/state.db", "this is no database, whatever its name says" * 100)
        done = house("job", "list", "--json")
        assert (done.code, done.json["code"]) == (1, "ledger")

    @pytest.mark.parametrize("line", [("system", "start"), ("plugin", "run", "hello")])
    def test_a_ledger_that_is_none_is_no_bug(self, house: House, line: tuple[str, ...]) -> None:
        house.write("data/state.db", "this is no database, whatever its name says" * 100)
        done = house.process(*line, "--json")
        assert (done.code, done.json["code"]) == (1, "ledger")
        assert "cannot be used: file is not a database" in done.json["error"]
        assert "ductile system restore" in done.json["error"]
        assert "Traceback" not in done.err


class TestLock:
    def test_who_cannot_have_it_says_who_has(
        self, house: House, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(target, "LOCK_TIMEOUT", 0.0)
        lock = house.write("data/ductile.lock", "1\n")
        with lock.open() as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            done = house("run", "hello", "--json")
        assert (done.code, done.json["code"], done.json["pid"]) == (1, "locked", 1)

    def test_a_gateway_that_starts_meanwhile_is_asked(
        self, house: House, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        lock = house.write("data/ductile.lock", "1\n")
        looks = iter((False, True))
        monkeypatch.setattr(GatewayClient, "is_listening", lambda _path: next(looks))
        with lock.open() as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            done = house("run", "hello", "--json")
        assert (done.code, done.json["code"]) == (1, "not_running")


class TestPostgres:
    @pytest.fixture
    def shared(self, house: House, postgres: Server) -> House:
        """The same house, its ledger in a database."""
        house.write("config.yaml", f"state: {{url: '{postgres.database()}', dir: ./data}}\n")
        return house

    def test_it_makes_no_difference(self, shared: House) -> None:
        assert shared("queue", "--json").json["jobs"] == []
        done = shared("run", "hello", "--json")
        assert (done.code, done.json["status"]) == (0, "succeeded")
        assert shared("status", "--json").json["plugins"][1]["last_run"]["status"] == "succeeded"
        assert "said hi" in shared("logs").out

    def test_other_nodes_may_be_at_work(self, shared: House) -> None:
        assert shared("run", "hello", "--async").code == 0
        (row,) = shared("queue", "--json").json["jobs"]
        assert row["waits_for"] == "no gateway is running here"
