"""`ductile plugin test` and `ductile plugin validate`."""

from __future__ import annotations

import json
import os
import signal
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest

from ductile.cli import main
from ductile.core.delivery.payload import FORM
from tests.cli.runner import CliRunner
from tests.cli.test_processes import processes_below
from tests.waiting import WAIT_LIMIT, until

SPEC = "manifest_spec: ductile.plugin\nmanifest_version: 1\nprotocol: 2\nversion: '1'\n"


@pytest.fixture
def desk(cli: CliRunner) -> CliRunner:
    """A configuration with a directory for plugins outside of the plugin roots."""
    (cli.root / "desk").mkdir(mode=0o700)
    return cli


def draft(cli: CliRunner, script: str, manifest: str = "", name: str = "draft") -> str:
    """Write a plugin in sh outside of the plugin roots, and return its directory."""
    text = f"{SPEC}name: {name}\nentrypoint: run.sh\n{manifest or 'commands: [poll, handle]'}\n"
    cli.write(f"desk/{name}/manifest.yaml", text)
    cli.write(f"desk/{name}/run.sh", f"#!/bin/sh\nrequest=$(cat)\n{script}\n", 0o700)
    return str(cli.root / "desk" / name)


def run_test(cli: CliRunner, *line: str) -> Any:
    done = cli("plugin", "test", *line, "--json")
    assert done.code in (0, 1), done.out + done.err
    return done.json


def respond(response: Any) -> str:
    return f"cat <<'JSON'\n{json.dumps(response)}\nJSON"


