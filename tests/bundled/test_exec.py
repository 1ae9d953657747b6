"""The plugin `exec` through a real gateway: what runs, what it sees, what is left of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.bundled.house import BundledSite, emitted, ledger_text
from tests.waiting import until

SECRET = "canary-exec-secret"
ARGUMENTS = ["sh", "-c", 'for a in "$@"; do printf "<%s>" "$a"; done', "sh"]


def ran(site: BundledSite, config: dict[str, Any], **more: Any) -> dict[str, Any]:
    """The payload of the event of a run by hand."""
    site.use("exec", config)
    answer = site.direct("exec", "handle", **more).answer
    assert answer["status"] == "ok", answer
    [event] = answer["events"]
    payload: dict[str, Any] = event["payload"]
    return payload


def refused(site: BundledSite, config: dict[str, Any], **more: Any) -> dict[str, Any]:
    site.use("exec", config)
    answer = site.direct("exec", "handle", **more).answer
    assert answer["status"] == "error"
    return answer


def is_alive(pid: int) -> bool:
    """Whether it runs; one that is dead and that nobody has asked about does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def test_a_command_runs_and_its_end_is_an_event(site: BundledSite) -> None:
    site.use("exec", {"command": ["sh", "-c", "echo out; echo err >&2"]})
    with site.running() as house:
        assert house.run("exec")["result"]["result"] == "exit code 0"
        assert house.run("exec", "handle", {"x": 1})["status"] == "succeeded"
        first, second = emitted(house, "exec")
    assert first["type"] == "exec.done"
    payload = first["payload"]
    assert (payload["stdout"], payload["stderr"]) == ("out\n", "err\n")
    assert (payload["program"], payload["exit_code"], payload["signal"]) == ("sh", 0, None)
    assert first["dedupe_key"] != second["dedupe_key"]


def test_a_job_whose_end_is_recorded_does_not_run_again(site: BundledSite) -> None:
    site.use("exec", {"command": ["sh", "-c", f"echo x >> {site.folder}/ran"]})
    first = site.direct("exec", "poll").answer
    again = site.direct("exec", "poll", state=first["state_updates"]).answer
    assert "events" not in again
    assert (site.folder / "ran").read_text() == "x\n"
    other = site.direct("exec", "poll", state=first["state_updates"], job_id="j2").answer
    assert len(other["state_updates"]["done"]) == 2


# What an event can put in


@pytest.mark.parametrize(
    "value", ["a b", "; rm -rf /", "$(id)", "`id`", "'\"", "a\nb", "*", "", 7, 1.5, True, "ü"]
)
def test_a_value_is_one_argument_whatever_it_holds(site: BundledSite, value: Any) -> None:
    config = {"command": [*ARGUMENTS, "{payload.x}", "end"]}
    payload = ran(site, config, payload={"x": value})
    text = value if isinstance(value, str) else json.dumps(value)
    assert payload["stdout"] == f"<{text}><end>"


def test_places_have_defaults_and_reach_deep(site: BundledSite) -> None:
    places = ["{payload.a.0.b}", "{payload.gone|a default}", "{event.type}", "{literal}"]
    config = {"command": [*ARGUMENTS, *places]}
    payload = ran(site, config, payload={"a": [{"b": "deep"}]})
    assert payload["stdout"] == "<deep><a default><test><{literal}>"


def test_without_a_place_the_event_is_not_seen(site: BundledSite) -> None:
    payload = ran(site, {"command": [*ARGUMENTS, "x"]}, payload={"x": "secret"})
    assert payload["stdout"] == "<x>"


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("-rf", "begins with '-'"),
        ("--upload-pack=x", "begins with '-'"),
        (["a"], "no text and no number"),
        ({"a": 1}, "no text and no number"),
        (None, "no text and no number"),
        ("a\0b", "holds a NUL"),
        ("x" * 70_000, "too long"),
    ],
)
def test_values_that_cannot_be_an_argument(site: BundledSite, value: Any, said: str) -> None:
    answer = refused(site, {"command": ["echo", "{payload.x}"]}, payload={"x": value})
    assert said in answer["error"]
    assert answer["retry"] is False


