"""The cost of a claim does not grow with the number of limit keys, whatever holds their jobs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from ductile.clock import to_text
from ductile.core.flow.limits import NO_LIMITS, Concurrency, OnFull, PluginLimits
from ductile.core.flow.pauses import NO_PAUSES
from ductile.core.flow.rates import Rate
from ductile.store.engines.api import Ledger, Tx
from ductile.store.flow import limit_keys, set_aside
from ductile.store.flow.gate import Gate
from ductile.store.flow.set_aside import MOST_RELEASED
from ductile.store.jobs.cancel_requests import REQUESTED
from ductile.store.jobs.claim import claim
from ductile.store.verify import verify
from tests.conftest import CountingEntropy, FakeClock
from tests.store.conftest import execute
from tests.store.flow.harness import PLUGIN, LimitedQueue, key, limited
from tests.store.flow.test_pauses import Statements

KEYS = 3000
MOST_STATEMENTS = 20
MOST_ROWS = 250
JOBS = """
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count})
INSERT INTO job_queue (id, plugin, command, payload, status, submitted_by, created_at, limit_key,
                       set_aside, place)
SELECT 'many-' || i, '{plugin}', 'poll', '{{}}', 'queued', 'cli', '{at}', {limit_key},
       {set_aside}, {place} FROM n
