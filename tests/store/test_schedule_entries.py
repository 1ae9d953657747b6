"""The history of an entry that is changed, withdrawn or returns; on both engines."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from ductile.core.schedules.decide import After, At, CatchUp, Cron, Every
from ductile.core.schedules.history import rule_text
from ductile.store import schedules
from ductile.store.engines.api import Ledger, Row
from tests.conftest import CountingEntropy, FakeClock
from tests.store.conftest import execute
from tests.store.test_schedules import MINUTELY, Timer
from tests.waiting import WAIT_LIMIT


@pytest.fixture
def t(ledger: Ledger, clock: FakeClock, entropy: CountingEntropy) -> Timer:
    return Timer(ledger, clock, entropy)


def test_changed_interval_counts_from_the_last_fire(t: Timer) -> None:
    t.begin()
    t.clock.advance(50)
    slower = t.see(replace(MINUTELY, rule=Every(120.0)))
    assert t.after(69, slower).job_ids == ()
    assert len(t.after(1, slower).job_ids) == 1


@pytest.mark.parametrize("policy", CatchUp)
def test_shortened_interval_is_not_caught_up(t: Timer, policy: CatchUp) -> None:
    slow = t.begin(replace(MINUTELY, rule=Every(3600.0), catch_up=policy))
    t.clock.advance(3000)
    quick = t.reload(replace(slow, rule=Every(60.0)))
    assert len(t.fire(quick).job_ids) == 1
    assert t.reasons(quick) == [None]


def test_changed_cron_rule_starts_with_its_next_occurrence(t: Timer) -> None:
    t.begin(replace(MINUTELY, rule=Cron("0 3 * * *")))
    t.clock.advance(20 * 3600)
    earlier = t.reload(replace(MINUTELY, rule=Cron("0 4 * * *")))
    assert t.fire(earlier).job_ids == ()
    assert t.slots() == []
    assert len(t.after(22 * 3600, earlier).job_ids) == 1


def test_entry_of_another_kind_is_new(t: Timer) -> None:
    t.begin(replace(MINUTELY, rule=Every(3600.0)))
    t.clock.advance(60)
    hourly = t.reload(replace(MINUTELY, rule=Cron("0 * * * *")))
    assert t.entry()["first_seen"] == "2026-02-08T10:01:00.000000Z"
    assert t.fire(hourly).job_ids == ()
    t.reload()
    assert len(t.fire().job_ids) == 1


# An entry that returns to the configuration


@pytest.mark.parametrize("policy", CatchUp)
def test_returning_overdue_interval_fires_once(t: Timer, policy: CatchUp) -> None:
    schedule = t.begin(replace(MINUTELY, catch_up=policy))
    t.withdraw()
    t.clock.advance(10 * 86_400)
    t.reload(schedule)
    assert len(t.fire(schedule).job_ids) == 1
    assert t.reasons(schedule) == [None]
    t.finish()
    assert t.after(59, schedule).job_ids == ()


def test_returning_interval_waits_until_due(t: Timer) -> None:
    t.begin()
    t.withdraw()
    t.clock.advance(20)
    t.reload()
    assert t.after(39).job_ids == ()
    assert len(t.after(1).job_ids) == 1


def test_returning_cron_entry_continues_with_its_next_occurrence(t: Timer) -> None:
    daily = t.begin(replace(MINUTELY, rule=Cron("0 3 * * *")))
    assert len(t.after(17 * 3600, daily).job_ids) == 1
    t.finish()
    t.withdraw()
    t.clock.advance(10 * 86_400)
    t.reload(daily)
    assert t.fire(daily).job_ids == ()
    assert len(t.slots(daily)) == 1
    assert len(t.after(86_400, daily).job_ids) == 1


def test_returning_one_shot_does_not_fire_again(t: Timer) -> None:
    once = t.begin(replace(MINUTELY, rule=At(datetime(2026, 2, 8, 11, tzinfo=UTC))))
    assert len(t.after(3600, once).job_ids) == 1
    t.finish()
    t.withdraw()
    t.reload(once)
    assert t.after(86_400, once).job_ids == ()


def test_configured_entry_is_not_withdrawn(t: Timer) -> None:
    t.begin()
    before = t.entry()
    t.ledger.write(lambda tx: schedules.withdraw_entries(tx, {("echo", "default")}))
    assert t.entry() == before


def test_entry_is_withdrawn_once_and_keeps_its_history(t: Timer) -> None:
    t.begin()
    before = t.entry()
    t.withdraw()
    gone = t.entry()
    t.withdraw()
    assert t.entry() == gone
    assert gone["rule"] == '{"withdrawn":["Every(seconds=60.0)","UTC"]}'
    t.reload()
    assert t.entry() == before


def test_imported_entry_is_not_withdrawn_before_it_is_configured(t: Timer) -> None:
    """An imported entry has no rule; its history belongs to the first configured rule."""
    t.begin()
    execute(t.ledger, "UPDATE schedule_entries SET rule = ''")
    t.withdraw()
    t.clock.advance(30)
    t.reload()
    assert t.entry()["rule"] == rule_text(MINUTELY)
    assert t.fire().job_ids == ()
    assert len(t.after(30).job_ids) == 1


# One-shots


def test_at_time_that_fired_is_spent_in_any_zone_and_format(t: Timer) -> None:
    moment = datetime(2026, 2, 8, 11, tzinfo=UTC)
    once = t.begin(replace(MINUTELY, rule=At(moment)))
    assert len(t.after(3600, once).job_ids) == 1
    t.finish()
    vienna = ZoneInfo("Europe/Vienna")
    for same in (
        replace(once, zone=vienna),
        replace(once, rule=At(moment.astimezone(vienna))),
        replace(once, rule=At(datetime.fromisoformat("2026-02-08T06:00:00-05:00"))),
    ):
        t.see(same)
        assert t.after(86_400, same).job_ids == ()
    later = t.reload(replace(once, rule=At(t.clock.now() + timedelta(hours=1))))
    assert len(t.after(3600, later).job_ids) == 1


def test_one_shot_whose_occurrence_has_fired_is_spent(t: Timer) -> None:
    """Even if the entry has lost it."""
    once = t.begin(replace(MINUTELY, rule=At(datetime(2026, 2, 8, 11, tzinfo=UTC))))
    assert len(t.after(3600, once).job_ids) == 1
    t.finish()
    execute(
        t.ledger,
        "UPDATE schedule_entries SET exhausted = 0, last_fire = NULL, last_fired_at = NULL",
    )
    fired = t.fire(once)
    assert (fired.job_ids, fired.anchors.exhausted) == ((), True)
    assert t.after(86_400, once).job_ids == ()
    assert len(t.slots(once)) == 1


def test_after_does_not_fire_twice_per_start(t: Timer) -> None:
    soon = t.begin(replace(MINUTELY, rule=After(30.0)))
    assert len(t.after(30, soon).job_ids) == 1
    t.finish()
    t.withdraw()
    for again in (soon, replace(soon, rule=After(60.0)), soon):
        t.reload(again)
        assert t.after(3600, again).job_ids == ()


def test_after_fires_once_per_node_start(t: Timer) -> None:
    soon = t.begin(replace(MINUTELY, rule=After(30.0)))
    assert len(t.after(30, soon).job_ids) == 1
    t.finish()
    first, second = t.boot, t.clock.now() + timedelta(seconds=5)
    t.clock.advance(5)
    t.see(soon)
    t.boot = first
    assert t.after(30, soon).job_ids == ()
    t.boot = second
    assert len(t.fire(soon).job_ids) == 1


# Two nodes at once


class Slow:
    """A transaction that waits after it has read the entry."""

    def __init__(self, tx: Any, meanwhile: Callable[[], None]) -> None:
        self._tx, self._meanwhile = tx, meanwhile

    def one(self, query: str, /, **values: object) -> Row | None:
        row: Row | None = self._tx.one(query, **values)
        if query.startswith("entry"):
            self._meanwhile()
        return row

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tx, name)


@pytest.mark.parametrize("rewritten", [False, True], ids=["as_it_was", "rewritten"])
def test_starting_node_keeps_the_fire_of_another_node(
    t: Timer, open_ledger: Callable[[], Ledger], rewritten: bool
) -> None:
    once = t.see(replace(MINUTELY, rule=At(datetime(2026, 2, 8, 11, tzinfo=UTC))))
    t.clock.advance(3600)
    other = t.ledger if t.ledger.engine == "sqlite" else open_ledger()
    fired, jobs = threading.Event(), list[str]()

    def fire() -> None:
        jobs.extend(t.fire(once).job_ids)
        fired.set()

    node = threading.Thread(target=fire)

    def meanwhile() -> None:
        if node.ident is None:
            node.start()
        # If the row is locked the other node cannot fire yet, and this wait times out.
        fired.wait(0.3)

    mine = replace(once, zone=ZoneInfo("Europe/Vienna")) if rewritten else once
    now = t.clock.now()
    other.write(lambda tx: schedules.ensure_entry(Slow(tx, meanwhile), mine, now, now))
    node.join(WAIT_LIMIT)
    assert len(jobs) == 1
    assert t.entry()["exhausted"] == 1
    t.boot = now
    assert t.after(86_400, mine).job_ids == ()
