"""What another program's plugins remember, on both engines."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from zoneinfo import ZoneInfo

import orjson

from ductile.core.schedules.decide import At, Schedule
from ductile.core.schedules.history import rule_text
from ductile.store import schedules
from ductile.store.engines.api import Ledger, Tx
from ductile.store.go_ledger import Entry, Fact, Memory, take_over

NOW = datetime(2026, 2, 8, 10, 0, tzinfo=UTC)
MEMORY = Memory(
    {"withings": '{"cursor":41}', "echo": '{"n":1}'},
    [
        Fact("withings", "weight", "a", "poll", '{"cursor":40}', "2026-02-08T05:00:00.000000Z"),
        Fact("withings", "token", None, None, '{"t":1}', None),
        Fact("gone", "weight", "b", "poll", '{"x":1}', None),
    ],
    unfinished=0,
    entries=[
        Entry("echo", "once", "2026-01-01T00:00:30.000000Z", None, exhausted=True, paused=False),
        Entry("echo", "held", None, None, exhausted=False, paused=True),
        Entry("gone", "default", None, "2026-02-08T06:00:02.000000Z", False, False),
    ],
)
TAKE = partial(take_over, memory=MEMORY, now=NOW)


def facts(ledger: Ledger, plugin: str) -> list[tuple[int, str, str]]:
    rows = ledger.read(lambda tx: tx.dicts("facts_of", plugin=plugin, before=99, limit=10))
    return [(row["seq"], row["fact_type"], row["created_at"]) for row in rows]


def state(ledger: Ledger, plugin: str) -> object:
    row = ledger.read(lambda tx: tx.one("state_of", plugin=plugin))
    return None if row is None else orjson.loads(row[0])


def test_states_and_facts_are_taken_over_in_their_order(ledger: Ledger) -> None:
    taken = ledger.write(TAKE)
    assert (taken.states, taken.kept, taken.facts) == (["echo", "withings"], [], 3)
    assert state(ledger, "withings") == {"cursor": 41}
    assert facts(ledger, "withings") == [
        (2, "token", "2026-02-08T10:00:00.000000Z"),
        (1, "weight", "2026-02-08T05:00:00.000000Z"),
    ]
    assert len(facts(ledger, "gone")) == 1


def test_what_a_plugin_remembers_here_stays(ledger: Ledger) -> None:
    def remember(tx: Tx) -> None:
        tx.run("ensure_state", plugin="withings", now="x")
        tx.run("set_state", plugin="withings", state='{"mine":1}', now="x")

    ledger.write(remember)
    taken = ledger.write(TAKE)
    assert (taken.states, taken.kept) == (["echo"], ["withings"])
    assert state(ledger, "withings") == {"mine": 1}
    assert facts(ledger, "withings") == []


def entries(ledger: Ledger) -> dict[str, dict[str, object]]:
    rows = ledger.read(lambda tx: tx.dicts("entries"))
    return {f"{row.pop('plugin')}/{row.pop('schedule_id')}": row for row in rows}


def test_the_past_of_schedules_is_taken_over(ledger: Ledger) -> None:
    taken = ledger.write(TAKE)
    assert (taken.schedules, taken.known) == (["echo/once", "echo/held", "gone/default"], [])
    found = entries(ledger)
    assert found["echo/once"] == {
        "rule": "",
        "first_seen": "2026-01-01T00:00:30.000000Z",
        "last_fire": "2026-01-01T00:00:30.000000Z",
        "last_fired_at": "2026-01-01T00:00:30.000000Z",
        "last_passed": None,
        "last_success_at": None,
        "paused": 0,
        "exhausted": 1,
    }
    assert (found["echo/held"]["paused"], found["echo/held"]["exhausted"]) == (1, 0)
    assert found["echo/held"]["first_seen"] == "2026-02-08T10:00:00.000000Z"
    assert found["gone/default"]["last_success_at"] == "2026-02-08T06:00:02.000000Z"


def test_taken_over_twice_a_schedule_is_as_it_was(ledger: Ledger) -> None:
    ledger.write(TAKE)
    before = entries(ledger)
    again = ledger.write(TAKE)
    assert (again.schedules, again.known) == ([], ["echo/once", "echo/held", "gone/default"])
    assert entries(ledger) == before


def test_a_schedule_without_a_rule_takes_the_first_that_it_meets_and_keeps_its_past(
    ledger: Ledger,
) -> None:
    schedule = Schedule("echo", "once", At(NOW - timedelta(days=60)), ZoneInfo("UTC"))
    ledger.write(TAKE)
    anchors = ledger.write(lambda tx: schedules.ensure(tx, schedule, NOW, NOW))
    assert anchors.exhausted
    assert anchors.last_fired_at == datetime(2026, 1, 1, 0, 0, 30, tzinfo=UTC)
    assert entries(ledger)["echo/once"]["rule"] == rule_text(schedule)
