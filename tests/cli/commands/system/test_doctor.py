"""`ductile system doctor`: text, JSON and exit codes."""

from __future__ import annotations

import apsw

from tests.cli.runner import CliRunner


def test_a_healthy_gateway_has_no_problems(cli: CliRunner) -> None:
    cli.root.chmod(0o700)
    with cli.gateway() as process:
        result = cli("system", "doctor")
        page = cli("system", "doctor", "--json").json
    assert result.code == 0
    assert result.out.endswith("no problems found\n")
    assert f"gateway: pid {process.pid}, up " in result.out
    assert (page["ok"], page["findings"]) == (True, [])
    assert page["facts"]["pid"] == process.pid
    assert page["facts"]["ledger_bytes"] > 0


def test_warnings_alone_exit_0(cli: CliRunner) -> None:
    result = cli("system", "doctor")
    assert result.code == 0
    assert "warning  gateway: no gateway is running" in result.out
    assert f"  run  ductile system start --config {cli.root}" in result.out
    assert result.out.endswith("1 warning\n")


def test_an_error_exits_1_and_names_the_command_to_run(cli: CliRunner) -> None:
    (cli.root / "plugins" / "hello").chmod(0o777)
    result = cli("system", "doctor")
    assert result.code == 1
    assert "error  plugins: plugin hello is refused" in result.out
    assert f"  run  chmod o-w {cli.root}/plugins/hello" in result.out
    page = cli("system", "doctor", "--json")
    assert (page.code, page.json["ok"]) == (1, False)
    assert page.json["findings"][0]["severity"] == "error"


def test_an_invalid_configuration_is_a_finding(cli: CliRunner) -> None:
    cli.write("config.yaml", "servise: {}\n")
    result = cli("system", "doctor")
    assert result.code == 1
    assert "did you mean 'service'?" in result.out
    facts = cli("system", "doctor", "--json").json["facts"]
    assert (facts["config"], facts["state_dir"]) == (str(cli.root), str(cli.state))


def test_an_unreadable_configuration_has_no_facts(cli: CliRunner) -> None:
    cli.write("config.yaml", "state: {path\n")
    assert cli("system", "doctor", "--json").json["facts"].keys() == {"version"}


def test_control_characters_in_findings_are_escaped(cli: CliRunner) -> None:
    cli.plugin("evil\x1b[2J", "true")
    result = cli("system", "doctor")
    assert "\x1b" not in result.out


def test_doctor_rejects_api_url(cli: CliRunner) -> None:
    result = cli("system", "doctor", "--api-url", "http://127.0.0.1:1")
    assert result.code == 2
    assert "examines its own machine" in result.err


def test_a_refused_plugin_is_listed_with_the_reload_hint(cli: CliRunner) -> None:
    entrypoint = cli.root / "plugins" / "hello" / "run.sh"
    entrypoint.chmod(0o600)
    job = cli("run", "bad", "--async", "--json").json["job_id"]
    with cli.gateway():
        connection = apsw.Connection(str(cli.state / "state.db"))
        connection.set_busy_timeout(5000)
        connection.execute(
            "UPDATE job_queue SET plugin = 'hello', status = 'queued', "
            "next_retry_at = NULL WHERE id = ?",
            (job,),
        )
        connection.close()
        entrypoint.chmod(0o700)
        hint = "after fixing a refused plugin, run: ductile system reload\n"
        assert cli("plugin", "list").err == hint
        assert cli("queue", "list").err == hint
        assert cli("job", "why", job).err == hint
        refused = cli("plugin", "run", "hello")
        assert refused.err.rstrip().endswith("; after fixing it, run: ductile system reload")
        assert "the running gateway refuses plugin hello" in cli("system", "doctor").out
        assert cli("system", "reload").code == 0
        assert cli("plugin", "list").err == ""
        assert "refuse" not in cli("system", "doctor").out
