"""`ductile agent`, with and without a running gateway."""

from __future__ import annotations

import json

import pytest

from tests.cli.running import House
from tests.core.agents.test_decision_log import LOG
from tests.waiting import until

BEAT = '{"type": "heartbeat", "agent_id": "%s", "cluster_id": "west"}'


def beat(house: House, agent_id: str) -> None:
    assert house("api", "/gateway/heartbeat", "-d", BEAT % agent_id).code == 0


class TestWithoutAGateway:
    def test_nobody_yet(self, house: House) -> None:
        assert house("agent").out.startswith("no agents")
        assert house("agent", "list", "--json").json == {"agents": [], "cursor": None}
        assert house("agent", "reminders").out.startswith("no reminders")
        assert not house.state.exists()

    def test_a_reminder_is_kept_listed_and_forgotten(self, house: House) -> None:
        made = house("agent", "remind", "a", "--in", "5m", "--payload", '{"n": 1}', "--json")
        assert made.code == 0
        assert (made.json["is_one_time"], made.json["payload"]) == (True, {"n": 1})
        (row,) = house("agent", "reminders", "--json").json["reminders"]
        assert row == made.json
        assert '{"n": 1}' in house("agent", "reminders", "--agent", "a").out
        assert house("agent", "reminders", "--agent", "b", "--json").json["reminders"] == []
        shown = house("agent", "show", "a")
        assert "never seen" in shown.out
        assert '{"n": 1}' in shown.out
        assert house("agent", "forget", str(row["id"])).out == (
            f"deleted reminder {row['id']} of a\n"
        )
        again = house("agent", "forget", str(row["id"]), "--json")
        assert (again.code, again.json["code"]) == (1, "not_found")

    def test_by_a_cron_rule_it_stands_beside_the_schedules(self, house: House) -> None:
        made = house("agent", "remind", "a", "--cron", "*/5 * * * *")
        assert "then by cron */5 * * * * (UTC)" in made.out
        listed = house("schedule", "list").out
        assert "agent:a" in listed
        assert "cron */5 * * * * (UTC)" in listed

    def test_a_dry_run_keeps_nothing(self, house: House) -> None:
        planned = house("agent", "remind", "a", "--delay-ms", "5000", "--dry-run")
        assert planned.code == 0
        assert planned.out.startswith("would create a reminder for a; it fires at ")
        assert not house.state.exists()
        made = house("agent", "remind", "a", "--delay-ms", "5000000", "--json").json
        dry = house("agent", "forget", str(made["id"]), "--dry-run")
        assert dry.out == f"would delete reminder {made['id']} of a\n"
        assert len(house("agent", "reminders", "--json").json["reminders"]) == 1

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
    def test_wrong_usage(self, house: House, line: tuple[str, ...]) -> None:
        done = house("agent", *line, "--json")
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
    def test_what_is_refused(self, house: House, line: tuple[str, ...], code: str) -> None:
        done = house("agent", *line, "--json")
        assert (done.code, done.json["code"]) == (1, code)
        assert done.json["error"] != code
        assert house("agent", *line, "--dry-run").code == 1

    def test_an_agent_that_is_not_there(self, house: House) -> None:
        done = house("agent", "show", "nobody", "--json")
        assert (done.code, done.json["code"]) == (1, "not_found")


def test_agents_that_live_and_are_gone(house: House) -> None:
    with house.gateway():
        beat(house, "b")
        beat(house, "a")
        document = {**LOG, "identity": {**LOG["identity"], "agent_id": "a"}}
        assert house("api", "/gateway/messages", "-d", json.dumps(document)).code == 0
        listed = house("agent", "list").out
        assert "planner 1.2 search" in listed
        rows = house("agent", "list", "--live", "--json").json["agents"]
        assert [(row["agent_id"], row["state"]) for row in rows] == [("a", "live"), ("b", "live")]
        page = house("agent", "list", "--limit", "1")
        assert "--after a" in page.err
        assert "b" in house("agent", "list", "--after", "a").out
        shown = house("agent", "show", "a")
        assert shown.out.startswith("a live\n")
        assert house("agent", "remind", "b", "--in", "100ms", "--payload", '{"n": 1}').code == 0
        until(lambda: not house("agent", "reminders", "--json").json["reminders"])
        told = house("api", "/notices?last=1").json["notices"][0]
        assert (told["topic"], told["payload"]) == ("agent:b:scheduled", {"n": 1})
    (row, _) = house("agent", "list", "--json").json["agents"]
    assert row["agent_id"] == "a"


def test_a_heartbeat_without_a_gateway_is_refused(house: House) -> None:
    done = house("api", "/gateway/heartbeat", "-d", BEAT % "a", "--json")
    assert (done.code, done.json["code"]) == (1, "not_running")


def test_nothing_of_an_agent_commands_the_terminal(house: House) -> None:
    made = house("agent", "remind", "a", "--in", "5m", "--payload", '{"x": "\\u001b[2J"}')
    assert made.code == 0
    assert "\x1b" not in house("agent", "reminders").out
