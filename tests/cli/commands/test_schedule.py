"""`ductile schedule`, breakers, `system reload` and `logs -f`."""

from __future__ import annotations

import signal

import pytest

from tests.cli.runner import CliRunner, read_until, stop
from tests.waiting import until

CONFIG = """\
service: {shutdown_grace: 0s, tick_interval: 1s}
state: {path: ./data/state.db}
plugin_roots: [./plugins]
plugins:
  hello:
    schedules:
      - {id: often, every: 200ms}
      - {id: nine, cron: "0 9 * * *", timezone: America/New_York, command: health}
  bad:
    retry: {max_attempts: 1}
    circuit_breaker: {threshold: 2, reset_after: 1h}
    schedules: [{id: fast, every: 100ms}]
  ghost:
    schedules: [{every: 1h}]
"""


@pytest.fixture
def timed(cli: CliRunner) -> CliRunner:
    cli.write("config.yaml", CONFIG)
    cli.plugin("ghost", "exit 1")
    (cli.root / "plugins/ghost/run.sh").chmod(0o600)
    return cli


TIMED_PIPELINE = """\
pipelines:
  - name: tidy
    schedules: [{id: often, every: 200ms, payload: {deep: true}}]
    steps: [{id: clean, uses: hello.poll}]
"""


def test_a_schedule_starts_a_pipeline_and_can_be_paused(cli: CliRunner) -> None:
    cli.write("config.yaml", CONFIG.partition("plugins:\n")[0] + TIMED_PIPELINE)
    assert "no fire times" not in cli("schedule", "next", "tidy").out
    assert "tidy (schedules)" in cli("pipeline", "show", "tidy").out
    with cli.gateway():
        until(lambda: len(cli("pipeline", "runs", "tidy", "--json").json["runs"]) > 1)
        paused = cli("schedule", "pause", "tidy/often", "--json").json
        assert (paused["plugin"], paused["paused"]) == ("pipeline:tidy", True)
        row = state_of(cli, "pipeline:tidy/often")
        assert (row["pipeline"], row["state"]) == ("tidy", "paused")
        [job] = cli("job", "list", "--pipeline", "tidy", "--limit", "1", "--json").json["jobs"]
        assert (job["submitted_by"], job["step_path"]) == ("scheduler", "clean")
        why = cli("job", "why", job["job_id"]).out
        assert "Schedule pipeline:tidy/often started the run." in why
        slots = cli("schedule", "explain", "pipeline:tidy", "--json").json["slots"]
        assert [slot for slot in slots if slot["fired"]]
        until(lambda: state_of(cli, "pipeline:tidy/often")["last_success"])


def test_schedules_of_a_pipeline_are_checked(cli: CliRunner) -> None:
    cli.write("config.yaml", TIMED_PIPELINE.replace("every: 200ms", "command: poll, every: 1m"))
    checked = cli("config", "check")
    assert checked.code == 78
    assert "command" in checked.out + checked.err


def state_of(timed: CliRunner, name: str) -> dict[str, object]:
    rows = timed("schedule", "list", "--json").json["schedules"]
    return {f"{row['plugin']}/{row['schedule']}": row for row in rows}[name]


