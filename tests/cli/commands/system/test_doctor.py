"""`system doctor`: one page for people, one document for programs, an exit code for scripts."""

from __future__ import annotations

import apsw

from tests.cli.running import House


def test_with_a_gateway_that_is_well_nothing_is_wrong(house: House) -> None:
    house.root.chmod(0o700)
    with house.gateway() as process:
        told = house("system", "doctor")
        page = house("system", "doctor", "--json").json
    assert told.code == 0
    assert told.out.endswith("no problems found\n")
    assert f"gateway: pid {process.pid}, up " in told.out
    assert (page["ok"], page["findings"]) == (True, [])
    assert page["facts"]["pid"] == process.pid
    assert page["facts"]["ledger_bytes"] > 0


def test_warnings_alone_are_no_failure(house: House) -> None:
    told = house("system", "doctor")
    assert told.code == 0
    assert "warning  gateway: no gateway is running" in told.out
    assert f"  run  ductile system start --config {house.root}" in told.out
    assert told.out.endswith("1 warning\n")


def test_an_error_is_exit_1_and_says_what_to_run(house: House) -> None:
    (house.root / "plugins" / "hello").chmod(0o777)
    told = house("system", "doctor")
    assert told.code == 1
    assert "error  plugins: plugin hello is refused" in told.out
    assert f"  run  chmod o-w {house.root}/plugins/hello" in told.out
    page = house("system", "doctor", "--json")
    assert (page.code, page.json["ok"]) == (1, False)
    assert page.json["findings"][0]["severity"] == "error"


def test_a_configuration_that_does_not_load_is_a_finding_too(house: House) -> None:
    house.write("config.yaml", "servise: {}\n")
    told = house("system", "doctor")
    assert told.code == 1
    assert "did you mean 'service'?" in told.out
    facts = house("system", "doctor", "--json").json["facts"]
    assert (facts["config"], facts["state_dir"]) == (str(house.root), str(house.state))


def test_of_a_configuration_that_cannot_be_read_nothing_is_known(house: House) -> None:
    house.write("config.yaml", "state: {path\n")
    assert house("system", "doctor", "--json").json["facts"].keys() == {"version"}


def test_what_is_wrong_commands_no_terminal(house: House) -> None:
    house.plugin("evil\x1b[2J", "true")
    told = house("system", "doctor")
    assert "\x1b" not in told.out


def test_it_looks_at_this_machine_alone(house: House) -> None:
    told = house("system", "doctor", "--api-url", "http://127.0.0.1:1")
    assert told.code == 2
    assert "examines its own machine" in told.err


def test_what_a_gateway_refuses_it_refuses_until_it_reloads(house: House) -> None:
    entrypoint = house.root / "plugins" / "hello" / "run.sh"
    entrypoint.chmod(0o600)
    job = house("run", "bad", "--async", "--json").json["job_id"]
    with house.gateway():
        connection = apsw.Connection(str(house.state / "state.db"))
        connection.set_busy_timeout(5000)
        connection.execute(
            "UPDATE job_queue SET plugin = 'hello', status = 'queued', "
            "next_retry_at = NULL WHERE id = ?",
            (job,),
        )
        connection.close()
        entrypoint.chmod(0o700)
        hint = "after fixing a refused plugin, run: ductile system reload\n"
        assert house("plugin", "list").err == hint
        assert house("queue", "list").err == hint
        assert house("job", "why", job).err == hint
        refused = house("plugin", "run", "hello")
        assert refused.err.rstrip().endswith("; after fixing it, run: ductile system reload")
        assert "the running gateway refuses plugin hello" in house("system", "doctor").out
        assert house("system", "reload").code == 0
        assert house("plugin", "list").err == ""
        assert "refuse" not in house("system", "doctor").out
