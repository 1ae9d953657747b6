"""What a schedule entry does now: pure decisions over its stored state.

An occurrence that is due is **late** while its successor is not due, and fires. It is **missed**
when its successor is due too; one of `cron` is also missed if it became due more than a minute
before the check, because no gateway ran or the machine slept. `catch_up` says how many occurrences
missed in such downtime are caught up; of those missed since, because something held them back, the
newest fires as an ordinary one. After downtime `skip` fires the newest due occurrence of `every` as
an ordinary fire, and none of `cron`; `run_once` fires the newest as a catch-up, which the poll
guard does not hold back; `run_all` fires each of `every`, at most the newest 100, and none of
`cron`. In the code, `slot` is the time of an occurrence, as in the ledger's column.

One round of the scheduler for one entry:

    decision = due(schedule, anchors, now)      # rows for decision.passed
    anchors = decision.anchors
    for run in decision.fires:                  # ask admit(), then enqueue or write a row
        anchors = fired(schedule, anchors, run.slot, now)  # or held(...), or fired_before(...)
    wake = next_look(schedule, anchors, now)    # for the heap

`wake` is valid until the anchors change. A job's success changes them elsewhere and only moves it
later, so a heap of these times needs no check while nothing is due. Exception: when the wall clock
was set back, call `next_due` for every entry. Occurrences that repeat after that are refused by a
unique index: `fired_before`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from enum import StrEnum

from ductile._fast_dataclass import dataclass
from ductile.core.schedules.occurrences import (
    CATCH_UP_MOST,
    LOOKED_BACK,
    SHORTEST,
    After,
    Anchors,
    At,
    CatchUp,
    Cron,
    Every,
    IfRunning,
    Monthly,
    Run,
    Schedule,
    overdue,
    runs,
    spent,
)

__all__ = [
    "CATCH_UP_MOST",
    "LOOKED_BACK",
    "SHORTEST",
    "After",
    "Anchors",
    "At",
    "CatchUp",
    "Cron",
    "Decision",
    "Every",
    "Fire",
    "Hold",
    "IfRunning",
    "Monthly",
    "Passed",
    "Reason",
    "Run",
    "Schedule",
    "admit",
    "admit_run",
    "due",
    "fired",
    "fired_before",
    "held",
    "next_due",
    "next_look",
    "nominal_due",
    "preview",
    "started",
]

_LATE = timedelta(minutes=1)
"""How late a cron occurrence may fire after downtime: a restart skips no run."""
_PATIENCE = timedelta(minutes=1)
"""Longest wait before an occurrence that was held back is tried again."""
_PREVIEW_PATIENCE = 400


class Reason(StrEnum):
    """Why an occurrence did not fire."""

    RUNNING = "running"
    WINDOW = "window"
    WEEKDAY = "weekday"
    BREAKER_OPEN = "breaker_open"
    UNHEALTHY = "unhealthy"
    CATCH_UP_SKIPPED = "catch_up_skipped"
    PAUSED = "paused"

    @property
    def temporary(self) -> bool:
        """Whether the reason may end long before the entry's next occurrence."""
        return self in (Reason.BREAKER_OPEN, Reason.UNHEALTHY)


@dataclass(frozen=True, slots=True)
class Passed:
    slot: datetime
    reason: Reason


@dataclass(frozen=True, slots=True)
class Decision:
    anchors: Anchors
    """Includes `passed`; `fired` or `held` add each of `fires`."""
    fires: tuple[Run, ...] = ()
    passed: tuple[Passed, ...] = ()
    """The newest skipped occurrences, at most `LOOKED_BACK`."""


@dataclass(frozen=True, slots=True)
class Fire:
    cancel_outstanding: bool = False
    """Cancel queued jobs and kill running ones first."""


@dataclass(frozen=True, slots=True)
class Hold:
    reason: Reason
    by_other_polls: bool = False
    """Whether the run stays due: only polls of other producers are in the way, or a run of the
    pipeline that it has to follow."""


def due(schedule: Schedule, anchors: Anchors, now: datetime) -> Decision:
    """What to do about `schedule` at `now`."""
    anchors = _steadied(schedule, anchors, now)
    ripe = overdue(schedule, anchors, now)
    if not ripe:
        return Decision(anchors)
    if anchors.paused:
        fires, passed = list[Run](), [Passed(run.slot, Reason.PAUSED) for run in ripe]
    elif isinstance(schedule.rule, Cron):
        fires, passed = _newest(schedule, anchors, ripe, now)
    elif _refusal(schedule, now):
        return Decision(anchors)
    else:
        fires = _caught_up(schedule, anchors, ripe)
        slots = {run.slot for run in fires}
        missed = [run for run in ripe if run.slot not in slots]
        passed = [Passed(run.slot, Reason.CATCH_UP_SKIPPED) for run in missed]
    if passed:
        anchors = _passed_over(schedule, anchors, passed[-1].slot, now)
    return Decision(anchors, tuple(fires), tuple(passed))