def test_a_value_that_is_missing(site: BundledSite) -> None:
    answer = refused(site, {"command": ["echo", "{payload.x}"]})
    assert answer["error"] == "the event has no payload.x, which the command names"


def test_after_two_dashes_a_value_may_begin_with_one(site: BundledSite) -> None:
    config = {"command": [*ARGUMENTS, "--", "{payload.x}"]}
    assert ran(site, config, payload={"x": "-rf"})["stdout"] == "<--><-rf>"


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"command": "echo hi"}, "must be a list"),
        ({"command": []}, "must be a list"),
        ({"command": ["echo", None]}, "texts and numbers alone"),
        ({"command": ["{payload.program}"]}, "the program itself"),
        ({"command": ["echo", "--x={payload.x}"]}, "must be a whole argument"),
        ({"command": "echo {payload.x}", "shell": True}, "takes no {payload...}"),
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
def test_a_config_that_cannot_work_is_refused(
    site: BundledSite, config: dict[str, Any], said: str
) -> None:
    assert said in refused(site, config)["error"]
    assert site.direct("exec", "health").code == 78


# What it sees


def test_a_shell_is_there_for_those_who_ask_for_it(site: BundledSite) -> None:
    assert ran(site, {"command": "echo a | tr a b", "shell": True})["stdout"] == "b\n"


def test_the_environment_is_what_the_config_says(site: BundledSite) -> None:
    site.environ |= {"LEAK": "x", "DUCTILE_BOOT": "mark:1", "KEPT": "y"}
    config = {"command": ["env"], "env": {"A": "short", "N": 5}, "inherit_env": ["KEPT", "PATH"]}
    lines = ran(site, config)["stdout"].splitlines()
    seen = dict(line.split("=", 1) for line in lines)
    assert seen.keys() == {
        *("A", "N", "KEPT", "PATH", "DUCTILE_BOOT"),
        *("DUCTILE_JOB_ID", "DUCTILE_EVENT_TYPE", "DUCTILE_EVENT_ID"),
    }
    assert (seen["A"], seen["N"], seen["DUCTILE_EVENT_TYPE"]) == ("short", "5", "test")


def test_the_payload_on_stdin(site: BundledSite) -> None:
    config = {"command": ["cat"], "stdin": "payload", "parse": "json", "max_output": "1MB"}
    big = {"x": "é" * 200_000}
    assert ran(site, config, payload=big)["output"] == big


def test_a_command_that_does_not_read_its_stdin(site: BundledSite) -> None:
    config = {"command": ["true"], "stdin": "payload"}
    assert ran(site, config, payload={"x": "y" * 500_000})["exit_code"] == 0


def test_where_it_runs(site: BundledSite) -> None:
    assert ran(site, {"command": ["pwd"], "cwd": str(site.folder)})["stdout"] == f"{site.folder}\n"


# How it ends


def test_output_is_bounded_and_never_blocks(site: BundledSite) -> None:
    script = "head -c 3000000 /dev/zero; head -c 3000000 /dev/zero >&2"
    payload = ran(site, {"command": ["sh", "-c", script], "max_output": 1000})
    assert [len(payload[name]) for name in ("stdout", "stderr")] == [1000, 1000]
    assert payload["stdout_truncated"] is payload["stderr_truncated"] is True


