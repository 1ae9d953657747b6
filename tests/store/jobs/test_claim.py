"""Claims and retries in special cases: dedupe keys, inits, prefetching, clock changes."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from ductile.core.jobs.judge import judge
from ductile.store.engines.api import Ledger, Tx
from ductile.store.jobs import requeue, retries
from ductile.store.jobs.claim import LOCK_RETRY, ClaimPolicy, claim
from ductile.store.jobs.settle import settle_many
from tests.conftest import CountingEntropy, FakeClock
from tests.store.conftest import execute
from tests.store.jobs.harness import BAD, BASE, OK, RULES, TX_CONFIG, JobQueue

UNREADY = ClaimPolicy(owner="boot-1", init_only=frozenset({"echo"}))


@pytest.fixture
def q(ledger: Ledger, clock: FakeClock, entropy: CountingEntropy) -> JobQueue:
    return JobQueue(ledger, clock, entropy)


def test_second_init_with_the_same_key_waits(q: JobQueue) -> None:
    q.put(command="init", dedupe_key="k")
    q.put(command="init", dedupe_key="k")
    running = q.must_take(UNREADY)
    assert q.take(UNREADY) is None
    q.end(running)
    assert q.must_take(UNREADY).job.command == "init"


def test_uninitialized_plugin_does_not_block_others(q: JobQueue) -> None:
    q.put()
    other = q.put("other")
    assert q.must_take(UNREADY).job.id == other.job_id
    assert q.take(UNREADY) is None


def test_oldest_job_of_all_plugins_is_first(q: JobQueue) -> None:
    ids = [q.put(plugin).job_id for plugin in ("zeta", "alpha", "mid", "alpha", "zeta")]
    assert [q.must_take().job.id for _ in ids] == ids


class TestSeveralAtOnce:
    def test_jobs_are_claimed_in_queue_order(self, q: JobQueue) -> None:
        plugins = ("zeta", "alpha", "alpha", "alpha", "mid", "alpha", "zeta", "zeta")
        ids = [q.put(plugin).job_id for plugin in plugins]
        assert q.take_all(3) == ids[:3]
        assert q.take_all(100) == ids[3:]

    def test_each_job_is_started_completely(self, q: JobQueue) -> None:
        ids = [q.put().job_id for _ in range(3)]
        assert q.take_all(3) == ids
        for id in ids:
            job = q.job(id)
            assert (job["status"], job["attempt"]) == ("running", 1)
            assert job["started_at"] is not None
            last = job["transitions"][-1]  # type: ignore[index]
            assert (last["from_status"], last["to_status"]) == ("queued", "running")

    def test_job_with_a_key_keeps_its_position(self, q: JobQueue) -> None:
        keys = (None, None, "k", None, "l", "m", None, None)
        ids = [q.put(dedupe_key=key).job_id for key in keys]
        assert q.take_all(8) == ids

    def test_only_one_of_two_jobs_with_the_same_key_is_started(self, q: JobQueue) -> None:
        first = q.put(command="init", dedupe_key="k").job_id
        q.put(command="init", dedupe_key="k")
        last = q.put().job_id
        assert q.take_all(3) == [first, last]

    def test_cap_is_respected(self, q: JobQueue) -> None:
        ids = [q.put().job_id for _ in range(3)] + [q.put("other").job_id]
        capped = ClaimPolicy(owner="boot-1", caps={"echo": 2})
        assert q.take_all(4, policy=capped) == [ids[0], ids[1], ids[3]]

    @pytest.mark.parametrize("key", [None, "k"])
    def test_older_job_that_waits_for_its_retry_is_passed(
        self, q: JobQueue, key: str | None
    ) -> None:
        q.put()
        q.end(q.must_take(), BAD)
        ready = q.put(dedupe_key=key).job_id
        assert q.must_take(ClaimPolicy(owner="boot-1", caps={"echo": 5})).job.id == ready
        assert q.take() is None


class TestAhead:
    def test_more_jobs_are_claimed_than_there_are_workers(self, q: JobQueue) -> None:
        ids = [q.put(plugin).job_id for plugin in ("a", "b", "b", "a", "a")]
        assert q.take_all(1, prefetch=2) == ids[:3]
        assert q.take_all(0, prefetch=1) == ids[3:4]
        assert q.take_all(0, prefetch=5) == ids[4:]
        assert q.take_all(0, prefetch=5) == []

    def test_last_attempt_is_not_prefetched(self, q: JobQueue) -> None:
        """If the gateway died now, the job would be dead without having run."""
        ids = [q.put(attempts=4).job_id, q.put(attempts=1).job_id, q.put(attempts=4).job_id]
        assert q.take_all(0, prefetch=3) == ids[:1]
        assert q.take_all(0, prefetch=3) == [], "it was overtaken"
        assert q.take_all(1, prefetch=3) == ids[1:]

    def test_capped_plugin_is_not_prefetched(self, q: JobQueue) -> None:
        """It would count as running."""
        first, second = q.put("other").job_id, q.put().job_id
        capped = ClaimPolicy(owner="boot-1", caps={"echo": 5})
        assert q.take_all(0, prefetch=3, policy=capped) == [first]
        assert q.take_all(1, prefetch=3, policy=capped) == [second]

    def test_job_with_a_dedupe_key_is_not_prefetched(self, q: JobQueue) -> None:
        first, second = q.put().job_id, q.put(dedupe_key="k").job_id
        assert q.take_all(0, prefetch=3) == [first]
        assert q.take_all(1, prefetch=3) == [second]

    def test_init_is_not_prefetched(self, q: JobQueue) -> None:
        id = q.put(command="init").job_id
        assert q.take_all(0, prefetch=3, policy=UNREADY) == []
        assert q.take_all(1, prefetch=3, policy=UNREADY) == [id]

    def test_held_plugin_is_skipped(self, q: JobQueue) -> None:
        q.put()
        other = q.put("other").job_id
        full = ClaimPolicy(owner="boot-1", held=frozenset({"echo"}))
        assert q.take_all(0, prefetch=2, policy=full) == [other]


def test_due_retry_keeps_its_queue_position(q: JobQueue) -> None:
    """The queue order is the insertion order of the eligible jobs."""
    first, second = q.put().job_id, q.put().job_id
    q.end(q.must_take(), BAD)
    q.clock.advance(3600)
    q.ledger.write(lambda tx: retries.promote_due(tx, q.clock.now()))
    assert [q.must_take().job.id for _ in range(2)] == [first, second]


def test_due_retries_are_promoted_in_batches(q: JobQueue) -> None:
    rows = ",".join(
        f"('j{n}', 'echo', 'poll', '{{}}', 'queued', 2, 4, 'cli', '2026-02-08T10:00:00.000000Z',"
        " '2026-02-08T10:00:00.000000Z')"
        for n in range(retries.BATCH + 20)
    )
    execute(
        q.ledger,
        "INSERT INTO job_queue (id, plugin, command, payload, status, attempt, max_attempts,"
        f" submitted_by, created_at, next_retry_at) VALUES {rows}",
    )
    promoted = [q.ledger.write(lambda tx: retries.promote_due(tx, q.clock.now())) for _ in range(3)]
    assert promoted == [retries.BATCH, 20, 0]


def test_retry_is_due_after_the_clock_was_set_back_ten_years(q: JobQueue) -> None:
    """No delay is longer than 30 days, so a later time comes from another clock."""
    q.put()
    q.end(q.must_take(), BAD)
    q.clock.moment -= timedelta(days=3650)
    q.clock.advance(31 * 86_400)
    q.ledger.write(lambda tx: retries.promote_due(tx, q.clock.now()))
    assert q.take() is not None


def waits(q: JobQueue, id: str, until: str) -> str:
    """Insert a job that waits for a retry, as a script would."""
    execute(
        q.ledger,
        "INSERT INTO job_queue (id, plugin, command, status, submitted_by, created_at,"
        f" next_retry_at) VALUES ('{id}', 'echo', 'poll', 'queued', 'cli', '2026-02-08 10:00:00',"
        f" '{until}')",
    )
    return id


def normalize(q: JobQueue) -> dict[str, str | None]:
    return q.ledger.write(retries.normalize_times)


OTHER_FORMATS = (
    "2026-02-08 10:00:30",
    "2026-02-08T10:00:30Z",
    "2026-02-08T10:00:30.000Z",
    "2026-02-08T02:00:30-08:00",
    "2026-02-08T18:00:30.000000+08:00",
    "20260208T100030Z",
    " 2026-02-08T10:00:30.000000Z",
)


def test_time_in_another_format_is_normalized(q: JobQueue) -> None:
    ids = [waits(q, f"script-{n}", written) for n, written in enumerate(OTHER_FORMATS)]
    assert q.ledger.read(retries.has_foreign_time)
    assert normalize(q) == dict.fromkeys(ids, "2026-02-08T10:00:30.000000Z")
    assert not q.ledger.read(retries.has_foreign_time)
    due = q.ledger.read(lambda tx: retries.next_retry_at(tx, q.clock.now()))
    assert due == q.clock.now() + timedelta(seconds=30)
    assert q.take() is None
    q.clock.advance(30)
    assert q.ledger.write(lambda tx: retries.promote_due(tx, q.clock.now())) == len(ids)
    assert q.take_all(len(ids)) == ids


def test_unreadable_retry_time_makes_the_job_ready(q: JobQueue) -> None:
    received: list[int] = []
    q.ledger.listen(lambda effects: received.append(effects.ready))
    unreadable = ("0garbage", "", "soon", "0001-01-01T00:00:00+08:00")
    ids = [waits(q, f"script-{n}", written) for n, written in enumerate(unreadable)]
    assert normalize(q) == dict.fromkeys(ids, None)
    assert received == [len(ids)]
    assert q.take_all(len(ids)) == ids


def test_time_in_another_format_is_not_compared_as_text(q: JobQueue) -> None:
    waits(q, "script", "2026-02-08T03:00:00-08:00")
    assert q.ledger.write(lambda tx: retries.promote_due(tx, q.clock.now())) == 0


def test_time_in_our_format_is_not_changed(q: JobQueue) -> None:
    q.put()
    q.end(q.must_take(), BAD)
    assert not q.ledger.read(retries.has_foreign_time)
    assert normalize(q) == {}


@pytest.mark.parametrize("day", ["2026-02-30", "2026-99-99"])
def test_nonexistent_day_does_not_block_other_retries(q: JobQueue, day: str) -> None:
    """It is in our format and sorts by text, but the time does not exist."""
    waits(q, "script", f"{day}T10:00:00.000000Z")
    normalize(q)
    assert q.ledger.read(lambda tx: retries.next_retry_at(tx, q.clock.now())) in (
        None,
        q.clock.now(),
    )
    q.clock.moment = datetime(2026, 3, 1, tzinfo=UTC)
    assert q.ledger.read(lambda tx: retries.next_retry_at(tx, q.clock.now())) == q.clock.now()
    assert q.ledger.write(lambda tx: retries.promote_due(tx, q.clock.now())) == 1


def test_times_are_normalized_in_batches(q: JobQueue) -> None:
    rows = ",".join(
        f"('j{n}', 'echo', 'poll', 'queued', 'cli', '2026-02-08 10:00:00', '2026-02-08 10:00:00')"
        for n in range(retries.BATCH + 20)
    )
    execute(
        q.ledger,
        "INSERT INTO job_queue (id, plugin, command, status, submitted_by, created_at,"
        f" next_retry_at) VALUES {rows}",
    )
    assert [len(normalize(q)) for _ in range(3)] == [retries.BATCH, 20, 0]


def test_claim_stores_owner_and_start(q: JobQueue) -> None:
    id = q.put().job_id
    q.must_take(ClaimPolicy(owner="boot-7", snapshot_id="s1"))
    job = q.job(id)
    assert (job["owner"], job["started_at"], job["started_snapshot_id"]) == (
        "boot-7",
        "2026-02-08T10:00:00.000000Z",
        "s1",
    )


def test_cap_counts_jobs_of_every_owner(q: JobQueue, open_ledger: Callable[[], Ledger]) -> None:
    q.put()
    q.put()
    q.must_take(ClaimPolicy(owner="node-1", caps={"echo": 1}))
    assert q.take(ClaimPolicy(owner="node-2", caps={"echo": 1})) is None


def test_capped_plugin_that_another_node_decides_about_is_tried_again_soon(
    q: JobQueue, open_ledger: Callable[[], Ledger]
) -> None:
    """That node does not see yet that a job of this one has ended: its place would stay empty."""
    if q.ledger.engine == "sqlite":
        pytest.skip("SQLite has one writer")
    q.put()
    openings: list[datetime | None] = []
    q.ledger.listen(lambda effects: openings.append(effects.opens_at))

    def hold(tx: Tx) -> None:
        assert tx.hold("plugin", "echo", wait=False)
        assert q.take(ClaimPolicy(owner="node-1", caps={"echo": 1})) is None

    open_ledger().write(hold)
    assert openings == [q.clock.now() + LOCK_RETRY]
    assert q.take(ClaimPolicy(owner="node-1", caps={"echo": 1})) is not None


def test_place_of_an_ended_job_is_taken_while_another_node_decides(
    q: JobQueue, open_ledger: Callable[[], Ledger]
) -> None:
    """The other node counts the ended job or the one that follows it, so that none is too many."""
    if q.ledger.engine == "sqlite":
        pytest.skip("SQLite has one writer")
    policy = ClaimPolicy(owner="node-1", caps={"echo": 2})
    for _ in range(5):
        q.put()
    ended = q.must_take(policy).job
    q.must_take(policy)
    verdict = judge(ended, OK, RULES, q.clock.now(), 0.5)

    def end_and_claim(tx: Tx) -> int:
        settled = settle_many(tx, [(verdict, BASE)], TX_CONFIG)
        plugins = [one.job.plugin for one in settled if one]
        return len(claim(tx, policy, q.clock.now(), 3, 0, plugins))

    def hold(tx: Tx) -> None:
        assert tx.hold("plugin", "echo", wait=False)
        assert q.ledger.write(end_and_claim) == 1

    open_ledger().write(hold)
    assert q.take(policy) is None, "the cap is used up"


def test_orphans_are_listed_by_boot(q: JobQueue) -> None:
    for owner in ("dead", "alive"):
        q.put()
        q.must_take(ClaimPolicy(owner=owner))
    found = q.ledger.read(lambda tx: requeue.list_orphans(tx, "dead", 10))
    assert [job.owner for job in found] == ["dead"]


def test_running_job_without_an_owner_is_listed_as_orphan(q: JobQueue) -> None:
    q.put()
    q.must_take()
    execute(q.ledger, "UPDATE job_queue SET owner = NULL")
    assert len(q.ledger.read(lambda tx: requeue.list_orphans(tx, None, 10))) == 1


def test_boot_is_dead_when_no_ledger_holds_it(
    q: JobQueue, open_ledger: Callable[[], Ledger]
) -> None:
    if q.ledger.engine == "sqlite":
        assert q.ledger.boot_is_dead("any")
        return
    other = open_ledger()
    other.claim_boot("node-2")
    assert not q.ledger.boot_is_dead("node-2")
    assert q.ledger.boot_is_dead("nobody")
    other.close()
    assert q.ledger.boot_is_dead("node-2")