"""


class ManyKeys(LimitedQueue):
    def fill(self, limit_key: str = "'key-' || i", *, has_places: bool = False) -> None:
        values = {"count": KEYS, "plugin": PLUGIN, "at": to_text(self.clock.now())}
        aside, place = ("2", "i") if has_places else ("0", "NULL")
        sql = JOBS.format(**values, limit_key=limit_key, set_aside=aside, place=place)
        execute(self.ledger, sql)

    def fill_keys(self, pipeline: str) -> None:
        """As `fill`, and set all jobs aside that nothing holds any more."""
        self.fill()
        execute(self.ledger, f"UPDATE job_queue SET set_aside = 1, pipeline = {pipeline}")
        execute(
            self.ledger,
            "INSERT INTO set_aside_keys (plugin, limit_key, pipeline, place)"
            " SELECT plugin, limit_key, pipeline, seq FROM job_queue",
        )

    def claim_all_aside(self) -> list[str]:
        """Claim until a claim finds nothing and asks for no further one."""
        found: list[str] = []
        for _ in range(100):
            self.effects.clear()
            found += self.take_ids(1)
            if not any(effects.ready for effects in self.effects):
                return found
        raise AssertionError("the claims never end")

    def watch(self) -> tuple[list[str], Statements]:
        now, policy, seen = self.clock.now(), self.policy, Statements()
        found = self.ledger.write(lambda tx: claim(seen.watch(tx), policy, now, 1))
        return [one.job.id for one in found], seen

    def check_cost(self, expected: list[str]) -> None:
        found, seen = self.watch()
        assert found == expected
        assert len(seen.names) <= MOST_STATEMENTS, seen.names
        assert seen.rows <= MOST_ROWS


@pytest.fixture
def make(
    ledger: Ledger, clock: FakeClock, entropy: CountingEntropy
) -> Callable[[PluginLimits], ManyKeys]:
    return lambda limits: ManyKeys(ledger, clock, entropy, limits)


Make = Callable[[PluginLimits], ManyKeys]


def test_jobs_with_a_priority(make: Make) -> None:
    q = make(limited())
    q.fill(has_places=True)
    for number in range(1, 4):
        q.check_cost([f"many-{number}"])


def test_keys_of_a_plugin_whose_init_job_is_due(make: Make) -> None:
    q = make(limited())
    q.fill_keys("''")
    policy = replace(q.policy, init_only=frozenset({PLUGIN}))
    now, seen = q.clock.now(), Statements()
    assert q.ledger.write(lambda tx: claim(seen.watch(tx), policy, now, 1)) == []
    assert seen.rows <= MOST_ROWS
    assert not any(effects.ready for effects in q.effects), "the claim asks for no further one"
    q.check_cost(["many-1"])


def test_keys_of_a_pipeline_that_only_other_nodes_know(make: Make) -> None:
    q = make(limited())
    q.fill_keys("'theirs'")
    execute(q.ledger, f"UPDATE job_queue SET pipeline = '' WHERE id = 'many-{KEYS}'")
    execute(q.ledger, f"UPDATE set_aside_keys SET pipeline = '' WHERE limit_key = 'key-{KEYS}'")
    pauses, now = replace(NO_PAUSES, unknown=frozenset({"theirs"})), q.clock.now()

    def find(tx: Tx) -> str | None:
        gate = Gate(tx, PLUGIN, q.limits, now, has_closed=False)
        conditions = q.policy.first_ready_values(PLUGIN, pauses)
        found = limit_keys.find_startable(
            tx, gate, conditions, pauses, q.tx_config, 0, has_set_aside=True
        )
        return found.id if found else None

    assert q.ledger.write(find) == f"many-{KEYS}"
    assert not any(effects.ready for effects in q.effects), "the claim asks for no further one"


def test_keys_that_a_rate_holds(make: Make) -> None:
    q = make(PluginLimits(Concurrency(1, key()), Rate(1, 60.0, key=None)))
    q.fill()
    q.check_cost(["many-1"])
    q.check_cost([])
    q.clock.advance(60)
    q.check_cost(["many-2"])


def test_keys_that_share_a_rate_with_others(make: Make) -> None:
    q = make(PluginLimits(Concurrency(1, key()), Rate(1, 60.0, key=key("{payload.region}"))))
    q.fill("'key-' || i || '\x1fnorth'")
    assert q.claim_all_aside() == ["many-1"]
    assert q.claim_all_aside() == []
    other = q.put("a")
    q.check_cost([other])
    q.check_cost([])
    for _ in range(3):
        q.clock.advance(60)
        found, seen = q.watch()
        assert len(found) == 1
        assert seen.rows <= MOST_ROWS
        assert len(seen.names) <= MOST_STATEMENTS + 2 * MOST_RELEASED


def test_keys_that_the_plugin_has_closed(make: Make) -> None:
    q = make(NO_LIMITS)
    q.fill()
    until = to_text(q.clock.now() + timedelta(seconds=60))
    execute(
        q.ledger,
        f"INSERT INTO closed_keys (plugin, limit_key, until)"
        f" SELECT plugin, limit_key, '{until}' FROM job_queue WHERE id <> 'many-{KEYS}'",
    )
    assert q.claim_all_aside() == [f"many-{KEYS}"]
    q.check_cost([])
    q.clock.advance(60)
    # All keys open at once; they return in batches, and their jobs start in their order.
    assert q.take_ids(1) != []


def test_full_concurrency_key_of_many_rate_keys(make: Make) -> None:
    rate = Rate(1000, 1.0, 1000, key("{payload.user}"))
    q = make(PluginLimits(Concurrency(1, key()), rate))
    q.fill("'a\x1fuser-' || i")
    assert q.claim_all_aside() == ["many-1"]
    other = q.put("b")
    found: list[str] = []
    while not found:
        found = q.claim_all_aside()
    assert found == [other], "the full key hides no other one"
    q.check_cost([])


def test_open_keys_after_a_raised_limit(make: Make) -> None:
    q = make(PluginLimits(Concurrency(1)))
    q.fill("''")
    assert q.claim_all_aside() == ["many-1"]
    q.limits = PluginLimits(Concurrency(10_000))
    q.check_cost(["many-2"])
    q.check_cost(["many-3"])


def test_jobs_start_in_order_after_all_keys_have_opened(make: Make) -> None:
    q = make(PluginLimits(Concurrency(1, key()), Rate(1, 600.0)))
    ids = [q.put(name) for name in ("b", "a", "d", "c")]
    assert q.take_ids(8) == ids[:1]
    late = q.put("z", priority=0.0)
    assert q.take_ids(8) == []
    q.limits = limited()
    assert q.take_ids(8) == [*ids[1:], late]


def test_jobs_that_left_the_queue_are_forgotten(make: Make) -> None:
    q = make(limited())
    ids = [q.put("a") for _ in range(4)]
    (running,) = q.take(8)
    assert q.cancel(ids[1])
    q.end(running)
    assert q.take_ids(8) == ids[2:3]
    assert q.cancel(ids[3])
    assert q.take_ids(8) == []
    execute(q.ledger, "UPDATE job_queue SET status = 'succeeded' WHERE status = 'running'")
    other = q.put("a")
    assert q.take_ids(8) == [other]


def test_newest_job_that_waited_for_a_rate_cancels_the_running_one(make: Make) -> None:
    limits = PluginLimits(Concurrency(1, key(), OnFull.CANCEL), Rate(1, 10.0))
    q = make(limits)
    first = q.put("a")
    (running,) = q.take(8)
    second = q.put("a", priority=600)
    for _ in range(3):
        assert q.take_ids(8) == []
    requested = [n for e in q.effects for n in e.notices if n.type == REQUESTED]
    assert [notice.job_id for notice in requested] == [first], "asked once"
    q.end(running)
    q.clock.advance(10)
    assert q.take_ids(8) == [second]


def test_many_full_keys_leave_the_order(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limit_keys, "MOST_PASSED", 2)
    q = make(limited())
    accounts = "abcdef"
    ids = [q.put(account) for account in accounts * 2]
    running = q.take(6)
    assert [one.job.id for one in running] == ids[:6]
    assert q.take_ids(6) == []
    assert q.take_ids(6) == []
    marked = execute(q.ledger, "SELECT full_key FROM set_aside_keys WHERE full_key IS NOT NULL")
    assert len(marked) == 4
    for one in reversed(running):
        q.end(one)
    assert q.take_ids(8) == ids[6:]


def test_jobs_without_a_row_are_found_again(make: Make) -> None:
    q = make(limited())
    ids = [q.put("a"), q.put("a")]
    (running,) = q.take(8)

    def lost() -> list[str]:
        found = verify(q.ledger).violations
        return [one.subject for one in found if "set_aside_keys" in one.detail]

    assert q.take_ids(8) == []
    assert not q.ledger.read(set_aside.has_lost)
    assert lost() == []
    execute(q.ledger, "DELETE FROM set_aside_keys")
    assert lost() == ids[1:]
    assert q.ledger.write(set_aside.return_lost) == 1
    assert lost() == []
    q.end(running)
    assert q.take_ids(8) == ids[1:]
