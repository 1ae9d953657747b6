"""Due times move with a clock that was set back, so that no delay becomes longer; both engines."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from ductile.clock import to_text
from ductile.engine.scheduling.clock_monitor import ClockMonitor
from ductile.errors import LedgerBusy
from ductile.log import configure
from ductile.model import Notice
from ductile.store import boots, notices
from ductile.store.engines.api import Ledger, Work
from ductile.store.outbox import due_times
from ductile.store.outbox.due_times import DELAYED, Delayed, parse_due_time
from tests.conftest import FakeClock
from tests.store.conftest import execute

INSERTS = {
    "retries": (
        "INSERT INTO job_queue (id, plugin, command, status, submitted_by, created_at,"
        " next_retry_at) VALUES ('{id}', 'echo', 'poll', 'queued', 'cli', '', '{due}')"
    ),
    "reminders": (
        "INSERT INTO cron_jobs (id, agent_id, next_fire_at, payload, is_one_time)"
        " VALUES ({id}, 'a', '{due}', '{{}}', TRUE)"
    ),
    "deliveries": (
        "INSERT INTO webhook_deliveries (id, webhook_id, session_id, payload, target_url,"
        " signature, status, created_at, next_retry_at)"
        " VALUES ({id}, 1, 's', '', '', '', 'failed', '', '{due}')"
    ),
    "relays": (
        "INSERT INTO relay_deliveries (id, instance, event_id, event_type, body, status,"
        " created_at, next_retry_at) VALUES ('{id}', 'i', 'e', 't', '', 'pending', '', '{due}')"
    ),
    "waits": (
        "INSERT INTO waits (id, job_id, attempt, kind, pipeline, step_path, on_timeout,"
        " created_at, due_at) VALUES ('{id}', 'j{id}', 1, 'for', 'p', 's', 'fail', '', '{due}')"
    ),
    "closed limit keys": (
        "INSERT INTO closed_keys (plugin, limit_key, until) VALUES ('echo', '{id}', '{due}')"
    ),
    "rates": "INSERT INTO rates (plugin, rate_key, used_until) VALUES ('echo', '{id}', '{due}')",
}
WEBHOOK = (
    "INSERT INTO webhook_configs (id, source_identifier, event_type, agent_intent,"
    " target_session, secret) VALUES (1, 's', 'e', 'i', 't', 'x')"
)
KINDS = pytest.mark.parametrize("kind", DELAYED, ids=lambda kind: kind.noun)


class ClockHarness:
    def __init__(self, ledger: Ledger, clock: FakeClock) -> None:
        self.ledger, self.clock, self.moves = ledger, clock, 0
        self.monitor = ClockMonitor(ledger, clock, "boot", self._count)
        execute(ledger, WEBHOOK)

    def _count(self) -> None:
        self.moves += 1

    def insert(self, kind: Delayed, delay: float, id: int = 1) -> None:
        due = to_text(self.clock.now() + timedelta(seconds=delay))
        execute(self.ledger, INSERTS[kind.noun].format(id=id, due=due))

    def set_clock(self, seconds: float) -> None:
        """Set the wall clock a second after the last tick, and tick."""
        self.clock.advance(1.0)
        self.clock.moment += timedelta(seconds=seconds)
        self.monitor.tick(self.clock.now())

    def remaining(self, kind: Delayed) -> list[float]:
        """Seconds until each row is due."""
        now = self.clock.now()
        rows = self.ledger.read(
            lambda tx: tx.all(kind.read, now="", after=kind.first, limit=10_000)
        )
        return [(parse_due_time(text) - now).total_seconds() for _, text in rows]


@pytest.fixture
def harness(ledger: Ledger, clock: FakeClock) -> ClockHarness:
    return ClockHarness(ledger, clock)


@KINDS
def test_row_waits_for_its_delay_although_the_clock_is_set_back(
    harness: ClockHarness, kind: Delayed
) -> None:
    harness.insert(kind, 30.0)
    harness.set_clock(-86_400.0)
    assert harness.remaining(kind) == [29.0]
    harness.set_clock(0.0)
    assert harness.remaining(kind) == [28.0]
    assert harness.moves == 1


@KINDS
def test_clock_that_was_set_back_while_no_gateway_ran_moves_rows_once(
    harness: ClockHarness, kind: Delayed
) -> None:
    ledger, clock = harness.ledger, harness.clock
    ledger.write(lambda tx: notices.post(tx, Notice("jobs", "job.queued", {}), clock.now()))
    harness.insert(kind, 30.0)
    clock.moment -= timedelta(days=1)
    for _ in range(2):
        last = ledger.read(notices.newest_time)
        ClockMonitor(ledger, clock, "boot-2", harness._count, last).tick(clock.now())
        assert harness.remaining(kind) == [30.0]
    assert harness.moves == 1


@KINDS
def test_row_that_was_due_when_the_clock_was_set_back_is_due(
    harness: ClockHarness, kind: Delayed
) -> None:
    harness.insert(kind, -60.0)
    harness.set_clock(-3600.0)
    assert harness.remaining(kind) == [0.0]


@KINDS
def test_delay_that_began_while_the_clock_was_ahead_is_not_longer(
    harness: ClockHarness, kind: Delayed
) -> None:
    harness.set_clock(86_400.0)
    harness.insert(kind, 30.0)
    harness.set_clock(-86_400.0)
    assert harness.remaining(kind) == [29.0]


def test_clock_that_drifts_moves_nothing(harness: ClockHarness) -> None:
    harness.insert(DELAYED[0], 3600.0)
    for _ in range(10):
        harness.set_clock(-0.9)
    assert harness.moves == 0


@pytest.mark.parametrize("kind", [DELAYED[0], DELAYED[-1]], ids=lambda kind: kind.noun)
def test_every_batch_moves_once_although_the_ledger_is_busy(
    harness: ClockHarness, kind: Delayed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(due_times, "BATCH", 2)
    for id in range(1, 6):
        harness.insert(kind, 60.0, id=id)
    write, calls = harness.ledger.write, iter([True, False, False])

    def busy(work: Work[object]) -> object:
        if not next(calls, True):
            raise LedgerBusy("the ledger is busy")
        return write(work)

    monkeypatch.setattr(harness.ledger, "write", busy)
    with pytest.raises(LedgerBusy):
        harness.set_clock(-3600.0)
    with pytest.raises(LedgerBusy):
        harness.set_clock(0.0)
    harness.set_clock(0.0)
    assert harness.remaining(kind) == [57.0] * 5


def test_due_times_are_left_to_other_nodes(harness: ClockHarness) -> None:
    """Their clocks may be right."""
    now = harness.clock.now()
    harness.ledger.write(lambda tx: boots.begin_boot(tx, id="other", pid=1, version="", now=now))
    harness.insert(DELAYED[0], 30.0)
    harness.ledger.boot_is_dead = lambda boot: False  # type: ignore[method-assign]
    harness.set_clock(-3600.0)
    assert harness.remaining(DELAYED[0]) == [3629.0]


def test_jump_of_the_clock_is_logged(
    harness: ClockHarness, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    configure("warn", "json")
    harness.insert(DELAYED[0], 30.0)
    harness.set_clock(-3600.0)
    harness.set_clock(0.0)
    harness.set_clock(3600.0)
    logged = [json.loads(line) for line in capsysbinary.readouterr().out.splitlines()]
    assert [(line["message"], line.get("seconds"), line.get("count")) for line in logged] == [
        ("the clock was set back", 3600.0, None),
        ("moved due times with the clock", None, 1),
        ("the clock was set forward", 3600.0, None),
    ]