def admit(
    schedule: Schedule,
    run: Run,
    *,
    queued: int,
    running: int,
    others: int,
    max_outstanding: int,
    breaker_allows: bool,
    healthy: bool,
) -> Fire | Hold:
    """Whether a due run may fire, given its plugin's state and the outstanding polls: the entry's
    own `queued` and `running` jobs, and `others` that the plugin has.
    """
    if not healthy:
        return Hold(Reason.UNHEALTHY)
    if not breaker_allows:
        return Hold(Reason.BREAKER_OPEN)
    if run.catch_up:
        return Fire()
    own = queued + running
    cancels = schedule.if_running is IfRunning.CANCEL
    if schedule.if_running is IfRunning.QUEUE:
        if queued:
            return Hold(Reason.RUNNING)
        # The new job does not run before this one has ended.
        own = 0
    counted = others if cancels else own + others
    if counted < max_outstanding:
        return Fire(cancel_outstanding=cancels and own > 0)
    return Hold(Reason.RUNNING, by_other_polls=cancels or own == 0)


def admit_run(schedule: Schedule, run: Run, *, open_runs: int) -> Fire | Hold:
    """Whether a due run of a pipeline may start, given the entry's runs that have not ended.

    With `if_running: queue` it stays due until the run before it has ended.
    """
    if run.catch_up or not open_runs:
        return Fire()
    if schedule.if_running is IfRunning.CANCEL:
        return Fire(cancel_outstanding=True)
    return Hold(Reason.RUNNING, by_other_polls=schedule.if_running is IfRunning.QUEUE)


def fired(schedule: Schedule, anchors: Anchors, slot: datetime, now: datetime) -> Anchors:
    return replace(anchors, last_fire=slot, last_fired_at=now, exhausted=schedule.one_shot)


def held(schedule: Schedule, anchors: Anchors, run: Run, hold: Hold, now: datetime) -> Anchors:
    """`run` was due but may not fire: a one-shot is tried again, `cron` continues with its next
    occurrence. `every` continues one interval from now; if the reason may end soon, its run stays
    due instead. A run of any rule stays due while only polls of other producers are in its way.
    """
    counts_elapsed_time = isinstance(schedule.rule, Every | Monthly)
    if not (hold.by_other_polls or (hold.reason.temporary and counts_elapsed_time)):
        return _passed_over(schedule, anchors, run.slot, now)
    if not counts_elapsed_time:
        return anchors
    return replace(anchors, last_passed=run.counted_from or anchors.last_passed)


def fired_before(schedule: Schedule, anchors: Anchors, slot: datetime, now: datetime) -> Anchors:
    """`slot` was due but has already fired according to the ledger: a one-shot is done."""
    if not schedule.one_shot:
        return _passed_over(schedule, anchors, slot, now)
    fired_at = max(filter(None, (anchors.last_fired_at, slot)))
    return replace(anchors, last_fire=slot, last_fired_at=fired_at, exhausted=True)


def _passed_over(schedule: Schedule, anchors: Anchors, slot: datetime, now: datetime) -> Anchors:
    if schedule.one_shot:
        return replace(anchors, last_passed=max(slot, now))
    return replace(anchors, last_passed=slot if isinstance(schedule.rule, Cron) else now)


def started(schedule: Schedule, anchors: Anchors, boot: datetime) -> Anchors:
    """The anchors as read by a gateway that started at `boot`."""
    match schedule.rule:
        case At():
            exhausted = spent(schedule.rule, anchors)
        case After():
            exhausted = anchors.last_fired_at is not None and anchors.last_fired_at >= boot
        case _:
            exhausted = False
    return replace(anchors, boot=boot, exhausted=exhausted)


def next_due(schedule: Schedule, anchors: Anchors, now: datetime) -> datetime | None:
    """When `due` next has a decision to make; not later than `now` if it has one already.

    None means never, unless the configuration, an operator or a restart changes something.
    """
    steady = _steadied(schedule, anchors, now)
    if _kept(steady) != _kept(anchors):
        return now
    run = next(runs(schedule, steady), None)
    if run is None:
        return None
    window = schedule.window
    waits = not isinstance(schedule.rule, Cron) and not anchors.paused
    if waits and run.due <= now and window is not None and not window.contains(now):
        return window.next_start(now)
    return run.due


def nominal_due(schedule: Schedule, anchors: Anchors, now: datetime) -> datetime | None:
    """When a run that waits for its window would be due without it; None if none waits for it.

    Of `cron`, none waits: an occurrence outside the window is skipped.
    """
    window = schedule.window
    if isinstance(schedule.rule, Cron) or anchors.paused or window is None or window.contains(now):
        return None
    run = next(runs(replace(schedule, window=None), _steadied(schedule, anchors, now)), None)
    return run.slot if run is not None and run.due <= now else None


