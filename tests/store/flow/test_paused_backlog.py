"""The queued jobs of a paused pipeline cost a claim nothing, and all of them run afterwards."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import apsw
import pytest

from ductile.clock import to_text
from ductile.core.flow.limits import PluginLimits
from ductile.core.flow.pauses import Pause, PauseKind
from ductile.store.engines.api import Ledger
from ductile.store.engines.queries import NEVER, load_queries
from ductile.store.engines.sqlite import SqliteLedger
from ductile.store.flow import pauses, set_aside
from ductile.store.jobs.claim import ClaimedJob, claim
from tests.conftest import CountingEntropy, FakeClock
from tests.store.conftest import execute
from tests.store.flow.harness import PLUGIN, LimitedQueue, limited
from tests.store.flow.test_pauses import Statements

Make = Callable[[PluginLimits], "PausableQueue"]

OTHER = "other"
BACKLOG = """
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count})
INSERT INTO job_queue (id, plugin, command, payload, status, submitted_by, created_at, pipeline)
SELECT 'held-' || i, '{plugin}', 'poll', '{{}}', 'queued', 'cli', '{at}', 'nightly' FROM n
"""


class PausableQueue(LimitedQueue):
    def put_in(self, pipeline: str, account: str = "a", **given: object) -> str:
        id = self.put(account, **given)  # type: ignore[arg-type]
        execute(self.ledger, f"UPDATE job_queue SET pipeline = '{pipeline}' WHERE id = '{id}'")
        return id

    def fill(self, count: int, plugin: str) -> None:
        at = to_text(self.clock.now())
        execute(self.ledger, BACKLOG.format(count=count, plugin=plugin, at=at))

    def pause(self, pipeline: str, seconds: float | None = None) -> None:
        now = self.clock.now()
        until = None if seconds is None else now + timedelta(seconds=seconds)
        text = None if until is None else to_text(until)
        one = Pause(PauseKind.PIPELINE, pipeline, to_text(now), "user:ada", None, until, text)
        self.ledger.write(lambda tx: pauses.store_pause(tx, one, now))

    def resume(self, pipeline: str) -> None:
        now, kind = self.clock.now(), PauseKind.PIPELINE
        self.ledger.write(lambda tx: pauses.end_pause(tx, kind, pipeline, "user:ada", now))

    def watch(self, workers: int) -> tuple[list[str], Statements]:
        """Claim, and return the ids of the jobs and the statements."""
        now, policy, seen = self.clock.now(), self.policy, Statements()
        found = self.ledger.write(lambda tx: claim(seen.watch(tx), policy, now, workers))
        return [one.job.id for one in found], seen

    def list_set_aside(self) -> list[tuple[str, str, str]]:
        """The plugins, limit keys and pipelines of the jobs set aside."""
        return execute(
            self.ledger,
            "SELECT DISTINCT plugin, limit_key, pipeline FROM job_queue"
            " WHERE status = 'queued' AND set_aside = 1 ORDER BY 1, 2, 3",
        )


@pytest.fixture
def make(ledger: Ledger, clock: FakeClock, entropy: CountingEntropy) -> Make:
    return lambda limits: PausableQueue(ledger, clock, entropy, limits)


@pytest.mark.parametrize("plugin", [PLUGIN, OTHER])
def test_claims_do_not_read_the_backlog_of_a_paused_pipeline(make: Make, plugin: str) -> None:
    q = make(limited())
    q.fill(2 * pauses.MOST_SET_ASIDE + 10, plugin)
    q.pause("nightly")
    plain = [q.put("a", plugin="third") for _ in range(4)]
    found, seen = q.watch(2)
    assert found == plain[:2]
    assert "start_consecutive" in seen.names, "other plugins are claimed in runs"
    assert "first_ready" not in seen.names
    assert any(effects.ready for effects in q.effects), "the next claim is due at once"
    own = q.put("a", plugin=plugin)
    assert q.take_ids(1) == plain[2:3]
    assert q.take_ids(2) == [plain[3], own]
    found, seen = q.watch(1)
    assert found == []
    assert seen.rows < 10, "the whole backlog has been set aside"
    assert q.list_set_aside() == [(plugin, "", "nightly")]


def test_resumed_backlog_is_claimed_in_order_and_in_runs(make: Make) -> None:
    q = make(limited())
    q.fill(100, OTHER)
    q.pause("nightly")
    younger = q.put("a", plugin=OTHER)
    assert q.take_ids(1) == [younger]
    q.resume("nightly")
    assert q.list_set_aside() == []
    found, seen = q.watch(4)
    assert found == [f"held-{i}" for i in range(1, 5)]
    assert "start_consecutive" in seen.names


def test_ended_pause_releases_jobs_before_it_is_removed(make: Make) -> None:
    q = make(limited())
    q.fill(3, OTHER)
    q.pause("nightly", seconds=60)
    assert q.take_ids(4) == []
    q.clock.advance(60)
    assert q.take_ids(4) == ["held-1", "held-2", "held-3"]


def test_row_that_a_claim_holds_after_the_pause_has_ended_is_released(make: Make) -> None:
    q = make(limited())
    held = q.put_in("nightly")
    q.pause("nightly")
    assert q.take_ids(1) == []
    # On PostgreSQL the claim may have read the pause before its end, and commit afterwards.
    execute(q.ledger, "DELETE FROM pauses")
    latest = q.clock.now() + set_aside.LONGEST_HOLD
    assert [e.opens_at for e in q.effects if e.opens_at] == [latest], "nothing else wakes a claim"
    q.clock.advance(set_aside.LONGEST_HOLD.total_seconds())
    assert q.take_ids(1) == [held]


def test_row_that_was_held_for_ever_is_released(make: Make) -> None:
    q = make(limited())
    held = q.put_in("nightly")
    q.pause("nightly")
    assert q.take_ids(1) == []
    execute(q.ledger, "DELETE FROM pauses")
    execute(q.ledger, f"UPDATE set_aside_keys SET held_until = '{NEVER}'")
    assert q.take_ids(1) == [held]


def test_run_ends_before_a_job_of_a_paused_pipeline(make: Make) -> None:
    q = make(limited())
    first = [q.put("a", plugin=OTHER) for _ in range(70)]
    held = q.put_in("nightly", plugin=OTHER)
    last = q.put("a", plugin=OTHER)
    q.pause("nightly")
    assert q.take_ids(80) == [*first, last]
    q.resume("nightly")
    assert q.take_ids(80) == [held]


def test_full_key_skips_a_job_after_the_pause_of_its_pipeline(make: Make) -> None:
    q = make(limited(on_full="skip"))
    held = q.put_in("nightly")
    q.pause("nightly")
    running = q.put("a")
    assert q.take_ids(2) == [running]
    assert q.status(held)[0] == "queued"
    q.resume("nightly")
    assert q.take_ids(2) == []
    assert q.status(held)[0] == "skipped"


def test_newer_job_does_not_end_a_job_of_a_paused_pipeline(make: Make) -> None:
    q = make(limited(on_full="cancel"))
    held = q.put_in("nightly")
    q.pause("nightly")
    assert len(q.take(1)) == 0
    q.put("a")
    assert len(q.take(1)) == 1
    q.put("a")
    assert q.take_ids(1) == []
    assert q.status(held)[0] == "queued"


@pytest.mark.parametrize("seed", range(5))
def test_every_job_runs_once_and_never_during_a_pause(make: Make, seed: int) -> None:
    q, dice = make(limited()), random.Random(seed)
    pipelines, paused = ["", "nightly", "weekly"], set[str]()
    ready: dict[str, tuple[str, str, str]] = {}
    running: dict[str, ClaimedJob] = {}
    place: dict[str, tuple[str, str, str]] = {}
    done: list[str] = []

    def take() -> None:
        free = dice.randint(1, 4)
        for one in q.take(free, dice.randint(0, 3)):
            found = ready.pop(one.job.id)
            assert found[1] not in paused
            running[one.job.id] = one
            free -= 1
        keys = {place[id][2] for id in running if place[id][0] == PLUGIN}
        if free > 0:
            left = [
                id
                for id, (plugin, pipeline, key) in ready.items()
                if pipeline not in paused and not (plugin == PLUGIN and key in keys)
            ]
            assert left == [], "a worker is free and an eligible job waits"

    def end() -> None:
        for id in dice.sample(list(running), len(running) // 2 + len(running) % 2):
            q.end(running.pop(id))
            done.append(id)

    def put() -> None:
        plugin, pipeline, key = (
            dice.choice([PLUGIN, OTHER]),
            dice.choice(pipelines),
            dice.choice("ab"),
        )
        priority = dice.choice([0.0, 0.0, 30.0])
        id = q.put_in(pipeline, key, plugin=plugin, priority=priority)
        ready[id] = place[id] = (plugin, pipeline, key)

    def switch() -> None:
        name = dice.choice(pipelines[1:])
        (q.resume if name in paused else q.pause)(name)
        paused.symmetric_difference_update({name})

    for _ in range(90):
        dice.choice([put, put, put, take, take, end, switch])()
        q.clock.advance(1)
    for name in sorted(paused):
        q.resume(name)
    paused.clear()
    while ready or running:
        take()
        end()
    assert sorted(done) == sorted(place)
    assert q.list_set_aside() == []


@pytest.mark.parametrize(
    ("query", "index"),
    [
        ("first_queued_pipelines", "job_queue_ready"),
        ("first_placed_pipelines", "job_queue_placed"),
        ("first_placed_limit_keys", "job_queue_placed"),
        ("first_set_aside_keys", "set_aside_keys_first"),
        ("first_place_of_key", "job_queue_set_aside (plugin=? AND limit_key=? AND pipeline=?)"),
        ("set_aside_overview", "set_aside_keys_held (plugin=? AND held_until>? AND held_until<?)"),
        ("set_aside_overview", "set_aside_keys_held_by (plugin=? AND held_by>?)"),
        ("set_aside_overview", "set_aside_keys_first (plugin=?)"),
        ("set_aside_overview", "set_aside_keys_full (plugin=? AND full_key>?)"),
        ("rows_of_full_key", "set_aside_keys_full (plugin=? AND full_key=?)"),
        ("first_set_aside", "job_queue_set_aside (plugin=? AND limit_key=? AND pipeline=?)"),
        ("return_jobs", "job_queue_set_aside"),
    ],
)
def test_queries_use_the_index(tmp_path: Path, query: str, index: str) -> None:
    ledger = SqliteLedger(tmp_path / "state.db")
    ledger.start()
    ledger.close()
    connection = apsw.Connection(str(tmp_path / "state.db"))
    sql = load_queries("sqlite")[query]
    names = ("plugin", "limit_key", "pipeline", "init_only", "ids", "paused", "limit", "passed")
    names += ("now", "latest", "limits", "full_key", "first")
    rows = connection.execute(f"EXPLAIN QUERY PLAN {sql}", dict.fromkeys(names)).fetchall()
    connection.close()
    plan = [str(row[3]) for row in rows]
    assert any(index in line for line in plan), plan
    assert not any(
        line.startswith(("SCAN job_queue", "SCAN j")) and "INDEX" not in line for line in plan
    ), plan
    assert not any("TEMP B-TREE" in line for line in plan), plan