@pytest.mark.parametrize(
    ("config", "status", "attempts"),
    [
        ({"command": ["sh", "-c", "echo why >&2; exit 3"]}, "dead", 2),
        ({"command": ["sh", "-c", "exit 78"]}, "failed", 1),
        ({"command": ["/no/such/program"]}, "failed", 1),
        ({"command": ["/etc/passwd"]}, "failed", 1),
        ({"command": ["sh", "-c", "exit 3"], "success_codes": [0, 3]}, "succeeded", 1),
        ({"command": ["sh", "-c", "echo no"], "parse": "json"}, "failed", 1),
    ],
)
def test_what_counts_as_a_failure(
    site: BundledSite, config: dict[str, Any], status: str, attempts: int
) -> None:
    site.use("exec", config, retry={"max_attempts": 2, "backoff_base": "10ms"})
    with site.running() as house:
        job = house.run("exec")
    assert (job["status"], job["attempt"]) == (status, attempts)


def test_the_last_line_of_stderr_says_why(site: BundledSite) -> None:
    answer = refused(site, {"command": ["sh", "-c", "echo a >&2; echo why >&2; exit 3"]})
    assert answer["error"] == "exit code 3: why"


def test_a_failure_can_be_an_event(site: BundledSite) -> None:
    site.use("exec", {"command": ["sh", "-c", "kill -9 $$"], "on_failure": "emit"})
    with site.running() as house:
        assert house.run("exec")["status"] == "succeeded"
        [event] = emitted(house, "exec")
    assert event["type"] == "exec.failed"
    assert (event["payload"]["exit_code"], event["payload"]["signal"]) == (None, "SIGKILL")


def test_when_its_time_is_up_all_of_it_is_ended(site: BundledSite) -> None:
    script = "trap '' TERM; sh -c 'trap \"\" TERM; echo $$; sleep 300' & wait; sleep 300"
    config = {"command": ["sh", "-c", script], "timeout": "300ms", "on_failure": "emit"}
    payload = ran(site, config)
    assert payload["timed_out"] is True
    assert payload["signal"] == "SIGKILL"
    until(lambda: not is_alive(int(payload["stdout"])))


def test_what_it_leaves_in_the_background_ends_with_it(site: BundledSite) -> None:
    payload = ran(site, {"command": ["sh", "-c", "sleep 300 & echo $!"]})
    until(lambda: not is_alive(int(payload["stdout"])))


def test_what_leaves_its_group_neither_hangs_the_job_nor_outlives_it(site: BundledSite) -> None:
    site.use("exec", {"command": ["sh", "-c", "setsid sleep 300 & echo left"]})
    with site.running() as house:
        assert house.run("exec")["status"] == "succeeded"
        [event] = emitted(house, "exec")
    assert event["payload"]["stdout"] == "left\n"


def test_the_jobs_own_deadline_is_kept(site: BundledSite) -> None:
    site.use("exec", {"command": ["sleep", "300"], "timeout": "1h"})
    # Five seconds are kept back; a machine that is busy takes some to begin.
    done = site.direct("exec", "poll", seconds=12)
    assert done.answer["error"].startswith("timed out after")


def test_no_secret_is_told(site: BundledSite) -> None:
    script = "echo $PASSWORD; echo failed with $PASSWORD >&2; exit $CODE"
    config = {"command": ["sh", "-c", script], "env": {"PASSWORD": SECRET, "CODE": 0}}
    site.use("exec", config)
    raw = json.dumps(site.direct("exec", "poll").answer)
    with site.running() as house:
        house.run("exec")
        raw += ledger_text(house)
    site.use("exec", {**config, "env": {"PASSWORD": SECRET, "CODE": 4}})
    raw += json.dumps(site.direct("exec", "poll").answer)
    assert SECRET not in raw
    assert "failed with [REDACTED]" in raw


def test_health_looks_for_the_program_and_runs_nothing(site: BundledSite) -> None:
    site.use("exec", {"command": ["sh", "-c", f"echo > {site.folder}/ran"]})
    assert site.direct("exec", "health").answer["status"] == "ok"
    assert not (site.folder / "ran").exists()
    site.use("exec", {"command": ["no-such-program"]})
    assert "no program" in site.direct("exec", "health").answer["error"]
