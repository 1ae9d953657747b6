"""The lasting conditions: breakers, schedules, silence, dead deliveries, queue, disk, health."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson

from ductile._fast_dataclass import dataclass
from ductile.clock import moment_of, to_text
from ductile.core.alerts.causes import Cause, make_cause
from ductile.core.alerts.conditions import Condition
from ductile.core.alerts.node_subjects import disk_subject, find_node, part_subject
from ductile.core.alerts.outage import Outage
from ductile.core.alerts.rules import AlertRule
from ductile.core.alerts.silence import Occurrence, find_missed, find_silence
from ductile.core.jobs.limits import document
from ductile.core.schedules.decide import Reason, Schedule
from ductile.store import nodes
from ductile.store.alerts.events import parse_breaker
from ductile.store.alerts.rows import RuleRow
from ductile.store.engines.api import Tx
from ductile.store.flow import run_limits
from ductile.store.flow.pauses import PauseEnds, load_pauses

MOST = 1000
"""Maximum number of subjects of one condition."""
ATTEMPTS = 1000
"""Newest attempts of a plugin that are searched for its last success."""
MISSED_SHOWN = 100


@dataclass(frozen=True, slots=True)
class Watched:
    """What the configuration and this machine say, besides the ledger."""

    schedules: tuple[Schedule, ...] = ()
    plugins: frozenset[str] = frozenset()
    """The loaded plugins."""
    endpoints: tuple[str, ...] = ()
    """Paths of the inbound webhooks."""
    disk: tuple[int, int] | None = None
    """Free and total bytes of the state directory's disk."""
    outages: tuple[Outage, ...] = ()
    """Those of the critical parts of the gateway that were not reported yet, or still last."""
    node: str = ""
    """The name of this node, whose disk and parts these are; empty for a gateway alone."""


