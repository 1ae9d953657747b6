"""Importing the contents of a Go ledger, on both engines."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from zoneinfo import ZoneInfo

import orjson

from ductile.core.schedules.decide import At, Schedule
from ductile.core.schedules.history import rule_text
from ductile.store import schedules
from ductile.store.engines.api import Ledger, Tx
from ductile.store.go_ledger import (
    GoFact,
    GoJob,
    GoLedgerContents,
    GoScheduleEntry,
    import_contents,
)
from tests.store.conftest import execute

NOW = datetime(2026, 2, 8, 10, 0, tzinfo=UTC)
CONTENTS = GoLedgerContents(
    {"withings": '{"cursor":41}', "echo": '{"n":1}'},
    [
        GoFact("withings", "weight", "a", "poll", '{"cursor":40}', "2026-02-08T05:00:00.000000Z"),
        GoFact("withings", "token", None, None, '{"t":1}', None),
        GoFact("gone", "weight", "b", "poll", '{"x":1}', None),
    ],
    unfinished=0,
    entries=[
        GoScheduleEntry(
            "echo", "once", "2026-01-01T00:00:30.000000Z", None, exhausted=True, paused=False
        ),
        GoScheduleEntry("echo", "held", None, None, exhausted=False, paused=True),
        GoScheduleEntry("gone", "default", None, "2026-02-08T06:00:02.000000Z", False, False),
    ],
    jobs=[
        GoJob("q1", "echo", "poll", '{"n":1}', 1, 4, "cli", "k", None, None, None),
        GoJob(
            "q2", "gone", "poll", None, 2, 3, "api", None, None, "2026-02-09T00:00:00.000000Z", "x"
        ),
    ],
)
IMPORT = partial(import_contents, contents=CONTENTS, now=NOW)


def facts(ledger: Ledger, plugin: str) -> list[tuple[int, str, str]]:
    rows = ledger.read(lambda tx: tx.dicts("facts_of", plugin=plugin, before=99, limit=10))
    return [(row["seq"], row["fact_type"], row["created_at"]) for row in rows]


def state(ledger: Ledger, plugin: str) -> object:
    row = ledger.read(lambda tx: tx.one("state_of", plugin=plugin))
    return None if row is None else orjson.loads(row[0])


def test_states_and_facts_are_imported_in_order(ledger: Ledger) -> None:
    imported = ledger.write(IMPORT)
    assert (imported.states, imported.kept, imported.facts) == (["echo", "withings"], [], 3)
    assert state(ledger, "withings") == {"cursor": 41}
    assert facts(ledger, "withings") == [
        (2, "token", "2026-02-08T10:00:00.000000Z"),
        (1, "weight", "2026-02-08T05:00:00.000000Z"),
    ]
    assert len(facts(ledger, "gone")) == 1


def test_existing_state_is_kept(ledger: Ledger) -> None:
    def remember(tx: Tx) -> None:
        tx.run("ensure_state", plugin="withings", now="x")
        tx.run("set_state", plugin="withings", state='{"mine":1}', now="x")

    ledger.write(remember)
    imported = ledger.write(IMPORT)
    assert (imported.states, imported.kept) == (["echo"], ["withings"])
    assert state(ledger, "withings") == {"mine": 1}
    assert facts(ledger, "withings") == []


def entries(ledger: Ledger) -> dict[str, dict[str, object]]:
    rows = ledger.read(lambda tx: tx.dicts("entries"))
    return {f"{row.pop('plugin')}/{row.pop('schedule_id')}": row for row in rows}


def test_history_of_schedules_is_imported(ledger: Ledger) -> None:
    imported = ledger.write(IMPORT)
    assert (imported.schedules, imported.known) == (["echo/once", "echo/held", "gone/default"], [])
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


def test_second_import_changes_no_schedule(ledger: Ledger) -> None:
    ledger.write(IMPORT)
    before = entries(ledger)
    again = ledger.write(IMPORT)
    assert (again.schedules, again.known) == ([], ["echo/once", "echo/held", "gone/default"])
    assert entries(ledger) == before


def test_imported_schedule_gets_its_configured_rule_and_keeps_its_history(
    ledger: Ledger,
) -> None:
    schedule = Schedule("echo", "once", At(NOW - timedelta(days=60)), ZoneInfo("UTC"))
    ledger.write(IMPORT)
    anchors = ledger.write(lambda tx: schedules.ensure_entry(tx, schedule, NOW, NOW))
    assert anchors.exhausted
    assert anchors.last_fired_at == datetime(2026, 1, 1, 0, 0, 30, tzinfo=UTC)
    assert entries(ledger)["echo/once"]["rule"] == rule_text(schedule)


def test_queued_jobs_are_imported_once(ledger: Ledger) -> None:
    assert ledger.write(IMPORT).jobs == 2
    assert ledger.write(IMPORT).jobs == 0
    first, second = (
        ledger.read(lambda tx, id=id: tx.dicts("job", id=id))[0] for id in ("q1", "q2")
    )
    assert (first["status"], first["payload"], first["dedupe_key"]) == ("queued", '{"n":1}', "k")
    assert first["created_at"] == "2026-02-08T10:00:00.000000Z"
    assert (second["attempt"], second["max_attempts"], second["last_error"]) == (2, 3, "x")
    assert second["next_retry_at"] == "2026-02-09T00:00:00.000000Z"


def test_job_that_only_the_log_knows_is_not_imported_again(ledger: Ledger) -> None:
    execute(
        ledger,
        "INSERT INTO job_log (id, plugin, command, status, attempt, submitted_by, created_at,"
        " completed_at) VALUES ('q1-1', 'echo', 'poll', 'succeeded', 1, 'cli', 'x', 'x')",
    )
    assert ledger.write(IMPORT).jobs == 1
