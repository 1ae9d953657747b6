"""What the times of an entry are worth when it is seen again.

The ledger keeps the text of the rule beside the times that belong to it. They go on under a
rewritten rule of the same kind, and after a while in which no configuration had the entry;
but neither is downtime, so nothing that came due meanwhile is made up for:

every  the next run is an interval after the last fire; if that is past, it comes at once.
cron   its first slot is the first from now on.
at     has fired, unless it was moved beyond its last fire.
after  has fired in this start, or has not.

An entry that is now of another kind is a new one; times that were taken over from another
program belong to whatever rule meets them first. An operator's pause stays in any case.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

import orjson

from ductile.core.schedules.decide import started
from ductile.core.schedules.occurrences import (
    After,
    Anchors,
    At,
    Cron,
    Every,
    Monthly,
    Schedule,
    overdue,
)
from ductile.record import dataclass

_KINDS = {"Every": "every", "Monthly": "every", "Cron": "cron", "At": "at", "After": "after"}
_WITHDRAWN = "withdrawn"
_TAKEN_OVER = ""


@dataclass(frozen=True, slots=True)
class _Remembered:
    rule: str = ""
    zone: str = ""
    withdrawn: bool = False

    @property
    def kind(self) -> str | None:
        return _KINDS.get(self.rule.partition("(")[0])


def rule_text(schedule: Schedule) -> str:
    """The rule that an entry's times belong to, as the ledger keeps it."""
    return orjson.dumps([repr(schedule.rule), str(schedule.zone)]).decode()


def withdrawn(text: str) -> str:
    """The text of the rule, once no configuration has it any more."""
    known = _read(text)
    if known.kind is None or known.withdrawn:
        return text
    return orjson.dumps({_WITHDRAWN: [known.rule, known.zone]}).decode()


def seen(schedule: Schedule, anchors: Anchors, text: str, boot: datetime, now: datetime) -> Anchors:
    """The anchors of an entry that the ledger has under the rule `text`, from `now` on."""
    if text == _TAKEN_OVER:
        return started(schedule, anchors, boot)
    before, rule = _read(text), _read(rule_text(schedule))
    if before.kind != rule.kind:
        return Anchors(first_seen=now, boot=boot, paused=anchors.paused)
    anchors = started(schedule, anchors, boot)
    if isinstance(schedule.rule, Every):
        # Elapsed time is the same in every zone.
        before = replace(before, zone=rule.zone)
    return anchors if before == rule else _going_on(schedule, anchors, now)


def _going_on(schedule: Schedule, anchors: Anchors, now: datetime) -> Anchors:
    match schedule.rule:
        case Cron():
            return replace(anchors, first_seen=now, last_fire=None, last_passed=None)
        case Every() | Monthly():
            ripe = overdue(schedule, anchors, now)
            counted_from = ripe[-1].counted_from if ripe else None
            return replace(anchors, last_passed=counted_from or anchors.last_passed)
        case At() | After():
            return anchors


def _read(text: str) -> _Remembered:
    """Nothing of what nobody here has written."""
    try:
        kept = orjson.loads(text)
        gone = isinstance(kept, dict)
        rule, zone = kept[_WITHDRAWN] if gone else kept
    except (ValueError, TypeError, KeyError):
        return _Remembered()
    return _Remembered(str(rule), str(zone), withdrawn=gone)
