"""Which limit keys of a plugin are full or closed now, derived from rows at the time of a claim."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from datetime import datetime, timedelta

import orjson

from ductile.clock import from_text, to_text
from ductile.core.flow.limits import NO_LIMITS, PluginLimits, parse_limit_key
from ductile.core.flow.rates import CLOCK_TOLERANCE
from ductile.core.jobs.commands import INIT
from ductile.store.engines.api import Tx

LONGEST_CLOSED = timedelta(days=1) + CLOCK_TOLERANCE
"""The longest `retry_after`. A later end is of a time before the clock was set back: it is open."""


class Gate:
    """The state of one plugin's limits, of the limit keys that were read so far."""

    def __init__(
        self, tx: Tx, plugin: str, limits: PluginLimits | None, now: datetime, *, has_closed: bool
    ) -> None:
        """Without `has_closed`, no limit key of the plugin is closed."""
        self._tx, self._has_closed = tx, has_closed
        self.plugin, self.limits, self.now = plugin, limits or NO_LIMITS, now
        self.running: Counter[str] = Counter()
        """Running jobs per concurrency key."""
        self.used_until: dict[str, datetime] = {}
        """The stored time of each rate key that is in use."""
        self.closed: dict[str, datetime] = {}
        """Limit keys that the plugin has closed, and until when."""
        self._read: set[str] = set()
        if self.limits.concurrency is not None:
            for limit_key, count in tx.all("running_limit_keys", plugin=plugin):
                self.running[parse_limit_key(limit_key).concurrency_key] += count

    def read_keys(self, limit_keys: Iterable[str]) -> None:
        """Read the rates and closed keys of these jobs; a key that was read is not read again."""
        new = [key for key in dict.fromkeys(limit_keys) if key not in self._read]
        self._read.update(new)
        if not new:
            return
        now = to_text(self.now)
        if self.limits.rate is not None:
            rate_keys = list(dict.fromkeys(parse_limit_key(key).rate_key for key in new))
            values = {"plugin": self.plugin, "ids": _array(rate_keys), "now": now}
            for key, until in self._tx.all("rates", **values):
                self.used_until[key] = from_text(until)
        if self._has_closed:
            values = {"plugin": self.plugin, "ids": _array(new), "now": now}
            latest = to_text(self.now + LONGEST_CLOSED)
            for key, until in self._tx.all("closed_keys", latest=latest, **values):
                self.closed[key] = from_text(until)

    def is_full(self, limit_key: str, command: str) -> bool:
        """Whether as many jobs run as the limit of the job's concurrency key allows."""
        if command == INIT:
            return False
        return self.is_key_full(parse_limit_key(limit_key).concurrency_key)

    def is_key_full(self, concurrency_key: str) -> bool:
        concurrency = self.limits.concurrency
        return concurrency is not None and self.running[concurrency_key] >= concurrency.limit

    def closed_until(self) -> datetime | None:
        """When a rate that all jobs of the plugin share allows the next start; None means now."""
        rate = self.limits.rate
        if rate is None or rate.key is not None:
            return None
        self.read_keys([""])
        used = self.used_until.get("")
        opens_at = self.now if used is None else rate.opens_at(used, self.now)
        return opens_at if opens_at > self.now else None

    def rate_opens_at(self, rate_key: str) -> datetime | None:
        """When the rate of a key that was read allows the next start; None means now."""
        rate, used = self.limits.rate, self.used_until.get(rate_key)
        if rate is None or used is None:
            return None
        opens_at = rate.opens_at(used, self.now)
        return opens_at if opens_at > self.now else None

    def opens_at(self, limit_key: str, command: str) -> datetime | None:
        """When the rate of a limit key that was read allows the next start; None means now."""
        if command == INIT:
            return None
        assert limit_key in self._read, "its rate is not known"
        times = []
        if (until := self.closed.get(limit_key)) is not None:
            times.append(until)
        rate = self.limits.rate
        used = None if rate is None else self.used_until.get(parse_limit_key(limit_key).rate_key)
        if rate is not None and used is not None:
            times.append(rate.opens_at(used, self.now))
        latest = max(times, default=self.now)
        return latest if latest > self.now else None


def list_closed_plugins(tx: Tx) -> frozenset[str]:
    """The plugins that have closed a limit key."""
    return frozenset(plugin for (plugin,) in tx.all("closed_plugins"))


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


def _array(keys: Collection[str]) -> str:
    return orjson.dumps(list(keys)).decode()
