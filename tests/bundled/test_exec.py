"""The plugin `exec`: arguments, environment, results and processes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.bundled.bundled_site import BundledSite, ledger_text, list_events
from tests.bundled.load_module import load_module
from tests.waiting import until

SECRET = "canary-exec-secret"
ARGUMENTS = ["sh", "-c", 'for a in "$@"; do printf "<%s>" "$a"; done', "sh"]


def run_command(site: BundledSite, config: dict[str, Any], **more: Any) -> dict[str, Any]:
    """The payload of the emitted event."""
    site.use("exec", config)
    response = site.direct("exec", "handle", **more).response
    assert response["status"] == "ok", response
    [event] = response["events"]
    payload: dict[str, Any] = event["payload"]
    return payload


def run_failing(site: BundledSite, config: dict[str, Any], **more: Any) -> dict[str, Any]:
    site.use("exec", config)
    response = site.direct("exec", "handle", **more).response
    assert response["status"] == "error"
    return response


def is_alive(pid: int) -> bool:
    """Whether the process runs; a zombie does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def test_result_of_a_command_is_emitted(site: BundledSite) -> None:
    site.use("exec", {"command": ["sh", "-c", "echo out; echo err >&2"]})
    with site.running() as running:
        assert running.run("exec")["result"]["result"] == "exit code 0"
        assert running.run("exec", "handle", {"x": 1})["status"] == "succeeded"
        first, second = list_events(running, "exec")
    assert first["type"] == "exec.done"
    payload = first["payload"]
    assert (payload["stdout"], payload["stderr"]) == ("out\n", "err\n")
    assert (payload["program"], payload["exit_code"], payload["signal"]) == ("sh", 0, None)
    assert first["dedupe_key"] != second["dedupe_key"]


def test_job_does_not_run_its_command_twice(site: BundledSite) -> None:
    site.use("exec", {"command": ["sh", "-c", f"echo x >> {site.folder}/ran"]})
    first = site.direct("exec", "poll").response
    again = site.direct("exec", "poll", state=first["state_updates"]).response
    assert "events" not in again
    assert (site.folder / "ran").read_text() == "x\n"
    other = site.direct("exec", "poll", state=first["state_updates"], job_id="j2").response
    assert len(other["state_updates"]["done"]) == 2


# Arguments


def test_value_is_exactly_one_argument(site: BundledSite) -> None:
    values = ["a b", "; rm -rf /", "$(id)", "`id`", "'\"", "a\nb", "*", "", 7, 1.5, True, "ü"]
    config = {"command": [*ARGUMENTS, *(f"{{payload.x.{index}}}" for index in range(12)), "end"]}
    payload = run_command(site, config, payload={"x": values})
    texts = [value if isinstance(value, str) else json.dumps(value) for value in values]
    assert payload["stdout"] == "".join(f"<{text}>" for text in [*texts, "end"])


def test_placeholders_have_defaults_and_nested_paths(site: BundledSite) -> None:
    placeholders = ["{payload.a.0.b}", "{payload.gone|a default}", "{event.type}", "{literal}"]
    config = {"command": [*ARGUMENTS, *placeholders]}
    payload = run_command(site, config, payload={"a": [{"b": "deep"}]})
    assert payload["stdout"] == "<deep><a default><test><{literal}>"


def test_event_is_not_passed_without_placeholders(site: BundledSite) -> None:
    payload = run_command(site, {"command": [*ARGUMENTS, "x"]}, payload={"x": "secret"})
    assert payload["stdout"] == "<x>"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("-rf", "starts with '-'"),
        (["a"], "neither text nor a number"),
        ({"a": 1}, "neither text nor a number"),
        (None, "neither text nor a number"),
        ("a\0b", "contains a NUL"),
        ("x" * 70_000, "too long"),
    ],
)
def test_values_that_cannot_be_arguments_are_rejected(
    site: BundledSite, value: Any, message: str
) -> None:
    response = run_failing(site, {"command": ["echo", "{payload.x}"]}, payload={"x": value})
    assert message in response["error"]
    assert response["retry"] is False


