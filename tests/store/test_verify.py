"""Promises that are kept pass, and every breach of one is found, on both engines."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import apsw
import pytest

from ductile.clock import Ids
from ductile.errors import LedgerError
from ductile.model import Ending, JobStatus, Outcome
from ductile.store import boots, retention, verify
from ductile.store.engines import migrate
from ductile.store.engines.api import Ledger
from ductile.store.engines.migrate import load_migrations
from ductile.store.engines.sqlite import SqliteLedger
from ductile.store.jobs import close, read, requeue
from ductile.store.jobs.claim import ClaimPolicy
from ductile.store.jobs.retries import promote_due
from ductile.store.verify import Breach, Report
from tests.conftest import CountingEntropy, FakeClock
from tests.store.conftest import execute
from tests.store.jobs.test_pipelines import SPLIT, House
from tests.store.jobs.test_queue import BAD, CHART, OK, Queue

BOOT = "boot-1"
LOST = Outcome(Ending.LOST, reason="gone")


class Place(Queue):
    """A queue whose jobs are owned by a boot that there is."""

    def begin(self) -> Place:
        now = self.clock.now()
        self.ledger.write(lambda tx: boots.begin(tx, id=BOOT, pid=1, version="1", now=now))
        return self

    def cancel(self, job_id: str) -> None:
        now, ids = self.clock.now(), Ids(self.entropy.uuid())
        job = self.ledger.read(lambda tx: read.load_job(tx, job_id))
        assert job is not None
        self.ledger.write(
            lambda tx: close.end_queued(tx, job, JobStatus.DEAD, "no", now, CHART, ids)
        )

    def retry(self, job_id: str) -> None:
        now = self.clock.now()
        job = self.ledger.read(lambda tx: read.load_job(tx, job_id))
        assert job is not None
        self.ledger.write(lambda tx: requeue.retry_job(tx, job, 2, now))

    def done(self) -> str:
        """A job that has succeeded."""
        job_id = self.put().job_id
        self.end(self.must_take())
        self.clock.advance(1)
        return job_id

    def check(self, **more: object) -> Report:
        return verify.verify(self.ledger, **more)  # type: ignore[arg-type]


@pytest.fixture
def place(ledger: Ledger, clock: FakeClock, entropy: CountingEntropy) -> Place:
    return Place(ledger, clock, entropy).begin()


def only(report: Report) -> Breach:
    assert [*map(str, report.breaches)] != []
    [breach] = report.breaches
    return breach


def test_an_empty_ledger_keeps_its_promises(ledger: Ledger) -> None:
    report = verify.verify(ledger)
    assert report.ok
    assert report.notes == []
    assert set(report.rows.values()) == {0}


def test_every_row_is_looked_at(place: Place) -> None:
    for _ in range(3):
        place.done()
    report = place.check()
    assert report.ok
    assert (report.rows["job_queue"], report.rows["job_log"]) == (3, 3)


@pytest.mark.parametrize("seed", range(4))
def test_whatever_happens_to_jobs_the_promises_are_kept(place: Place, seed: int) -> None:
    chance = random.Random(seed)
    known: list[str] = []
    for _ in range(120):
        _something(place, chance, known)
        place.clock.advance(chance.choice((0, 1, 600)))
    report = place.check(alive=lambda boot: boot == BOOT)
    assert [*map(str, report.breaches)] == []
    assert report.rows["job_queue"] > 10


def test_a_job_that_never_runs_can_be_cancelled_as_often_as_it_is_retried(place: Place) -> None:
    job_id = place.put().job_id
    for _ in range(3):
        place.cancel(job_id)
        assert place.job(job_id)["status"] == "dead"
        place.retry(job_id)
    assert [*map(str, place.check().breaches)] == []


def _something(place: Place, chance: random.Random, known: list[str]) -> None:
    what = chance.choice(("put", "put", "run", "run", "run", "cancel", "retry", "prune"))
    if what == "put":
        known.append(place.put(chance.choice("ab")).job_id)
    elif what == "run":
        now = place.clock.now()
        place.ledger.write(lambda tx: promote_due(tx, now))
        claimed = place.take(ClaimPolicy(owner=BOOT))
        if claimed is not None and chance.random() < 0.9:
            place.end(claimed, chance.choice((OK, BAD, LOST)))
    elif known and what in ("cancel", "retry"):
        job_id = chance.choice(known)
        found = place.ledger.read(lambda tx: read.load_job(tx, job_id))
        if found is None:
            known.remove(job_id)
        elif what == "cancel" and found.status is JobStatus.QUEUED:
            place.cancel(job_id)
        elif what == "retry" and found.status in (JobStatus.FAILED, JobStatus.DEAD):
            place.retry(job_id)
    elif what == "prune":
        _prune(place, chance.choice((300.0, 3000.0)), chance.choice((300.0, 3000.0)))


def _prune(place: Place, of_jobs: float, of_logs: float) -> None:
    kept = retention.Retention(of_jobs, of_logs, of_logs, of_logs, None, 1.0)
    for batch in retention.batches(kept, place.clock.now()):
        place.ledger.write(batch)


def test_pipelines_with_splits_keep_the_promises(
    ledger: Ledger, clock: FakeClock, entropy: CountingEntropy
) -> None:
    house = House(ledger, clock, entropy, [{"name": "p", "on": "go", "steps": SPLIT}])
    house.start("p", {"x": 1})
    house.run()
    house.start("p", {"x": 2})
    taken = house.take()
    assert taken is not None
    house.end(taken)
    report = verify.verify(ledger)
    assert [*map(str, report.breaches)] == []
    assert report.rows["scopes"] > 2
    assert report.rows["event_context"] > 4


LAST = "job_id = '{done}' AND to_status = 'succeeded'"
CONTEXT = "INSERT INTO event_context (id, parent_id, accumulated_json, created_at)"
SCOPE = (
    "INSERT INTO scopes (id, pipeline, OTHER, status, created_at, ended_at)"
    " VALUES ('s', 'p', 'lost', 'ended', '2026', '2026')"
)
RELAY = (
    "INSERT INTO relay_deliveries (id, instance, event_id, event_type, body, status, created_at,"
    " owner) VALUES ('r', 'i', 'e', 't', '{{}}', 'STATUS', '2026', NULL)"
)
BREACHES = [
    (
        "UPDATE job_queue SET status = 'dead', completed_at = created_at WHERE id = '{queued}'",
        "jobs",
        "its transitions end in queued",
    ),
    ("UPDATE job_queue SET status = 'timed_out' WHERE id = '{done}'", "jobs", "rests in timed_out"),
    ("UPDATE job_queue SET completed_at = NULL WHERE id = '{done}'", "jobs", "has no completed_at"),
    ("UPDATE job_queue SET owner = '{boot}' WHERE id = '{done}'", "jobs", "has an owner"),
    ("UPDATE job_queue SET owner = NULL WHERE id = '{running}'", "jobs", "nobody owns it"),
    ("UPDATE job_queue SET owner = 'nobody' WHERE id = '{running}'", "jobs", "nobody is no boot"),
    (
        "UPDATE job_queue SET completed_at = created_at WHERE id = '{queued}'",
        "jobs",
        "has a completed_at",
    ),
    (
        "UPDATE job_queue SET next_retry_at = created_at WHERE id = '{done}'",
        "jobs",
        "waits for a retry",
    ),
    (
        "UPDATE job_transitions SET from_status = 'failed' WHERE " + LAST,
        "jobs",
        "went from failed to succeeded while it was running",
    ),
    (
        "UPDATE job_transitions SET to_status = 'dead' WHERE " + LAST,
        "jobs",
        "its transitions end in dead",
    ),
    (
        "DELETE FROM job_transitions WHERE job_id = '{done}' AND to_status = 'running'",
        "jobs",
        "while it was queued",
    ),
    (
        "DELETE FROM job_transitions WHERE job_id = '{done}'",
        "jobs",
        "its transitions end in queued",
    ),
    ("DELETE FROM job_log WHERE job_id = '{done}'", "jobs", "has no row in job_log"),
    ("UPDATE job_log SET status = 'dead' WHERE job_id = '{done}'", "jobs", "in job_log is dead"),
    (
        "UPDATE job_queue SET parent_job_id = 'lost' WHERE id = '{queued}'",
        "jobs",
        "its parent lost is gone",
    ),
    (
        "UPDATE job_queue SET scope_id = 'lost' WHERE id = '{queued}'",
        "jobs",
        "its scope lost does not exist",
    ),
    (
        "UPDATE job_queue SET entered_context_id = 'lost' WHERE id = '{queued}'",
        "jobs",
        "its context lost does not exist",
    ),
    ("UPDATE job_log SET attempt = 7 WHERE job_id = '{done}'", "logs", "is not named after"),
    (
        "UPDATE job_log SET id = '{done}-7', attempt = 7 WHERE job_id = '{first}'",
        "logs",
        "is not named after",
    ),
    (
        "INSERT INTO event_context (id, accumulated_json, created_at) VALUES ('c', '[]', '2026')",
        "contexts",
        "is no JSON object",
    ),
    (
        f"{CONTEXT} VALUES ('c', 'lost', '{{{{}}}}', '2026')",
        "contexts",
        "its parent lost does not exist",
    ),
    (
        "INSERT INTO scopes (id, pipeline, created_at) VALUES ('s', 'p', '2026')",
        "scopes",
        "nothing in it is queued, running or open",
    ),
    (
        "INSERT INTO scopes (id, pipeline, status, created_at) VALUES ('s', 'p', 'ended', '2026')",
        "scopes",
        "its ended_at is not set",
    ),
    (
        SCOPE.replace("OTHER", "parent_id"),
        "scopes",
        "its parent lost does not exist",
    ),
    (
        SCOPE.replace("OTHER", "context_id"),
        "scopes",
        "its context lost does not exist",
    ),
    (
        RELAY.replace("STATUS", "delivered").replace("NULL", "'x'"),
        "deliveries",
        "somebody sends it",
    ),
    (
        RELAY.replace("STATUS", "dead"),
        "deliveries",
        "after 0 failed sends",
    ),
    ("INSERT INTO plugin_state (plugin_name, state) VALUES ('p', '7')", "states", "no JSON object"),
    ("DROP INDEX job_queue_ready", "schema", "index job_queue_ready is missing"),
    ("ALTER TABLE job_log DROP COLUMN stdout", "schema", "table job_log.stdout is missing"),
    (
        "UPDATE schema_migrations SET checksum = 'x' WHERE number = 1",
        "schema",
        "migration 0001 differs",
    ),
    (
        "INSERT INTO schema_migrations VALUES (9999, 'later', 'x')",
        "schema",
        "migration 9999 is of a newer version",
    ),
]


@pytest.mark.parametrize(("sql", "promise", "detail"), BREACHES, ids=[b[2] for b in BREACHES])
def test_a_breach_is_found(place: Place, sql: str, promise: str, detail: str) -> None:
    first, done = place.done(), place.done()
    running = place.put().job_id
    place.must_take()
    place.clock.advance(1)
    queued = place.put().job_id
    assert place.check(alive=lambda _: True).ok
    names = {"first": first, "done": done, "running": running, "queued": queued, "boot": BOOT}
    execute(place.ledger, sql.format(**names))
    for quick in (False, True):
        found = place.check(alive=lambda _: True, quick=quick).breaches
        assert any(breach.promise == promise and detail in str(breach) for breach in found)
        assert {breach.promise for breach in found} <= {promise, "jobs", "logs"}


def test_a_log_row_of_an_attempt_that_its_job_has_not_come_to(place: Place) -> None:
    done = place.done()
    execute(
        place.ledger, f"UPDATE job_log SET id = '{done}-9', attempt = 9 WHERE job_id = '{done}'"
    )
    found = [breach for breach in place.check().breaches if breach.promise == "logs"]
    assert [breach.detail for breach in found] == [
        "is of an attempt that its job, at 1, has not come to"
    ]


def test_a_context_that_lost_what_it_inherits(
    ledger: Ledger, clock: FakeClock, entropy: CountingEntropy
) -> None:
    house = House(ledger, clock, entropy, [{"name": "p", "on": "go", "steps": [{"uses": "a"}]}])
    scope = house.start("p", {})
    execute(
        ledger,
        "INSERT INTO event_context (id, parent_id, accumulated_json, created_at)"
        f" VALUES ('c', '{scope}', '{{\"ductile\": {{\"route_depth\": 3}}}}', '2026')",
    )
    breach = only(verify.verify(ledger))
    assert breach.subject == "c"
    assert "does not contain its parent's ductile.origin" in breach.detail


def test_what_was_pruned_breaks_no_promise(place: Place) -> None:
    parent = place.done()
    place.clock.advance(10)
    child = place.put().job_id
    execute(place.ledger, f"UPDATE job_queue SET parent_job_id = '{parent}' WHERE id = '{child}'")
    place.end(place.must_take())
    place.clock.advance(1000)
    place.done()
    execute(place.ledger, f"DELETE FROM job_queue WHERE id = '{parent}'")
    for table in ("job_transitions", "job_log"):
        execute(place.ledger, f"DELETE FROM {table} WHERE job_id IN ('{parent}', '{child}')")
    assert [*map(str, place.check().breaches)] == []


def test_rows_of_a_script_are_no_breach(place: Place) -> None:
    place.done()
    execute(
        place.ledger,
        "INSERT INTO job_queue (id, plugin, command, payload, status, submitted_by, created_at)"
        " VALUES ('by-hand', 'echo', 'poll', '{}', 'queued', 'cli', '2026-02-08 10:00:00')",
    )
    assert place.check().ok


def test_running_jobs_of_a_dead_boot_are_a_breach_while_others_live(place: Place) -> None:
    place.put()
    place.must_take()
    breach = only(place.check(alive=lambda _: False))
    assert str(breach) == f"owners: boot {BOOT} is dead, and 1 of its jobs are running"


def test_a_boot_that_ends_between_two_looks_is_no_breach(place: Place) -> None:
    place.put()
    claimed = place.must_take()

    def alive(_boot: str) -> bool:
        place.end(claimed)
        return False

    assert place.check(alive=alive).ok


def test_what_ran_when_the_ledger_was_left_is_a_note(place: Place) -> None:
    place.put()
    place.must_take()
    report = place.check()
    assert report.ok
    assert report.notes == ["1 running when it was left, to be recovered by a start"]


def test_a_quick_check_looks_at_the_newest_rows_and_at_all_open_scopes(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verify, "NEWEST", 2)
    old = place.done()
    for _ in range(3):
        place.done()
    sql = "INSERT INTO scopes (id, pipeline, status, created_at, ended_at) VALUES "
    execute(place.ledger, sql + "('a', 'p', 'open', '2026', NULL)")
    for name in "bcd":
        execute(place.ledger, sql + f"('{name}', 'p', 'ended', '2026', '2026')")
    execute(place.ledger, f"UPDATE job_queue SET status = 'timed_out' WHERE id = '{old}'")
    report = place.check(quick=True)
    assert report.rows["job_queue"] == 2
    assert only(report).subject == "a"
    assert {breach.subject for breach in place.check().breaches} == {"a", old}


def test_a_table_larger_than_a_window_is_walked_to_its_end(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = tuple(
        verify.Walk(w.promise, w.table, w.first, w.look, w.newest, window=2) for w in verify.WALKS
    )
    monkeypatch.setattr(verify, "WALKS", small)
    ids = [place.done() for _ in range(5)]
    execute(place.ledger, f"UPDATE job_queue SET completed_at = NULL WHERE id = '{ids[-1]}'")
    told: list[tuple[str, int]] = []
    report = place.check(tell=lambda table, rows: told.append((table, rows)))
    assert report.rows["job_queue"] == 5
    assert [rows for table, rows in told if table == "job_queue"] == [2, 4, 5]
    assert only(report).subject == ids[-1]


def test_of_many_breaches_some_are_told_and_all_are_counted(place: Place) -> None:
    for _ in range(verify.TOLD + 5):
        place.done()
    execute(place.ledger, "UPDATE job_queue SET completed_at = NULL")
    report = place.check()
    assert (len(report.breaches), report.more) == (verify.TOLD, 5)


def test_a_schema_that_is_behind_is_a_note_and_its_rows_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as older:
        older.setattr(migrate, "load_migrations", lambda engine: load_migrations(engine)[:1])
        old = SqliteLedger(tmp_path / "state.db")
        old.start()
    report = verify.verify(old)
    assert report.ok
    assert "the schema is of migration 0001" in report.notes[0]
    assert report.rows == {}
    old.close()


def test_what_is_no_ledger_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    apsw.Connection(str(path)).execute("CREATE TABLE t (a)")
    other = SqliteLedger(path, read_only=True)
    with pytest.raises(LedgerError, match="no ledger of ductile"):
        verify.verify(other)
    other.close()


def test_a_damaged_page_is_found(
    tmp_path: Path, clock: FakeClock, entropy: CountingEntropy
) -> None:
    path = tmp_path / "state.db"
    ledger = SqliteLedger(path)
    ledger.start()
    place = Place(ledger, clock, entropy).begin()
    for _ in range(50):
        place.done()
    ledger.close()
    data = bytearray(path.read_bytes())
    for page in range(20, len(data) // 4096):
        data[page * 4096 : page * 4096 + 64] = b"\xff" * 64
    path.write_bytes(data)
    broken = SqliteLedger(path, read_only=True)
    for quick in (True, False):
        report = verify.verify(broken, quick=quick)
        assert {breach.promise for breach in report.breaches} == {"pages"}
    broken.close()


def test_a_row_that_names_none_is_found(tmp_path: Path) -> None:
    ledger = SqliteLedger(tmp_path / "state.db")
    ledger.start()
    execute(
        ledger,
        "PRAGMA foreign_keys = OFF; INSERT INTO webhook_deliveries (webhook_id, session_id,"
        " payload, target_url, signature, status, created_at, next_retry_at)"
        " VALUES (7, 's', '{}', 'u', 's', 'pending', '2026', '2026')",
    )
    breach = only(verify.verify(ledger))
    assert breach.promise == "references"
    assert breach.subject == "row 1 of webhook_deliveries"
    ledger.close()


def test_a_quick_check_of_pages_ends_when_its_time_is_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verify, "QUICK_SECONDS", -1.0)
    monkeypatch.setattr("ductile.store.backup.copy.INSTRUCTIONS_PER_BEAT", 1)
    ledger = SqliteLedger(tmp_path / "state.db")
    ledger.start()
    report = verify.verify(ledger, quick=True)
    ledger.close()
    assert report.ok
    assert report.notes == ["not all pages were checked: that takes longer than a quick check may"]


def test_the_ledger_can_be_checked_while_it_is_written(place: Place) -> None:
    """A window is one snapshot: no job is seen between its state and its transitions."""
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            place.put()
            claimed = place.take()
            if claimed is not None:
                place.end(claimed)

    writer = threading.Thread(target=work)
    writer.start()
    try:
        rows = 0
        while rows < 100:
            report = place.check(alive=lambda _: True)
            assert [*map(str, report.breaches)] == []
            rows = report.rows["job_queue"]
            assert writer.is_alive()
    finally:
        stop.set()
        writer.join()