def next_look(schedule: Schedule, anchors: Anchors, now: datetime) -> datetime | None:
    """As `next_due` after a round at `now`, with a short wait for held occurrences."""
    upcoming = next_due(schedule, anchors, now)
    if upcoming is None or upcoming > now:
        return upcoming
    rule = schedule.rule
    interval = timedelta(seconds=rule.seconds) if isinstance(rule, Every) else _PATIENCE
    return now + min(interval, _PATIENCE)


def preview(
    schedule: Schedule,
    anchors: Anchors,
    now: datetime,
    count: int,
    blocked_until: datetime | None = None,
) -> Iterator[Run]:
    """The next fires, with `due` as the time of each. Assumes that nothing holds them back after
    `blocked_until`, the end of an open breaker, and that jobs of an `every` entry end at once: a
    later end moves the following fires.
    """
    if anchors.paused:
        return
    if blocked_until is not None and blocked_until > now:
        now = blocked_until
        if isinstance(schedule.rule, Cron):
            # Occurrences until then are skipped; those of other rules stay due.
            last = max(filter(None, (anchors.last_passed, now - timedelta(microseconds=1))))
            anchors = replace(anchors, last_passed=last)
    barren = 0
    while count > 0 and barren < _PREVIEW_PATIENCE:
        decision = due(schedule, anchors, now)
        anchors = decision.anchors
        for run in decision.fires[:count]:
            anchors = fired(schedule, anchors, run.slot, now)
            yield replace(run, due=now)
        count -= len(decision.fires)
        barren = 0 if decision.fires else barren + 1
        if schedule.window and decision.passed and _refusal(schedule, now):
            now = schedule.window.next_start(now) - timedelta(microseconds=1)
            anchors = replace(anchors, last_passed=now)
        wake = next_due(schedule, anchors, now)
        if wake is None:
            return
        now = max(now, wake)


def _caught_up(schedule: Schedule, anchors: Anchors, ripe: list[Run]) -> list[Run]:
    if schedule.catch_up is CatchUp.SKIP or schedule.one_shot:
        return ripe[-1:]
    owed = [replace(run, catch_up=True) for run in ripe if run.due < anchors.watched_since]
    newest = ripe[len(owed) :][-1:]
    if schedule.catch_up is CatchUp.RUN_ONCE:
        return newest or owed[-1:]
    if owed and schedule.if_running is IfRunning.CANCEL:
        # It would cancel the runs that are caught up before it.
        newest = []
    return (owed + newest)[-CATCH_UP_MOST:]


def _newest(
    schedule: Schedule, anchors: Anchors, ripe: list[Run], now: datetime
) -> tuple[list[Run], list[Passed]]:
    """The newest cron run inside the window, if it is late or caught up and the window is open now;
    and the other runs."""
    shut = _refusal(schedule, now)
    missed_before = min(anchors.watched_since, now) - _LATE
    newest = next((run for run in reversed(ripe) if not _refusal(schedule, run.slot)), None)
    if newest is not None and newest.due < missed_before:
        owed = schedule.catch_up is CatchUp.RUN_ONCE
        newest = replace(newest, catch_up=True) if owed else None
    passed = []
    for run in ripe:
        late = newest is not None and run.slot == newest.slot
        if shut or not late:
            reason = _refusal(schedule, run.slot) or (late and shut) or Reason.CATCH_UP_SKIPPED
            passed.append(Passed(run.slot, reason))
    return [newest] if newest and not shut else [], passed


def _refusal(schedule: Schedule, moment: datetime) -> Reason | None:
    window = schedule.window
    if window is None or window.contains(moment):
        return None
    return Reason.WEEKDAY if window.bars_day(moment) else Reason.WINDOW


def _kept(anchors: Anchors) -> tuple[datetime | None, ...]:
    """The parts of the anchors that a decision may change and the ledger stores."""
    return anchors.last_fire, anchors.last_fired_at, anchors.last_passed


def _steadied(schedule: Schedule, anchors: Anchors, now: datetime) -> Anchors:
    """The anchors without times in the future, so that a clock that was set back delays nothing.
    Stored times become `now`; the others are dropped, since they are read again with every check.
    An occurrence may be in the future by as much as jitter fires early.
    """
    early = now + timedelta(seconds=schedule.jitter / 2)
    elapsed = isinstance(schedule.rule, Every | Monthly)

    def bounded(moment: datetime | None, limit: datetime) -> datetime | None:
        return now if moment is not None and moment > limit else moment

    boot, success = anchors.boot, anchors.last_success_at
    fire, passed = anchors.last_fire, bounded(anchors.last_passed, now if elapsed else early)
    if not isinstance(schedule.rule, At):
        fire = bounded(fire, early)
    if isinstance(schedule.rule, After) and boot > now:
        boot = now - timedelta(seconds=schedule.rule.seconds + schedule.jitter)
    if not schedule.one_shot and anchors.first_seen > now and not any(_kept(anchors)):
        passed = now
    return replace(
        anchors,
        boot=boot,
        last_fire=fire,
        last_fired_at=bounded(anchors.last_fired_at, now),
        last_passed=passed,
        last_success_at=None if success and success > now else success,
    )
