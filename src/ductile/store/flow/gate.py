"""Which limit keys of a plugin are full or closed now, derived from rows at the time of a claim."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import datetime, timedelta

from ductile._fast_dataclass import dataclass
from ductile.clock import from_text, to_text
from ductile.core.flow.limits import NO_LIMITS, PluginLimits, parse_limit_key
from ductile.core.flow.rates import CLOCK_TOLERANCE
from ductile.core.jobs.commands import INIT
from ductile.store.engines.api import Tx

LONGEST_CLOSED = timedelta(days=1) + CLOCK_TOLERANCE
"""The longest `retry_after`. A later end is of a time before the clock was set back: it is open."""


@dataclass(frozen=True, slots=True)
class Gate:
    """The state of one plugin's limits."""

    limits: PluginLimits
    running: Mapping[str, int]
    """Running jobs per concurrency key."""
    used_until: Mapping[str, datetime]
    """The stored time of each rate key that is in use."""
    closed: Mapping[str, datetime]
    """Limit keys that the plugin has closed, and until when."""
    now: datetime

    def is_full(self, limit_key: str, command: str) -> bool:
        """Whether as many jobs run as the limit of the job's concurrency key allows."""
        concurrency = self.limits.concurrency
        if concurrency is None or command == INIT:
            return False
        return self.running.get(parse_limit_key(limit_key).concurrency_key, 0) >= concurrency.limit

    def opens_at(self, limit_key: str, command: str) -> datetime | None:
        """When the rate of a limit key allows the next start; None means now."""
        if command == INIT:
            return None
        times = []
        if (until := self.closed.get(limit_key)) is not None:
            times.append(until)
        rate = self.limits.rate
        used = None if rate is None else self.used_until.get(parse_limit_key(limit_key).rate_key)
        if rate is not None and used is not None:
            times.append(rate.opens_at(used, self.now))
        latest = max(times, default=self.now)
        return latest if latest > self.now else None


def load_gate(
    tx: Tx, plugin: str, limits: PluginLimits | None, now: datetime, *, closed: bool = True
) -> Gate:
    """Read the state of a plugin's limits; without `closed`, no limit key counts as closed."""
    limits = limits or NO_LIMITS
    running: Counter[str] = Counter()
    used: dict[str, datetime] = {}
    if limits.concurrency is not None:
        for limit_key, count in tx.all("running_limit_keys", plugin=plugin):
            running[parse_limit_key(limit_key).concurrency_key] += count
    if limits.rate is not None:
        rows = tx.all("rates", plugin=plugin, now=to_text(now))
        used = {key: from_text(until) for key, until in rows}
    closed_keys = load_closed_keys(tx, now).get(plugin, {}) if closed else {}
    return Gate(limits, running, used, closed_keys, now)


def load_closed_keys(tx: Tx, now: datetime) -> dict[str, dict[str, datetime]]:
    """The closed limit keys per plugin, with their ends."""
    found: dict[str, dict[str, datetime]] = {}
    values = {"now": to_text(now), "latest": to_text(now + LONGEST_CLOSED)}
    for plugin, limit_key, until in tx.all("closed_keys", **values):
        found.setdefault(plugin, {})[limit_key] = from_text(until)
    return found


def count_start(tx: Tx, plugin: str, limit_key: str, gate: Gate) -> None:
    """Record a start for the rate limit."""
    rate = gate.limits.rate
    if rate is None:
        return
    key = parse_limit_key(limit_key).rate_key
    used = rate.advance(gate.used_until.get(key), gate.now)
    tx.run("store_rate", plugin=plugin, rate_key=key, used_until=to_text(used))


def close_key(tx: Tx, plugin: str, job_id: str, until: datetime) -> None:
    """Start no further job with this job's limit key before `until`."""
    row = tx.one("limit_key_of", id=job_id)
    limit_key = row[0] if row else ""
    latest = to_text(until + LONGEST_CLOSED)
    tx.run("close_key", plugin=plugin, limit_key=limit_key, until=to_text(until), latest=latest)
    tx.effects.add_opening(until)


def delete_past(tx: Tx, now: datetime) -> None:
    """Delete the rows of rates and closed limit keys that hold nothing any more."""
    at = to_text(now)
    tx.run("delete_used_rates", now=at)
    tx.run("delete_open_keys", now=at, latest=to_text(now + LONGEST_CLOSED))


def has_past_rates(tx: Tx, now: datetime) -> bool:
    return tx.one("has_used_rates", now=to_text(now)) is not None


def next_open_key(tx: Tx) -> datetime | None:
    """When the first closed limit key opens."""
    row = tx.one("next_open_key")
    return None if row is None or row[0] is None else from_text(row[0])