class Levels:
    """Reads the lasting conditions of rules in one transaction."""

    def __init__(self, tx: Tx, watched: Watched, now: datetime) -> None:
        self._tx, self._watched, self._now = tx, watched, now
        self._entries: dict[tuple[str, str], dict[str, Any]] | None = None
        self._pauses, self._pause_ends = load_pauses(tx, now), PauseEnds(tx, now)
        self._nodes: frozenset[str] | None = None
        self.new_endpoints: set[str] = set()
        """Watched ones of which the ledger knows nothing: their silence counts from now on."""

    def read(self, rule: AlertRule, row: RuleRow) -> list[Cause]:
        """Everything that fails now by the lasting conditions of the rule."""
        return [
            cause
            for condition in sorted(rule.on & READERS.keys())
            for cause in READERS[condition](self, rule, row)
            if rule.has_name(cause.subject)
        ]

    def is_of_another_node(self, cause: Cause) -> bool:
        """Whether only another node knows if the cause has ended."""
        own, node = self._watched.node, find_node(cause)
        if not own or node is None or node == own:
            return False
        if self._nodes is None:
            self._nodes = nodes.list_present(self._tx)
        return node in self._nodes

    def _breakers(self, _rule: AlertRule, _row: RuleRow) -> Iterator[Cause]:
        for row in self._tx.dicts("tripped_breakers", limit=MOST):
            since = moment_of(row["opened_at"] or "") or self._now
            yield parse_breaker(row, since)

    def _missed(self, rule: AlertRule, _row: RuleRow) -> Iterator[Cause]:
        for schedule, entry in self._list_schedules(rule):
            last_fire = moment_of(entry["last_fire"] or "")
            since = self._begin_after(last_fire, entry)
            rows = self._tx.all("missed_slots", **_key(schedule), since=since, limit=MISSED_SHOWN)
            occurrences = _parse_occurrences(rows)
            missed = find_missed(occurrences, last_fire=last_fire, paused=bool(entry["paused"]))
            if missed:
                first, last = missed[0], missed[-1]
                reason = "the plugin was not ready"
                if last.reason is Reason.CATCH_UP_SKIPPED:
                    reason = "no gateway was running, or the machine slept"
                yield make_cause(
                    Condition.SCHEDULE_MISSED,
                    _subject(schedule),
                    first.slot,
                    last_at=last.slot,
                    count=len(missed),
                    error=f"the occurrence of {to_text(first.slot)} did not run: {reason}",
                )

    def _silent_schedules(self, rule: AlertRule, _row: RuleRow) -> Iterator[Cause]:
        for schedule, entry in self._list_schedules(rule):
            if (
                schedule.one_shot
                or self._pauses.holding(schedule.plugin, schedule.pipeline) is not None
            ):
                continue
            success = moment_of(entry["last_success_at"] or "")
            since = self._begin_after(success, entry)
            rows = self._tx.all("first_expected_slot", **_key(schedule), since=since)
            begun = find_silence(
                _parse_occurrences(rows), last_success=success, paused=bool(entry["paused"])
            )
            if begun is None:
                continue
            names = schedule.plugin, schedule.pipeline, [schedule.id]
            counted = self._pause_ends.latest(begun, *names)
            if self._is_over(counted, rule):
                last = f"the last one was at {to_text(success)}" if success else "it never had one"
                yield make_cause(
                    Condition.SCHEDULE_SILENT,
                    _subject(schedule),
                    begun,
                    error=f"no success since the occurrence of {to_text(begun)}; {last}",
                )

    def _begin_after(self, last: datetime | None, entry: Mapping[str, Any]) -> str:
        """The first time after `last` that concerns the entry; `every` may fire when first seen."""
        first = moment_of(entry["first_seen"]) or self._now
        return to_text(first if last is None else max(first, last + timedelta(microseconds=1)))

    def _silent_plugins(self, rule: AlertRule, _row: RuleRow) -> Iterator[Cause]:
        for plugin in sorted(self._watched.plugins):
            if not rule.has_name(f"plugin:{plugin}") or self._is_held(plugin):
                continue
            found = self._tx.one("newest_attempts", plugin=plugin, window=ATTEMPTS)
            success, oldest = found or (None, None)
            # Without any success it is silent for as long as is known.
            since = moment_of(success or oldest or "")
            if since is not None and self._is_over(self._count_from(since, plugin), rule):
                yield make_cause(
                    Condition.PLUGIN_SILENT,
                    f"plugin:{plugin}",
                    since,
                    error=f"no job has succeeded{f' since {success}' if success else ''}",
                )

    def _count_from(self, since: datetime, plugin: str) -> datetime:
        """From when the silence of the plugin counts: not while it was paused."""
        own = [one.id for one in self._watched.schedules if one.plugin == plugin]
        return self._pause_ends.latest(since, plugin, entries=own)

    def _is_held(self, plugin: str) -> bool:
        """Whether an operator has paused the gateway, the plugin, or all of its schedules."""
        if self._pauses.holding(plugin, None) is not None:
            return True
        own = [one for one in self._watched.schedules if one.plugin == plugin]
        entries = [self._read_entries().get((one.plugin, one.id)) for one in own]
        return bool(own) and all(entry is not None and entry["paused"] for entry in entries)

    def _silent_agents(self, rule: AlertRule, _row: RuleRow) -> Iterator[Cause]:
        before = to_text(self._now - timedelta(seconds=rule.policy.lasts))
        for row in self._tx.dicts("silent_agents", before=before, limit=MOST):
            seen = moment_of(row["seen"])
            if seen is not None and self._is_over(seen, rule):
                yield make_cause(
                    Condition.AGENT_SILENT,
                    f"agent:{row['agent_id']}",
                    seen,
                    error=f"its last heartbeat was at {to_text(seen)}",
                )

    def _silent_webhooks(self, rule: AlertRule, row: RuleRow) -> Iterator[Cause]:
        found: dict[str, datetime] = {}
        paths = orjson.dumps(self._watched.endpoints).decode()
        for path, *times in self._tx.all("last_accepted", ids=paths):
            last = moment_of(max(filter(None, times), default=""))
            if last is not None:
                found[f"webhook:{path}"] = last
            elif rule.has_name(f"webhook:{path}"):
                self.new_endpoints.add(path)
        for _, source, event, at in self._tx.all("webhook_activity", limit=MOST):
            found[f"webhook:{source}/{event}"] = moment_of(at or "") or row.created_at
        for subject, last in found.items():
            if self._is_over(last, rule):
                yield make_cause(
                    Condition.WEBHOOK_SILENT,
                    subject,
                    last,
                    error=f"nothing was received since {to_text(last)}",
                )

    def _dead_deliveries(self, _rule: AlertRule, row: RuleRow) -> Iterator[Cause]:
        since = to_text(row.created_at)
        for kind, query in (("webhook", "dead_deliveries_since"), ("relay", "dead_relays_since")):
            for name, count, first, last, error in self._tx.all(query, since=since, limit=MOST):
                begun, ended = moment_of(first) or row.created_at, moment_of(last)
                yield make_cause(
                    Condition.DELIVERY_DEAD,
                    f"{kind}:{name}",
                    begun,
                    last_at=ended,
                    count=count,
                    error=error,
                )

    def _ended_authorizations(self, _rule: AlertRule, _row: RuleRow) -> Iterator[Cause]:
        for plugin, text in self._tx.all("rejected_plugin_states", limit=MOST):
            state = document(text)
            rejected = state.get("rejected_at") if isinstance(state, dict) else None
            if not rejected or plugin not in self._watched.plugins:
                continue
            since = _from_timestamp(rejected) or self._now
            yield make_cause(
                Condition.AUTHORIZATION_ENDED,
                f"plugin:{plugin}",
                min(since, self._now),
                error="the provider rejects the tokens; authorize the plugin again",
            )

    def _old_queues(self, rule: AlertRule, _row: RuleRow) -> Iterator[Cause]:
        before = to_text(self._now - timedelta(seconds=rule.queue_age))
        oldest: dict[str, tuple[datetime, str]] = {}
        for query in ("oldest_unstarted", "oldest_unstarted_aside"):
            for plugin, job_id, created_at, pipeline in self._tx.all(query, before=before):
                since = moment_of(created_at)
                if since is None or self._pauses.holding(plugin, pipeline) is not None:
                    continue
                if to_text(self._pause_ends.latest(since, plugin, pipeline)) < before:
                    found = (since, job_id)
                    oldest[plugin] = min(oldest.get(plugin, found), found)
        for plugin, (since, job_id) in sorted(oldest.items()):
            yield make_cause(
                Condition.QUEUE_AGE,
                f"plugin:{plugin}",
                since,
                error="its oldest job has not started",
                job_id=job_id,
            )
        yield from self._held_runs(before)

    def _held_runs(self, before: str) -> Iterator[Cause]:
        """Runs that have waited for their turn since before that time."""
        for pipeline in run_limits.list_pipelines(self._tx):
            found = run_limits.find_longest_held(self._tx, pipeline)
            if found is None or self._pauses.holding("", pipeline) is not None:
                continue
            run_id, key, held_since = found
            since = moment_of(held_since) or self._now
            if to_text(self._pause_ends.latest(since, "", pipeline)) < before:
                text = f"run {run_id} waits for its turn with the key {key!r} (concurrency)"
                yield make_cause(Condition.QUEUE_AGE, f"pipeline:{pipeline}", since, error=text)

    def _full_disk(self, rule: AlertRule, _row: RuleRow) -> Iterator[Cause]:
        disk = self._watched.disk
        if disk is not None and rule.disk_free.is_reached(*disk):
            free, total = disk
            share = f"{free * 100 // total}%" if total else "0%"
            text = f"{share} of the disk of the state directory is free"
            subject = disk_subject(self._watched.node)
            yield make_cause(Condition.DISK_FREE, subject, self._now, error=text)

    def _health(self, rule: AlertRule, _row: RuleRow) -> Iterator[Cause]:
        for outage in self._watched.outages:
            if outage.has_lasted(rule.policy.lasts):
                subject = part_subject(self._watched.node, outage.part)
                text, end = outage.description, outage.ended_at
                yield make_cause(Condition.HEALTH, subject, outage.since, error=text, last_at=end)

    def _list_schedules(self, rule: AlertRule) -> Iterator[tuple[Schedule, dict[str, Any]]]:
        entries = self._read_entries()
        for schedule in self._watched.schedules:
            entry = entries.get((schedule.plugin, schedule.id))
            if entry is not None and rule.has_name(_subject(schedule)):
                yield schedule, entry

    def _read_entries(self) -> dict[tuple[str, str], dict[str, Any]]:
        if self._entries is None:
            rows = self._tx.dicts("entries")
            self._entries = {(row["plugin"], row["schedule_id"]): row for row in rows}
        return self._entries

    def _is_over(self, since: datetime, rule: AlertRule) -> bool:
        return self._now - since >= timedelta(seconds=rule.policy.lasts)


