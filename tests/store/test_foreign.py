"""What another program's plugins remember, on both engines."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial

import orjson

from ductile.store.foreign import Fact, Memory, take_over
from ductile.store.ledger import Ledger, Tx

NOW = datetime(2026, 2, 8, 10, 0, tzinfo=UTC)
MEMORY = Memory(
    {"withings": '{"cursor":41}', "echo": '{"n":1}'},
    [
        Fact("withings", "weight", "a", "poll", '{"cursor":40}', "2026-02-08T05:00:00.000000Z"),
        Fact("withings", "token", None, None, '{"t":1}', None),
        Fact("gone", "weight", "b", "poll", '{"x":1}', None),
    ],
    unfinished=0,
)
TAKE = partial(take_over, memory=MEMORY, now=NOW)


def facts(ledger: Ledger, plugin: str) -> list[tuple[int, str, str]]:
    rows = ledger.read(lambda tx: tx.dicts("facts_of", plugin=plugin, limit=10))
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


def test_facts_of_one_type(ledger: Ledger) -> None:
    ledger.write(TAKE)
    rows = ledger.read(
        lambda tx: tx.dicts("facts_of_type", plugin="withings", fact_type="weight", limit=10)
    )
    assert [row["seq"] for row in rows] == [1]