def test_missing_value_fails_the_job(site: BundledSite) -> None:
    response = run_failing(site, {"command": ["echo", "{payload.x}"]})
    assert response["error"] == "the event has no payload.x, which the command refers to"


def test_value_after_two_dashes_may_start_with_a_dash(site: BundledSite) -> None:
    config = {"command": [*ARGUMENTS, "--", "{payload.x}"]}
    assert run_command(site, config, payload={"x": "-rf"})["stdout"] == "<--><-rf>"


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"command": "echo hi"}, "must be a list"),
        ({"command": []}, "must be a list"),
        ({"command": ["echo", None]}, "only texts and numbers"),
        ({"command": ["{payload.program}"]}, "the program must not be a placeholder"),
        ({"command": ["echo", "--x={payload.x}"]}, "must be a whole argument"),
        ({"command": "echo {payload.x}", "shell": True}, "must not contain placeholders"),
        ({"command": ["echo"], "shell": True}, "must be text"),
        ({"command": ["echo"], "cwd": "here"}, "absolute path"),
        ({"command": ["echo"], "env": ["A"]}, "env must be a mapping"),
        ({"command": ["echo"], "env": {"A=B": "x"}}, "env must be a mapping"),
        ({"command": ["echo"], "stdin": "all"}, "stdin must be one of"),
        ({"command": ["echo"], "on_failure": "ignore"}, "on_failure must be one of"),
        ({"command": ["echo"], "success_codes": 0}, "list of exit codes"),
        ({"command": ["echo"], "max_output": "1GB"}, "max_output must be"),
    ],
)
def test_invalid_configuration_is_rejected(config: dict[str, Any], message: str) -> None:
    module = load_module("exec", "run")
    with pytest.raises(module.ConfigError, match=re.escape(message)):
        module.Command(config)


def test_invalid_configuration_exits_with_78(site: BundledSite) -> None:
    site.use("exec", {"command": "echo hi"})
    assert site.direct("exec", "poll").code == site.direct("exec", "health").code == 78


# Environment


def test_shell_command_runs_if_configured(site: BundledSite) -> None:
    assert run_command(site, {"command": "echo a | tr a b", "shell": True})["stdout"] == "b\n"


def test_environment_has_only_configured_variables(site: BundledSite) -> None:
    site.environ |= {"LEAK": "x", "DUCTILE_BOOT": "mark:1", "KEPT": "y"}
    config = {"command": ["env"], "env": {"A": "short", "N": 5}, "inherit_env": ["KEPT", "PATH"]}
    lines = run_command(site, config)["stdout"].splitlines()
    seen = dict(line.split("=", 1) for line in lines)
    assert seen.keys() == {
        *("A", "N", "KEPT", "PATH", "DUCTILE_BOOT"),
        *("DUCTILE_JOB_ID", "DUCTILE_EVENT_TYPE", "DUCTILE_EVENT_ID"),
    }
    assert (seen["A"], seen["N"], seen["DUCTILE_EVENT_TYPE"]) == ("short", "5", "test")


def test_payload_is_passed_on_stdin(site: BundledSite) -> None:
    config = {"command": ["cat"], "stdin": "payload", "parse": "json", "max_output": "1MB"}
    big = {"x": "é" * 200_000}
    assert run_command(site, config, payload=big)["output"] == big


def test_command_that_does_not_read_stdin_succeeds(site: BundledSite) -> None:
    config = {"command": ["true"], "stdin": "payload"}
    assert run_command(site, config, payload={"x": "y" * 500_000})["exit_code"] == 0


def test_command_runs_in_the_configured_directory(site: BundledSite) -> None:
    assert (
        run_command(site, {"command": ["pwd"], "cwd": str(site.folder)})["stdout"]
        == f"{site.folder}\n"
    )


# Results


def test_large_output_is_truncated_and_does_not_block(site: BundledSite) -> None:
    script = "head -c 3000000 /dev/zero; head -c 3000000 /dev/zero >&2"
    payload = run_command(site, {"command": ["sh", "-c", script], "max_output": 1000})
    assert [len(payload[name]) for name in ("stdout", "stderr")] == [1000, 1000]
    assert payload["stdout_truncated"] is payload["stderr_truncated"] is True


