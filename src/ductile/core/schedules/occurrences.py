"""Which slots a schedule entry has, and when each is due.

A **slot** is the nominal time of one run and its identity: (plugin, schedule, slot) fires at
most once. It is **due** at its time moved by jitter, kept inside the entry's window.

every  one interval after the later of the last fire, the last success's completion and the
       last slot that was passed over; before any of these, at first sight.
       Outside its window it moves to the window's next start, which then is its slot.
       Held back, a slot stays due until it fires or its successor is due.
cron   the rule's instants, inside the window or not: `schedule` passes over those outside.
at     once ever, late rather than never; `after` once a start. One-shots move like `every`.
       Held back, they come up again after a minute to an hour, for no later slot makes up
       for them.
"""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Iterator
from dataclasses import field, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from hashlib import blake2b
from itertools import takewhile
from zoneinfo import ZoneInfo

from ductile.core.jobs.commands import POLL
from ductile.core.schedules import cron
from ductile.core.schedules.window import Window
from ductile.model import Json
from ductile.record import dataclass

CATCH_UP_MOST = 100
"""How many missed runs are made up for, the newest."""
LOOKED_BACK = 24 * 60
"""How many overdue slots are looked at, the newest: a minutely rule's day."""
SHORTEST = 0.001
"""Seconds; no interval is shorter."""

_MONTH_AT_LEAST = timedelta(days=28)
_MONTH_AT_MOST = timedelta(days=31)
_MINUTE = timedelta(minutes=1)
_RETRY_LATEST = timedelta(hours=1)


class CatchUp(StrEnum):
    SKIP = "skip"
    RUN_ONCE = "run_once"
    RUN_ALL = "run_all"


class IfRunning(StrEnum):
    SKIP = "skip"
    QUEUE = "queue"
    CANCEL = "cancel"


@dataclass(frozen=True, slots=True)
class Every:
    """Elapsed time, from a millisecond up; a day is 24 hours."""

    seconds: float

    def __post_init__(self) -> None:
        if self.seconds < SHORTEST:
            raise ValueError(f"every {self.seconds}s: at least 1ms is wanted")


@dataclass(frozen=True, slots=True)
class Monthly:
    """A calendar month in the schedule's zone. Where a month lacks the day, its last day
    holds, and the month after goes back to the day of first sight.
    """


@dataclass(frozen=True, slots=True)
class Cron:
    expr: str


@dataclass(frozen=True, slots=True)
class At:
    moment: datetime


