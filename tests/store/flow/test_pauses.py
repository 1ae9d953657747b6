"""Pauses keep jobs queued; they end by a resume or at their time."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import cast

import pytest

from ductile.clock import to_text
from ductile.core.flow.pauses import Pause, PauseKind
from ductile.store import notices
from ductile.store.engines.api import BEGINNING, Effects, Ledger, Tx
from ductile.store.flow import pauses
from ductile.store.jobs.claim import claim
from tests.conftest import CountingEntropy, FakeClock
from tests.store.jobs.harness import POLICY, JobQueue, Pipelines

ONE_STEP = [
    {"name": "first", "on": "go", "steps": [{"uses": "a"}]},
    {"name": "second", "on": "come", "steps": [{"uses": "a"}]},
]


class Statements:
    """The queries of a transaction: their names, and how many rows they returned."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.rows = 0

    def watch(self, tx: Tx) -> Tx:
        return cast(Tx, WatchedTx(tx, self))


class WatchedTx:
    """Passes every call on, and records it."""

    def __init__(self, tx: Tx, seen: Statements) -> None:
        self.tx, self.effects, self.seen = tx, tx.effects, seen

    def __getattr__(self, name: str) -> Callable[..., object]:
        real = getattr(self.tx, name)

        def call(*arguments: object, **values: object) -> object:
            found = real(*arguments, **values)
            if isinstance(arguments[0], str):
                self.seen.names.append(arguments[0])
            if isinstance(found, list):
                self.seen.rows += len(found)
            return found

        return call


@pytest.fixture
def q(ledger: Ledger, clock: FakeClock, entropy: CountingEntropy) -> JobQueue:
    return JobQueue(ledger, clock, entropy)


def pause(q: JobQueue | Pipelines, kind: str, name: str = "", seconds: float | None = None) -> None:
    now = q.clock.now()
    until = None if seconds is None else now + timedelta(seconds=seconds)
    text = None if until is None else to_text(until)
    one = Pause(PauseKind(kind), name, to_text(now), "user:ada", "upgrade", until, text)
    q.ledger.write(lambda tx: pauses.store_pause(tx, one, now))


def resume(q: JobQueue | Pipelines, kind: str, name: str = "") -> Pause | None:
    now = q.clock.now()
    return q.ledger.write(lambda tx: pauses.end_pause(tx, PauseKind(kind), name, "user:bob", now))


def test_jobs_of_a_paused_plugin_stay_queued_and_others_run(q: JobQueue) -> None:
    held, other = q.put(), q.put("other")
    pause(q, "plugin", "echo")
    assert q.take_all(8, 8) == [other.job_id]
    assert q.take() is None
    assert resume(q, "plugin", "echo") is not None
    assert q.must_take().job.id == held.job_id


def test_paused_gateway_claims_nothing(q: JobQueue) -> None:
    ids = [q.put(plugin).job_id for plugin in ("echo", "other")]
    pause(q, "system")
    assert q.take_all(8) == []
    resume(q, "system")
    assert q.take_all(8) == ids


def test_running_job_of_a_paused_plugin_ends(q: JobQueue) -> None:
    q.put()
    running = q.must_take()
    pause(q, "plugin", "echo")
    assert q.end(running)
    assert q.job(running.job.id)["status"] == "succeeded"


def test_jobs_of_a_paused_pipeline_stay_queued(
    ledger: Ledger, clock: FakeClock, entropy: CountingEntropy
) -> None:
    lines = Pipelines(ledger, clock, entropy, ONE_STEP)
    q = JobQueue(ledger, clock, entropy)
    held = [lines.start("first", {}) for _ in range(3)]
    free = [lines.start("second", {}) for _ in range(2)]
    plain = q.put("a").job_id
    pause(lines, "pipeline", "first")
    started = q.take_all(8, 8)
    assert len(started) == 3
    assert plain in started
    assert {q.job(id)["pipeline"] for id in started} == {"second", ""}
    resume(lines, "pipeline", "first")
    assert len(q.take_all(8, 8)) == len(held)
    assert free


@pytest.mark.parametrize("kind", ["plugin", "system"])
def test_pause_ends_at_its_time(q: JobQueue, kind: str) -> None:
    q.put()
    pause(q, kind, "echo" if kind == "plugin" else "", seconds=60)
    assert q.take() is None
    end = q.ledger.read(pauses.next_end)
    assert end == q.clock.now() + timedelta(seconds=60)
    q.clock.advance(59)
    assert q.ledger.write(lambda tx: pauses.end_due_pauses(tx, q.clock.now())) == []
    q.clock.advance(1)
    assert q.take() is not None, "also before the row is removed"
    (ended,) = q.ledger.write(lambda tx: pauses.end_due_pauses(tx, q.clock.now()))
    assert ended.kind == kind
    assert q.ledger.read(pauses.next_end) is None
    assert q.ledger.read(pauses.list_pauses) == []


def test_second_pause_replaces_the_end_of_the_first(q: JobQueue) -> None:
    pause(q, "plugin", "echo", seconds=60)
    pause(q, "plugin", "echo")
    q.clock.advance(61)
    assert q.ledger.write(lambda tx: pauses.end_due_pauses(tx, q.clock.now())) == []
    assert [one.until for one in q.ledger.read(pauses.list_pauses)] == [None]


def test_resume_of_what_is_not_paused_changes_nothing(q: JobQueue) -> None:
    pause(q, "plugin", "echo")
    assert resume(q, "plugin", "other") is None
    assert resume(q, "pipeline", "echo") is None
    assert len(q.ledger.read(pauses.list_pauses)) == 1


def test_pause_and_resume_are_announced_and_wake_the_workers(q: JobQueue) -> None:
    seen: list[Effects] = []
    q.ledger.listen(seen.append)
    pause(q, "plugin", "echo")
    resume(q, "plugin", "echo")
    found = q.ledger.read(lambda tx: notices.list_after(tx, BEGINNING, limit=10))
    assert [notice.type for notice in found] == ["flow.paused", "flow.resumed"]
    assert sum(effects.pauses for effects in seen) == 2
    assert any(effects.ready_any for effects in seen)


def test_claim_without_pauses_and_limits_has_no_further_statement(q: JobQueue) -> None:
    q.put()
    now, seen = q.clock.now(), Statements()
    q.ledger.write(lambda tx: claim(seen.watch(tx), POLICY, now))
    assert seen.names == ["ready_heads", "start_first", "insert_transition"]