class TestRun:
    def test_a_plugin_is_run_by_name(self, cli: CliRunner) -> None:
        done = run_test(cli, "hello")
        assert (done["status"], done["command"], done["protocol"]) == ("succeeded", "poll", 1)
        assert done["response"]["result"] == {"greeting": "hi"}
        assert done["logs"] == [{"level": "info", "message": "said hi"}]

    def test_a_directory_is_run_without_a_configuration(
        self,
        desk: CliRunner,
        monkeypatch: pytest.MonkeyPatch,
        tmp_path: Path,
    ) -> None:
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.delenv("DUCTILE_CONFIG_DIR", raising=False)
        directory = draft(desk, respond({"status": "ok", "result": "fine"}))
        assert main(["plugin", "test", directory]) == 0
        monkeypatch.chdir(directory)
        assert main(["plugin", "test", "."]) == 0
        monkeypatch.chdir(Path(directory).parent)
        assert main(["plugin", "test", "draft"]) == 0
        assert "fine" in desk.capsys.readouterr().out

    def test_a_failure_exits_1_and_shows_the_retry(self, cli: CliRunner) -> None:
        done = cli("plugin", "test", "bad")
        assert done.code == 1
        assert "no luck" in done.out
        assert "would be retried: attempt 2 of 2" in done.out
        assert "it broke" in done.out

    @pytest.mark.parametrize(
        ("script", "why"),
        [
            (respond({"status": "error", "error": "x", "retry": False}), "a retry does not help"),
            ("echo no >&2; exit 78", "a retry does not help"),
        ],
    )
    def test_a_permanent_failure_would_not_be_retried(
        self, desk: CliRunner, script: str, why: str
    ) -> None:
        done = run_test(desk, draft(desk, script))
        assert done["retry"]["would_retry"] is False
        assert why in done["retry"]["why"]

    def test_the_request_is_that_of_a_gateway(self, desk: CliRunner) -> None:
        """The plugin returns its request; that of a real job has the same keys."""
        echo = 'printf \'{"status":"ok","result":%s}\' "$request"'
        desk.plugin("mirror", echo, protocol=2, commands="poll, handle")
        for command in ("poll", "handle"):
            line = ("mirror", "--command", command, "--payload", '{"a": 1}')
            seen = run_test(desk, *line)["response"]["result"]
            real = desk("plugin", "run", *line, "--json").json["result"]["result"]
            assert _shape(seen) == _shape(real)

    def test_the_environment_is_that_of_a_gateway(
        self, desk: CliRunner, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("MY_SECRET", "not-for-plugins")
        done = run_test(desk, draft(desk, 'printf \'{"status":"ok","result":"%s"}\' "$MY_SECRET"'))
        assert done["response"]["result"] == ""
        assert "PATH" in done["environment"]
        assert "MY_SECRET" not in done["environment"]

    def test_webhook_request_becomes_event_and_context(self, desk: CliRunner) -> None:
        directory = draft(desk, 'printf \'{"status":"ok","result":%s}\' "$request"')
        request = {
            "name": "repo",
            "provider": "github",
            "headers": {"X-GitHub-Event": "push", "X-GitHub-Delivery": "d-1"},
            "body": {"ref": "main"},
        }
        seen = run_test(desk, directory, "--webhook", json.dumps(request))["response"]["result"]
        assert seen["context"]["webhook"] == {"name": "repo", "event": "push", "delivery_id": "d-1"}
        assert (seen["event"]["type"], seen["event"]["source"]) == ("webhook.repo", "repo")
        assert seen["payload"]["ref"] == "main"
        raw = {"name": "repo", "body": "a=1&b=2", "headers": {"Content-Type": FORM}, "event": "x"}
        seen = run_test(desk, directory, "--webhook", json.dumps(raw))["response"]["result"]
        assert (seen["payload"]["a"], seen["context"]["webhook"]["event"]) == ("1", "x")
        for given, why in (
            ({"body": {}}, "needs a name"),
            ({"name": "repo", "header": {}}, "did you mean 'headers'"),
            ({"name": "repo", "provider": "gitbub"}, "did you mean 'github'"),
            ({"name": "repo", "headers": {"a": 1}}, "object of texts"),
        ):
            refused = desk("plugin", "test", directory, "--webhook", json.dumps(given))
            assert refused.code == 2
            assert why in refused.err

    def test_event_state_and_config_are_read_from_options(self, desk: CliRunner) -> None:
        directory = draft(desk, 'printf \'{"status":"ok","result":%s}\' "$request"')
        event = desk.write("event.json", '{"type": "a.b", "payload": {"n": 1}}')
        state = desk.write("state.json", '{"cursor": 7}')
        line = ("--event", str(event), "--state", str(state), "--config-json", '{"c": 1}')
        seen = run_test(desk, directory, *line)["response"]["result"]
        assert seen["command"] == "handle"
        assert (seen["event"]["type"], seen["event"]["payload"]["n"]) == ("a.b", 1)
        assert (seen["state"], seen["config"]) == ({"cursor": 7}, {"c": 1})

    def test_verbose_shows_the_request_without_secrets(self, desk: CliRunner) -> None:
        directory = draft(desk, respond({"status": "ok", "result": "x"}))
        line = ("--config-json", '{"api_key": "hunter2hunter2"}', "-v")
        done = desk("plugin", "test", directory, *line)
        assert '"command": "poll"' in done.err
        assert "time limit: 60 s" in done.err
        assert "hunter2" not in done.out + done.err

    @pytest.mark.parametrize(
        "line",
        [
            ("--payload", "{"),
            ("--payload", "{}", "--event", "x"),
            ("--config-json", "[1]"),
            ("--command", "dance"),
            ("--state", "/nowhere/at/all"),
        ],
    )
    def test_wrong_usage_is_refused(self, cli: CliRunner, line: tuple[str, ...]) -> None:
        assert cli("plugin", "test", "hello", *line).code in (1, 2)

    @pytest.mark.parametrize(
        ("name", "word"),
        [("helo", "did you mean 'hello'?"), ("./nowhere", "there is no directory")],
    )
    def test_an_unknown_plugin_is_not_found(self, cli: CliRunner, name: str, word: str) -> None:
        done = cli("plugin", "test", name)
        assert done.code == 1
        assert word in done.err

    def test_the_configured_timeout_applies(self, desk: CliRunner) -> None:
        desk.write(
            "config.yaml",
            "plugin_roots: [./plugins]\nplugins: {slow: {timeouts: {poll: 200ms}}}\n",
        )
        desk.plugin("slow", "exec sleep 30")
        done = run_test(desk, "slow")
        assert done["status"] == "timed_out"
        assert "plugins.slow.timeouts.poll" in done["advice"][0]["hint"]

    def test_an_interrupt_leaves_no_process(self, desk: CliRunner) -> None:
        desk.plugin("slow", f"sleep 60 &\ntouch {desk.root}/up\nexec sleep 60")
        process = desk.start("plugin", "test", "slow")
        until(lambda: (desk.root / "up").exists() or process.poll() is not None)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=WAIT_LIMIT)
        assert process.returncode == 130
        assert "Traceback" not in err
        assert processes_below(desk.root) == []

    def test_secrets_are_redacted(self, desk: CliRunner) -> None:
        desk.write(
            "config.yaml",
            "plugin_roots: [./plugins]\nplugins: {mirror: {config: {api_key: hunter2hunter2}}}\n",
        )
        desk.plugin(
            "mirror", 'printf \'{"status":"ok","result":%s}\' "$request"; echo "$request" >&2'
        )
        for form in ((), ("--json",), ("-v",)):
            done = desk("plugin", "test", "mirror", *form)
            assert done.code == 0
            assert "hunter2" not in done.out + done.err


