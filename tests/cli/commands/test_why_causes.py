"""`job why` names the cause of a failed or held job, its place, and the command that repairs it."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.cli.runner import CliRunner
from tests.waiting import until

OK = 'echo \'{"status":"ok","result":"x"}\''
EMIT = (
    'echo \'{"status":"ok","result":"x","events":[{"type":"order.made","payload":{"total":1}}]}\''
)


def configure(cli: CliRunner, plugins: str = "", more: str = "") -> None:
    config = (cli.root / "config.yaml").read_text()
    cli.write("config.yaml", config.replace("plugins:\n", f"plugins:\n{plugins}", 1) + more)


def line_of(cli: CliRunner, text: str) -> str:
    lines = (cli.root / "config.yaml").read_text().split("\n")
    return f"{cli.root}/config.yaml:{[text in line for line in lines].index(True) + 1}"


def why_of(cli: CliRunner, job: str) -> tuple[str, str | None]:
    answer = cli("job", "why", job, "--json").json
    return "\n".join(answer["why"]), answer["run"]


def type_commands(cli: CliRunner, line: str, editor: Path | None = None) -> None:
    """Type an advised line: the parts of this program, and the editor as a script."""
    for part in line.split(" && "):
        if part.startswith("ductile "):
            assert cli(*shlex.split(part)[1:]).code == 0, part
        else:
            env = {**os.environ, "EDITOR": str(editor)}
            subprocess.run(part, shell=True, check=True, env=env)


def find_job(cli: CliRunner, plugin: str, status: str) -> str:
    def found() -> Any:
        jobs = cli("job", "list", "--plugin", plugin, "--status", status, "--json").json["jobs"]
        return jobs and jobs[0]["job_id"]

    return str(until(found))


@pytest.mark.parametrize(
    ("script", "hint"),
    [
        ("echo INFO starting; " + OK, "'INFO starting' precedes the response"),
        ("exit 0", "before exiting, and flush it"),
        ("echo \"{'status': 'ok'}\"", "use print(json.dumps(response))"),
        ('echo \'{"status":"success"}\'', 'write "status": "ok"'),
    ],
)
def test_output_that_is_no_response_is_explained_and_its_program_opened(
    cli: CliRunner, script: str, hint: str
) -> None:
    program = cli.plugin("noisy", script)
    configure(cli, "  noisy: {retry: {max_attempts: 1}}\n")
    right = cli.write("right.sh", f"#!/bin/sh\n{OK}\n", 0o700)
    editor = cli.write("editor.sh", f'#!/bin/sh\ncp {right} "$1"\n', 0o700)
    with cli.gateway():
        job = cli("run", "noisy", "--json").json["job_id"]
        why, run = why_of(cli, job)
        assert f"Its program {program} has to respond otherwise: " in why
        assert hint in why
        assert run == f"${{EDITOR:-vi}} {program} && ductile job retry {job}"
        type_commands(cli, run, editor)
        assert find_job(cli, "noisy", "succeeded") == job


@pytest.mark.parametrize(
    ("code", "why", "before"),
    [
        (
            "import no_such_module",
            "needs the module 'no_such_module' ({}:1), which is not installed",
            ["${{EDITOR:-vi}} +1 {}", "ductile plugin sync broken"],
        ),
        (
            'import os\nos.environ["MY_TOKEN"]',
            "needs the variable MY_TOKEN ({}:2); a plugin inherits few variables",
            ["ductile config set plugins.broken.env.MY_TOKEN '${{MY_TOKEN}}'", "{reload}"],
        ),
        ("print(undefined)", "Its program ended at {}:1.", ["${{EDITOR:-vi}} +1 {}"]),
        ("raise OSError('no route')", "Its program ended at {}:1.", []),
    ],
)
def test_program_that_crashes_is_explained_with_its_line(
    cli: CliRunner, code: str, why: str, before: list[str]
) -> None:
    program = cli.plugin("broken", 'exec python3 "${0%/*}/main.py"').with_name("main.py")
    program.write_text(code)
    configure(cli, "  broken: {retry: {max_attempts: 1}}\n")
    with cli.gateway():
        job = cli("run", "broken", "--json").json["job_id"]
        text, run = why_of(cli, job)
    assert why.format(program) in text
    expected = [line.format(program, reload="ductile system reload") for line in before]
    assert run == " && ".join([*expected, f"ductile job retry {job}"])


def test_program_that_is_not_executable_is_made_so_before_the_retry(cli: CliRunner) -> None:
    program = cli.plugin("tool", OK)
    configure(cli, "  tool: {retry: {max_attempts: 1}}\n")
    with cli.gateway():
        program.chmod(0o600)
        job = cli("run", "tool", "--json").json["job_id"]
        assert why_of(cli, job)[1] == f"chmod +x {program} && ductile job retry {job}"
        assert cli("system", "reload").code == 0
        why, run = why_of(cli, job)
        assert "Plugin tool is refused: " in why
        assert run == f"chmod +x {program} && ductile system reload && ductile job retry {job}"
        type_commands(cli, run)
        assert find_job(cli, "tool", "succeeded") == job


def test_line_outside_of_the_plugin_is_not_opened(cli: CliRunner, tmp_path: Path) -> None:
    other = tmp_path / "other.py"
    other.touch()
    said = f'Traceback (most recent call last)\\n  File \\"{other}\\", line 7\\nNameError: x'
    cli.plugin("liar", f'printf "{said}" >&2; exit 1')
    configure(cli, "  liar: {retry: {max_attempts: 1}}\n")
    with cli.gateway():
        job = cli("run", "liar", "--json").json["job_id"]
        assert why_of(cli, job)[1] == f"ductile job retry {job}"


def test_time_limit_is_named_with_its_place(cli: CliRunner) -> None:
    cli.plugin("slow", "exec sleep 600")
    configure(cli, "  slow:\n    retry: {max_attempts: 1}\n    timeouts:\n      poll: 100ms\n")
    with cli.gateway():
        job = cli("run", "slow", "--json").json["job_id"]
        why, run = why_of(cli, job)
    place = line_of(cli, "poll: 100ms")
    assert f"Its limit of 0.1 s is plugins.slow.timeouts.poll ({place}); if it needs longer" in why
    assert run == f"ductile job retry {job}"


FLOW = """\
pipelines:
  - name: orders
    on: order.made
    steps:
      - id: book
        uses: sink
        with: {amount: "{payload.totl}"}