class TestBeforeAnyLedger:
    def test_next_fire_times_across_a_dst_change(self, timed: CliRunner) -> None:
        fires = timed("schedule", "next", "hello/nine", "--count", "366", "--json").json["fires"]
        assert len(fires) == 366
        assert {fire["local"][11:19] for fire in fires} == {"09:00:00"}
        assert {fire["zone"] for fire in fires} == {
            "America/New_York (EST)",
            "America/New_York (EDT)",
        }
        assert {fire["fires_at"][11:13] for fire in fires} == {"13", "14"}
        assert [fire["fires_at"] for fire in fires] == sorted({f["fires_at"] for f in fires})
        assert not timed.state.exists()

    def test_next_merges_the_schedules_of_a_plugin(self, timed: CliRunner) -> None:
        fires = timed("schedule", "next", "hello", "--json").json["fires"]
        assert len(fires) == 20
        assert fires[0]["schedule"] == "hello/often"
        assert "America/New_York" in timed("schedule", "next", "hello/nine").out

    def test_list_shows_why_a_schedule_cannot_fire(self, timed: CliRunner) -> None:
        assert state_of(timed, "ghost/default")["state"] == "refused"
        assert "ghost/default" in timed("schedule").out

    def test_list_prints_intervals_in_config_notation(self, timed: CliRunner) -> None:
        assert state_of(timed, "ghost/default")["rule"] == "every 1h"
        assert state_of(timed, "hello/often")["rule"] == "every 200ms"

    def test_a_past_time_is_a_warning(self, timed: CliRunner) -> None:
        past = "2020-01-01T00:00:00Z"
        done = timed("config", "set", "plugins.hello.schedules[+]", f"{{id: g, at: {past}}}")
        assert (done.code, "fires at once" in done.err) == (0, True)
        # An error would be reported alone: a plugin that has a schedule must be executable.
        (timed.root / "plugins/ghost/run.sh").chmod(0o700)
        result = timed("config", "check", "--json").json["warnings"]
        [warning] = [item for item in result if "fires at once" in item["message"]]
        assert warning["path"] == "plugins.hello.schedules[2].at"

    def test_pause_and_resume_without_a_gateway(self, timed: CliRunner) -> None:
        dry = timed("schedule", "pause", "hello/often", "--dry-run")
        assert dry.out == "hello/often would be paused (was active)\n"
        assert not timed.state.exists()
        assert timed("schedule", "pause", "hello/often").code == 0
        row = state_of(timed, "hello/often")
        assert (row["state"], row["next_run"]) == ("paused", None)
        assert "an operator paused it" in timed("schedule", "next", "hello/often").out
        assert timed("schedule", "resume", "hello/often").code == 0
        assert state_of(timed, "hello/often")["state"] == "active"

    def test_unknown_and_ambiguous_names_are_refused(self, timed: CliRunner) -> None:
        assert timed("schedule", "next", "nope", "--json").json["code"] == "not_found"
        assert timed("schedule", "explain", "nope", "--json").json["code"] == "not_found"
        several = timed("schedule", "pause", "hello", "--json")
        assert (several.code, several.json["code"]) == (2, "usage")
        assert timed("schedule", "next", "hello", "--count", "0").code == 2
        assert timed("schedule", "pause", "bad", "--dry-run").code == 0


def test_a_paused_schedule_does_not_fire_and_explains_it(timed: CliRunner) -> None:
    with timed.gateway():
        until(lambda: state_of(timed, "hello/often")["last_success"])
        assert timed("schedule", "pause", "hello/often").code == 0
        skipped = until(lambda: _unfired(timed, "paused"))
        fired = state_of(timed, "hello/often")["last_fire"]
        until(lambda: _unfired(timed, "paused") > skipped)
        assert state_of(timed, "hello/often")["last_fire"] == fired
        assert timed("schedule", "resume", "hello/often").code == 0
        until(lambda: state_of(timed, "hello/often")["last_fire"] != fired)
        running = timed("schedule", "explain", "hello/often", "--json").json["slots"]
    assert "an operator had paused it" in timed("schedule", "explain", "hello").out
    without_gateway = timed("schedule", "explain", "hello/often", "--since", "1h", "--json").json[
        "slots"
    ]
    assert [slot["slot"] for slot in without_gateway][: len(running)] == [
        s["slot"] for s in running
    ]
    fired_slots = [slot for slot in without_gateway if slot["fired"]]
    assert fired_slots
    assert fired_slots[0]["status"] == "succeeded"


def _unfired(timed: CliRunner, reason: str) -> int:
    slots = timed("schedule", "explain", "hello/often", "--json").json["slots"]
    return sum(slot["reason"] == reason for slot in slots)