def _shape(value: Any) -> Any:
    return {key: _shape(item) for key, item in value.items()} if isinstance(value, dict) else None


class TestNothingIsRecorded:
    def test_no_ledger_is_created(self, cli: CliRunner) -> None:
        run_test(cli, "hello")
        assert not cli.state.exists()

    def test_the_ledger_is_unchanged(self, cli: CliRunner) -> None:
        cli.plugin("counter", respond({"status": "ok", "result": "x", "state_updates": {"n": 1}}))
        cli("plugin", "run", "counter")
        before = dump(cli)
        done = run_test(cli, "counter")
        assert done["state"]["after"] == {"n": 1}
        assert dump(cli) == before


def dump(cli: CliRunner) -> list[str]:
    """Return all rows of the ledger as text."""
    with closing(
        apsw.Connection(str(cli.state / "state.db"), flags=apsw.SQLITE_OPEN_READONLY)
    ) as db:
        tables = [row[0] for row in db.execute("select name from sqlite_schema where type='table'")]
        return [
            f"{table}: {row}"
            for table in sorted(tables)
            for row in db.execute(f"select * from {table}")
        ]


class TestConsequences:
    def test_state_is_merged_or_mirrored(self, desk: CliRunner) -> None:
        answer = {"status": "ok", "result": "x", "state_updates": {"b": 2}}
        state = desk.write("state.json", '{"a": 1}')
        plain = run_test(desk, draft(desk, respond(answer)), "--state", str(state))
        assert plain["state"]["after"] == {"a": 1, "b": 2}
        rule = "when: {command: poll}, from: state_updates, fact_type: t"
        manifest = (
            f"commands: [poll]\nfact_outputs: [{{{rule}, compatibility_view: mirror_object}}]"
        )
        fact = run_test(desk, draft(desk, respond(answer), manifest), "--state", str(state))
        assert (fact["state"]["after"], fact["fact"]) == ({"b": 2}, "t")

    def test_a_state_that_is_too_large_fails(self, desk: CliRunner) -> None:
        script = 'big=$(head -c 1100000 /dev/zero | tr "\\0" x)\n'
        script += 'printf \'{"status":"ok","result":"x","state_updates":{"big":"%s"}}\' "$big"'
        done = run_test(desk, draft(desk, script))
        assert done["status"] == "failed"
        assert "1 MiB" in done["advice"][0]["what"]
        assert done["state"]["after"] == {}

    def test_the_routes_of_events_are_shown(self, cli: CliRunner) -> None:
        cli.write(
            "config.yaml",
            "plugin_roots: [./plugins]\n"
            "routes: [{from: source, event_type: a, to: hello}]\n"
            "pipelines: [{name: pipe, on: a, steps: [{id: one, uses: hello.handle}]}]\n",
        )
        events = [{"type": "a", "payload": {}}, {"type": "b", "payload": {}}]
        cli.plugin("source", respond({"status": "ok", "result": "x", "events": events}))
        done = run_test(cli, "source")
        assert [(job["event"], job["plugin"], job["pipeline"]) for job in done["goes_to"]] == [
            ("a", "hello", None),
            ("a", "hello", "pipe"),
        ]
        people = cli("plugin", "test", "source").out
        assert "a would go to hello.handle, step one of pipe" in people
        assert "event b would not be routed" in people