@pytest.mark.parametrize(
    ("config", "retry"),
    [
        ({"command": ["sh", "-c", "echo why >&2; exit 3"]}, True),
        ({"command": ["sh", "-c", "exit 78"]}, False),
        ({"command": ["/no/such/program"]}, False),
        ({"command": ["/etc/passwd"]}, False),
        ({"command": ["sh", "-c", "echo no"], "parse": "json"}, False),
    ],
)
def test_failures_that_are_retried(site: BundledSite, config: dict[str, Any], retry: bool) -> None:
    assert run_failing(site, config)["retry"] is retry


def test_other_success_codes(site: BundledSite) -> None:
    config = {"command": ["sh", "-c", "exit 3"], "success_codes": [0, 3]}
    assert run_command(site, config)["exit_code"] == 3


def test_error_has_the_last_line_of_stderr(site: BundledSite) -> None:
    response = run_failing(site, {"command": ["sh", "-c", "echo a >&2; echo why >&2; exit 3"]})
    assert response["error"] == "exit code 3: why"


def test_failure_can_be_emitted_as_an_event(site: BundledSite) -> None:
    site.use("exec", {"command": ["sh", "-c", "kill -9 $$"], "on_failure": "emit"})
    with site.running() as running:
        assert running.run("exec")["status"] == "succeeded"
        [event] = list_events(running, "exec")
    assert event["type"] == "exec.failed"
    assert (event["payload"]["exit_code"], event["payload"]["signal"]) == (None, "SIGKILL")


def test_timeout_kills_the_process_group(site: BundledSite) -> None:
    script = "trap '' TERM; sh -c 'trap \"\" TERM; echo $$; sleep 300' & wait; sleep 300"
    config = {"command": ["sh", "-c", script], "timeout": "300ms", "on_failure": "emit"}
    payload = run_command(site, config)
    assert payload["timed_out"] is True
    assert payload["signal"] == "SIGKILL"
    until(lambda: not is_alive(int(payload["stdout"])))


def test_background_processes_are_killed(site: BundledSite) -> None:
    payload = run_command(site, {"command": ["sh", "-c", "sleep 300 & echo $!"]})
    until(lambda: not is_alive(int(payload["stdout"])))


def test_process_outside_the_group_does_not_block_the_job(site: BundledSite) -> None:
    site.use("exec", {"command": ["sh", "-c", "setsid sleep 300 & echo left"]})
    with site.running() as running:
        assert running.run("exec")["status"] == "succeeded"
        [event] = list_events(running, "exec")
    assert event["payload"]["stdout"] == "left\n"


def test_deadline_of_the_job_limits_the_command(site: BundledSite) -> None:
    site.use("exec", {"command": ["sleep", "300"], "timeout": "1h"})
    # Five seconds are reserved; a busy machine needs some to start the process.
    done = site.direct("exec", "poll", seconds=9)
    assert done.response["error"].startswith("timed out after")


def test_secrets_are_not_revealed(site: BundledSite) -> None:
    script = "echo $PASSWORD; echo failed with $PASSWORD >&2; exit $CODE"
    config = {"command": ["sh", "-c", script], "env": {"PASSWORD": SECRET, "CODE": 0}}
    site.use("exec", config)
    raw = json.dumps(site.direct("exec", "poll").response)
    with site.running() as running:
        running.run("exec")
        raw += ledger_text(running)
    site.use("exec", {**config, "env": {"PASSWORD": SECRET, "CODE": 4}})
    raw += json.dumps(site.direct("exec", "poll").response)
    assert SECRET not in raw
    assert "failed with [REDACTED]" in raw


def test_health_checks_the_program_without_running_it(site: BundledSite) -> None:
    site.use("exec", {"command": ["sh", "-c", f"echo > {site.folder}/ran"]})
    assert site.direct("exec", "health").response["status"] == "ok"
    assert not (site.folder / "ran").exists()
    site.use("exec", {"command": ["no-such-program"]})
    assert "does not exist" in site.direct("exec", "health").response["error"]
