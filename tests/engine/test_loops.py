"""Loops: they wake, continue after an error, and stop."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from ductile.clock import SystemClock, to_text
from ductile.engine.config.compiled import CompiledConfig, build
from ductile.engine.dispatch.work_signal import WorkSignal
from ductile.engine.loop import Loop
from ductile.engine.scheduling.retention import PAUSE, RetentionCleaner
from ductile.engine.scheduling.retries import POLL_SECONDS, RetryPromoter
from ductile.errors import LedgerBroken, LedgerBusy
from ductile.log import configure
from ductile.model import NewJob, SubmittedBy
from ductile.store import retention
from ductile.store.engines.sqlite import SqliteLedger
from ductile.store.jobs import enqueue
from ductile.store.tx_config import TxConfig
from tests.conftest import FakeClock
from tests.engine.site import Site
from tests.waiting import WAIT_LIMIT, until

# A loop


class RecordedTicks:
    def __init__(self, *answers: float | Exception) -> None:
        self._answers = list(answers)
        self.count = 0
        self._ticked = threading.Semaphore(0)

    def __call__(self, now: datetime) -> float:
        self.count += 1
        self._ticked.release()
        answer = self._answers.pop(0) if self._answers else 3600.0
        if isinstance(answer, Exception):
            raise answer
        return answer

    def wait(self) -> None:
        assert self._ticked.acquire(timeout=WAIT_LIMIT)


@pytest.fixture
def make_loop() -> Iterator[Callable[..., Loop]]:
    loops: list[Loop] = []

    def make(
        tick: RecordedTicks, broken: Callable[[LedgerBroken], None] = lambda error: None
    ) -> Loop:
        loop = Loop("test", tick, SystemClock(), broken)
        loops.append(loop)
        loop.start()
        return loop

    yield make
    for loop in loops:
        loop.stop()


def test_loop_ticks_at_start_and_when_woken(make_loop) -> None:
    ticks = RecordedTicks()
    loop = make_loop(ticks)
    ticks.wait()
    loop.wake()
    ticks.wait()


def test_loop_ticks_again_after_the_returned_time(make_loop) -> None:
    ticks = RecordedTicks(0.01, 0.01)
    make_loop(ticks)
    for _ in range(3):
        ticks.wait()


@pytest.mark.parametrize("error", [LedgerBusy("busy"), RuntimeError("a bug")])
def test_failed_tick_does_not_end_the_loop(make_loop, error: Exception) -> None:
    ticks = RecordedTicks(error)
    loop = make_loop(ticks)
    ticks.wait()
    loop.wake()
    ticks.wait()


def test_loop_knows_when_its_ticks_failed(make_loop) -> None:
    ticks = RecordedTicks(LedgerBusy("busy"), LedgerBusy("no space"), 3600.0, LedgerBusy("again"))
    loop = make_loop(ticks)

    def has(error: str, *, is_over: bool) -> bool:
        outage = loop.outage
        return outage is not None and (outage.error, outage.ended_at is not None) == (
            error,
            is_over,
        )

    until(lambda: has("busy", is_over=False))
    first = loop.outage
    loop.wake()
    until(lambda: has("no space", is_over=False))
    loop.wake()
    until(lambda: has("no space", is_over=True))
    assert loop.outage.since == first.since
    assert loop.failure is None
    loop.wake()
    until(lambda: has("again", is_over=False))
    assert loop.outage.since > first.since


def test_ledger_outage_and_its_end_are_logged_once(
    make_loop, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    configure("info", "json")
    busy, full = LedgerBusy("busy"), LedgerBusy("no space")
    ticks = RecordedTicks(busy, busy, full, full, 0.0, 0.0, busy)
    loop = make_loop(ticks)
    for _ in range(8):
        ticks.wait()
        loop.wake()
    ticks.wait()
    logged = [json.loads(line) for line in capsysbinary.readouterr().out.splitlines()]
    away, back = "ledger unavailable", "ledger available again"
    assert [(line["message"], line.get("error")) for line in logged] == [
        (away, "busy"),
        (away, "no space"),
        (back, None),
        (away, "busy"),
        (back, None),
    ]


def test_broken_ledger_is_reported_and_ends_the_loop(make_loop) -> None:
    logged: list[LedgerBroken] = []
    event = threading.Event()

    def broken(error: LedgerBroken) -> None:
        logged.append(error)
        event.set()

    make_loop(RecordedTicks(LedgerBroken("gone")), broken)
    assert event.wait(WAIT_LIMIT)
    assert len(logged) == 1


def test_stop_ends_a_sleeping_loop_at_once(make_loop) -> None:
    ticks = RecordedTicks()
    loop = make_loop(ticks)
    ticks.wait()
    loop.stop()
    loop.stop()


def test_wake_during_a_tick_is_not_lost(make_loop) -> None:
    entered, leave = threading.Event(), threading.Event()
    count = threading.Semaphore(0)

    def tick(now: datetime) -> float:
        count.release()
        entered.set()
        assert leave.wait(WAIT_LIMIT)
        return 3600.0

    loop = make_loop(tick)
    assert entered.wait(WAIT_LIMIT)
    loop.wake()
    leave.set()
    assert count.acquire(timeout=WAIT_LIMIT)
    assert count.acquire(timeout=WAIT_LIMIT)


# The retry promoter and the retention cleaner, tick by tick


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[SqliteLedger]:
    ledger = SqliteLedger(tmp_path / "state.db")
    ledger.start()
    yield ledger
    ledger.close()


def put_job(ledger: SqliteLedger, clock: FakeClock, id: str, due: float | None = None) -> None:
    now = clock.now()

    def work(tx: Any) -> None:
        new = NewJob("echo", "poll", SubmittedBy.CLI)
        enqueue.enqueue_job(tx, new, TxConfig(0.0), id=id, now=now)

    ledger.write(work)
    if due is not None:
        at = to_text(now + timedelta(seconds=due))
        ledger.write(
            lambda tx: tx._connection.execute(
                "UPDATE job_queue SET next_retry_at = ? WHERE id = ?", (at, id)
            ).fetchall()
        )


def test_due_retries_become_ready_and_wake_a_worker(ledger: SqliteLedger, clock: FakeClock) -> None:
    work_signal = WorkSignal(4)
    ledger.listen(lambda effects: work_signal.notify(effects.ready) if effects.ready else None)
    retries = RetryPromoter(ledger, work_signal)
    put_job(ledger, clock, "a", due=30)
    work_signal.take(4)
    assert retries.tick(clock.now()) == POLL_SECONDS
    assert work_signal.take(1) == 0
    clock.advance(30)
    retries.tick(clock.now())
    assert work_signal.take(1) == 1


def test_loop_sleeps_until_the_next_retry(ledger: SqliteLedger, clock: FakeClock) -> None:
    put_job(ledger, clock, "a", due=0.25)
    assert RetryPromoter(ledger, WorkSignal(1)).tick(clock.now()) == pytest.approx(0.25)


def set_retry_time(ledger: SqliteLedger, id: str, until: str) -> None:
    ledger.write(
        lambda tx: tx._connection.execute(
            "INSERT INTO job_queue (id, plugin, command, status, submitted_by, created_at,"
            " next_retry_at) VALUES (?, 'echo', 'poll', 'queued', 'cli', '2026-02-08', ?)",
            (id, until),
        ).fetchall()
    )


def read_waiting(ledger: SqliteLedger) -> set[str]:
    rows = ledger.read(lambda tx: tx.dicts("pending_jobs", limit=100))
    return {row["id"] for row in rows if row["next_retry_at"] is not None}


def test_retry_time_in_another_format_delays_no_other_job(
    ledger: SqliteLedger, clock: FakeClock
) -> None:
    """It sorts first as text, but is hours away as a time."""
    set_retry_time(ledger, "later", "2026-02-08T03:00:00-08:00")
    set_retry_time(ledger, "due", "2026-02-08T18:00:00+08:00")
    put_job(ledger, clock, "ours", due=0)
    assert RetryPromoter(ledger, WorkSignal(4)).tick(clock.now()) == POLL_SECONDS
    assert read_waiting(ledger) == {"later"}
    clock.advance(3600)
    RetryPromoter(ledger, WorkSignal(4)).tick(clock.now())
    assert read_waiting(ledger) == set()


def test_retry_time_of_a_script_is_kept(ledger: SqliteLedger, clock: FakeClock) -> None:
    retries = RetryPromoter(ledger, WorkSignal(4))
    retries.tick(clock.now())
    set_retry_time(ledger, "later", "2026-02-08T03:00:00-08:00")
    waits = [retries.tick(clock.now()) for _ in range(2)]
    assert waits == [0.0, POLL_SECONDS]
    assert read_waiting(ledger) == {"later"}


def test_unparsable_retry_time_is_due_now_and_logged_once(
    ledger: SqliteLedger, clock: FakeClock, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    configure("warn", "json")
    set_retry_time(ledger, "odd", "0garbage")
    put_job(ledger, clock, "ours", due=0)
    retries = RetryPromoter(ledger, WorkSignal(4))
    for _ in range(2):
        retries.tick(clock.now())
    assert read_waiting(ledger) == set()
    [line] = capsysbinary.readouterr().out.splitlines()
    logged = json.loads(line)
    assert (logged["level"], logged["job_id"]) == ("warn", "odd")


def test_idle_promoter_polls_every_second(ledger: SqliteLedger, clock: FakeClock) -> None:
    assert RetryPromoter(ledger, WorkSignal(1)).tick(clock.now()) == 1.0


def compiled(site: Site) -> Callable[[], CompiledConfig]:
    built = build(site.load(), boot_marker="m:b", environ=site.environ)
    return lambda: built


def test_cleaner_returns_a_short_pause_while_there_is_more(
    ledger: SqliteLedger, clock: FakeClock, site: Site
) -> None:
    old = to_text(clock.now() - timedelta(days=100))

    def fill(tx: Any) -> None:
        for n in range(retention.BATCH * 2 + 1):
            tx.run(
                "insert_transition",
                job_id=str(n),
                from_status="queued",
                to_status="running",
                attempt=1,
                reason=None,
                now=old,
            )

    ledger.write(fill)
    cleaner = RetentionCleaner(ledger, compiled(site), clock)
    waits = [cleaner.tick(clock.now()) for _ in range(3)]
    assert waits == [PAUSE, PAUSE, 60.0]


def test_cleaner_deletes_nothing_while_the_clock_is_ahead_for_a_moment(
    ledger: SqliteLedger, clock: FakeClock, site: Site, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    configure("warn", "json")
    cleaner = RetentionCleaner(ledger, compiled(site), clock)
    change = {"job_id": "j", "from_status": "queued", "to_status": "running", "reason": None}
    now = to_text(clock.now())
    ledger.write(lambda tx: tx.run("insert_transition", attempt=1, now=now, **change))

    def kept() -> int:
        clock.advance(60)
        cleaner.tick(clock.now())
        return len(ledger.read(lambda tx: tx.all("job_transitions", id="j")))

    clock.moment += timedelta(days=400)
    assert [kept() for _ in range(5)] == [1] * 5
    lines = [json.loads(line) for line in capsysbinary.readouterr().out.splitlines()]
    messages = [line["message"] for line in lines if line["component"] == "retention"]
    assert messages == ["the clock was set forward; rows are kept longer"]
    clock.moment -= timedelta(days=400)
    assert kept() == 1
    clock.moment += timedelta(days=400)
    assert kept() == 1
    clock.advance(23 * 3600)
    assert kept() == 1
    clock.advance(3600)
    assert kept() == 0


@pytest.mark.parametrize("kept", ["36500d", "1ms"])
def test_cleaner_accepts_any_retention(
    ledger: SqliteLedger, clock: FakeClock, site: Site, kept: str
) -> None:
    for name in ("job_queue", "job_log", "job_transitions", "breaker_transitions", "plugin_facts"):
        site.settings["service"][f"{name}_retention"] = kept
    site.settings["service"] |= {"dedupe_ttl": kept, "workspace_retention": kept}
    assert RetentionCleaner(ledger, compiled(site), clock).tick(clock.now()) == 60.0