Reader = Callable[[Levels, AlertRule, RuleRow], Iterator[Cause]]
READERS: Mapping[Condition, Reader] = {
    Condition.BREAKER_OPEN: Levels._breakers,
    Condition.SCHEDULE_MISSED: Levels._missed,
    Condition.SCHEDULE_SILENT: Levels._silent_schedules,
    Condition.PLUGIN_SILENT: Levels._silent_plugins,
    Condition.AGENT_SILENT: Levels._silent_agents,
    Condition.WEBHOOK_SILENT: Levels._silent_webhooks,
    Condition.DELIVERY_DEAD: Levels._dead_deliveries,
    Condition.AUTHORIZATION_ENDED: Levels._ended_authorizations,
    Condition.QUEUE_AGE: Levels._old_queues,
    Condition.DISK_FREE: Levels._full_disk,
    Condition.HEALTH: Levels._health,
}


def _key(schedule: Schedule) -> dict[str, str]:
    return {"plugin": schedule.plugin, "schedule_id": schedule.id}


def _subject(schedule: Schedule) -> str:
    return f"schedule:{schedule.plugin}/{schedule.id}"


def _parse_occurrences(rows: list[Any]) -> tuple[Occurrence, ...]:
    return tuple(
        Occurrence(slot, Reason(reason) if reason else None)
        for text, reason in rows
        if (slot := moment_of(text)) is not None
    )


def _from_timestamp(value: Any) -> datetime | None:
    try:
        return datetime.fromtimestamp(float(value), UTC)
    except (TypeError, ValueError, OverflowError, OSError):
        return None
