"""The hours and days in which a schedule may fire.

Windows are in wall time, so clock shifts follow from one rule: the window is open while clocks in
its zone show a time in [start, end) of a day that is not excluded. A start inside a spring gap
opens at the end of the gap, a window entirely inside the gap does not open that day, and one inside
a repeated hour opens twice. An overnight window belongs, minute by minute, to the day that the
clock shows: 22:00-06:00 without Sunday closes at midnight between Saturday and Sunday and opens
again at midnight between Sunday and Monday.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime, time, timedelta
from itertools import count
from zoneinfo import ZoneInfo

from ductile._fast_dataclass import dataclass
from ductile.core.schedules.cron import first_shift, instant, offset, wall_time

_DAY_MINUTES = 24 * 60
_SPAN = re.compile(r"\s*(\d{1,2}):(\d\d)\s*-\s*(\d{1,2}):(\d\d)\s*", re.ASCII)
_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_TICK = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Window:
    """Minutes after midnight, `end` excluded; `end` before `start` runs overnight."""

    zone: ZoneInfo
    start: int = 0
    end: int = _DAY_MINUTES
    not_on: frozenset[int] = frozenset()
    """Excluded days as numbered by `date.weekday()`, Monday is 0."""

    def __post_init__(self) -> None:
        if len(self.not_on) >= len(_WEEKDAYS):
            raise ValueError("not_on leaves no day of the week")

    @classmethod
    def parse(cls, text: str | None, zone: ZoneInfo, not_on: Iterable[str | int] = ()) -> Window:
        """From `08:00-22:00` (None: always) and weekdays; ValueError describes the problem."""
        start, end = (0, _DAY_MINUTES) if text is None else _span(text)
        return cls(zone, start, end, frozenset(weekday(token) for token in not_on))

    def contains(self, moment: datetime) -> bool:
        wall = wall_time(moment, self.zone)
        if wall.weekday() in self.not_on:
            return False
        minute = wall.hour * 60 + wall.minute
        if self.start < self.end:
            return self.start <= minute < self.end
        return minute >= self.start or minute < self.end

    def bars_day(self, moment: datetime) -> bool:
        """Whether `moment` is excluded by its weekday, not by its hour."""
        return wall_time(moment, self.zone).weekday() in self.not_on

    def next_start(self, moment: datetime) -> datetime:
        """The first instant later than `moment` at which the window opens.

        `moment` itself if the window is always open.
        """
        if self.start == 0 and self.end == _DAY_MINUTES and not self.not_on:
            return moment
        today = wall_time(moment, self.zone).date()
        for days in count():
            for opening in sorted(self._openings(today + timedelta(days))):
                if opening > moment and self._opens(opening):
                    return opening
        raise AssertionError  # count() has no end

    def _opens(self, moment: datetime) -> bool:
        return self.contains(moment) and not self.contains(moment - _TICK)

    def _openings(self, day: date) -> Iterator[datetime]:
        """The times at which a window can open: its start, a midnight, a clock shift."""
        midnight = datetime.combine(day, time())
        for wall in (midnight, midnight + timedelta(minutes=self.start)):
            yield instant(wall, self.zone)
            yield wall.replace(tzinfo=self.zone, fold=1).astimezone(UTC)
        begin, end = instant(midnight, self.zone), instant(midnight + timedelta(1), self.zone)
        if offset(begin, self.zone) != offset(end, self.zone):
            yield first_shift(self.zone, begin, end)


def weekday(token: str | int) -> int:
    """`date.weekday()` of a name, an abbreviation of it (three letters or more) or 0 to 7."""
    text = str(token).strip().lower()
    if len(text) == 1 and text in "01234567":
        return (int(text) - 1) % 7
    if len(text) >= 3:
        for number, name in enumerate(_WEEKDAYS):
            if name.startswith(text):
                return number
    raise ValueError(
        f"{token!r} is not a weekday; allowed: {', '.join(_WEEKDAYS)}, "
        "their abbreviations (mon), 0 to 7 (0 and 7 are Sunday)"
    )


def _span(text: str) -> tuple[int, int]:
    found = _SPAN.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not a window; allowed: HH:MM-HH:MM, such as 08:00-22:00")
    start_hour, start_minute, end_hour, end_minute = map(int, found.groups())
    start, end = start_hour * 60 + start_minute, end_hour * 60 + end_minute
    if max(start_minute, end_minute) > 59 or start >= _DAY_MINUTES or end > _DAY_MINUTES:
        raise ValueError(f"{text!r} is not a window; times run from 00:00 to 24:00")
    if start == end:
        raise ValueError(f"{text!r} is not a window; its start and end are the same")
    return start, end
