"""`plugin test` and `plugin validate`: a plugin run as a gateway would, and explained."""

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
from tests.cli.running import House
from tests.cli.test_process import processes_below
from tests.waiting import WAIT_LIMIT, until

SPEC = "manifest_spec: ductile.plugin\nmanifest_version: 1\nprotocol: 2\nversion: '1'\n"


@pytest.fixture
def desk(house: House) -> House:
    """A house with a place for plugins that are being written."""
    (house.root / "desk").mkdir(mode=0o700)
    return house


def draft(house: House, script: str, manifest: str = "", name: str = "draft") -> str:
    """A plugin in sh that is being written; its directory."""
    text = f"{SPEC}name: {name}\nentrypoint: run.sh\n{manifest or 'commands: [poll, handle]'}\n"
    house.write(f"desk/{name}/manifest.yaml", text)
    house.write(f"desk/{name}/run.sh", f"#!/bin/sh\nrequest=$(cat)\n{script}\n", 0o700)
    return str(house.root / "desk" / name)


def tried(house: House, *line: str) -> Any:
    done = house("plugin", "test", *line, "--json")
    assert done.code in (0, 1), done.out + done.err
    return done.json


def say(answer: Any) -> str:
    return f"cat <<'JSON'\n{json.dumps(answer)}\nJSON"


class TestRun:
    def test_by_its_name(self, house: House) -> None:
        done = tried(house, "hello")
        assert (done["status"], done["command"], done["protocol"]) == ("succeeded", "poll", 1)
        assert done["response"]["result"] == {"greeting": "hi"}
        assert done["logs"] == [{"level": "info", "message": "said hi"}]

    def test_by_its_directory_without_a_configuration(
        self,
        desk: House,
        monkeypatch: pytest.MonkeyPatch,
        tmp_path: Path,
    ) -> None:
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.delenv("DUCTILE_CONFIG_DIR", raising=False)
        directory = draft(desk, say({"status": "ok", "result": "fine"}))
        assert main(["plugin", "test", directory]) == 0
        monkeypatch.chdir(directory)
        assert main(["plugin", "test", "."]) == 0
        monkeypatch.chdir(Path(directory).parent)
        assert main(["plugin", "test", "draft"]) == 0
        assert "fine" in desk.capsys.readouterr().out

    def test_a_failure_is_exit_1_and_says_when_it_would_be_tried_again(self, house: House) -> None:
        done = house("plugin", "test", "bad")
        assert done.code == 1
        assert "no luck" in done.out
        assert "would be retried: attempt 2 of 2" in done.out
        assert "it broke" in done.out

    @pytest.mark.parametrize(
        ("script", "why"),
        [
            (say({"status": "error", "error": "x", "retry": False}), "a retry does not help"),
            ("echo no >&2; exit 78", "a retry does not help"),
        ],
    )
    def test_what_would_not_be_tried_again(self, desk: House, script: str, why: str) -> None:
        done = tried(desk, draft(desk, script))
        assert done["retry"]["would_retry"] is False
        assert why in done["retry"]["why"]

    def test_the_request_is_the_one_of_a_gateway(self, desk: House) -> None:
        """The plugin answers with the request; a real job's has the same shape."""
        echo = 'printf \'{"status":"ok","result":%s}\' "$request"'
        desk.plugin("mirror", echo, protocol=2, commands="poll, handle")
        for command in ("poll", "handle"):
            line = ("mirror", "--command", command, "--payload", '{"a": 1}')
            seen = tried(desk, *line)["response"]["result"]
            real = desk("plugin", "run", *line, "--json").json["result"]["result"]
            assert _shape(seen) == _shape(real)

    def test_only_the_allowed_environment_is_there(
        self, desk: House, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("MY_SECRET", "not-for-plugins")
        done = tried(desk, draft(desk, 'printf \'{"status":"ok","result":"%s"}\' "$MY_SECRET"'))
        assert done["response"]["result"] == ""
        assert "PATH" in done["environment"]
        assert "MY_SECRET" not in done["environment"]

    def test_event_state_and_config_come_from_where_they_are_named(self, desk: House) -> None:
        directory = draft(desk, 'printf \'{"status":"ok","result":%s}\' "$request"')
        event = desk.write("event.json", '{"type": "a.b", "payload": {"n": 1}}')
        state = desk.write("state.json", '{"cursor": 7}')
        line = ("--event", str(event), "--state", str(state), "--config-json", '{"c": 1}')
        seen = tried(desk, directory, *line)["response"]["result"]
        assert seen["command"] == "handle"
        assert (seen["event"]["type"], seen["event"]["payload"]["n"]) == ("a.b", 1)
        assert (seen["state"], seen["config"]) == ({"cursor": 7}, {"c": 1})

    def test_with_v_the_request_is_shown(self, desk: House) -> None:
        directory = draft(desk, say({"status": "ok", "result": "x"}))
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
    def test_wrong_usage(self, house: House, line: tuple[str, ...]) -> None:
        assert house("plugin", "test", "hello", *line).code in (1, 2)

    @pytest.mark.parametrize(
        ("name", "word"),
        [("helo", "did you mean 'hello'?"), ("./nowhere", "there is no directory")],
    )
    def test_no_such_plugin(self, house: House, name: str, word: str) -> None:
        done = house("plugin", "test", name)
        assert done.code == 1
        assert word in done.err

    def test_a_time_limit_holds(self, desk: House) -> None:
        desk.write(
            "config.yaml",
            "plugin_roots: [./plugins]\nplugins: {slow: {timeouts: {poll: 200ms}}}\n",
        )
        desk.plugin("slow", "exec sleep 30")
        done = tried(desk, "slow")
        assert done["status"] == "timed_out"
        assert "plugins.slow.timeouts.poll" in done["advice"][0]["hint"]

    def test_interrupted_it_leaves_nothing_running(self, desk: House) -> None:
        desk.plugin("slow", f"sleep 60 &\ntouch {desk.root}/up\nexec sleep 60")
        process = desk.start("plugin", "test", "slow")
        until(lambda: (desk.root / "up").exists() or process.poll() is not None)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=WAIT_LIMIT)
        assert process.returncode == 130
        assert "Traceback" not in err
        assert processes_below(desk.root) == []

    def test_secrets_of_the_configuration_are_not_shown(self, desk: House) -> None:
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
    def test_no_ledger_is_made(self, house: House) -> None:
        tried(house, "hello")
        assert not house.state.exists()

    def test_the_ledger_stays_as_it_is(self, house: House) -> None:
        house.plugin("counter", say({"status": "ok", "result": "x", "state_updates": {"n": 1}}))
        house("plugin", "run", "counter")
        before = dump(house)
        done = tried(house, "counter")
        assert done["state"]["after"] == {"n": 1}
        assert dump(house) == before


