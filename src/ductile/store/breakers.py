"""The breaker's row, its history, and its change when a scheduled job ends."""

from __future__ import annotations

from datetime import datetime

from ductile.clock import from_text, to_text
from ductile.core.schedules import breaker as core
from ductile.core.schedules.breaker import Breaker, BreakerPolicy, Result, State, Transition
from ductile.model import Notice
from ductile.store import notices
from ductile.store.engines.api import Tx


def held(tx: Tx, plugin: str, command: str) -> Breaker:
    """The breaker, for whoever is about to change it: others wait until this one has."""
    tx.hold("breaker", f"{plugin}\x1f{command}", wait=True)
    return get(tx, plugin, command)


def get(tx: Tx, plugin: str, command: str) -> Breaker:
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


def plugins_not_closed(tx: Tx) -> list[str]:
    """Each plugin that has such a breaker, also one that no configuration has any more."""
    return [plugin for (plugin,) in tx.all("open_breakers")]


def put(
    tx: Tx,
    plugin: str,
    command: str,
    breaker: Breaker,
    transition: Transition | None,
    now: datetime,
) -> None:
    """Store the row and, where the state changed, the fact that it did."""
    at = to_text(now)
    tx.run(
        "put_breaker",
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
    told = {
        "plugin": plugin,
        "command": command,
        "from_state": transition.from_state.value,
        "to_state": transition.to_state.value,
        "reason": transition.reason.value,
        "failure_count": transition.failure_count,
        "job_id": transition.job_id,
    }
    id = notices.post(tx, Notice("breakers", f"breaker.{transition.to_state}", told), now)
    tx.run("insert_breaker_transition", id=f"{at}-{id:012}", now=at, **told)


def job_ended(
    tx: Tx,
    *,
    plugin: str,
    command: str,
    job_id: str,
    result: Result,
    policy: BreakerPolicy,
    now: datetime,
) -> None:
    """Count the end of a scheduled job."""
    before = held(tx, plugin, command)
    after, transition = core.record(before, result, job_id, now, policy)
    if after != before:
        put(tx, plugin, command, after, transition, now)


def reset(tx: Tx, plugin: str, now: datetime) -> list[str]:
    """Close every breaker of the plugin; the commands whose breaker was not closed."""
    reopened = []
    for row in tx.dicts("breakers", plugin=plugin):
        command = row["command"]
        before = held(tx, plugin, command)
        after, transition = core.reset(before)
        put(tx, plugin, command, after, transition, now)
        if before.state is not State.CLOSED:
            reopened.append(command)
    return reopened
