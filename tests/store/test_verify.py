"""Verifying a ledger: a correct one passes, and every violation is found, on both engines."""

from __future__ import annotations

import random
import threading
from dataclasses import replace
from datetime import UTC, datetime
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
from ductile.store.engines.queries import NEVER
from ductile.store.engines.sqlite import SqliteLedger
from ductile.store.jobs import close, read, requeue
from ductile.store.jobs.claim import ClaimPolicy
from ductile.store.jobs.retries import promote_due
from ductile.store.outbox import webhooks
from ductile.store.outbox.webhooks import NewWebhook
from ductile.store.verify import VerifyReport, Violation
from tests.conftest import CountingEntropy, FakeClock
from tests.store.conftest import execute
from tests.store.jobs.harness import BAD, OK, SPLIT, TX_CONFIG, JobQueue, Pipelines

BOOT = "boot-1"
LOST = Outcome(Ending.LOST, reason="gone")


class OwnedQueue(JobQueue):
    """A queue whose jobs belong to a recorded boot."""

    def begin(self) -> OwnedQueue:
        now = self.clock.now()
        self.ledger.write(lambda tx: boots.begin_boot(tx, id=BOOT, pid=1, version="1", now=now))
        return self

    def cancel(self, job_id: str) -> None:
        now, ids = self.clock.now(), Ids(self.entropy.uuid())
        job = self.ledger.read(lambda tx: read.load_job(tx, job_id))
        assert job is not None
        self.ledger.write(
            lambda tx: close.end_queued(tx, job, JobStatus.DEAD, "no", now, TX_CONFIG, ids)
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

    def add_jobs(self, number: int) -> dict[str, str]:
        """A case: two succeeded jobs, a running and a queued one, and ids for other rows."""
        plugin = f"plugin{number:02}"
        policy = ClaimPolicy(owner=BOOT, known=frozenset({plugin}))
        jobs = []
        for _ in range(2):
            jobs.append(self.put(plugin).job_id)
            self.end(self.must_take(policy))
            self.clock.advance(1)
        running = self.put(plugin).job_id
        self.must_take(policy)
        self.clock.advance(1)
        names = ("context", "scope", "relay")
        return {
            "first": jobs[0],
            "done": jobs[1],
            "running": running,
            "queued": self.put(plugin).job_id,
            "plugin": plugin,
            **{name: f"{name}{number:02}" for name in names},
        }

    def check(self, **more: object) -> VerifyReport:
        return verify.verify(self.ledger, **more)  # type: ignore[arg-type]


@pytest.fixture
def queue(ledger: Ledger, clock: FakeClock, entropy: CountingEntropy) -> OwnedQueue:
    return OwnedQueue(ledger, clock, entropy).begin()


def only(report: VerifyReport) -> Violation:
    assert [*map(str, report.violations)] != []
    [violation] = report.violations
    return violation


def test_empty_ledger_has_no_violations(ledger: Ledger) -> None:
    report = verify.verify(ledger)
    assert report.ok
    assert report.notes == []
    assert set(report.rows.values()) == {0}


def test_every_row_is_checked(queue: OwnedQueue) -> None:
    for _ in range(3):
        queue.done()
    report = queue.check()
    assert report.ok
    assert (report.rows["job_queue"], report.rows["job_log"]) == (3, 3)


@pytest.mark.parametrize("seed", range(2))
def test_random_job_histories_have_no_violations(queue: OwnedQueue, seed: int) -> None:
    chance = random.Random(seed)
    known: list[str] = []
    for _ in range(120):
        _do_something(queue, chance, known)
        queue.clock.advance(chance.choice((0, 1, 600)))
    report = queue.check(is_alive=lambda boot: boot == BOOT)
    assert [*map(str, report.violations)] == []
    assert report.rows["job_queue"] > 10


def test_unstarted_job_can_be_cancelled_and_retried_repeatedly(queue: OwnedQueue) -> None:
    job_id = queue.put().job_id
    for _ in range(3):
        queue.cancel(job_id)
        assert queue.job(job_id)["status"] == "dead"
        queue.retry(job_id)
    assert [*map(str, queue.check().violations)] == []


def _do_something(queue: OwnedQueue, chance: random.Random, known: list[str]) -> None:
    what = chance.choice(("put", "put", "run", "run", "run", "cancel", "retry", "prune"))
    if what == "put":
        known.append(queue.put(chance.choice("ab")).job_id)
    elif what == "run":
        now = queue.clock.now()
        queue.ledger.write(lambda tx: promote_due(tx, now))
        claimed = queue.take(ClaimPolicy(owner=BOOT))
        if claimed is not None and chance.random() < 0.9:
            queue.end(claimed, chance.choice((OK, BAD, LOST)))
    elif known and what in ("cancel", "retry"):
        job_id = chance.choice(known)
        found = queue.ledger.read(lambda tx: read.load_job(tx, job_id))
        if found is None:
            known.remove(job_id)
        elif what == "cancel" and found.status is JobStatus.QUEUED:
            queue.cancel(job_id)
        elif what == "retry" and found.status in (JobStatus.FAILED, JobStatus.DEAD):
            queue.retry(job_id)
    elif what == "prune":
        _prune(queue, chance.choice((300.0, 3000.0)), chance.choice((300.0, 3000.0)))


def _prune(queue: OwnedQueue, of_jobs: float, of_logs: float) -> None:
    kept = retention.Retention(of_jobs, of_logs, of_logs, of_logs, None, 1.0)
    for batch in retention.prune_batches(kept, queue.clock.now()):
        queue.ledger.write(batch)


def test_pipelines_with_splits_have_no_violations(
    ledger: Ledger, clock: FakeClock, entropy: CountingEntropy
) -> None:
    harness = Pipelines(ledger, clock, entropy, [{"name": "p", "on": "go", "steps": SPLIT}])
    harness.start("p", {"x": 1})
    harness.run()
    harness.start("p", {"x": 2})
    taken = harness.take()
    assert taken is not None
    harness.end(taken)
    report = verify.verify(ledger)
    assert [*map(str, report.violations)] == []
    assert report.rows["scopes"] > 2
    assert report.rows["event_context"] > 4


LAST = "job_id = '{done}' AND to_status = 'succeeded'"
CONTEXT = "INSERT INTO event_context (id, parent_id, accumulated_json, created_at)"
SCOPE = (
    "INSERT INTO scopes (id, pipeline, OTHER, status, created_at, ended_at)"
    " VALUES ('{scope}', 'p', 'lost', 'ended', '2026', '2026')"
)
RELAY = (
    "INSERT INTO relay_deliveries (id, instance, event_id, event_type, body, status, created_at,"
    " owner) VALUES ('{relay}', 'i', 'e', 't', '{{}}', 'STATUS', '2026', NULL)"
)
ROW_VIOLATIONS = [
    (
        "UPDATE job_queue SET status = 'dead', completed_at = created_at WHERE id = '{queued}'",
        "jobs",
        "its transitions end in queued",
    ),
    (
        "UPDATE job_queue SET status = 'timed_out' WHERE id = '{done}'",
        "jobs",
        "has the status timed_out",
    ),
    ("UPDATE job_queue SET completed_at = NULL WHERE id = '{done}'", "jobs", "has no completed_at"),
    ("UPDATE job_queue SET owner = '{boot}' WHERE id = '{done}'", "jobs", "has an owner"),
    ("UPDATE job_queue SET owner = NULL WHERE id = '{running}'", "jobs", "has no owner"),
    (
        "UPDATE job_queue SET owner = 'nobody' WHERE id = '{running}'",
        "jobs",
        "nobody is not a known boot",
    ),
    (
        "UPDATE job_queue SET completed_at = created_at WHERE id = '{queued}'",
        "jobs",
        "has a completed_at",
    ),
    (
        "UPDATE job_queue SET next_retry_at = created_at WHERE id = '{done}'",
        "jobs",
        "has a next_retry_at",
    ),
    (
        f"UPDATE job_queue SET next_retry_at = '{NEVER}' WHERE id = '{{queued}}'",
        "jobs",
        "is parked, but neither a wait nor a limit of its pipeline holds it",
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
        "its parent lost is missing",
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
        f"{CONTEXT} VALUES ('{{context}}', NULL, '[]', '2026')",
        "contexts",
        "is not a JSON object",
    ),
    (
        f"{CONTEXT} VALUES ('{{context}}', 'lost', '{{{{}}}}', '2026')",
        "contexts",
        "its parent lost does not exist",
    ),
    (
        "INSERT INTO scopes (id, pipeline, created_at) VALUES ('{scope}', 'p', '2026')",
        "scopes",
        "nothing in it is queued, running or open",
    ),
    (
        SCOPE.replace("OTHER, ", "").replace("'lost', ", "").replace(", '2026')", ", NULL)"),
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
        "has an owner",
    ),
    (
        RELAY.replace("STATUS", "dead"),
        "deliveries",
        "after 0 failed sends",
    ),
    (
        "INSERT INTO plugin_state (plugin_name, state) VALUES ('{plugin}', '7')",
        "states",
        "not a JSON object",
    ),
]
SCHEMA_VIOLATIONS = {
    "DROP INDEX job_queue_ready": "index job_queue_ready is missing",
    "ALTER TABLE job_log DROP COLUMN stdout": "table job_log.stdout is missing",
    "UPDATE schema_migrations SET checksum = 'x' WHERE number = 1": "migration 0001 differs",
    "INSERT INTO schema_migrations VALUES (9999, 'later', 'x')": "migration 9999 is of a newer",
}


def test_violations_of_rows_are_found(queue: OwnedQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify, "MAX_LISTED", 1000)
    queue.done()
    cases = [queue.add_jobs(number) for number in range(len(ROW_VIOLATIONS))]
    assert queue.check(is_alive=lambda _: True).ok
    for names, (sql, _, _) in zip(cases, ROW_VIOLATIONS, strict=True):
        execute(queue.ledger, sql.format(boot=BOOT, **names))
    for quick in (False, True):
        found = queue.check(is_alive=lambda _: True, quick=quick).violations
        for names, (_, invariant, detail) in zip(cases, ROW_VIOLATIONS, strict=True):
            own = [one for one in found if any(id in one.subject for id in names.values())]
            assert any(one.invariant == invariant and detail in str(one) for one in own), detail
            assert {one.invariant for one in own} <= {invariant, "jobs", "logs"}, detail


@pytest.mark.parametrize(("sql", "detail"), SCHEMA_VIOLATIONS.items())
def test_violation_of_the_schema_is_found(queue: OwnedQueue, sql: str, detail: str) -> None:
    queue.done()
    execute(queue.ledger, sql)
    for quick in (False, True):
        found = queue.check(quick=quick).violations
        assert any(detail in str(violation) for violation in found)
        assert {violation.invariant for violation in found} == {"schema"}


def test_log_row_of_a_later_attempt_than_its_job_is_a_violation(queue: OwnedQueue) -> None:
    done = queue.done()
    execute(
        queue.ledger, f"UPDATE job_log SET id = '{done}-9', attempt = 9 WHERE job_id = '{done}'"
    )
    found = [violation for violation in queue.check().violations if violation.invariant == "logs"]
    assert [violation.detail for violation in found] == [
        "has attempt 9, but its job is at attempt 1"
    ]


def test_context_without_its_parents_values_is_a_violation(
    ledger: Ledger, clock: FakeClock, entropy: CountingEntropy
) -> None:
    harness = Pipelines(
        ledger, clock, entropy, [{"name": "p", "on": "go", "steps": [{"uses": "a"}]}]
    )
    scope = harness.start("p", {})
    execute(
        ledger,
        "INSERT INTO event_context (id, parent_id, accumulated_json, created_at)"
        f" VALUES ('c', '{scope}', '{{\"ductile\": {{\"route_depth\": 3}}}}', '2026')",
    )
    violation = only(verify.verify(ledger))
    assert violation.subject == "c"
    assert "does not contain its parent's ductile.origin" in violation.detail


def test_pruned_rows_are_not_violations(queue: OwnedQueue) -> None:
    parent = queue.done()
    queue.clock.advance(10)
    child = queue.put().job_id
    execute(queue.ledger, f"UPDATE job_queue SET parent_job_id = '{parent}' WHERE id = '{child}'")
    queue.end(queue.must_take())
    queue.clock.advance(1000)
    queue.done()
    execute(queue.ledger, f"DELETE FROM job_queue WHERE id = '{parent}'")
    for table in ("job_transitions", "job_log"):
        execute(queue.ledger, f"DELETE FROM {table} WHERE job_id IN ('{parent}', '{child}')")
    assert [*map(str, queue.check().violations)] == []


def test_rows_written_by_a_script_are_not_violations(queue: OwnedQueue) -> None:
    queue.done()
    execute(
        queue.ledger,
        "INSERT INTO job_queue (id, plugin, command, payload, status, submitted_by, created_at)"
        " VALUES ('by-hand', 'echo', 'poll', '{}', 'queued', 'cli', '2026-02-08 10:00:00')",
    )
    assert queue.check().ok


def test_running_jobs_of_a_dead_boot_are_a_violation_while_a_gateway_runs(
    queue: OwnedQueue,
) -> None:
    queue.put()
    queue.must_take()
    violation = only(queue.check(is_alive=lambda _: False))
    assert str(violation) == f"owners: boot {BOOT} is dead, and 1 of its jobs are running"


def test_boot_that_ends_during_the_check_is_not_a_violation(queue: OwnedQueue) -> None:
    queue.put()
    claimed = queue.must_take()

    def is_alive(_boot: str) -> bool:
        queue.end(claimed)
        return False

    assert queue.check(is_alive=is_alive).ok


def test_running_jobs_without_a_gateway_are_a_note(queue: OwnedQueue) -> None:
    queue.put()
    queue.must_take()
    report = queue.check()
    assert report.ok
    assert report.notes == ["running jobs: 1; the next start recovers them"]


def test_quick_check_reads_the_newest_rows_and_all_open_scopes(
    queue: OwnedQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verify, "NEWEST", 2)
    old = queue.done()
    for _ in range(3):
        queue.done()
    sql = "INSERT INTO scopes (id, pipeline, status, created_at, ended_at) VALUES "
    execute(queue.ledger, sql + "('a', 'p', 'open', '2026', NULL)")
    for name in "bcd":
        execute(queue.ledger, sql + f"('{name}', 'p', 'ended', '2026', '2026')")
    execute(queue.ledger, f"UPDATE job_queue SET status = 'timed_out' WHERE id = '{old}'")
    report = queue.check(quick=True)
    assert report.rows["job_queue"] == 2
    assert only(report).subject == "a"
    assert {violation.subject for violation in queue.check().violations} == {"a", old}


def test_table_larger_than_a_window_is_read_to_its_end(
    queue: OwnedQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = tuple(replace(table, window=2) for table in verify.TABLES)
    monkeypatch.setattr(verify, "TABLES", small)
    ids = [queue.done() for _ in range(5)]
    execute(queue.ledger, f"UPDATE job_queue SET completed_at = NULL WHERE id = '{ids[-1]}'")
    reported: list[tuple[str, int]] = []
    report = queue.check(progress=lambda table, rows: reported.append((table, rows)))
    assert report.rows["job_queue"] == 5
    assert [rows for table, rows in reported if table == "job_queue"] == [2, 4, 5]
    assert only(report).subject == ids[-1]


def test_listed_violations_are_limited_and_all_are_counted(queue: OwnedQueue) -> None:
    for _ in range(verify.MAX_LISTED + 5):
        queue.done()
    execute(queue.ledger, "UPDATE job_queue SET completed_at = NULL")
    report = queue.check()
    assert (len(report.violations), report.more) == (verify.MAX_LISTED, 5)


def test_pending_migrations_are_a_note_and_rows_are_not_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as older:
        older.setattr(migrate, "load_migrations", lambda engine: load_migrations(engine)[:1])
        old = SqliteLedger(tmp_path / "state.db")
        old.start()
    report = verify.verify(old)
    assert report.ok
    assert "the schema is at migration 0001" in report.notes[0]
    assert report.rows == {}
    old.close()


def test_database_that_is_not_a_ledger_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    apsw.Connection(str(path)).execute("CREATE TABLE t (a)")
    other = SqliteLedger(path, read_only=True)
    with pytest.raises(LedgerError, match="not a ductile ledger"):
        verify.verify(other)
    other.close()


def test_damaged_page_is_a_violation(
    tmp_path: Path, clock: FakeClock, entropy: CountingEntropy
) -> None:
    path = tmp_path / "state.db"
    ledger = SqliteLedger(path)
    ledger.start()
    queue = OwnedQueue(ledger, clock, entropy).begin()
    for _ in range(50):
        queue.done()
    ledger.close()
    data = bytearray(path.read_bytes())
    for page in range(20, len(data) // 4096):
        data[page * 4096 : page * 4096 + 64] = b"\xff" * 64
    path.write_bytes(data)
    broken = SqliteLedger(path, read_only=True)
    for quick in (True, False):
        report = verify.verify(broken, quick=quick)
        assert {violation.invariant for violation in report.violations} == {"pages"}
    broken.close()


def test_dangling_reference_is_a_violation(tmp_path: Path) -> None:
    ledger = SqliteLedger(tmp_path / "state.db")
    ledger.start()
    execute(
        ledger,
        "PRAGMA foreign_keys = OFF; INSERT INTO webhook_deliveries (webhook_id, session_id,"
        " payload, target_url, signature, status, created_at, next_retry_at)"
        " VALUES (7, 's', '{}', 'u', 's', 'pending', '2026', '2026')",
    )
    violation = only(verify.verify(ledger))
    assert violation.invariant == "references"
    assert violation.subject == "row 1 of webhook_deliveries"
    ledger.close()


def test_delivery_that_died_with_its_webhook_is_not_a_violation(ledger: Ledger) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    new = NewWebhook("github", "push", "review", "s-1")
    id = ledger.write(lambda tx: webhooks.add_webhook(tx, new, "a secret", now))
    execute(
        ledger,
        "INSERT INTO webhook_deliveries (webhook_id, session_id, payload, target_url, signature,"
        f" status, created_at) VALUES ({id}, 's', '{{}}', 'u', 's', 'dead', '2026')",
    )
    violation = only(verify.verify(ledger))
    assert "is dead after 0 failed sends" in str(violation)
    ledger.write(lambda tx: webhooks.remove_webhook(tx, id, now))
    assert verify.verify(ledger).ok


def test_quick_check_of_pages_ends_after_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verify, "QUICK_SECONDS", -1.0)
    monkeypatch.setattr("ductile.store.backup.copy.INSTRUCTIONS_PER_BEAT", 1)
    ledger = SqliteLedger(tmp_path / "state.db")
    ledger.start()
    report = verify.verify(ledger, quick=True)
    ledger.close()
    assert report.ok
    assert report.notes == ["not all pages were checked, because a quick check has limited time"]


def test_ledger_can_be_verified_while_it_is_written(queue: OwnedQueue) -> None:
    """A window is one snapshot, so that a job and its transitions are consistent."""
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            queue.put()
            claimed = queue.take()
            if claimed is not None:
                queue.end(claimed)

    writer = threading.Thread(target=work)
    writer.start()
    try:
        rows = 0
        while rows < 100:
            report = queue.check(is_alive=lambda _: True)
            assert [*map(str, report.violations)] == []
            rows = report.rows["job_queue"]
            assert writer.is_alive()
    finally:
        stop.set()
        writer.join()