def dump(house: House) -> list[str]:
    """The whole ledger as text."""
    with closing(
        apsw.Connection(str(house.state / "state.db"), flags=apsw.SQLITE_OPEN_READONLY)
    ) as db:
        tables = [row[0] for row in db.execute("select name from sqlite_schema where type='table'")]
        return [
            f"{table}: {row}"
            for table in sorted(tables)
            for row in db.execute(f"select * from {table}")
        ]


class TestConsequences:
    def test_state_is_merged_or_mirrored_as_a_gateway_would(self, desk: House) -> None:
        answer = {"status": "ok", "result": "x", "state_updates": {"b": 2}}
        state = desk.write("state.json", '{"a": 1}')
        plain = tried(desk, draft(desk, say(answer)), "--state", str(state))
        assert plain["state"]["after"] == {"a": 1, "b": 2}
        rule = "when: {command: poll}, from: state_updates, fact_type: t"
        manifest = (
            f"commands: [poll]\nfact_outputs: [{{{rule}, compatibility_view: mirror_object}}]"
        )
        fact = tried(desk, draft(desk, say(answer), manifest), "--state", str(state))
        assert (fact["state"]["after"], fact["fact"]) == ({"b": 2}, "t")

    def test_a_state_that_is_too_large(self, desk: House) -> None:
        script = 'big=$(head -c 1100000 /dev/zero | tr "\\0" x)\n'
        script += 'printf \'{"status":"ok","result":"x","state_updates":{"big":"%s"}}\' "$big"'
        done = tried(desk, draft(desk, script))
        assert done["status"] == "failed"
        assert "1 MiB" in done["advice"][0]["what"]
        assert done["state"]["after"] == {}

    def test_events_and_where_they_go(self, house: House) -> None:
        house.write(
            "config.yaml",
            "plugin_roots: [./plugins]\n"
            "routes: [{from: source, event_type: a, to: hello}]\n"
            "pipelines: [{name: pipe, on: a, steps: [{id: one, uses: hello.handle}]}]\n",
        )
        events = [{"type": "a", "payload": {}}, {"type": "b", "payload": {}}]
        house.plugin("source", say({"status": "ok", "result": "x", "events": events}))
        done = tried(house, "source")
        assert [(job["event"], job["plugin"], job["pipeline"]) for job in done["goes_to"]] == [
            ("a", "hello", None),
            ("a", "hello", "pipe"),
        ]
        people = house("plugin", "test", "source").out
        assert "a would go to hello.handle, step one of pipe" in people
        assert "event b would not be routed" in people


