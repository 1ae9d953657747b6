"""Circuit breakers: their rows, their history, and their update when a scheduled job ends."""

from __future__ import annotations

from datetime import datetime

from ductile.clock import from_text, to_text
from ductile.core.schedules import breaker as core
from ductile.core.schedules.breaker import Breaker, BreakerPolicy, Result, State, Transition
from ductile.model import Notice
from ductile.store import notices
from ductile.store.engines.api import Tx


def lock_breaker(tx: Tx, plugin: str, command: str) -> Breaker:
    """Load the breaker for an update; other transactions that lock it wait for this one."""
    tx.hold("breaker", f"{plugin}\x1f{command}", wait=True)
    return load_breaker(tx, plugin, command)


def load_breaker(tx: Tx, plugin: str, command: str) -> Breaker:
    row = tx.one("breaker", plugin=plugin, command=command)
    if row is None:
        return Breaker()
    state, count, opened_at, last_failure_at, last_job_id, probe = row
    return Breaker(
        State(state),
        count,
        from_text(opened_at) if opened_at else None,
        from_text(last_failure_at) if last_failure_at else None,
        last_job_id,
        probe,
    )


def list_open_plugins(tx: Tx) -> list[str]:
    """The plugins with a breaker that is not closed, including plugins not configured any more."""
    return [plugin for (plugin,) in tx.all("open_breakers")]


def store_breaker(
    tx: Tx,
    plugin: str,
    command: str,
    breaker: Breaker,
    transition: Transition | None,
    now: datetime,
) -> None:
    """Store the row and, if the state changed, the transition."""
    at = to_text(now)
    tx.run(
        "store_breaker",
        plugin=plugin,
        command=command,
        state=breaker.state.value,
        failure_count=breaker.failure_count,
        opened_at=to_text(breaker.opened_at) if breaker.opened_at else None,
        last_failure_at=to_text(breaker.last_failure_at) if breaker.last_failure_at else None,
        last_job_id=breaker.last_job_id,
        probe_job_id=breaker.probe_job_id,
        now=at,
    )
    if transition is None:
        return
    fields = {
        "plugin": plugin,
        "command": command,
        "from_state": transition.from_state.value,
        "to_state": transition.to_state.value,
        "reason": transition.reason.value,
        "failure_count": transition.failure_count,
        "job_id": transition.job_id,
    }
    notice = Notice("breakers", f"breaker.{transition.to_state}", fields)
    id = notices.post_with_id(tx, notice, now)
    tx.run("insert_breaker_transition", id=f"{at}-{id:012}", now=at, **fields)


def record_result(
    tx: Tx,
    *,
    plugin: str,
    command: str,
    job_id: str,
    result: Result,
    policy: BreakerPolicy,
    now: datetime,
) -> None:
    """Update the breaker for the end of a scheduled job."""
    before = lock_breaker(tx, plugin, command)
    after, transition = core.record(before, result, job_id, now, policy)
    if after != before:
        store_breaker(tx, plugin, command, after, transition, now)


def reset_breakers(tx: Tx, plugin: str, now: datetime) -> list[str]:
    """Close every breaker of the plugin; returns the commands whose breaker was not closed."""
    changed = []
    for row in tx.dicts("breakers", plugin=plugin):
        command = row["command"]
        before = lock_breaker(tx, plugin, command)
        after, transition = core.reset(before)
        store_breaker(tx, plugin, command, after, transition, now)
        if before.state is not State.CLOSED:
            changed.append(command)
    return changed