def test_an_open_breaker_is_shown_and_reset(timed: CliRunner) -> None:
    with timed.gateway():
        until(lambda: state_of(timed, "bad/fast")["state"] == "breaker_open")
        page = timed("system", "breaker", "bad", "--json").json
        (row,) = page["breakers"]
        assert (row["state"], row["failure_count"]) == ("open", 2)
        assert page["transitions"][0]["reason"] == "failure_threshold"
        assert (
            "poll  closed -> open  failure_threshold, 2 failures"
            in timed("system", "breaker", "bad").out
        )
        assert "breaker.open  plugin=bad command=poll" in timed("logs", "bad").out
        assert "breaker" not in timed("logs", "hello").out
        assert timed("schedule", "pause", "bad/fast").code == 0
        dry = timed("reset", "bad", "--dry-run", "--json").json
        assert (dry["closed"], dry["dry_run"]) == (["poll"], True)
        assert timed("system", "breaker", "bad", "--json").json["breakers"] == [row]
    done = timed("system", "reset", "bad")
    assert done.out == "bad: closed the breaker of poll\n"
    assert timed("system", "breaker", "bad", "--json").json["breakers"][0]["state"] == "closed"
    assert timed("system", "reset", "bad").out == "bad: no breaker was open\n"
    assert timed("system", "breaker", "nope", "--json").json["code"] == "not_found"
    quiet = timed("system", "breaker", "hello", "--json").json["breakers"]
    assert {row["command"]: row["state"] for row in quiet} == {"poll": "closed", "health": "closed"}


class TestReload:
    def test_reload_without_a_running_gateway(self, timed: CliRunner) -> None:
        for line in (("reload",), ("system", "reload"), ("reload", "--dry-run")):
            done = timed(*line, "--json")
            assert (done.code, done.json["code"]) == (1, "not_running")

    def test_reload_shows_changes_and_refuses_restart_settings(self, timed: CliRunner) -> None:
        with timed.gateway():
            timed.plugin("fresh", "exit 1")
            config = CONFIG.replace("plugins:\n", "plugins:\n  fresh: {}\n").replace("1h}]", "2h}]")
            timed.write("config.yaml", config)
            plan = timed("reload", "--dry-run", "--json").json
            assert plan["changes"]["plugins"] == {
                "added": ["fresh"],
                "removed": [],
                "changed": ["ghost"],
            }
            assert "ghost" in plan["refused"]
            assert "would reload" in timed("reload", "--dry-run").out
            names = [row["name"] for row in timed("plugins", "--json").json["plugins"]]
            assert "fresh" not in names
            other = config.replace("service: {", "service: {node: other, ")
            assert other != config
            timed.write("config.yaml", other)
            for line in (("reload", "--dry-run"), ("reload",)):
                refused = timed(*line, "--json")
                assert (refused.code, refused.json["code"]) == (78, "config_invalid")
                assert "service.node" in refused.json["error"]
                (problem,) = refused.json["problems"]
                assert problem["path"] == "service.node"
                assert problem["file"] == f"{timed.root}/config.yaml"
                assert None not in (problem["line"], problem["column"])
            timed.write("config.yaml", config)
            assert timed("reload").out.endswith("reloaded\n")
            assert "fresh" in timed("plugins").out


def test_logs_follow_prints_new_attempts(timed: CliRunner) -> None:
    timed.write("config.yaml", CONFIG.replace("every: 200ms", "every: 1h"))
    with timed.gateway():
        until(lambda: state_of(timed, "hello/often")["last_success"])
        follower = timed.start("logs", "hello", "-f")
        try:
            assert follower.stdout is not None
            assert "hello" in follower.stdout.readline()
            job = timed("run", "hello", "--json").json["job_id"]
            result = read_until(follower, f"attempt 1, job {job}")
            assert "job.queued" in result
            assert "plugin=bad" not in result  # An id may contain the word.
        finally:
            assert stop(follower, signal.SIGINT) == 130
    without_gateway = timed("logs", "-f")
    assert (without_gateway.code, "nothing to follow" in without_gateway.err) == (1, True)


def test_explanation_of_an_entry_that_never_fires_names_the_reason(cli: CliRunner) -> None:
    entry = 'schedules: [{id: never, cron: "0 2 31 2 *"}]'
    cli.write("config.yaml", CONFIG.replace("schedules: [{every: 1h}]", entry))
    for command in ("next", "explain"):
        shown = cli("schedule", command, "ghost/never")
        assert shown.code == 0
        assert "\nghost/never: " in shown.out
