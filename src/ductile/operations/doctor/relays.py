"""Checks of events that wait to be relayed to another gateway."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from shlex import quote

from ductile.clock import from_text
from ductile.config import Settings
from ductile.operations.doctor.context import DoctorContext
from ductile.operations.doctor.finding import Finding, warning

LONG = timedelta(minutes=15)


def waiting(context: DoctorContext) -> Iterator[Finding]:
    """Dead relays are reported with the other dead letters."""
    if context.rows is None or context.settings is None:
        return
    counts: Counter[str] = Counter()
    since: dict[str, datetime] = {}
    for row in context.rows.read(lambda tx: tx.dicts("count_relays")):
        if row["status"] != "dead":
            name, first = row["instance"], from_text(row["since"])
            counts[name] += row["relays"]
            since[name] = min(first, since.get(name, first))
    for name, count in sorted(counts.items()):
        why = _why(name, context.settings, context.now - since[name])
        if why is not None:
            run = context.command(f"relay list --instance {quote(name)}")
            yield warning("deliveries", f"pending relays to {name}: {count}", why, run)


def _why(name: str, settings: Settings, age: timedelta) -> str | None:
    instance = next((item for item in settings.instances if item.name == name), None)
    if instance is None:
        return "the configuration has no instance with this name: it was removed or renamed"
    if not instance.enabled:
        return "the instance is disabled"
    return (
        "the oldest has been pending for more than 15 minutes; see their errors"
        if age > LONG
        else None
    )
