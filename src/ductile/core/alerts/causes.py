"""The causes of an alert: what fails in its group, each with its own count, errors and end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from ductile._fast_dataclass import dataclass
from ductile.clock import moment_of, to_text
from ductile.core.alerts.conditions import Condition
from ductile.core.alerts.state_machine import Observed

MAX_CAUSES = 100
"""Causes that an alert keeps; further ones are only counted."""
MAX_ERROR = 500
"""Characters of an error."""


@dataclass(frozen=True, slots=True)
class Cause:
    """One failing subject, by one condition."""

    condition: Condition
    subject: str
    """Kind and name, as in `plugin:backup` or `schedule:backup/nightly`."""
    since: datetime
    last_at: datetime
    count: int = 1
    command: str = ""
    """The command of the plugin, where only its success ends the cause."""
    first_error: str = ""
    last_error: str = ""
    job_id: str | None = None
    """The first job that failed."""

    @property
    def key(self) -> tuple[str, str, str]:
        return self.condition.value, self.subject, self.command

    def repeat(self, other: Cause) -> Cause:
        """This cause after it was seen once more."""
        return replace(
            self,
            count=self.count + other.count,
            last_at=max(self.last_at, other.last_at),
            last_error=other.last_error or self.last_error,
            first_error=self.first_error or other.first_error,
            job_id=self.job_id or other.job_id,
        )


def make_cause(
    condition: Condition,
    subject: str,
    since: datetime,
    *,
    error: str | None = None,
    last_at: datetime | None = None,
    count: int = 1,
    command: str = "",
    job_id: str | None = None,
) -> Cause:
    text = _shorten_error(error or "")
    return Cause(condition, subject, since, last_at or since, count, command, text, text, job_id)


def _shorten_error(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= MAX_ERROR else f"{line[: MAX_ERROR - 1]}…"


@dataclass(frozen=True, slots=True)
class Causes:
    """The causes of one alert, oldest first."""

    items: tuple[Cause, ...] = ()
    more: int = 0
    """Failures of subjects beyond `MAX_CAUSES`."""

    def __bool__(self) -> bool:
        return bool(self.items)

    @property
    def count(self) -> int:
        return sum(cause.count for cause in self.items) + self.more

    @property
    def first(self) -> Cause | None:
        return min(self.items, key=lambda cause: cause.since, default=None)

    @property
    def last(self) -> Cause | None:
        return max(self.items, key=lambda cause: cause.last_at, default=None)

    @property
    def ended_at(self) -> datetime | None:
        """When the last outage ended; None if one lasts, or for other conditions."""
        ends = [
            cause.last_at
            for cause in self.items
            if cause.condition is Condition.HEALTH and cause.last_at > cause.since
        ]
        return max(ends) if ends and len(ends) == len(self.items) else None

    def observe(self) -> Observed:
        """What the state machine needs to know."""
        if self.first is None:
            return Observed()
        is_counted = all(cause.condition.is_counted for cause in self.items)
        return Observed(self.first.since, self.count, is_counted)

    def add(self, cause: Cause) -> Causes:
        """With one more failure; a lasting condition replaces what was known of it."""
        known = {item.key: item for item in self.items}
        before = known.get(cause.key)
        if before is not None:
            known[cause.key] = before.repeat(cause)
        elif len(known) >= MAX_CAUSES:
            return replace(self, more=self.more + cause.count)
        else:
            known[cause.key] = cause
        return replace(self, items=tuple(known.values()))

    def update(self, lasting: Iterable[Cause]) -> Causes:
        """With the lasting conditions as they are now; those of events stay."""
        now = {cause.key: cause for cause in lasting}
        kept: dict[tuple[str, str, str], Cause] = {}
        for item in self.items:
            if item.key in now:
                kept[item.key] = replace(
                    now[item.key],
                    since=min(item.since, now[item.key].since),
                    first_error=item.first_error or now[item.key].first_error,
                )
            elif item.condition in EVENTS:
                kept[item.key] = item
        for key, cause in now.items():
            if key not in kept and len(kept) < MAX_CAUSES:
                kept[key] = cause
        return Causes(tuple(kept.values()), self.more if kept else 0)

    def end(self, keys: Iterable[tuple[str, str, str]]) -> Causes:
        """Without the causes that have ended."""
        ended = set(keys)
        items = tuple(item for item in self.items if item.key not in ended)
        return Causes(items, self.more if items else 0)


EVENTS = frozenset({Condition.JOB_DEAD, Condition.RUN_FAILED})
"""Conditions that happen, and end by a later success; the others last as long as they are seen."""


def encode(causes: Causes) -> dict[str, Any]:
    """The causes as JSON."""
    return {
        "more": causes.more,
        "items": [
            {
                "condition": item.condition.value,
                "subject": item.subject,
                "command": item.command,
                "since": to_text(item.since),
                "last_at": to_text(item.last_at),
                "count": item.count,
                "first_error": item.first_error,
                "last_error": item.last_error,
                "job_id": item.job_id,
            }
            for item in causes.items
        ],
    }


def decode(document: Any) -> Causes:
    """The causes of `encode`; rows that a script wrote otherwise are left out."""
    if not isinstance(document, dict) or not isinstance(document.get("items"), list):
        return Causes()
    items = tuple(filter(None, (_decode_cause(row) for row in document["items"][:MAX_CAUSES])))
    more = document.get("more")
    return Causes(items, more if isinstance(more, int) and items else 0)


def _decode_cause(row: Any) -> Cause | None:
    if not isinstance(row, Mapping):
        return None
    since, last = (moment_of(str(row.get(key))) for key in ("since", "last_at"))
    names = {condition.value for condition in Condition}
    if since is None or last is None or row.get("condition") not in names:
        return None
    return Cause(
        Condition(row["condition"]),
        str(row.get("subject")),
        since,
        last,
        row["count"] if isinstance(row.get("count"), int) else 1,
        str(row.get("command") or ""),
        str(row.get("first_error") or ""),
        str(row.get("last_error") or ""),
        str(row["job_id"]) if row.get("job_id") else None,
    )