@dataclass(frozen=True, slots=True)
class After:
    """Seconds after the gateway's start."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Schedule:
    plugin: str
    id: str
    rule: Every | Monthly | Cron | At | After
    zone: ZoneInfo
    command: str = POLL
    payload: Json = field(default_factory=dict)
    jitter: float = 0.0
    """Seconds from earliest to latest; in effect at most the distance to the slots beside."""
    window: Window | None = None
    catch_up: CatchUp = CatchUp.SKIP
    if_running: IfRunning = IfRunning.SKIP

    @property
    def one_shot(self) -> bool:
        return isinstance(self.rule, At | After)


@dataclass(frozen=True, slots=True)
class Anchors:
    """What the ledger knows of one entry, and this gateway of itself. All in UTC."""

    first_seen: datetime
    boot: datetime
    """When this gateway started."""
    last_fire: datetime | None = None
    """The newest slot that fired."""
    last_fired_at: datetime | None = None
    last_passed: datetime | None = None
    """The newest cron slot that was passed over; of other rules, when that was."""
    last_success_at: datetime | None = None
    """When the newest successful job of this entry completed."""
    paused: bool = False
    exhausted: bool = False
    awake: datetime | None = None
    """Since when this gateway has looked at the clock without a break, if not since its start."""

    @property
    def watched_since(self) -> datetime:
        return self.awake or self.boot


@dataclass(frozen=True, slots=True)
class Run:
    slot: datetime
    due: datetime
    catch_up: bool = False
    """It makes up for downtime, so the poll guard does not hold it."""
    counted_from: datetime | None = field(default=None, compare=False)
    """Of an `every` that has run before: what its interval began with."""


def runs(schedule: Schedule, anchors: Anchors) -> Iterator[Run]:
    """What comes after `anchors`, in order, as if each run fired when due."""
    try:
        if isinstance(schedule.rule, Cron):
            yield from _cron_runs(schedule, schedule.rule, anchors)
        elif isinstance(schedule.rule, At | After):
            yield from _one_shot(schedule, schedule.rule, anchors)
        else:
            yield from _every_runs(schedule, anchors)
    except OverflowError:
        return  # later than any date


def overdue(schedule: Schedule, anchors: Anchors, now: datetime) -> list[Run]:
    """The newest runs due by `now`, in order; bounded, however long ago the anchors lie."""

    def ripe(run: Run) -> bool:
        return run.due <= now

    if isinstance(schedule.rule, Cron):
        early = now + timedelta(seconds=schedule.jitter / 2)
        expr, base = schedule.rule.expr, _cron_base(anchors)
        slots = cron.newest(expr, base, early, schedule.zone, LOOKED_BACK)
        return list(takewhile(ripe, (_cron_run(schedule, schedule.rule, slot) for slot in slots)))
    if not schedule.one_shot:
        base = _base(anchors)
        left_out = max(0, _steps_between(schedule, base, now) - LOOKED_BACK)
        if left_out:
            anchors = replace(anchors, last_passed=_later(schedule, anchors, base, left_out))
    return list(takewhile(ripe, runs(schedule, anchors)))[-LOOKED_BACK:]


def _cron_base(anchors: Anchors) -> datetime:
    decided = filter(None, (anchors.last_fire, anchors.last_passed))
    return max(decided, default=anchors.first_seen)


def _cron_runs(schedule: Schedule, rule: Cron, anchors: Anchors) -> Iterator[Run]:
    slot = cron.next_after(rule.expr, _cron_base(anchors), schedule.zone)
    while slot is not None:
        yield _cron_run(schedule, rule, slot)
        slot = cron.next_after(rule.expr, slot, schedule.zone)


def _cron_run(schedule: Schedule, rule: Cron, slot: datetime) -> Run:
    moved = _jittered(schedule, slot, _room(schedule, rule, slot)) if schedule.jitter else slot
    out = schedule.window is not None and not schedule.window.contains(moved)
    return Run(slot, slot if out else moved)


def _room(schedule: Schedule, rule: Cron, slot: datetime) -> timedelta:
    """How widely jitter may spread a slot without reaching those beside it.

    It depends on the slot alone, not on where the search began, so that the run is fixed.
    """
    room = timedelta(seconds=schedule.jitter)
    following = cron.next_after(rule.expr, slot, schedule.zone)
    if following is not None:
        room = min(room, following - slot)
    earlier = cron.next_after(rule.expr, slot - room, schedule.zone)
    while earlier is not None and earlier < slot:
        room = slot - earlier
        earlier = cron.next_after(rule.expr, earlier, schedule.zone)
    return room


def _one_shot(schedule: Schedule, rule: At | After, anchors: Anchors) -> Iterator[Run]:
    if isinstance(rule, At):
        # A slot is an instant, however its offset is written.
        first, room = rule.moment.astimezone(UTC), timedelta.max
    else:
        room = timedelta(seconds=rule.seconds)
        first = anchors.boot + room
    if spent(rule, anchors) or anchors.paused:
        return
    tried = anchors.last_passed
    if tried is None or tried < first:
        yield _placed(schedule, first, room)
    else:
        pause = min(max(tried - first, _MINUTE), _RETRY_LATEST)
        yield _placed(schedule, tried + pause, timedelta())


def spent(rule: At | After, anchors: Anchors) -> bool:
    """Whether a one-shot has fired; an `at` that was moved beyond its last fire is another."""
    moved_on = (
        isinstance(rule, At) and anchors.last_fire is not None and anchors.last_fire < rule.moment
    )
    return anchors.exhausted and not moved_on


def _every_runs(schedule: Schedule, anchors: Anchors) -> Iterator[Run]:
    room = _MONTH_AT_LEAST
    if isinstance(schedule.rule, Every):
        room = timedelta(seconds=schedule.rule.seconds)
    known = _known(anchors)
    base = known or anchors.first_seen
    if known is None:
        run = _placed(schedule, base, timedelta())
        yield run
        base = run.due
    while True:
        run = _placed(schedule, _later(schedule, anchors, base, 1), room)
        yield replace(run, counted_from=base)
        base = run.due


def _placed(schedule: Schedule, slot: datetime, room: timedelta) -> Run:
    """The run of a slot that moves with its window; jitter alone never takes it out."""
    moved = _jittered(schedule, slot, room)
    if schedule.window is None or schedule.window.contains(moved):
        return Run(slot, moved)
    if not schedule.window.contains(slot):
        slot = schedule.window.next_start(slot)
    return Run(slot, slot)


def _jittered(schedule: Schedule, slot: datetime, room: timedelta) -> datetime:
    """`slot` moved within ±jitter/2, by a hash, so that a preview shows what will be."""
    span = min(timedelta(seconds=schedule.jitter), room)
    if not span:
        return slot
    key = "\0".join((schedule.plugin, schedule.id, slot.isoformat()))
    digest = blake2b(key.encode(), digest_size=8).digest()
    return slot + span * (int.from_bytes(digest) / 2**64 - 0.5)


def _base(anchors: Anchors) -> datetime:
    return _known(anchors) or anchors.first_seen


def _known(anchors: Anchors) -> datetime | None:
    """The newest of what the next run is counted from; None for an entry that never ran."""
    moments = (anchors.last_fired_at, anchors.last_success_at, anchors.last_passed)
    return max(filter(None, moments), default=None)


def _later(schedule: Schedule, anchors: Anchors, base: datetime, steps: int) -> datetime:
    if isinstance(schedule.rule, Every):
        return base + timedelta(seconds=schedule.rule.seconds) * steps
    wall = cron.wall_time(base, schedule.zone)
    day = wall.day
    if day == monthrange(wall.year, wall.month)[1]:
        day = max(day, cron.wall_time(anchors.first_seen, schedule.zone).day)
    year, month = divmod(wall.year * 12 + wall.month - 1 + steps, 12)
    day = min(day, monthrange(year, month + 1)[1])
    return cron.instant(wall.replace(year=year, month=month + 1, day=day), schedule.zone)


def _steps_between(schedule: Schedule, base: datetime, now: datetime) -> int:
    """Whole intervals from `base` to `now`; of months perhaps too few, never too many."""
    if isinstance(schedule.rule, Every):
        return (now - base) // timedelta(seconds=schedule.rule.seconds)
    return (now - base) // _MONTH_AT_MOST