class TestExplains:
    @pytest.mark.parametrize(
        ("script", "what", "hint"),
        [
            ("", "stdout is empty", "write one JSON object"),
            ("echo Starting; " + say({"status": "ok"}), "not JSON", "'Starting' precedes"),
            (say({"status": "success"}), "it must be 'ok' or 'error'", 'write "status": "ok"'),
            (say({"result": 1}), "no status", 'add "status"'),
            (
                say({"status": "ok"}) + "\n" + say({"status": "ok"}),
                "more than one",
                "two responses",
            ),
            ("printf '\\357\\273\\277'; " + say({"status": "ok"}), "byte order mark", "UTF-8"),
            ("no-such-program", "a command was not found", "PATH"),
        ],
    )
    def test_an_error(self, desk: House, script: str, what: str, hint: str) -> None:
        done = tried(desk, draft(desk, script))
        assert done["status"] == "failed"
        first = done["advice"][0]
        assert first["severity"] == "error"
        assert what in first["what"]
        assert hint in first["hint"]
        people = desk("plugin", "test", str(desk.root / "desk/draft")).out
        assert f"hint: {first['hint'][:20]}" in people

    def test_a_warning_does_not_fail(self, desk: House) -> None:
        manifest = "commands: {poll: {values: {emit: [{event: a, values: [payload.n]}]}}}"
        answer = {"status": "ok", "events": [{"type": "b"}]}
        done = tried(desk, draft(desk, say(answer), manifest))
        assert done["status"] == "succeeded"
        assert [advice["severity"] for advice in done["advice"]] == ["warning"] * 2

    @pytest.mark.parametrize(
        ("first_line", "word"),
        [("#!/no/such/interpreter", "/no/such/interpreter"), ("#!/bin/sh\r", "CRLF")],
    )
    def test_what_cannot_be_started(self, desk: House, first_line: str, word: str) -> None:
        directory = draft(desk, "")
        desk.write("desk/draft/run.sh", f"{first_line}\necho\n", 0o700)
        done = desk("plugin", "test", directory, "--json")
        assert (done.code, done.json["code"]) == (1, "plugin_invalid")
        assert word in done.json["error"]

    def test_what_is_not_executable(self, desk: House) -> None:
        directory = draft(desk, "")
        os.chmod(f"{directory}/run.sh", 0o600)
        done = desk("plugin", "test", directory)
        assert done.code == 1
        assert "chmod +x" in done.err

    def test_required_config(self, desk: House) -> None:
        manifest = "commands: [poll]\nconfig_keys: {required: [city]}"
        directory = draft(desk, say({"status": "ok", "result": "x"}), manifest)
        done = desk("plugin", "test", directory)
        assert done.code == 1
        assert "required settings are missing: city" in done.err
        assert desk("plugin", "test", directory, "--config-json", '{"city": "Oslo"}').code == 0


class TestValidate:
    def test_all_plugins_of_the_configuration(self, house: House) -> None:
        done = house("plugin", "validate", "--json")
        assert done.code == 0
        assert [row["plugin"] for row in done.json["plugins"]] == ["bad", "hello"]
        assert "2 of 2 plugins valid" in house("plugin", "validate").out

    def test_what_comes_with_us_needs_no_config_until_it_is_named(self, house: House) -> None:
        house.write("config.yaml", 'plugin_roots: ["bundled:"]\n')
        done = house("plugin", "validate", "--json")
        assert done.code == 0, [row for row in done.json["plugins"] if not row["ok"]]
        assert "withings" in {row["plugin"] for row in done.json["plugins"]}
        house.write("config.yaml", 'plugin_roots: ["bundled:"]\nplugins: {withings: {}}\n')
        assert "plugins.withings.config.client_id" in house("plugin", "validate").out

    def test_every_problem_at_once_with_its_place(self, desk: House) -> None:
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

    def test_a_manifest_that_is_no_yaml(self, desk: House) -> None:
        directory = draft(desk, "")
        desk.write("desk/draft/manifest.yaml", "name: x\ncommands: [poll\n")
        (row,) = desk("plugin", "validate", directory, "--json").json["plugins"]
        (problem,) = row["problems"]
        assert (problem["line"], row["ok"]) == (3, False)

    def test_rules_of_trust(self, desk: House) -> None:
        directory = draft(desk, "")
        os.chmod(directory, 0o777)
        done = desk("plugin", "validate", directory)
        assert done.code == 1
        assert "world-writable" in done.out

    def test_an_entrypoint_that_is_not_there(self, desk: House) -> None:
        directory = draft(desk, "")
        os.unlink(f"{directory}/run.sh")
        (row,) = desk("plugin", "validate", directory, "--json").json["plugins"]
        assert [(p["line"], p["column"]) for p in row["problems"]] == [(6, 13)]

    def test_a_link_out_of_the_root(self, desk: House) -> None:
        directory = draft(desk, "")
        os.unlink(f"{directory}/run.sh")
        os.symlink("/bin/true", f"{directory}/run.sh")
        assert "outside the root" in desk("plugin", "validate", directory).out

    def test_required_config_of_a_configured_plugin(self, house: House) -> None:
        house.plugin("hello", "")
        manifest = house.root / "plugins/hello/manifest.yaml"
        manifest.write_text(manifest.read_text() + "config_keys: {required: [city]}\n")
        done = house("plugin", "validate", "hello")
        assert done.code == 1
        assert "manifest.yaml:6:" in done.out
        assert "plugins.hello.config.city" in done.out

    def test_no_such_plugin(self, house: House) -> None:
        assert house("plugin", "validate", "helo").code == 1
        assert house("plugin", "validate", "./nowhere").code == 1

    def test_a_directory_of_another_name(self, desk: House) -> None:
        directory = draft(desk, say({"status": "ok"}))
        os.rename(directory, f"{directory}-2")
        done = desk("plugin", "validate", f"{directory}-2")
        assert done.code == 0
        assert "warning" in done.out
