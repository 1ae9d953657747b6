"""Which limit or debounce holds a queued job, and when the job may start."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

import orjson

from ductile.clock import to_text
from ductile.core.flow.limits import Concurrency, parse_limit_key
from ductile.store.engines.api import Tx
from ductile.store.engines.queries import NEVER
from ductile.store.flow import run_limits
from ductile.store.flow.gate import Gate, list_closed_plugins
from ductile.store.flow.run_limits import LimitedRun
from ductile.store.tx_config import TxConfig

JobStart = tuple[str, str, str]
"""When a running job started, its command, and its id."""
SHOWN_RUNS = 3
MOST_RUNNING = 1000
MOST_COUNTED = 100


def describe_holds(
    tx: Tx,
    rows: Sequence[Mapping[str, Any]],
    tx_config: TxConfig,
    now: datetime,
    describe_start: Callable[[str, JobStart], str],
) -> dict[str, str]:
    """By job id, the limit that holds the job; only jobs that a limit holds.

    `describe_start` describes a running job of a plugin, for which others wait.
    """
    closed = list_closed_plugins(tx)
    ready = {
        row["id"]: row
        for row in rows
        if row["status"] == "queued"
        and not row.get("next_retry_at")
        and (row["plugin"] in tx_config.limits or row["plugin"] in closed)
    }
    ids = orjson.dumps(list(ready)).decode()
    keys: dict[str, str] = dict(tx.all("limit_keys_of", ids=ids)) if ready else {}
    gates: dict[str, Gate] = {}
    running: dict[str, dict[str, JobStart]] = {}
    found: dict[str, str] = {}
    for id, limit_key in keys.items():
        plugin, command = ready[id]["plugin"], ready[id]["command"]
        if plugin not in gates:
            limits = tx_config.limits.get(plugin)
            gates[plugin] = Gate(tx, plugin, limits, now, has_closed=plugin in closed)
            gates[plugin].read_keys(keys[i] for i in keys if ready[i]["plugin"] == plugin)
            running[plugin] = _list_oldest(tx, gates[plugin])
        first = running[plugin].get(parse_limit_key(limit_key).concurrency_key)
        blocker = describe_start(plugin, first) if first else ""
        reason = _describe(gates[plugin], plugin, limit_key, command, blocker)
        if reason is not None:
            found[id] = reason
    return found


def _list_oldest(tx: Tx, gate: Gate) -> dict[str, JobStart]:
    """By concurrency key: the running job that started first."""
    oldest: dict[str, JobStart] = {}
    if gate.limits.concurrency is not None:
        values = {"plugin": gate.plugin, "limit": MOST_RUNNING}
        for limit_key, *start in tx.all("running_with_limit_keys", **values):
            key = parse_limit_key(limit_key or "").concurrency_key
            oldest.setdefault(key, (start[0] or "", start[1], start[2]))
    return oldest


def find_held_run(tx: Tx, job_id: str) -> LimitedRun | None:
    """The run of a job, if the run waits for its turn."""
    return run_limits.list_held(tx, [job_id], of_jobs=True).get(job_id)


def describe_held_jobs(tx: Tx, job_ids: Collection[str], tx_config: TxConfig) -> dict[str, str]:
    """By job, why its run waits; only jobs of runs that wait for another run."""
    held = run_limits.list_held(tx, job_ids, of_jobs=True)
    return _describe_runs(tx, held, tx_config)


def describe_held_runs(tx: Tx, run_ids: Collection[str], tx_config: TxConfig) -> dict[str, str]:
    """By run, why it waits; only runs that wait for another run."""
    return _describe_runs(tx, run_limits.list_held(tx, run_ids, of_jobs=False), tx_config)


def _describe_runs(tx: Tx, held: Mapping[str, LimitedRun], tx_config: TxConfig) -> dict[str, str]:
    reasons: dict[str, str] = {}
    found: dict[str, str] = {}
    for id, run in held.items():
        if run.held_since == NEVER:
            continue  # Its event is still debounced.
        if run.id not in reasons:
            reasons[run.id] = _describe_run(tx, run, tx_config.run_limits.get(run.pipeline))
        found[id] = reasons[run.id]
    return found


def _describe_run(tx: Tx, run: LimitedRun, limit: Concurrency | None) -> str:
    if limit is None:
        return f"pipeline {run.pipeline} no longer has a limit; the run starts soon"
    running = run_limits.list_running(tx, run, limit.limit)
    holders = ", ".join(running[:SHOWN_RUNS]) + (", ..." if len(running) > SHOWN_RUNS else "")
    text = run_limits.describe_full(run, limit, len(running))
    before = run_limits.count_before(tx, run, MOST_COUNTED)
    more = "+" if before == MOST_COUNTED else ""
    waiting = f"; {before}{more} {'run' if before == 1 else 'runs'} before it" if before else ""
    return f"{text}: {holders or 'none'}{waiting}"


def describe_debounced(tx: Tx, rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """By job id, until when the job waits for further events; only jobs that do."""
    due = {
        row["id"]: row["next_retry_at"]
        for row in rows
        if row["status"] == "queued" and row.get("next_retry_at")
    }
    if not due:
        return {}
    found = tx.all("debounced_jobs", ids=orjson.dumps(list(due)).decode())
    return {id: f"debounced until {due[id]}" for (id,) in found}


def _describe(gate: Gate, plugin: str, limit_key: str, command: str, blocker: str) -> str | None:
    keys, limits = parse_limit_key(limit_key), gate.limits
    if limits.concurrency is not None and gate.is_full(limit_key, command):
        count = gate.running.get(keys.concurrency_key, 0)
        key = f" with the key {keys.concurrency_key!r}" if limits.concurrency.key else ""
        full = f"{count} of {limits.concurrency.limit} jobs{key} (concurrency)"
        return f"plugin {plugin} runs {full}{blocker}"
    opens_at = gate.opens_at(limit_key, command)
    if opens_at is None:
        return None
    at = to_text(opens_at)
    if gate.closed.get(limit_key) == opens_at:
        shown = keys.concurrency_key or keys.rate_key
        key = f" with the key {shown!r}" if shown else ""
        return f"plugin {plugin} requested that no job{key} starts before {at} (retry_after)"
    assert limits.rate is not None
    key = f" for the key {keys.rate_key!r}" if limits.rate.key else ""
    return f"the {limits.rate.describe()} of plugin {plugin}{key} allows the next start at {at}"
