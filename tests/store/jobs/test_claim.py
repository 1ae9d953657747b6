"""Claims at their edges: keys that run, inits that wait, retries when the clock jumps."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from ductile.store.engines.api import Ledger
from ductile.store.jobs import requeue, retries
from ductile.store.jobs.claim import ClaimPolicy
from tests.conftest import CountingEntropy, FakeClock
from tests.store.conftest import execute
from tests.store.jobs.test_queue import BAD, Queue

UNREADY = ClaimPolicy(owner="boot-1", init_only=frozenset({"echo"}))


@pytest.fixture
def q(ledger: Ledger, clock: FakeClock, entropy: CountingEntropy) -> Queue:
    return Queue(ledger, clock, entropy)


def test_of_two_inits_with_one_key_the_second_waits(q: Queue) -> None:
    q.put(command="init", dedupe_key="k")
    q.put(command="init", dedupe_key="k")
    running = q.must_take(UNREADY)
    assert q.take(UNREADY) is None
    q.end(running)
    assert q.must_take(UNREADY).job.command == "init"


def test_a_plugin_that_waits_for_its_init_does_not_hold_up_the_others(q: Queue) -> None:
    q.put()
    other = q.put("other")
    assert q.must_take(UNREADY).job.id == other.job_id
    assert q.take(UNREADY) is None


def test_the_oldest_of_all_plugins_goes_first(q: Queue) -> None:
    ids = [q.put(plugin).job_id for plugin in ("zeta", "alpha", "mid", "alpha", "zeta")]
    assert [q.must_take().job.id for _ in ids] == ids


class TestSeveralAtOnce:
    def test_they_come_in_the_order_of_the_line(self, q: Queue) -> None:
        plugins = ("zeta", "alpha", "alpha", "alpha", "mid", "alpha", "zeta", "zeta")
        ids = [q.put(plugin).job_id for plugin in plugins]
        assert q.take_all(3) == ids[:3]
        assert q.take_all(100) == ids[3:]

    def test_each_is_started_as_one_alone_would_be(self, q: Queue) -> None:
        ids = [q.put().job_id for _ in range(3)]
        assert q.take_all(3) == ids
        for id in ids:
            job = q.job(id)
            assert (job["status"], job["attempt"]) == ("running", 1)
            assert job["started_at"] is not None
            last = job["transitions"][-1]  # type: ignore[index]
            assert (last["from_status"], last["to_status"]) == ("queued", "running")

    def test_one_with_a_key_keeps_its_place_among_those_without(self, q: Queue) -> None:
        keys = (None, None, "k", None, "l", "m", None, None)
        ids = [q.put(dedupe_key=key).job_id for key in keys]
        assert q.take_all(8) == ids

    def test_of_two_with_one_key_only_one_is_started(self, q: Queue) -> None:
        first = q.put(command="init", dedupe_key="k").job_id
        q.put(command="init", dedupe_key="k")
        last = q.put().job_id
        assert q.take_all(3) == [first, last]

    def test_a_cap_holds(self, q: Queue) -> None:
        ids = [q.put().job_id for _ in range(3)] + [q.put("other").job_id]
        capped = ClaimPolicy(owner="boot-1", caps={"echo": 2})
        assert q.take_all(4, policy=capped) == [ids[0], ids[1], ids[3]]

    def test_one_that_waits_for_its_retry_is_left(self, q: Queue) -> None:
        ids = [q.put().job_id for _ in range(3)]
        q.end(q.must_take(), BAD)
        assert q.take_all(3) == ids[1:]


class TestAhead:
    def test_more_are_claimed_than_there_are_seats(self, q: Queue) -> None:
        ids = [q.put(plugin).job_id for plugin in ("a", "b", "b", "a", "a")]
        assert q.take_all(1, ahead=2) == ids[:3]
        assert q.take_all(0, ahead=1) == ids[3:4]
        assert q.take_all(0, ahead=5) == ids[4:]
        assert q.take_all(0, ahead=5) == []

    def test_a_last_attempt_is_not_counted_before_it_has_a_seat(self, q: Queue) -> None:
        """Should the gateway die now, the job would be dead and never have run."""
        ids = [q.put(attempts=4).job_id, q.put(attempts=1).job_id, q.put(attempts=4).job_id]
        assert q.take_all(0, ahead=3) == ids[:1]
        assert q.take_all(0, ahead=3) == [], "it was overtaken"
        assert q.take_all(1, ahead=3) == ids[1:]

    def test_nor_is_one_of_a_plugin_with_a_cap(self, q: Queue) -> None:
        """It would count as one that runs."""
        first, second = q.put("other").job_id, q.put().job_id
        capped = ClaimPolicy(owner="boot-1", caps={"echo": 5})
        assert q.take_all(0, ahead=3, policy=capped) == [first]
        assert q.take_all(1, ahead=3, policy=capped) == [second]

    def test_nor_is_one_with_a_dedupe_key(self, q: Queue) -> None:
        first, second = q.put().job_id, q.put(dedupe_key="k").job_id
        assert q.take_all(0, ahead=3) == [first]
        assert q.take_all(1, ahead=3) == [second]

    def test_nor_is_an_init(self, q: Queue) -> None:
        id = q.put(command="init").job_id
        assert q.take_all(0, ahead=3, policy=UNREADY) == []
        assert q.take_all(1, ahead=3, policy=UNREADY) == [id]

    def test_what_cannot_run_at_all_is_passed_by(self, q: Queue) -> None:
        q.put()
        other = q.put("other").job_id
        full = ClaimPolicy(owner="boot-1", held=frozenset({"echo"}))
        assert q.take_all(0, ahead=2, policy=full) == [other]


def test_a_retry_that_is_due_takes_its_old_place(q: Queue) -> None:
    """FIFO is by insertion among what is eligible now."""
    first, second = q.put().job_id, q.put().job_id
    q.end(q.must_take(), BAD)
    q.clock.advance(3600)
    q.ledger.write(lambda tx: retries.promote_due(tx, q.clock.now()))
    assert [q.must_take().job.id for _ in range(2)] == [first, second]


def test_due_retries_are_made_ready_in_small_batches(q: Queue) -> None:
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


def test_a_retry_does_not_wait_for_a_clock_that_was_set_back_ten_years(q: Queue) -> None:
    """No delay is longer than thirty days, so one that lies further ahead is of another clock."""
    q.put()
    q.end(q.must_take(), BAD)
    q.clock.moment -= timedelta(days=3650)
    q.clock.advance(31 * 86_400)
    q.ledger.write(lambda tx: retries.promote_due(tx, q.clock.now()))
    assert q.take() is not None


def waits(q: Queue, id: str, until: str) -> str:
    """A row as a script writes it, which waits until then."""
    execute(
        q.ledger,
        "INSERT INTO job_queue (id, plugin, command, status, submitted_by, created_at,"
        f" next_retry_at) VALUES ('{id}', 'echo', 'poll', 'queued', 'cli', '2026-02-08 10:00:00',"
        f" '{until}')",
    )
    return id


def mended(q: Queue) -> dict[str, str | None]:
    return q.ledger.write(retries.normalize_times)


@pytest.mark.parametrize(
    "written",
    [
        "2026-02-08 10:00:30",
        "2026-02-08T10:00:30Z",
        "2026-02-08T10:00:30.000Z",
        "2026-02-08T02:00:30-08:00",
        "2026-02-08T18:00:30.000000+08:00",
        "20260208T100030Z",
        " 2026-02-08T10:00:30.000000Z",
    ],
)
def test_a_time_in_another_form_is_waited_for_as_in_ours(q: Queue, written: str) -> None:
    waits(q, "script", written)
    assert q.ledger.read(retries.has_foreign_time)
    assert mended(q) == {"script": "2026-02-08T10:00:30.000000Z"}
    assert not q.ledger.read(retries.has_foreign_time)
    due = q.ledger.read(lambda tx: retries.next_retry_at(tx, q.clock.now()))
    assert due == q.clock.now() + timedelta(seconds=30)
    assert q.take() is None
    q.clock.advance(30)
    assert q.ledger.write(lambda tx: retries.promote_due(tx, q.clock.now())) == 1
    assert q.must_take().job.id == "script"


@pytest.mark.parametrize("written", ["0garbage", "", "soon", "0001-01-01T00:00:00+08:00"])
def test_a_time_that_cannot_be_read_keeps_its_job_waiting_no_longer(q: Queue, written: str) -> None:
    heard: list[int] = []
    q.ledger.listen(lambda effects: heard.append(effects.ready))
    waits(q, "script", written)
    assert mended(q) == {"script": None}
    assert heard == [1]
    assert q.must_take().job.id == "script"


def test_a_time_in_another_form_is_not_due_by_its_text(q: Queue) -> None:
    waits(q, "script", "2026-02-08T03:00:00-08:00")
    assert q.ledger.write(lambda tx: retries.promote_due(tx, q.clock.now())) == 0


def test_a_time_in_our_form_stays_as_it_is(q: Queue) -> None:
    q.put()
    q.end(q.must_take(), BAD)
    assert not q.ledger.read(retries.has_foreign_time)
    assert mended(q) == {}


@pytest.mark.parametrize("day", ["2026-02-30", "2026-99-99"])
def test_a_day_that_no_month_has_stops_no_other_retry(q: Queue, day: str) -> None:
    """It is in our form, and in its place by text order; only when that is cannot be said."""
    waits(q, "script", f"{day}T10:00:00.000000Z")
    mended(q)
    assert q.ledger.read(lambda tx: retries.next_retry_at(tx, q.clock.now())) in (
        None,
        q.clock.now(),
    )
    q.clock.moment = datetime(2026, 3, 1, tzinfo=UTC)
    assert q.ledger.read(lambda tx: retries.next_retry_at(tx, q.clock.now())) == q.clock.now()
    assert q.ledger.write(lambda tx: retries.promote_due(tx, q.clock.now())) == 1


def test_times_in_other_forms_are_mended_in_small_batches(q: Queue) -> None:
    rows = ",".join(
        f"('j{n}', 'echo', 'poll', 'queued', 'cli', '2026-02-08 10:00:00', '2026-02-08 10:00:00')"
        for n in range(retries.BATCH + 20)
    )
    execute(
        q.ledger,
        "INSERT INTO job_queue (id, plugin, command, status, submitted_by, created_at,"
        f" next_retry_at) VALUES {rows}",
    )
    assert [len(mended(q)) for _ in range(3)] == [retries.BATCH, 20, 0]


def test_a_claim_stamps_its_owner_and_its_start(q: Queue) -> None:
    id = q.put().job_id
    q.must_take(ClaimPolicy(owner="boot-7", snapshot_id="s1"))
    job = q.job(id)
    assert (job["owner"], job["started_at"], job["started_snapshot_id"]) == (
        "boot-7",
        "2026-02-08T10:00:00.000000Z",
        "s1",
    )


def test_a_cap_counts_jobs_of_every_owner(q: Queue, open_ledger: Callable[[], Ledger]) -> None:
    q.put()
    q.put()
    q.must_take(ClaimPolicy(owner="node-1", caps={"echo": 1}))
    assert q.take(ClaimPolicy(owner="node-2", caps={"echo": 1})) is None


def test_orphans_are_those_of_the_boot_that_is_asked_for(q: Queue) -> None:
    for owner in ("dead", "alive"):
        q.put()
        q.must_take(ClaimPolicy(owner=owner))
    found = q.ledger.read(lambda tx: requeue.list_orphans(tx, "dead", 10))
    assert [job.owner for job in found] == ["dead"]


def test_a_running_row_without_an_owner_is_an_orphan_of_nobody(q: Queue) -> None:
    q.put()
    q.must_take()
    execute(q.ledger, "UPDATE job_queue SET owner = NULL")
    assert len(q.ledger.read(lambda tx: requeue.list_orphans(tx, None, 10))) == 1


def test_a_dead_boots_claim_can_be_told_from_a_living_ones(
    q: Queue, open_ledger: Callable[[], Ledger]
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
