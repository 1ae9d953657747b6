"""`ductile agent`, with and without a running gateway."""

from __future__ import annotations

import json

import pytest

from tests.cli.runner import CliRunner
from tests.core.agents.test_decision_log import LOG
from tests.waiting import until

BEAT = '{"type": "heartbeat", "agent_id": "%s", "cluster_id": "west"}'


def beat(cli: CliRunner, agent_id: str) -> None:
    assert cli("api", "/gateway/heartbeat", "-d", BEAT % agent_id).code == 0


class TestWithoutAGateway:
    def test_empty_lists_create_no_ledger(self, cli: CliRunner) -> None:
        assert cli("agent").out.startswith("no agents")
        assert cli("agent", "list", "--json").json == {"agents": [], "cursor": None}
        assert cli("agent", "reminders").out.startswith("no reminders")
        assert not cli.state.exists()

    def test_a_reminder_is_created_listed_and_deleted(self, cli: CliRunner) -> None:
        created = cli("agent", "remind", "a", "--in", "5m", "--payload", '{"n": 1}', "--json")
        assert created.code == 0
        assert (created.json["is_one_time"], created.json["payload"]) == (True, {"n": 1})
        (row,) = cli("agent", "reminders", "--json").json["reminders"]
        assert row == created.json
        assert '{"n": 1}' in cli("agent", "reminders", "--agent", "a").out
        assert cli("agent", "reminders", "--agent", "b", "--json").json["reminders"] == []
        shown = cli("agent", "show", "a")
        assert "never seen" in shown.out
        assert '{"n": 1}' in shown.out
        assert cli("agent", "forget", str(row["id"])).out == (
            f"deleted reminder {row['id']} of a\n"
        )
        again = cli("agent", "forget", str(row["id"]), "--json")
        assert (again.code, again.json["code"]) == (1, "not_found")

    def test_a_cron_reminder_is_listed_with_the_schedules(self, cli: CliRunner) -> None:
        created = cli("agent", "remind", "a", "--cron", "*/5 * * * *")
        assert "then by cron */5 * * * * (UTC)" in created.out
        listed = cli("schedule", "list").out
        assert "agent:a" in listed
        assert "cron */5 * * * * (UTC)" in listed

    def test_reminder_dry_runs_change_nothing(self, cli: CliRunner) -> None:
        planned = cli("agent", "remind", "a", "--delay-ms", "5000", "--dry-run")
        assert planned.code == 0
        assert planned.out.startswith("would create a reminder for a; it fires at ")
        assert not cli.state.exists()
        created = cli("agent", "remind", "a", "--delay-ms", "5000000", "--json").json
        dry = cli("agent", "forget", str(created["id"]), "--dry-run")
        assert dry.out == f"would delete reminder {created['id']} of a\n"
        assert len(cli("agent", "reminders", "--json").json["reminders"]) == 1

    @pytest.mark.parametrize(
        "line",
        [
            ("remind", "a"),
            ("remind", "a", "--in", "5m", "--cron", "* * * * *"),
            ("remind", "a", "--in", "soon"),
            ("remind", "a", "--delay-ms", "0"),
            ("remind", "a", "--delay-ms", "x"),
            ("remind", "a", "--in", "5m", "--payload", "{"),
            ("forget", "x"),
            ("forget", "0"),
            ("list", "--limit", "0"),
        ],
    )
    def test_wrong_usage_exits_2(self, cli: CliRunner, line: tuple[str, ...]) -> None:
        done = cli("agent", *line, "--json")
        assert (done.code, done.json["code"]) == (2, "usage")

    @pytest.mark.parametrize(
        ("line", "code"),
        [
            (("remind", "a", "--in", "0s"), "invalid_delay"),
            (("remind", "a", "--cron", "every day"), "invalid_schedule"),
            (("remind", "a", "--in", "5m", "--payload", "[]"), "invalid_payload"),
            (("remind", "a\nb", "--in", "5m"), "invalid_agent_id"),
        ],
    )
    def test_invalid_reminders_are_refused(
        self, cli: CliRunner, line: tuple[str, ...], code: str
    ) -> None:
        done = cli("agent", *line, "--json")
        assert (done.code, done.json["code"]) == (1, code)
        assert done.json["error"] != code
        assert cli("agent", *line, "--dry-run").code == 1

    def test_an_unknown_agent_is_not_found(self, cli: CliRunner) -> None:
        done = cli("agent", "show", "nobody", "--json")
        assert (done.code, done.json["code"]) == (1, "not_found")


def test_agents_are_listed_with_their_state(cli: CliRunner) -> None:
    with cli.gateway():
        beat(cli, "b")
        beat(cli, "a")
        document = {**LOG, "identity": {**LOG["identity"], "agent_id": "a"}}
        assert cli("api", "/gateway/messages", "-d", json.dumps(document)).code == 0
        listed = cli("agent", "list").out
        assert "planner 1.2 search" in listed
        rows = cli("agent", "list", "--live", "--json").json["agents"]
        assert [(row["agent_id"], row["state"]) for row in rows] == [("a", "live"), ("b", "live")]
        page = cli("agent", "list", "--limit", "1")
        assert "--after a" in page.err
        assert "b" in cli("agent", "list", "--after", "a").out
        shown = cli("agent", "show", "a")
        assert shown.out.startswith("a live\n")
        assert cli("agent", "remind", "b", "--in", "100ms", "--payload", '{"n": 1}').code == 0
        until(lambda: not cli("agent", "reminders", "--json").json["reminders"])
        result = cli("api", "/notices?last=1").json["notices"][0]
        assert (result["topic"], result["payload"]) == ("agent:b:scheduled", {"n": 1})
    (row, _) = cli("agent", "list", "--json").json["agents"]
    assert row["agent_id"] == "a"


def test_a_heartbeat_without_a_running_gateway_is_refused(cli: CliRunner) -> None:
    done = cli("api", "/gateway/heartbeat", "-d", BEAT % "a", "--json")
    assert (done.code, done.json["code"]) == (1, "not_running")


def test_control_characters_in_payloads_are_escaped(cli: CliRunner) -> None:
    created = cli("agent", "remind", "a", "--in", "5m", "--payload", '{"x": "\\u001b[2J"}')
    assert created.code == 0
    assert "\x1b" not in cli("agent", "reminders").out