"""


def test_expression_that_misses_a_key_is_opened_and_the_nearest_key_named(
    cli: CliRunner,
) -> None:
    cli.plugin("shop", EMIT)
    cli.plugin("sink", OK, protocol=2, commands="handle")
    configure(cli, "  shop: {}\n  sink: {}\n", FLOW)
    editor = cli.write("editor.sh", '#!/bin/sh\nsed -i s/totl/total/ "$2"\n', 0o700)
    place = line_of(cli, "totl")
    with cli.gateway():
        cli("run", "shop")
        job = find_job(cli, "sink", "failed")
        why, run = why_of(cli, job)
        assert f"Its `with` is at {place}; payload has result, total, of which 'total'" in why
        assert run is not None
        assert run.startswith(f"${{EDITOR:-vi}} +{place.rpartition(':')[2]} {cli.root}/config.yaml")
        type_commands(cli, run, editor)
        assert find_job(cli, "sink", "succeeded") == job


@pytest.mark.parametrize(
    ("name", "script"),
    [
        ("long", f'echo "$(dirname "$0")/{"a" * 256}: 1" >&2; exit 1'),
        ("links", 'ln -s loop "$(dirname "$0")/loop"; echo "$(dirname "$0")/loop: 1" >&2; exit 1'),
        ("list", "echo '[]'; echo 'upstream says no; status is 503' >&2; exit 1"),
        ("deep", "head -c 60000 /dev/zero | tr '\\0' '['; echo 'no; status is 5' >&2; exit 1"),
    ],
)
def test_no_output_of_a_plugin_keeps_its_failure_unexplained(
    cli: CliRunner, name: str, script: str
) -> None:
    cli.plugin(name, script)
    configure(cli, f"  {name}: {{retry: {{max_attempts: 1}}}}\n")
    with cli.gateway():
        job = cli("run", name, "--json").json["job_id"]
        why, run = why_of(cli, job)
    assert "exit code 1" in why
    assert run is not None
    assert run.endswith(f"ductile job retry {job}")


def test_error_of_a_plugin_is_not_taken_for_that_of_its_step(cli: CliRunner) -> None:
    cli.plugin("sink", 'echo \'{"status":"error","error":"with: the upstream said no"}\'')
    flow = "pipelines: [{name: orders, on: order.made, steps: [{uses: sink.poll}]}]\n"
    configure(cli, "  sink: {retry: {max_attempts: 1}}\n", flow)
    with cli.gateway():
        cli("pipeline", "run", "orders")
        why, run = why_of(cli, job := find_job(cli, "sink", "dead"))
    assert "Its `with` is at" not in why
    assert run == f"ductile job retry {job}"


def test_pipeline_that_takes_the_type_of_another_plugin_is_corrected(cli: CliRunner) -> None:
    take_orders_of_sink(cli)
    emits = "values: {emit: [{event: sink.full}]}"
    cli.plugin("sink", OK, commands=f"{{name: poll, {emits}}}")
    with cli.gateway():
        job = cli("run", "shop", "--json").json["job_id"]
        why, run = why_of(cli, job)
        assert f"only of another plugin ({line_of(cli, 'from_plugin')})" in why
        assert run == "ductile config set 'pipelines[0].from_plugin' shop && ductile system reload"
        type_commands(cli, run)
        cli("run", "shop")
        assert cli("pipeline", "runs", "orders", "--json").json["runs"]


def test_limit_of_a_pipeline_is_not_named_while_its_event_is_debounced(cli: CliRunner) -> None:
    cli.plugin("shop", EMIT)
    limits = "debounce: {key: x, wait: 1h}, concurrency: {key: x, limit: 1}"
    flow = f"pipelines: [{{name: orders, on: order.made, {limits}, steps: [{{uses: hello}}]}}]\n"
    configure(cli, "  shop: {}\n", flow)
    with cli.gateway():
        cli("run", "shop")
        why, _ = why_of(cli, find_job(cli, "hello", "queued"))
    assert "debounced until" in why
    assert "The limit is" not in why


def take_orders_of_sink(cli: CliRunner) -> None:
    """A pipeline that leaves out the event of another plugin."""
    cli.plugin("shop", EMIT)
    cli.plugin("sink", OK)
    flow = "pipelines:\n  - name: orders\n    on: order.made\n    from_plugin: sink\n"
    configure(cli, "  shop: {}\n  sink: {}\n", flow + "    steps: [{uses: hello}]\n")


def test_pipeline_that_may_leave_out_a_plugin_on_purpose_is_not_changed(cli: CliRunner) -> None:
    take_orders_of_sink(cli)
    with cli.gateway():
        job = cli("run", "shop", "--json").json["job_id"]
        why, run = why_of(cli, job)
    assert f"only of another plugin ({line_of(cli, 'from_plugin')})" in why
    assert run is None


def test_many_unrouted_events_are_counted(cli: CliRunner) -> None:
    events = ",".join(f'{{"type":"order.made{number}"}}' for number in range(1000))
    cli.plugin("shop", f'echo \'{{"status":"ok","result":"x","events":[{events}]}}\'')
    flow = "pipelines: [{name: orders, on: order.made, steps: [{uses: hello}]}]\n"
    configure(cli, "  shop: {}\n", flow)
    with cli.gateway():
        job = cli("run", "shop", "--json").json["job_id"]
        why, _ = why_of(cli, job)
    assert why.count("no route or pipeline matches it") == 20
    assert why.endswith("Further types of its events were not routed: 980.")


def test_setting_that_means_another_event_is_not_changed(cli: CliRunner) -> None:
    lost, made = '{"type":"order.lost"}', '{"type":"order.made"}'
    cli.plugin("shop", f'echo \'{{"status":"ok","result":"x","events":[{lost},{made}]}}\'')
    flow = "pipelines: [{name: orders, on: order.maed, steps: [{uses: hello}]}]\n"
    configure(cli, "  shop: {}\n", flow)
    with cli.gateway():
        job = cli("run", "shop", "--json").json["job_id"]
        why, run = why_of(cli, job)
    assert "Its event order.made was not routed" in why
    assert "Its event order.lost was not routed" in why
    assert run == "ductile config set 'pipelines[0].on' order.made && ductile system reload"


def test_type_that_a_manifest_declares_is_not_replaced(cli: CliRunner) -> None:
    cli.plugin("shop", EMIT.replace("order.made", "order.mode"))
    other = cli.plugin("other", OK, protocol=2).with_name("manifest.yaml")
    declared = "commands: {poll: {type: write, values: {emit: [{event: order.made}]}}}"
    other.write_text(other.read_text().replace("commands: [poll]", declared))
    flow = "pipelines: [{name: orders, on: order.made, steps: [{uses: hello}]}]\n"
    configure(cli, "  shop: {}\n  other: {}\n", flow)
    with cli.gateway():
        job = cli("run", "shop", "--json").json["job_id"]
        why, run = why_of(cli, job)
    assert "the nearest that one names is 'order.made'" in why
    assert run is None


def test_route_that_leads_back_is_named_instead_of_a_retry(cli: CliRunner) -> None:
    cli.plugin("shop", EMIT, commands="poll, handle")
    cli.plugin("other", EMIT, commands="poll, handle")
    routes = (
        "routes:\n  - {from: shop, event_type: order.made, to: other}\n"
        "  - {from: other, event_type: order.made, to: shop}\n"
    )
    configure(cli, "  shop: {}\n  other: {}\n", routes)
    with cli.gateway():
        cli("run", "shop")
        job = find_job(cli, "other", "dead")
        why, run = why_of(cli, job)
    place = line_of(cli, "from: shop")
    assert f"lead back to it: other → shop → other, by routes[0] ({place}); remove one" in why
    line = place.rpartition(":")[2]
    assert run == f"${{EDITOR:-vi}} +{line} {cli.root}/config.yaml && ductile system reload"


def test_job_of_a_plugin_whose_init_failed_leads_to_its_init(cli: CliRunner) -> None:
    ready = cli.root / "ready"
    failing = f'[ -e {ready} ] || {{ echo \'{{"status":"error","error":"no database"}}\'; exit; }}'
    cli.plugin("db", f"{failing}\n{OK}", commands="init, poll")
    configure(cli, "  db: {retry: {max_attempts: 1}}\n")
    with cli.gateway():
        init = find_job(cli, "db", "dead")
        held = cli("run", "db", "--async", "--json").json["job_id"]
        why, run = why_of(cli, held)
        assert f"Its init is job {init}" in why
        assert run == f"ductile job retry {init}"
        ready.touch()
        type_commands(cli, run)
        until(lambda: cli("job", "inspect", held, "--json").json["status"] == "succeeded")


def test_rate_that_holds_a_job_is_named_with_its_place(cli: CliRunner) -> None:
    cli.plugin("mailer", OK)
    configure(cli, "  mailer:\n    rate: {limit: 1, per: 24h}\n")
    with cli.gateway():
        cli("run", "mailer")
        held = cli("run", "mailer", "--async", "--json").json["job_id"]
        why, run = why_of(cli, held)
    place = line_of(cli, "rate: ")
    assert f"The limit is plugins.mailer.rate ({place})." in why
    line = place.rpartition(":")[2]
    assert run == f"${{EDITOR:-vi}} +{line} {cli.root}/config.yaml && ductile system reload"


def test_wait_for_an_event_names_its_step_and_no_approval(cli: CliRunner) -> None:
    flow = "pipelines:\n  - name: orders\n    on: order.made\n    steps:\n"
    configure(cli, more=f"{flow}      - wait: {{event: bank.booked}}\n      - uses: hello\n")
    with cli.gateway():
        started = cli("pipeline", "run", "orders", "--async", "--json").json
        until(lambda: "waits for an event bank.booked" in why_of(cli, started["job_id"])[0])
        why, run = why_of(cli, started["job_id"])
        assert f"({line_of(cli, 'wait: ')})" in why
        assert run is None
        cancel = f"ductile pipeline cancel {started['instance_id']}"
        assert f"`{cancel}` ends its run" in why
        type_commands(cli, cancel)
