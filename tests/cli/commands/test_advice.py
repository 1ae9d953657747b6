"""The commands that `job why` and `doctor` advise work when they are typed."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from ductile.cli.errors import ABOUT, LISTS
from ductile.cli.main import main
from tests.cli.pipelines import add_pipelines
from tests.cli.runner import CliRunner


def test_advised_commands_work_when_typed(cli: CliRunner) -> None:
    flow = add_pipelines(cli)
    flow.plugin("broken", "echo no key >&2; exit 3")
    config = (flow.root / "config.yaml").read_text()
    flow.write(
        "config.yaml",
        config.replace("plugins:\n", "plugins:\n  broken: {retry: {max_attempts: 1}}\n", 1),
    )
    dead = flow("run", "broken", "--json").json["job_id"]
    assert flow("job", "list", "--json").json["jobs"][0]["last_error"].endswith("stderr: no key")
    assert flow("plugin", "pause", "broken").code == 0
    (flow.root / "config.yaml").chmod(0o666)
    advised = [finding["run"] for finding in flow("system", "doctor", "--json").json["findings"]]
    assert any(f"job why {dead}" in line for line in advised if line)
    assert any("plugin resume broken" in line for line in advised if line)
    retry = flow("job", "why", dead, "--json").json["run"]
    assert retry == f"ductile job retry {dead}"
    assert flow(*shlex.split(retry)[1:]).code == 0
    resume = flow("job", "why", dead, "--json").json["run"]
    assert resume == "ductile plugin resume broken"
    assert flow(*shlex.split(resume)[1:]).code == 0
    assert flow("job", "why", dead, "--json").json["run"] == "ductile system start"
    for line in filter(None, advised):
        words = shlex.split(line)
        if words[0] == "ductile" and words[1:3] != ["system", "start"]:
            assert main(words[1:]) == 0, line
    fixed = flow("system", "doctor", "--fix", "--json").json["fixed"]
    assert [item["error"] for item in fixed] == [None] * len(fixed)
    assert fixed
    assert flow("system", "doctor", "--fix", "--json").json["fixed"] == []


def type_line(line: str) -> int:
    """Run an advised command line, which names the configuration itself."""
    assert line.startswith("ductile ")
    return main(shlex.split(line)[1:])


@pytest.mark.parametrize(
    ("before", "after", "fix"),
    [
        ("to: mark", "to: amrk", "config set 'routes[0].to' mark"),
        ("op: eq", "op: eqq", "config set 'pipelines[1].steps[0].if.op' eq"),
        ("Europe/Berlin", "Europe/Berln", "plugins.mark.schedules[0].timezone' Europe/Berlin"),
        ("op: gt, value: 5", "op: gt, value: '5'", "pipelines[0].steps[0].if.value' 5"),
    ],
)
def test_refusal_of_one_wrong_value_ends_with_the_command_that_corrects_it(
    cli: CliRunner, before: str, after: str, fix: str
) -> None:
    flow = add_pipelines(cli)
    config = (flow.root / "config.yaml").read_text()
    config += "routes: [{from: slow, event_type: x, to: mark}]\n"
    config = config.replace("config: {mode: on}", ENTRY, 1).replace("uses: mark\n", STEP, 1)
    assert before in config
    flow.write("config.yaml", config.replace(before, after, 1))
    for words in (("config", "check"), ("pipeline", "list"), ("system", "start", "--dry-run")):
        refused = flow(*words)
        assert refused.code == 78
        assert "\n  run: ductile config set " in refused.err
        assert fix in refused.err
    assert type_line(flow("config", "check", "--json").json["run"]) == 0
    assert flow("config", "check").code == 0


ENTRY = "schedules: [{every: 5m, timezone: Europe/Berlin}]"
STEP = "uses: mark\n        if: {path: payload.n, op: gt, value: 5}\n"


def test_first_of_several_problems_is_opened_where_it_is(cli: CliRunner) -> None:
    cli.write("config.yaml", "routes: [{from: helo, event_type: x, to: helo}]\n")
    refused = cli("config", "check", "--json")
    assert (refused.code, refused.json["count"]) == (78, 2)
    file = cli.root / "config.yaml"
    assert refused.json["run"] == f"${{EDITOR:-vi}} +1 {file}"
    shown = subprocess.run(
        refused.json["run"], shell=True, check=True, stdout=-1, env={"EDITOR": "/bin/echo"}
    )
    assert shown.stdout.decode() == f"+1 {file}\n"


def test_misspelt_words_are_corrected_one_after_the_other(cli: CliRunner) -> None:
    config = (cli.root / "config.yaml").read_text()
    more = "routes:\n  - from: helo\n    event_typ: x\n    to: hllo\npipelnes: []\n"
    cli.write("config.yaml", config + more)
    lines = []
    while (refused := cli("config", "check", "--json")).code and len(lines) < 5:
        lines.append(refused.json["run"])
        if lines[-1].startswith("ductile "):
            type_line(lines[-1])
        else:
            subprocess.run(lines[-1], shell=True, check=True)
    assert refused.code == 0
    assert [line.partition(" ")[0] for line in lines] == ["sed", "sed", "sed", "ductile"]


@pytest.mark.parametrize("line", sorted({*LISTS.values(), *ABOUT.values()}))
def test_commands_that_refusals_lead_to_exist(line: str) -> None:
    assert main([*line.replace("{}", "x").split(), "--help"]) == 0


@pytest.mark.parametrize(
    ("words", "advised"),
    [
        (("plugin", "show", "nobody"), "ductile plugin list"),
        (("pipeline", "show", "nobody"), "ductile pipeline list"),
        (("pipeline", "cancel", "00000000"), "ductile pipeline runs"),
        (("job", "inspect", "00000000"), "ductile job list"),
        (("token", "revoke", "nobody"), "ductile token list"),
        (("webhook", "retry", "99"), "ductile webhook deliveries"),
        (("webhook", "config", "remove", "99"), "ductile webhook config list"),
        (("relay", "retry", "99"), "ductile relay list"),
        (("agent", "forget", "99"), "ductile agent reminders"),
        (("approval", "show", "nobody"), "ductile approval list"),
        (("schedule", "pause", "a/b"), "ductile schedule list"),
    ],
)
def test_refusal_ends_with_the_command_that_leads_on(
    cli: CliRunner, words: tuple[str, ...], advised: str
) -> None:
    refused = cli(*words, "--json")
    assert refused.json["run"].startswith(advised), refused.json
    assert f"run: {advised} --config" in cli(*words).err
    assert type_line(refused.json["run"]) == 0


def test_disabled_plugin_is_enabled_by_the_command_of_its_refusal(cli: CliRunner) -> None:
    with cli.gateway():
        assert cli("config", "set", "plugins.hello.enabled", "false").code == 0
        assert cli("system", "reload").code == 0
        refused = cli("plugin", "run", "hello", "--json")
        assert "enabled: false, " in refused.json["error"]
        for line in refused.json["run"].split(" && "):
            assert type_line(line) == 0
        assert cli("plugin", "run", "hello").code == 0


def test_interpreter_that_is_not_installed_is_reported_and_corrected(cli: CliRunner) -> None:
    typo = cli.plugin("typo", "true")
    typo.write_text("#!/usr/bin/evn sh\n" + typo.read_text().partition("\n")[2])
    checked = cli("config", "check")
    assert f"{typo}:1: plugin typo cannot run: its first line names /usr/bin/evn" in checked.out
    assert "did you mean" in checked.out
    assert "its jobs fail: /usr/bin/evn is missing" in cli("plugin", "list").out
    found = cli("system", "doctor", "--json").json["findings"]
    [line] = [row["run"] for row in found if "typo cannot run" in row["what"]]
    subprocess.run(shlex.split(line), check=True)
    assert typo.read_text().startswith(f"#!{shutil.which('env')} sh\n")
    assert "cannot run" not in cli("config", "check").out


def test_program_without_an_interpreter_line_is_reported_and_opened(cli: CliRunner) -> None:
    script = cli.plugin("plain", "true")
    script.write_text("echo '{}'\n")
    listed = cli("plugin", "list", "--json").json["plugins"]
    [reason] = [row["reason"] for row in listed if row["name"] == "plain"]
    assert reason == f"its jobs fail: {script} has no `#!` line"
    found = cli("system", "doctor", "--json").json["findings"]
    [run] = [row["run"] for row in found if "plain cannot run" in row["what"]]
    assert run == f"${{EDITOR:-vi}} +1 {script}"


def test_names_that_only_the_files_have_are_explained(cli: CliRunner) -> None:
    with cli.gateway():
        cli.plugin("fresh", 'echo \'{"status":"ok"}\'')
        config = (cli.root / "config.yaml").read_text()
        entry = "plugins:\n  fresh: {schedules: [{id: often, every: 1h}]}\n"
        cli.write("config.yaml", config.replace("plugins:\n", entry, 1))
        for words in (
            ("schedule", "next", "fresh"),
            ("schedule", "explain", "fresh/often"),
            ("schedule", "pause", "fresh/often"),
            ("plugin", "show", "fresh"),
            ("plugin", "pause", "fresh"),
        ):
            refused = cli(*words)
            assert refused.code == 1, words
            line = refused.err.rpartition("run: ")[2].strip()
            assert line == f"ductile system reload --config {cli.root}", words
        assert "in the files" not in cli("schedule", "next", "nobody").err
        assert type_line(line) == 0
        assert cli("schedule", "next", "fresh").code == 0


def test_doctor_reports_a_gateway_on_the_previous_ledger(
    cli: CliRunner,
) -> None:
    config = (cli.root / "config.yaml").read_text()
    with cli.gateway():
        moved = "state: {path: ./elsewhere/state.db}\n"
        cli.write("config.yaml", re.sub(r"(?m)^state:.*\n(  .*\n)*", "", config) + moved)
        found = cli("system", "doctor", "--json").json["findings"]
        [finding] = [row for row in found if row["topic"] == "gateway"]
        assert f"one is running in {cli.state}" in finding["what"]
        assert type_line(finding["run"]) == 0
        assert cli("status").code == 0


def test_why_names_the_setting_that_a_misspelt_event_type_misses(cli: CliRunner) -> None:
    cli.plugin("source", 'echo \'{"status":"ok","events":[{"type":"order.made"}]}\'')
    config = (cli.root / "config.yaml").read_text()
    flow = "pipelines: [{name: orders, on: order.maed, steps: [{uses: hello}]}]\n"
    entry = "plugins:\n  source: {}\n"
    cli.write("config.yaml", config.replace("plugins:\n", entry, 1) + flow)
    with cli.gateway():
        job = cli("plugin", "run", "source", "--json").json["job_id"]
        why = cli("job", "why", job, "--json").json
        assert f"({cli.root}/config.yaml:" in why["why"][-1]
        for line in why["run"].split(" && "):
            assert cli(*shlex.split(line)[1:]).code == 0
        assert cli("plugin", "run", "source").code == 0
        assert cli("pipeline", "runs", "orders", "--json").json["runs"]


def test_why_opens_the_condition_for_which_a_pipeline_did_not_start(cli: CliRunner) -> None:
    event = '{"type":"order.made","payload":{"n":"1250"}}'
    cli.plugin("source", f'echo \'{{"status":"ok","events":[{event}]}}\'')
    flow = (
        "pipelines:\n  - name: orders\n    on: order.made\n"
        "    if: {path: payload.n, op: gte, value: 1000}\n    steps: [{uses: hello}]\n"
    )
    config = (cli.root / "config.yaml").read_text()
    cli.write("config.yaml", config.replace("plugins:\n", "plugins:\n  source: {}\n", 1) + flow)
    line = (cli.root / "config.yaml").read_text().split("\n").index(flow.split("\n")[3]) + 1
    with cli.gateway():
        job = cli("plugin", "run", "source", "--json").json["job_id"]
        why = cli("job", "why", job, "--json").json
        assert f"{cli.root}/config.yaml:{line}" in why["why"][-1]
        assert why["run"] == f"${{EDITOR:-vi}} +{line} {cli.root}/config.yaml"


def test_why_of_a_program_that_cannot_start_corrects_it_first(cli: CliRunner) -> None:
    typo = cli.plugin("typo", 'cat > /dev/null; echo \'{"status":"ok","result":"ran"}\'')
    typo.write_text("#!/usr/bin/evn sh\n" + typo.read_text().partition("\n")[2])
    with cli.gateway():
        job = cli("plugin", "run", "typo", "--json").json["job_id"]
        run = cli("job", "why", job, "--json").json["run"]
        correct, _, retry = run.partition(" && ")
        subprocess.run(shlex.split(correct), check=True)
        assert cli(*shlex.split(retry)[1:]).code == 0


def test_doctor_finds_a_gateway_of_these_files_in_any_directory(cli: CliRunner) -> None:
    config = (cli.root / "config.yaml").read_text()
    config = re.sub(r"(?m)^state:.*\n(  .*\n)*", "", config)
    cli.write("config.yaml", f"{config}state: {{path: ./first/state.db}}\n")
    with cli.gateway():
        cli.write("config.yaml", f"{config}state: {{path: ./second/state.db}}\n")
        found = cli("system", "doctor", "--json").json["findings"]
        [finding] = [row for row in found if row["topic"] == "gateway"]
        assert f"one is running in {cli.root}/first" in finding["what"]
        with cli.gateway():
            found = cli("system", "doctor", "--json").json["findings"]
            [finding] = [row for row in found if row["topic"] == "gateway"]
            assert finding["what"].startswith("two gateways run with these files")
            assert re.fullmatch(r"kill \d+", finding["run"])


def test_taken_port_is_named_with_its_process_and_a_free_one(cli: CliRunner) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        token = "{token: 0123456789abcdef, scopes: ['*']}"
        config = (cli.root / "config.yaml").read_text()
        api = f"api: {{enabled: true, listen: '127.0.0.1:{port}', auth: {{tokens: [{token}]}}}}\n"
        cli.write("config.yaml", config + api)
        refused = cli("system", "start", "--json")
        assert refused.code == 1
        assert f"process {os.getpid()} (" in refused.json["error"]
        assert f"(api.listen, {cli.root}/config.yaml:" in refused.json["error"]
        found = cli("system", "doctor", "--json").json["findings"]
        [finding] = [row for row in found if "listens on" in row["what"]]
        assert finding["run"] == refused.json["run"]
        assert type_line(finding["run"]) == 0
        assert "listens on" not in cli("system", "doctor").out


def test_free_port_is_not_that_of_another_listener_of_the_same_files(cli: CliRunner) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        config = (cli.root / "config.yaml").read_text()
        hook = "{path: /hook/a, plugin: hello, secret: 0123456789abcdef}"
        cli.write(
            "config.yaml",
            f"{config}api: {{enabled: true, listen: '127.0.0.1:{port}', auth: {{tokens: "
            "[{token: 0123456789abcdef, scopes: ['*']}]}}\n"
            f"webhooks: {{listen: '127.0.0.1:{port + 1}', endpoints: [{hook}]}}\n",
        )
        found = cli("system", "doctor", "--json").json["findings"]
        [finding] = [row for row in found if f"listens on 127.0.0.1:{port} " in row["what"]]
        assert f"127.0.0.1:{port + 1} " not in f"{finding['run']} "
        assert type_line(finding["run"]) == 0


def test_alert_to_a_bundled_plugin_that_is_not_loaded_is_corrected(cli: CliRunner) -> None:
    config = (cli.root / "config.yaml").read_text()
    roots = 'plugin_roots: [./plugins, "bundled:"]\n'
    config = re.sub(r"(?m)^plugin_roots:.*\n(  .*\n)*", roots, config)
    cli.write("config.yaml", config + "alerts: [{name: broken, on: job.dead, to: notify}]\n")
    refused = cli("config", "check", "--json")
    assert refused.code == 78
    assert "which loads the bundled plugin" in refused.json["error"]
    assert refused.json["run"].startswith("ductile config set plugins.notify.enabled true")
    assert type_line(refused.json["run"]) == 0
    assert cli("config", "check").code == 0


@pytest.mark.parametrize(
    ("path", "value", "run"),
    [
        ("service.max_worker", "3", "config set service.max_workers 3"),
        ("plugins.hello.retri.max_attempts", "3", "config set plugins.hello.retry.max_attempts 3"),
        ("plugins.hello.confg.api_key", "0123456789", "config set plugins.hello.config.api_key -"),
        ("service.log_level", "inf", "config set service.log_level info"),
        ("service.max_workers", "many", "config get service.max_workers"),
        ("nothing_like_it.x", "1", "config show"),
    ],
)
def test_refused_change_leads_to_the_one_that_is_right_and_not_to_an_unchanged_line(
    cli: CliRunner, path: str, value: str, run: str
) -> None:
    before = (cli.root / "config.yaml").read_text()
    refused = cli("config", "set", path, value, "--json")
    assert refused.code == 78
    assert refused.json["run"] == f"ductile {run} --config {cli.root}"
    assert (cli.root / "config.yaml").read_text() == before
    if not run.endswith(" -"):
        assert type_line(refused.json["run"]) == 0


def test_refused_change_does_not_repeat_a_secret(cli: CliRunner) -> None:
    config = (cli.root / "config.yaml").read_text()
    cli.write("config.yaml", config + "dead_man: {url: https://monitor.example/S3CRET}\n")
    refused = cli("config", "set", "dead_man.ulr", "OTHERS3CRET")
    assert refused.code == 78
    assert "config set dead_man.url - --config" in refused.err
    assert "S3CRET" not in refused.err


def test_api_without_a_token_leads_to_the_command_that_creates_one(cli: CliRunner) -> None:
    enable = ("config", "set", "api.enabled", "true", "--json")
    refused = cli(*enable)
    assert refused.code == 78
    create, _, change = refused.json["run"].partition("; ductile ")
    subprocess.run(["sh", "-c", f"{create}; {create}"], check=True)
    secret = cli.root / "api.token"
    assert secret.stat().st_mode & 0o777 == 0o600
    assert len(secret.read_bytes()) == 44
    assert type_line(f"ductile {change}") == 0
    assert cli(*enable).code == 0
    assert cli("config", "check").code == 0


def test_setting_of_a_plugin_that_no_root_has_is_warned_of(cli: CliRunner) -> None:
    done = cli("config", "set", "plugins.helo.parallelism", "1")
    assert done.code == 0
    assert "plugin helo is refused: no plugin root has a plugin named helo" in done.err
    assert "did you mean 'hello'?" in done.err


def test_duration_of_a_pause_is_shown_as_it_may_be(cli: CliRunner) -> None:
    refused = cli("plugin", "pause", "hello", "--for", "2x")
    assert "duration must be a duration such as 500ms, 30s, 5m" in refused.err


def test_preview_of_a_reload_names_a_plugin_whose_program_changed(cli: CliRunner) -> None:
    with cli.gateway():
        assert cli("system", "reload", "--dry-run", "--json").json["changes"]["plugins"] == {
            "added": [],
            "removed": [],
            "changed": [],
        }
        cli.plugin("hello", 'echo \'{"status":"ok"}\'')
        shown = cli("system", "reload", "--dry-run", "--json").json
        assert shown["changes"]["plugins"]["changed"] == ["hello"]
        assert "plugins changed: hello" in cli("system", "reload", "--dry-run").out
        assert cli("config", "plan").code == 2


def test_command_corrects_the_directory_that_was_compared(cli: CliRunner, tmp_path: Path) -> None:
    before = (cli.root / "config.yaml").read_text()
    with cli.gateway():
        other = shutil.copytree(cli.root, tmp_path / "other", ignore=lambda *_: ["data"])
        (other / "config.yaml").write_text(
            before + "routes: [{from: hello, event_type: x, to: helo}]\n"
        )
        refused = cli("config", "plan", str(other), "--json")
        assert refused.code == 78
        assert type_line(refused.json["run"]) == 0
        assert cli("config", "plan", str(other)).code == 2
    assert (cli.root / "config.yaml").read_text() == before