class TestHints:
    @pytest.mark.parametrize(
        ("script", "what", "hint"),
        [
            ("", "stdout is empty", "write one JSON object"),
            ("echo Starting; " + respond({"status": "ok"}), "not JSON", "'Starting' precedes"),
            (respond({"status": "success"}), "it must be 'ok' or 'error'", 'write "status": "ok"'),
            (respond({"result": 1}), "no status", 'add "status"'),
            (
                respond({"status": "ok"}) + "\n" + respond({"status": "ok"}),
                "more than one",
                "two responses",
            ),
            ("printf '\\357\\273\\277'; " + respond({"status": "ok"}), "byte order mark", "UTF-8"),
            ("no-such-program", "a command was not found", "PATH"),
        ],
    )
    def test_errors_have_a_hint(self, desk: CliRunner, script: str, what: str, hint: str) -> None:
        done = run_test(desk, draft(desk, script))
        assert done["status"] == "failed"
        first = done["advice"][0]
        assert first["severity"] == "error"
        assert what in first["what"]
        assert hint in first["hint"]
        people = desk("plugin", "test", str(desk.root / "desk/draft")).out
        assert f"hint: {first['hint'][:20]}" in people

    def test_a_warning_does_not_fail_the_job(self, desk: CliRunner) -> None:
        manifest = "commands: {poll: {values: {emit: [{event: a, values: [payload.n]}]}}}"
        answer = {"status": "ok", "events": [{"type": "b"}]}
        done = run_test(desk, draft(desk, respond(answer), manifest))
        assert done["status"] == "succeeded"
        assert [advice["severity"] for advice in done["advice"]] == ["warning"] * 2

    @pytest.mark.parametrize(
        ("first_line", "word"),
        [("#!/no/such/interpreter", "/no/such/interpreter"), ("#!/bin/sh\r", "CRLF")],
    )
    def test_a_program_that_cannot_start_is_invalid(
        self, desk: CliRunner, first_line: str, word: str
    ) -> None:
        directory = draft(desk, "")
        desk.write("desk/draft/run.sh", f"{first_line}\necho\n", 0o700)
        done = desk("plugin", "test", directory, "--json")
        assert (done.code, done.json["code"]) == (1, "plugin_invalid")
        assert word in done.json["error"]

    def test_a_program_that_is_not_executable_is_invalid(self, desk: CliRunner) -> None:
        directory = draft(desk, "")
        os.chmod(f"{directory}/run.sh", 0o600)
        done = desk("plugin", "test", directory)
        assert done.code == 1
        assert "chmod +x" in done.err

    def test_missing_required_config_is_reported(self, desk: CliRunner) -> None:
        manifest = "commands: [poll]\nconfig_keys: {required: [city]}"
        directory = draft(desk, respond({"status": "ok", "result": "x"}), manifest)
        done = desk("plugin", "test", directory)
        assert done.code == 1
        assert "required settings are missing: city" in done.err
        assert desk("plugin", "test", directory, "--config-json", '{"city": "Oslo"}').code == 0


