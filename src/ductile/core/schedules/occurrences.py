"""The occurrences of a schedule entry, and when each is due.

The nominal time of an occurrence (`slot`, as in the ledger) is its identity: (plugin, schedule,
slot) fires at most once. It is **due** at that time moved by jitter, within the entry's window.

every  one interval after the latest of: last fire, completion of the last success, last skipped
       occurrence; without any of these, when first seen.
       Outside its window it moves to the next start of the window, which becomes its time.
       If held back, it stays due until it fires or its successor is due.
cron   the instants of the rule, inside the window or not: `decide` skips those outside.
at     once, late rather than never; `after` once per start. Both move with the window like `every`.
       If held back, they are tried again after a minute to an hour, since there is no later one.
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

from ductile._fast_dataclass import dataclass
from ductile.core.jobs.commands import POLL
from ductile.core.schedules import cron
from ductile.core.schedules.window import Window
from ductile.model import Json

CATCH_UP_MOST = 100
"""Maximum number of missed runs that are caught up, the newest."""
LOOKED_BACK = 24 * 60
"""Maximum number of overdue occurrences considered, the newest: one day of a rule per minute."""
SHORTEST = 0.001
"""Seconds; the shortest interval."""

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
            raise ValueError(f"every {self.seconds}s is too short; the minimum is 1ms")


@dataclass(frozen=True, slots=True)
class Monthly:
    """A calendar month in the schedule's zone. In a month without the day the last day counts; the
    following month uses the original day again.
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
    """One entry of a plugin or, with `pipeline`, of a pipeline."""

    plugin: str
    """The plugin; of a pipeline's entry `pipeline:NAME`, which cannot be a plugin."""
    id: str
    rule: Every | Monthly | Cron | At | After
    zone: ZoneInfo
    command: str = POLL
    payload: Json = field(default_factory=dict)
    jitter: float = 0.0
    """Seconds from earliest to latest; limited by the distance to the neighbouring occurrences."""
    window: Window | None = None
    catch_up: CatchUp = CatchUp.SKIP
    if_running: IfRunning = IfRunning.SKIP
    priority: float = 0.0
    """Seconds by which its jobs start as if they had been enqueued earlier."""
    pipeline: str | None = None
    """The pipeline that it starts instead of a command."""

    @property
    def one_shot(self) -> bool:
        return isinstance(self.rule, At | After)


@dataclass(frozen=True, slots=True)
class Anchors:
    """The stored state of one entry, and the start of this gateway. All times in UTC."""

    first_seen: datetime
    boot: datetime
    """When this gateway started."""
    last_fire: datetime | None = None
    """The newest occurrence that fired."""
    last_fired_at: datetime | None = None
    last_passed: datetime | None = None
    """The newest cron occurrence that was skipped; for other rules, when it was skipped."""
    last_success_at: datetime | None = None
    """When the newest successful job of this entry completed."""
    paused: bool = False
    exhausted: bool = False
    awake: datetime | None = None
    """Since when this gateway has checked the clock without a gap, if not since its start."""

    @property
    def watched_since(self) -> datetime:
        return self.awake or self.boot


@dataclass(frozen=True, slots=True)
class Run:
    slot: datetime
    due: datetime
    catch_up: bool = False
    """A catch-up after downtime, which the poll guard does not hold back."""
    counted_from: datetime | None = field(default=None, compare=False)
    """For `every`: the start of its interval, if the entry has run before."""


def runs(schedule: Schedule, anchors: Anchors) -> Iterator[Run]:
    """The runs after `anchors`, in order, as if each fired when due."""
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
    """The newest runs due by `now`, in order; bounded, however old the anchors are."""

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
    """How far jitter may move an occurrence without reaching its neighbours.

    It depends on the occurrence only, not on the start of the search, so that the time is fixed.
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
        # An occurrence is an instant, whatever its offset.
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
    """Whether a one-shot has fired; an `at` moved to after its last fire has not."""
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
    """The run of an occurrence that moves with its window; jitter never moves it out of it."""
    moved = _jittered(schedule, slot, room)
    if schedule.window is None or schedule.window.contains(moved):
        return Run(slot, moved)
    if not schedule.window.contains(slot):
        slot = schedule.window.next_start(slot)
    return Run(slot, slot)


def _jittered(schedule: Schedule, slot: datetime, room: timedelta) -> datetime:
    """`slot` moved within ±jitter/2 by a hash, so that a preview shows the actual time."""
    span = min(timedelta(seconds=schedule.jitter), room)
    if not span:
        return slot
    key = "\0".join((schedule.plugin, schedule.id, slot.isoformat()))
    digest = blake2b(key.encode(), digest_size=8).digest()
    return slot + span * (int.from_bytes(digest) / 2**64 - 0.5)


def _base(anchors: Anchors) -> datetime:
    return _known(anchors) or anchors.first_seen


def _known(anchors: Anchors) -> datetime | None:
    """The time from which the next run is counted; None for an entry that never ran."""
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
    """Whole intervals from `base` to `now`; for months possibly too few, never too many."""
    if isinstance(schedule.rule, Every):
        return (now - base) // timedelta(seconds=schedule.rule.seconds)
    return (now - base) // _MONTH_AT_MOST
