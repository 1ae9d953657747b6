"""Pauses of plugins, pipelines and the gateway. They survive restarts and hold on every node."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime

from ductile.clock import from_text, moment_of, to_text
from ductile.core.flow.pauses import Pause, PauseKind, Pauses, collect_pauses
from ductile.model import Notice
from ductile.store import notices
from ductile.store.engines.api import Row, Tx
from ductile.store.flow import set_aside

ENTRY = "schedule"
"""As a kind: the pause of a schedule entry, which is part of its row while it lasts."""
EXPIRED = "expired"
"""The actor of an automatic resume: the pause has reached its end."""
BATCHES = (64, 512, 512)
"""How many jobs a claim reads at once, and sets aside if their pipeline is paused."""
MOST_SET_ASIDE = sum(BATCHES)


def list_pauses(tx: Tx) -> list[Pause]:
    """Every stored pause, also one whose end has come and that is about to be removed."""
    return [_parse(row) for row in tx.all("pauses")]


def load_pauses(tx: Tx, now: datetime) -> Pauses:
    """The pauses in force."""
    return collect_pauses(list_pauses(tx), now)


def store_pause(tx: Tx, pause: Pause, now: datetime) -> None:
    tx.run(
        "store_pause",
        kind=pause.kind.value,
        name=pause.name,
        by=pause.paused_by,
        reason=pause.reason,
        until=pause.until_text,
        now=to_text(now),
    )
    fields = {
        **_about(pause),
        "by": pause.paused_by,
        "reason": pause.reason,
        "until": pause.until_text,
    }
    if pause.kind is PauseKind.PIPELINE:
        set_aside.release_pipeline(tx, pause.name)
    _post(tx, pause, "flow.paused", fields, now)
    tx.effects.pauses += 1


def end_pause(
    tx: Tx, kind: PauseKind, name: str, by: str, now: datetime, *, only_ended: bool = False
) -> Pause | None:
    """Remove a pause, so that its jobs run; returns it, or None if there was none.

    With `only_ended`, a pause whose end has not come stays.
    """
    row = tx.one("pause", kind=kind.value, name=name)
    limit = to_text(now) if only_ended else None
    if row is None or not tx.run("delete_pause", kind=kind.value, name=name, ended_by=limit):
        return None
    pause = _parse(row)
    end = pause.until if only_ended and pause.until is not None else now
    tx.run("store_pause_end", kind=kind.value, name=name, at=to_text(end))
    if kind is PauseKind.PIPELINE:
        tx.run("return_jobs", pipeline=name)
        set_aside.release_pipeline(tx, name)
    _post(tx, pause, "flow.resumed", {**_about(pause), "by": by}, now)
    tx.effects.pauses += 1
    tx.effects.ready_any = True
    return pause


def end_due_pauses(tx: Tx, now: datetime) -> list[Pause]:
    """Remove the pauses whose end has come, and return them."""
    due = [pause for pause in list_pauses(tx) if pause.has_ended(now)]
    ended = (end_pause(tx, p.kind, p.name, EXPIRED, now, only_ended=True) for p in due)
    return [pause for pause in ended if pause is not None]


def store_entry_resume(tx: Tx, plugin: str, schedule_id: str, now: datetime) -> None:
    """Record that the pause of a schedule entry has ended."""
    tx.run("store_pause_end", kind=ENTRY, name=f"{plugin}/{schedule_id}", at=to_text(now))


class PauseEnds:
    """When the last pauses of plugins, pipelines, schedule entries and the gateway ended."""

    def __init__(self, tx: Tx, now: datetime) -> None:
        self._ends: dict[tuple[str, str], datetime] = {}
        for kind, name, text in tx.all("pause_ends", now=to_text(now)):
            # A time in the future is of a clock that was set back since.
            end = min(moment_of(text) or now, now)
            self._ends[kind, name] = max(end, self._ends.get((kind, name), end))

    def latest(
        self, since: datetime, plugin: str, pipeline: str | None = None, entries: Iterable[str] = ()
    ) -> datetime:
        """The last of `since` and the ends of the pauses that held this plugin's jobs."""
        names = [(PauseKind.SYSTEM, ""), (PauseKind.PLUGIN, plugin)]
        names += [(PauseKind.PIPELINE, pipeline)] if pipeline else []
        keys = [(kind.value, name) for kind, name in names]
        keys += [(ENTRY, f"{plugin}/{id}") for id in entries]
        return max([since, *(self._ends[key] for key in keys if key in self._ends)])


def set_held_aside(tx: Tx, plugin: str, pipelines: Collection[str]) -> int | None:
    """Set the plugin's oldest jobs aside that belong to a paused pipeline; returns how many.

    None if further held jobs may be next in its queue.

    They leave the indexes of the queue's order, so that no further claim reads them. The caller
    holds the plugin's lock. A larger backlog than `MOST_SET_ASIDE` is set aside in several claims.
    """
    count = 0
    for query in ("first_queued_pipelines", "first_placed_pipelines"):
        found = _set_first_aside(tx, query, plugin, pipelines)
        if found >= MOST_SET_ASIDE:
            # The rest is read by the next claim, which must not wait for an event.
            tx.effects.ready += 1
            return None
        count += found
    return count


def _set_first_aside(tx: Tx, query: str, plugin: str, pipelines: Collection[str]) -> int:
    count = 0
    for size in BATCHES:
        rows = tx.all(query, plugin=plugin, limit=size)
        held = [id for id, pipeline in rows if pipeline in pipelines]
        if held:
            set_aside.set_jobs_aside(tx, held)
        count += len(held)
        if len(held) < size:
            break
    return count


def next_end(tx: Tx) -> datetime | None:
    """When the first pause ends by itself."""
    row = tx.one("next_pause_end")
    return None if row is None or row[0] is None else from_text(row[0])


def _post(tx: Tx, pause: Pause, type: str, fields: dict[str, str | None], now: datetime) -> None:
    plugin = pause.name if pause.kind is PauseKind.PLUGIN else None
    notices.post(tx, Notice("flow", type, fields), now, plugin=plugin)


def _about(pause: Pause) -> dict[str, str | None]:
    return {"kind": pause.kind.value, "name": pause.name or None}


def _parse(row: Row) -> Pause:
    kind, name, paused_at, paused_by, reason, until = row
    return Pause(
        PauseKind(kind),
        name,
        paused_at,
        paused_by,
        reason,
        None if until is None else from_text(until),
        until,
    )
