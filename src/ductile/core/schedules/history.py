"""How stored times of an entry apply when its rule has changed or the entry returns.

The ledger stores the text of the rule with its times. They stay valid for a changed rule of the
same kind, and after a time in which no configuration had the entry. Neither is downtime, so nothing
that became due meanwhile is caught up:

every  the next run is one interval after the last fire; at once if that is past.
cron   the first occurrence is the first one from now on.
at     has fired, unless it was moved to after its last fire.
after  has fired since this start, or has not.

An entry of another kind is a new entry; imported times belong to the first rule that uses them. An
operator's pause always stays.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

import orjson

from ductile._fast_dataclass import dataclass
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
    """The rule that an entry's times belong to, as stored in the ledger."""
    return orjson.dumps([repr(schedule.rule), str(schedule.zone)]).decode()


def withdrawn(text: str) -> str:
    """The text of a rule that no configuration has any more."""
    known = _read(text)
    if known.kind is None or known.withdrawn:
        return text
    return orjson.dumps({_WITHDRAWN: [known.rule, known.zone]}).decode()


def seen(schedule: Schedule, anchors: Anchors, text: str, boot: datetime, now: datetime) -> Anchors:
    """The anchors, from `now` on, of an entry that the ledger has with the rule `text`."""
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
    """Discard values that this program did not write."""
    try:
        kept = orjson.loads(text)
        gone = isinstance(kept, dict)
        rule, zone = kept[_WITHDRAWN] if gone else kept
    except (ValueError, TypeError, KeyError):
        return _Remembered()
    return _Remembered(str(rule), str(zone), withdrawn=gone)
