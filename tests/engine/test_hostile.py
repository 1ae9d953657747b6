"""Hostile plugins, end to end: their outcomes, and that the gateway continues."""

from __future__ import annotations

import json
import os
import signal
from typing import Any

import pytest

from ductile.operations.reports.plugin_list import describe_start
from tests.engine.site import OK, PYTHON, Site

ANSWER = """print('{"status": "ok", "result": "done"}', flush=True)\n"""


def write(text: str) -> str:
    """Python code that writes these bytes to stdout."""
    return PYTHON + f"sys.stdout.buffer.write({text})\n"


class HostileSite(Site):
    is_warm = False


@pytest.fixture(params=["cold", "warm"])
def both(request: pytest.FixtureRequest, site: Site) -> Site:
    """An installation whose plugin is started cold or warm."""
    site.__class__ = HostileSite
    assert isinstance(site, HostileSite)
    site.is_warm = request.param == "warm"
    return site


def run_script(site: Site, script: str, *, payload: Any = None, **settings: Any) -> dict[str, Any]:
    """Run a job of the plugin, and another one after it."""
    settings.setdefault("retry", {"max_attempts": 1})
    is_warm = isinstance(site, HostileSite) and site.is_warm
    if is_warm and not script.startswith(PYTHON):
        script = PYTHON + f"os.execv('/bin/sh', ['sh', '-c', {script!r}])\n"
    manifest = "runtime: {python: warm}" if is_warm else ""
    site.plugin("hostile", script, manifest=manifest, **settings)
    site.plugin("good", OK)
    site.settings["service"]["max_workers"] = 1
    with site.running() as running:
        if is_warm:
            running.prepare_warm("hostile")
        job = running.run("hostile", payload=payload)
        if is_warm:
            assert len(running.warm_processes()) == 2, "the job has had no warm slot"
        assert set(site.alive()) <= running.warm_processes()
        assert running.run("good")["status"] == "succeeded"
    return job


RESPONSES = {
    "nothing": ("b''", "empty"),
    "bad-utf8": ("""b'{"status": "ok", "result": "\\xff\\xfe"}'""", "UTF-8"),
    "nested-100000": ("""b'[' * 100_000 + b']' * 100_000""", "JSON"),
    "integer-5000": ("""b'{"status": "ok", "result": ' + b'7' * 5000 + b'}'""", "JSON"),
    "overflow": ("""b'{"status": "ok", "result": "' + b'x' * 11_000_000 + b'"}'""", "10 MiB"),
}
"""Of each kind that something other than the reader of responses could fail at."""


@pytest.mark.parametrize("name", RESPONSES)
def test_invalid_response_fails_the_attempt_with_a_reason(site: Site, name: str) -> None:
    body, reason = RESPONSES[name]
    job = run_script(site, write(body))
    assert job["status"] == "dead"
    assert reason in job["last_error"]
    assert len(job["last_error"]) < 500
    assert len(job["attempts"][0]["stdout"] or "") <= 64 * 1024


def test_nul_in_a_string_is_stored_as_replacement_character(site: Site) -> None:
    body = """b'{"status": "ok", "result": "a\\\\u0000b", "state_updates": {"k\\\\u0000": "v"}}'"""
    job = run_script(site, write(body))
    assert job["status"] == "succeeded"
    assert job["result"]["result"] == "a\ufffdb"


def test_response_nested_100_levels_deep_is_accepted(site: Site) -> None:
    body = """b'{"status": "ok", "result": ' + b'[' * 99 + b']' * 99 + b'}'"""
    assert run_script(site, write(body))["status"] == "succeeded"


def test_response_of_10_mib_is_accepted(site: Site) -> None:
    body = """b'{"status": "ok", "result": "' + b'x' * (10 * 1024**2 - 40) + b'"}'"""
    assert run_script(site, write(body))["status"] == "succeeded"


def test_plugin_that_ignores_sigterm_is_killed_after_the_grace(both: Site) -> None:
    job = run_script(both, "trap '' TERM\nwhile :; do sleep 1; done", timeouts={"poll": "100ms"})
    assert job["status"] == "dead"
    assert "timed out" in job["last_error"]


def test_output_after_sigterm_is_ignored(both: Site) -> None:
    script = (
        PYTHON + f"def late(*_):\n    {ANSWER.strip()}\n    os._exit(0)\n"
        "signal.signal(signal.SIGTERM, late)\nwhile True: time.sleep(1)\n"
    )
    job = run_script(both, script, timeouts={"poll": "300ms"})
    assert (job["status"], "timed out" in job["last_error"]) == ("dead", True)


@pytest.mark.parametrize("leave", ["", "setsid "], ids=["in-the-group", "in-a-session-of-its-own"])
def test_grandchild_that_holds_stdout_is_killed(both: Site, leave: str) -> None:
    job = run_script(both, f"{leave}sh -c 'trap \"\" TERM HUP; sleep 600' &\n{OK}")
    assert job["status"] == "succeeded"


