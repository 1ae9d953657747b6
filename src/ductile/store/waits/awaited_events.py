"""Events that may end waits: compared with the open waits of their type, page by page."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

import orjson

from ductile.clock import from_text, to_text
from ductile.core.waits.begin import is_matched
from ductile.model import Event, Json
from ductile.store.engines.api import Tx
from ductile.store.engines.queries import NEVER
from ductile.store.waits.wait_rows import WaitRow

EVENT_PAGE = 1000
"""How many waits one transaction compares with an event."""
MOST_ENDED = 100
"""How many waits one transaction ends for an event."""
CONTEXT_PAGE = 100
"""Contexts that are in memory at a time meanwhile; each may have a megabyte."""
CONTEXT_ROOT = '"context'
"""Occurs in a stored condition that reads the context."""


def event_fields(event: Event) -> dict[str, Json]:
    return {
        "type": event.type,
        "payload": event.payload,
        "dedupe_key": event.dedupe_key,
        "source": event.source,
        "timestamp": to_text(event.timestamp),
        "event_id": event.event_id,
    }


def parse_event(fields: dict[str, Any]) -> Event:
    return Event(**{**fields, "timestamp": from_text(fields["timestamp"])})


def list_awaited_types(tx: Tx) -> frozenset[str]:
    """The types of events that open waits wait for."""
    return frozenset(type for (type,) in tx.all("awaited_types"))


def match_event(
    tx: Tx, event: Event, since: str = NEVER, after: str = ""
) -> tuple[list[WaitRow], str | None]:
    """The open waits that an event ends, at most `MOST_ENDED`, of those after `after`.

    Waits that began later than `since` are not compared. The event's own transaction compares all
    that it sees: they have begun before, whatever the clocks say. Also returns the last wait that
    was compared, if there may be more.
    """
    values = {"event_type": event.type, "after": after, "before": since}
    rows = [WaitRow(*row) for row in tx.all("waits_for_event", limit=EVENT_PAGE, **values)]
    found: list[WaitRow] = []
    # A few queries for a page, not some for each wait: the transaction must stay short.
    for start in range(0, len(rows), CONTEXT_PAGE):
        some = rows[start : start + CONTEXT_PAGE]
        contexts = _load_contexts(tx, some)
        for row in some:
            if is_matched(row.condition, event.payload, contexts.get(row.id, {})):
                found.append(row)
            if len(found) == MOST_ENDED:
                return found, row.id
    return found, rows[-1].id if len(rows) == EVENT_PAGE else None


class AwaitedEvent(NamedTuple):
    """An event that has to be compared with further waits."""

    id: str
    event: Event
    after: str
    since: str


def store_event(tx: Tx, id: str, event: Event, after: str, now: datetime) -> None:
    """Compare the event with the waits after `after` in later transactions."""
    text = orjson.dumps(event_fields(event)).decode()
    # A wait that has begun may have a later time: by the clock of another node, or by this one
    # before it was set back.
    row = tx.one("newest_wait_for_event")
    newest = None if row is None else row[0]
    since = max(to_text(now), newest or "")
    tx.run("store_awaited_event", id=id, event=text, after=after, since=since)
    tx.effects.waits += 1


def next_event_id(tx: Tx) -> str | None:
    """The oldest event that has to be compared with further waits."""
    row = tx.one("next_awaited_event")
    return None if row is None else str(row[0])


def lock_event(tx: Tx, id: str) -> bool:
    """Whether no other node compares the event now."""
    return tx.hold("awaited_event", id, wait=False)


def load_event(tx: Tx, id: str) -> AwaitedEvent | None:
    """The event; None if it was compared with all waits."""
    row = tx.one("awaited_event", id=id)
    if row is None:
        return None
    return AwaitedEvent(id, parse_event(orjson.loads(row[0])), row[1], row[2])


def advance_event(tx: Tx, id: str, after: str | None) -> None:
    """Continue after this wait; None means that there are no more."""
    if after is None:
        tx.run("delete_awaited_event", id=id)
    else:
        tx.run("move_awaited_event", id=id, after=after)


def _load_contexts(tx: Tx, rows: Sequence[WaitRow]) -> dict[str, dict[str, Json]]:
    """By wait, the contexts of those runs whose wait has a condition that reads it."""
    ids = [row.id for row in rows if row.condition is not None and CONTEXT_ROOT in row.condition]
    if not ids:
        return {}
    found = tx.all("contexts_of_waits", ids=orjson.dumps(ids).decode())
    return {id: orjson.loads(context) for id, context in found}