class TestValidate:
    def test_validate_checks_all_configured_plugins(self, cli: CliRunner) -> None:
        done = cli("plugin", "validate", "--json")
        assert done.code == 0
        assert [row["plugin"] for row in done.json["plugins"]] == ["bad", "hello"]
        assert "2 of 2 plugins valid" in cli("plugin", "validate").out

    def test_bundled_plugins_need_config_only_when_configured(self, cli: CliRunner) -> None:
        cli.write("config.yaml", 'plugin_roots: ["bundled:"]\n')
        done = cli("plugin", "validate", "--json")
        assert done.code == 0, [row for row in done.json["plugins"] if not row["ok"]]
        assert "withings" in {row["plugin"] for row in done.json["plugins"]}
        cli.write("config.yaml", 'plugin_roots: ["bundled:"]\nplugins: {withings: {}}\n')
        assert "plugins.withings.config.client_id" in cli("plugin", "validate").out

    def test_validate_reports_every_problem_with_its_place(self, desk: CliRunner) -> None:
        directory = draft(desk, "", "x")
        desk.write(
            "desk/draft/manifest.yaml",
            "manifest_spec: ductile.plugin\n"
            "name: core.draft\n"
            "protocol: 3\n"
            "entrypoint: run.sh\n"
            "descripton: typo\n"
            "commands:\n"
            "  poll: {type: reed}\n"
            "  handle: {descriptoin: x}\n",
        )
        os.chmod(f"{directory}/run.sh", 0o600)
        done = desk("plugin", "validate", directory, "--json")
        assert (done.code, done.json["ok"]) == (1, False)
        places = {
            (Path(p["file"]).name, p["line"], p["column"], p["severity"])
            for p in done.json["plugins"][0]["problems"]
        }
        assert places == {
            ("manifest.yaml", 2, 7, "error"),
            ("manifest.yaml", 3, 11, "error"),
            ("manifest.yaml", 5, 1, "warning"),
            ("manifest.yaml", 7, 16, "error"),
            ("manifest.yaml", 8, 12, "warning"),
            ("run.sh", None, None, "error"),
        }
        people = desk("plugin", "validate", directory).out
        assert f"{directory}/manifest.yaml:5:1: unknown key 'descripton'" in people
        assert "did you mean 'description'?" in people

    def test_validate_warns_of_a_misspelled_secret_mark(self, desk: CliRunner) -> None:
        keys = "commands: [poll]\nconfig_keys: {optional: [{name: pin, secrt: true}]}"
        directory = draft(desk, "", keys)
        shown = desk("plugin", "validate", directory).out
        assert "unknown key 'secrt' is ignored; did you mean 'secret'?" in shown

    def test_validate_reports_invalid_yaml(self, desk: CliRunner) -> None:
        directory = draft(desk, "")
        desk.write("desk/draft/manifest.yaml", "name: x\ncommands: [poll\n")
        (row,) = desk("plugin", "validate", directory, "--json").json["plugins"]
        (problem,) = row["problems"]
        assert (problem["line"], row["ok"]) == (3, False)

    def test_validate_checks_file_permissions(self, desk: CliRunner) -> None:
        directory = draft(desk, "")
        os.chmod(directory, 0o777)
        done = desk("plugin", "validate", directory)
        assert done.code == 1
        assert "world-writable" in done.out

    def test_validate_reports_a_missing_entrypoint(self, desk: CliRunner) -> None:
        directory = draft(desk, "")
        os.unlink(f"{directory}/run.sh")
        (row,) = desk("plugin", "validate", directory, "--json").json["plugins"]
        assert [(p["line"], p["column"]) for p in row["problems"]] == [(6, 13)]

    def test_validate_reports_a_link_out_of_the_root(self, desk: CliRunner) -> None:
        directory = draft(desk, "")
        os.unlink(f"{directory}/run.sh")
        os.symlink("/bin/true", f"{directory}/run.sh")
        assert "outside the root" in desk("plugin", "validate", directory).out

    def test_validate_reports_missing_required_config(self, cli: CliRunner) -> None:
        cli.plugin("hello", "")
        manifest = cli.root / "plugins/hello/manifest.yaml"
        manifest.write_text(manifest.read_text() + "config_keys: {required: [city]}\n")
        done = cli("plugin", "validate", "hello")
        assert done.code == 1
        assert "manifest.yaml:6:" in done.out
        assert "plugins.hello.config.city" in done.out

    def test_an_unknown_plugin_is_not_found(self, cli: CliRunner) -> None:
        assert cli("plugin", "validate", "helo").code == 1
        assert cli("plugin", "validate", "./nowhere").code == 1

    def test_validate_reports_a_directory_with_another_name(self, desk: CliRunner) -> None:
        directory = draft(desk, respond({"status": "ok"}))
        os.rename(directory, f"{directory}-2")
        done = desk("plugin", "validate", f"{directory}-2")
        assert done.code == 0
        assert "warning" in done.out