def test_grandchild_without_pipes_is_killed(both: Site) -> None:
    job = run_script(both, f"setsid sleep 600 </dev/null >/dev/null 2>&1 &\n{OK}")
    assert job["status"] == "succeeded"


def test_plugin_that_closes_stdout_early_is_judged_by_its_output(both: Site) -> None:
    job = run_script(both, OK + "exec >&-\nexec sleep 600")
    assert job["status"] == "succeeded"


def test_megabytes_on_stdout_and_stderr_are_read_and_capped(both: Site) -> None:
    job = run_script(both, "head -c 50000000 /dev/zero >&2\nhead -c 50000000 /dev/zero")
    assert job["status"] == "dead"
    [attempt] = job["attempts"]
    assert len(attempt["stderr"]) == 64 * 1024
    assert len(attempt["stdout"]) <= 64 * 1024
    assert "10 MiB" in job["last_error"]


@pytest.mark.parametrize(("written", "warned"), [(64 * 1024, 0), (64 * 1024 + 1, 1)])
def test_truncated_stderr_is_logged_as_a_warning(
    site: Site, capsysbinary: pytest.CaptureFixture[bytes], written: int, warned: int
) -> None:
    site.settings["service"]["log_level"] = "warn"
    run_script(site, f"head -c {written} /dev/zero >&2\n{OK}")
    lines = [json.loads(line) for line in capsysbinary.readouterr().out.splitlines()]
    cut = [line for line in lines if line["message"] == "stderr was truncated"]
    assert [(line["level"], line["plugin"]) for line in cut] == [("warn", "hostile")] * warned


def test_plugin_that_does_not_read_stdin_does_not_block(both: Site) -> None:
    job = run_script(both, OK, payload={"big": "x" * 1024**2})
    assert job["status"] == "succeeded"


def test_error_names_the_signal_that_ended_a_plugin(both: Site) -> None:
    job = run_script(both, "kill -SEGV $$")
    assert (job["status"], "signal 11" in job["last_error"]) == ("dead", True)


def test_plugin_that_kills_its_slot_loses_only_its_attempt(both: Site) -> None:
    job = run_script(both, "kill -9 $PPID\nsleep 600")
    assert job["status"] == "dead"
    assert "slot 0" in job["last_error"]


def test_stopped_plugin_times_out(both: Site) -> None:
    job = run_script(both, "kill -STOP $$", timeouts={"poll": "100ms"})
    assert (job["status"], "timed out" in job["last_error"]) == ("dead", True)


def test_error_of_megabytes_is_truncated(site: Site) -> None:
    """The error is in the row, the log, two transitions and a notice."""
    body = """b'{"status": "error", "error": "' + b'e' * 5_000_000 + b'"}'"""
    job = run_script(site, write(body))
    assert job["status"] == "dead"
    assert len(job["last_error"]) <= 64 * 1024


def test_many_log_lines_are_stored_or_truncated(site: Site) -> None:
    body = """b'{"status": "ok", "logs": [' + b'"x",' * 200_000 + b'"y"]}'"""
    assert run_script(site, write(body))["status"] == "succeeded"


def test_warm_plugin_runs_changed_code_and_survives_its_zygote(site: Site) -> None:
    """A zygote that cannot be used means a cold start, never a failed job."""
    script = PYTHON + "print(json.dumps({'status': 'ok', 'result': VALUE, 'x': os.getppid()}))\n"
    site.plugin("p", script.replace("VALUE", "'one'"), manifest="runtime: {python: warm}")
    with site.running() as running:
        running.prepare_warm("p")
        assert running.run("p")["result"]["result"] == "one"
        assert len(running.warm_processes()) == 2
        site.plugin("p", script.replace("VALUE", "'two'"), manifest="runtime: {python: warm}")
        changed = running.run("p")
        assert (changed["result"]["result"], len(changed["attempts"])) == ("two", 1)
        running.prepare_warm("p")
        for pid in running.warm_processes():
            os.kill(pid, signal.SIGKILL)
        after = running.run("p")
        assert (after["status"], len(after["attempts"])) == ("succeeded", 1)
        plan = running.gateway.compiled.plans["p"]
        start = describe_start(running.gateway.compiled, running.gateway.warm_slots, "p")
        assert start is not None
        assert plan.warm is not None


def test_no_zygote_is_started_without_a_job_of_a_warm_plugin(site: Site) -> None:
    site.plugin("p", PYTHON, manifest="runtime: {python: warm}")
    site.plugin("good", OK, manifest="runtime: {python: warm}")
    with site.running() as running:
        assert running.run("good")["status"] == "succeeded"
        assert running.warm_processes() == set()
        compiled, slots = running.gateway.compiled, running.gateway.warm_slots
        start = describe_start(compiled, slots, "p")
        assert start is not None
        assert start["mode"] == "idle"
        cold = describe_start(compiled, slots, "good")
        assert cold is not None
        assert "does not name a Python" in cold["reason"]
