"""The state machine of one alert, as a table: ok, pending, firing, ok.

An alert belongs to a rule and a group. It is **pending** while something fails that is not yet
reported: too few failures in a row (`after`), not long enough (`for`), or still being collected
(`wait`). It is **firing** until everything in the group works again. A failure that has reached
`after` and `for` is reported even if it ends during `wait`, so that no alert is lost by collecting.

More than `MAX_FLIPS` changes between firing and ok in an hour are reported by one message; further
ones follow when the alert has not changed for an hour. A silenced alert changes its state without
messages; what is still firing when the silence ends is reported then.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from enum import StrEnum

from ductile._fast_dataclass import dataclass

MAX_FLIPS = 4
"""Changes between firing and ok within `FLAP_WINDOW`; one more is flapping."""
FLAP_WINDOW = timedelta(hours=1)


class AlertState(StrEnum):
    OK = "ok"
    PENDING = "pending"
    FIRING = "firing"


class Signal(StrEnum):
    """What moves an alert from one state to the next."""

    FAILING = "failing"
    DUE = "due"
    """`after`, `for` and `wait` are reached."""
    RECOVERED = "recovered"


TRANSITIONS: dict[tuple[AlertState, Signal], AlertState] = {
    (AlertState.OK, Signal.FAILING): AlertState.PENDING,
    (AlertState.PENDING, Signal.RECOVERED): AlertState.OK,
    (AlertState.PENDING, Signal.DUE): AlertState.FIRING,
    (AlertState.FIRING, Signal.RECOVERED): AlertState.OK,
}


class News(StrEnum):
    """What a message reports."""

    FIRING = "firing"
    REMINDER = "reminder"
    RESOLVED = "resolved"
    FLAPPING = "flapping"
    TEST = "test"


@dataclass(frozen=True, slots=True)
class AlertPolicy:
    """When a rule reports; durations in seconds."""

    after: int = 1
    lasts: float = 0.0
    """`for`: how long it must fail."""
    wait: float = 0.0
    repeat: float = 0.0
    """Seconds between reminders; 0 for none."""


@dataclass(frozen=True, slots=True)
class Observed:
    """What fails in the group now; nothing if `since` is None."""

    since: datetime | None = None
    count: int = 0
    """Failures in a row."""
    is_counted: bool = True
    """False if one of the failures is a lasting condition, which `after` does not count."""

    @property
    def is_failing(self) -> bool:
        return self.since is not None


@dataclass(frozen=True, slots=True)
class Alert:
    """The stored state of one (rule, group)."""

    state: AlertState = AlertState.OK
    number: int = 0
    """Of its last change or message: identifies a message."""
    since: datetime | None = None
    """When the current failure began, or the last one if the state is ok."""
    armed_at: datetime | None = None
    """When `after` and `for` were reached."""
    notified_at: datetime | None = None
    is_reported: bool = False
    """Whether the last message said that something fails."""
    flips: tuple[datetime, ...] = ()
    is_flapping: bool = False

    @property
    def ended_at(self) -> datetime | None:
        """When the last failure ended; None while it lasts, or if it is not known any more."""
        return self.flips[-1] if self.state is AlertState.OK and self.flips else None


@dataclass(frozen=True, slots=True)
class AlertStep:
    alert: Alert
    news: News | None = None
    """The message to send."""


def step(
    alert: Alert, seen: Observed, policy: AlertPolicy, now: datetime, *, silenced: bool = False
) -> AlertStep:
    """The alert after an observation at `now`, and the message that follows from it."""
    before = alert = _without_future(alert, now)
    while (signal := _signal(alert, seen, policy, now)) is not None:
        if signal is Signal.DUE and alert.armed_at is None:
            alert = replace(alert, armed_at=now)
            continue
        alert = _move(alert, signal, seen, now)
        if alert.state is not AlertState.PENDING:
            break
    flipped = len(alert.flips) > len(before.flips)
    recent = tuple(at for at in alert.flips if now - at < FLAP_WINDOW)
    if alert.is_flapping and not recent:
        alert = replace(alert, is_flapping=False)
    # The end of a failure is known until it has been reported, which a silence may delay.
    unreported = alert.flips[-1:] if alert.state is AlertState.OK and alert.is_reported else ()
    alert = replace(alert, flips=recent[-MAX_FLIPS - 1 :] or unreported)
    alert, news = _choose_news(alert, policy, now, flipped=flipped, silenced=silenced)
    if news is not None or alert.state is not before.state:
        alert = replace(alert, number=alert.number + 1)
    return AlertStep(alert, news)


def next_look(
    alert: Alert, seen: Observed, policy: AlertPolicy, now: datetime, *, silenced: bool = False
) -> datetime | None:
    """When `step` would next do something although nothing else happens; None means never."""
    if alert.state is AlertState.OK and not seen.is_failing and not alert.is_flapping:
        return None
    if alert.state is AlertState.PENDING:
        if alert.armed_at is not None:
            return alert.armed_at + timedelta(seconds=policy.wait)
        enough = _has_enough(seen, policy) and alert.since is not None
        return alert.since + timedelta(seconds=policy.lasts) if enough and alert.since else None
    if alert.is_flapping:
        return max(alert.flips, default=now) + FLAP_WINDOW
    is_reminded = alert.is_reported and policy.repeat and alert.notified_at and not silenced
    if alert.state is AlertState.FIRING and is_reminded and alert.notified_at is not None:
        return alert.notified_at + timedelta(seconds=policy.repeat)
    return None


def _signal(alert: Alert, seen: Observed, policy: AlertPolicy, now: datetime) -> Signal | None:
    match alert.state:
        case AlertState.OK:
            return Signal.FAILING if seen.is_failing else None
        case AlertState.FIRING:
            return None if seen.is_failing else Signal.RECOVERED
        case AlertState.PENDING:
            return _pending_signal(alert, seen, policy, now)


def _pending_signal(
    alert: Alert, seen: Observed, policy: AlertPolicy, now: datetime
) -> Signal | None:
    if alert.armed_at is not None:
        return Signal.DUE if now - alert.armed_at >= timedelta(seconds=policy.wait) else None
    if not seen.is_failing:
        return Signal.RECOVERED
    assert alert.since is not None
    lasted = now - alert.since >= timedelta(seconds=policy.lasts)
    return Signal.DUE if lasted and _has_enough(seen, policy) else None


def _has_enough(seen: Observed, policy: AlertPolicy) -> bool:
    return not seen.is_counted or seen.count >= policy.after


def _move(alert: Alert, signal: Signal, seen: Observed, now: datetime) -> Alert:
    state = TRANSITIONS[alert.state, signal]
    match state:
        case AlertState.PENDING:
            # Not later than now: a subject may be silent since before the rule existed.
            since = min(seen.since or now, now)
            return replace(alert, state=state, since=since, armed_at=None)
        case AlertState.FIRING:
            return replace(alert, state=state, flips=(*alert.flips, now))
        case AlertState.OK if alert.state is AlertState.FIRING:
            return replace(alert, state=state, armed_at=None, flips=(*alert.flips, now))
        case _:
            return replace(alert, state=state, armed_at=None)


def _choose_news(
    alert: Alert, policy: AlertPolicy, now: datetime, *, flipped: bool, silenced: bool
) -> tuple[Alert, News | None]:
    if flipped and not alert.is_flapping and len(alert.flips) > MAX_FLIPS:
        alert = replace(alert, is_flapping=True)
        news = News.FLAPPING
    elif alert.is_flapping:
        return alert, None
    elif alert.state is AlertState.FIRING and not alert.is_reported:
        news = News.FIRING
    elif alert.state is AlertState.FIRING and _is_reminder_due(alert, policy, now):
        news = News.REMINDER
    elif alert.state is AlertState.OK and alert.is_reported:
        news = News.RESOLVED
    else:
        return alert, None
    if silenced:
        return alert, None
    reported = news is not News.RESOLVED
    return replace(alert, is_reported=reported, notified_at=now), news


def _is_reminder_due(alert: Alert, policy: AlertPolicy, now: datetime) -> bool:
    if not policy.repeat or alert.notified_at is None:
        return False
    return now - alert.notified_at >= timedelta(seconds=policy.repeat)


def _without_future(alert: Alert, now: datetime) -> Alert:
    """Times in the future become `now`, so that a clock that was set back delays nothing."""

    def bounded(moment: datetime | None) -> datetime | None:
        return now if moment is not None and moment > now else moment

    return replace(
        alert,
        since=bounded(alert.since),
        armed_at=bounded(alert.armed_at),
        notified_at=bounded(alert.notified_at),
        flips=tuple(min(at, now) for at in alert.flips),
    )
