"""Which lanes of a plugin are full or closed now, derived from rows at the time of a claim."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import datetime

from ductile._fast_dataclass import dataclass
from ductile.clock import from_text, to_text
from ductile.core.flow.limits import NO_LIMITS, PluginLimits, parse_lane
from ductile.core.jobs.commands import INIT
from ductile.store.engines.api import Tx


@dataclass(frozen=True, slots=True)
class Gate:
    """The state of one plugin's limits."""

    limits: PluginLimits
    running: Mapping[str, int]
    """Running jobs per concurrency key."""
    used_until: Mapping[str, datetime]
    """The stored time of each rate key that is in use."""
    closed: Mapping[str, datetime]
    """Lanes that the plugin has closed, and until when."""
    now: datetime

    def is_full(self, lane: str, command: str) -> bool:
        """Whether as many jobs run as the limit of the lane's concurrency key allows."""
        concurrency = self.limits.concurrency
        if concurrency is None or command == INIT:
            return False
        return self.running.get(parse_lane(lane).concurrency_key, 0) >= concurrency.limit

    def opens_at(self, lane: str, command: str) -> datetime | None:
        """When the rate of a lane allows the next start; None means now."""
        if command == INIT:
            return None
        times = []
        if (until := self.closed.get(lane)) is not None:
            times.append(until)
        rate = self.limits.rate
        used = None if rate is None else self.used_until.get(parse_lane(lane).rate_key)
        if rate is not None and used is not None:
            times.append(rate.opens_at(used))
        latest = max(times, default=self.now)
        return latest if latest > self.now else None


def load_gate(
    tx: Tx, plugin: str, limits: PluginLimits | None, now: datetime, *, closed: bool = True
) -> Gate:
    """Read the state of a plugin's limits; without `closed`, no lane is known to be closed."""
    limits = limits or NO_LIMITS
    running: Counter[str] = Counter()
    used: dict[str, datetime] = {}
    if limits.concurrency is not None:
        for lane, count in tx.all("running_lanes", plugin=plugin):
            running[parse_lane(lane).concurrency_key] += count
    if limits.rate is not None:
        rows = tx.all("rates", plugin=plugin, now=to_text(now))
        used = {key: from_text(until) for key, until in rows}
    lanes = load_closed_lanes(tx, now).get(plugin, {}) if closed else {}
    return Gate(limits, running, used, lanes, now)


def load_closed_lanes(tx: Tx, now: datetime) -> dict[str, dict[str, datetime]]:
    """The closed lanes per plugin, with their ends."""
    found: dict[str, dict[str, datetime]] = {}
    for plugin, lane, until in tx.all("closed_lanes", now=to_text(now)):
        found.setdefault(plugin, {})[lane] = from_text(until)
    return found


def count_start(tx: Tx, plugin: str, lane: str, gate: Gate) -> None:
    """Record a start for the rate limit."""
    rate = gate.limits.rate
    if rate is None:
        return
    key = parse_lane(lane).rate_key
    used = rate.advance(gate.used_until.get(key), gate.now)
    tx.run("store_rate", plugin=plugin, rate_key=key, used_until=to_text(used))


def close_lane(tx: Tx, plugin: str, job_id: str, until: datetime) -> None:
    """Start no further job of this job's lane before `until`."""
    row = tx.one("lane_of", id=job_id)
    lane = row[0] if row else ""
    tx.run("close_lane", plugin=plugin, lane=lane, until=to_text(until))
    tx.effects.add_opening(until)


def delete_past(tx: Tx, now: datetime) -> None:
    """Delete the rows of rates and closed lanes that hold nothing any more."""
    at = to_text(now)
    tx.run("delete_used_rates", now=at)
    tx.run("delete_open_lanes", now=at)


def has_past_rates(tx: Tx, now: datetime) -> bool:
    return tx.one("has_used_rates", now=to_text(now)) is not None


def next_open_lane(tx: Tx) -> datetime | None:
    """When the first closed lane opens."""
    row = tx.one("next_open_lane")
    return None if row is None or row[0] is None else from_text(row[0])
