"""What of a calendar's events is news: pages in, changes out, and the memory between."""

from __future__ import annotations

from protocol import Failure, Misconfigured

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from web import Reply

PAGE = 250
LARGEST_MEMORY = 600_000
"""Bytes of events that are remembered; the gateway keeps 1 MiB of state."""
LONGEST_TEXT = 8_000
LONGEST_SUMMARY = 80
MOST_ATTENDEES = 100
SLACK = 60.0


class Sync:
    """One pass over the changes, or over everything; it may take several runs."""

    def __init__(self, config: Mapping[str, Any], state: Mapping[str, Any], now: float) -> None:
        self._config, self._now = config, now
        known = state.get("known") or {}
        self.known: dict[str, list[Any]] = {id: list(entry) for id, entry in known.items()}
        """By event id: etag, start, end, summary, the last full pass, whether it is cancelled."""
        self.sync_token: str | None = state.get("sync_token")
        self.page_token: str | None = state.get("page_token")
        self.full: int = state.get("full") or 1
        self.synced_at: float | None = state.get("synced_at")
        self.began: float | None = state.get("began")
        self.quiet = self.synced_at is None and not config.get("emit_existing")
        """What is there when we first look is no news."""
        self.changes: list[tuple[str, dict[str, Any]]] = []

    def query(self) -> dict[str, Any]:
        """What to ask for next. Beside a sync token nothing may differ from the first time."""
        query: dict[str, Any] = {"maxResults": PAGE, "showDeleted": "true"}
        query["singleEvents"] = "true" if self._config.get("expand_recurring") else "false"
        if self.sync_token:
            query["syncToken"] = self.sync_token
        else:
            from datetime import UTC, datetime

            earliest = (self.began or self._now) - past_days(self._config) * 86_400
            query["timeMin"] = datetime.fromtimestamp(int(earliest), UTC).isoformat()
        if self.page_token:
            query["pageToken"] = self.page_token
        return query

    def restart(self) -> None:
        """Read everything anew; what is known tells which of it is news."""
        self.sync_token = self.page_token = self.began = None
        self.full += 1
        self.changes.clear()

    def take(self, reply: Reply) -> bool:
        """Take a page in; whether there is another."""
        document = reply.json()
        items = document.get("items") or []
        if self.began is None:
            self.began = reply.moment(self._now)
        for event in items if isinstance(items, list) else ():
            if isinstance(event, dict) and isinstance(event.get("id"), str):
                self._change(event)
        following = document.get("nextPageToken")
        if isinstance(following, str) and following:
            if following == self.page_token:
                raise Failure("Google's pages do not end")
            self.page_token = following
            return True
        if not isinstance(document.get("nextSyncToken"), str):
            raise Failure("Google gave out no sync token")
        if not self.sync_token:
            self._vanished()
        if items or self.synced_at is None:
            self.synced_at = self.began
        self.sync_token, self.page_token, self.began = document["nextSyncToken"], None, None
        return False

    def state(self) -> dict[str, Any]:
        """Where the next run goes on."""
        return {
            "known": _fit(self.known),
            "sync_token": self.sync_token,
            "page_token": self.page_token,
            "full": self.full,
            "began": self.began,
            "synced_at": self.synced_at,
        }

    def _change(self, event: Mapping[str, Any]) -> None:
        known = self.known.get(event["id"])
        if known is not None and known[0] == event.get("etag"):
            known[4] = self.full
        elif event.get("status") == "cancelled":
            self._cancelled(event, known)
        else:
            told = _told(event)
            kind = "updated" if known is not None or self._was_there(event) else "created"
            self._remember(event, told, cancelled=False)
            self._tell(kind, told)

    def _cancelled(self, event: Mapping[str, Any], known: list[Any] | None) -> None:
        """Of a cancelled event only the id is certain; the rest is what we remember.

        One date of a series is cancelled by an event of its own, which we never saw before.
        """
        self.known.pop(event["id"], None)
        series = event.get("recurringEventId")
        remembered = known or self.known.get(str(series)) or [None] * 6
        told = {
            "event_id": event["id"],
            "etag": _text(event.get("etag")) or remembered[0],
            "summary": remembered[3],
            "start": _when(event.get("originalStartTime")) or remembered[1],
            "end": None if known is None else known[2],
        }
        if series:
            self._remember(event, told, cancelled=True)
        if known is not None or series:
            self._tell("cancelled", told)

    def _vanished(self) -> None:
        """A full pass names every event that is to come: one that it does not is cancelled."""
        for id, known in list(self.known.items()):
            if known[4] != self.full and not known[5] and _epoch(known[2]) > self._now:
                self._cancelled({"id": id}, known)

    def _remember(
        self, event: Mapping[str, Any], told: Mapping[str, Any], *, cancelled: bool
    ) -> None:
        summary = (told["summary"] or "")[:LONGEST_SUMMARY]
        entry = [event.get("etag"), told["start"], told["end"], summary, self.full, cancelled]
        self.known[event["id"]] = entry

    def _tell(self, kind: str, told: dict[str, Any]) -> None:
        if not self.quiet:
            self.changes.append((kind, told))

    def _was_there(self, event: Mapping[str, Any]) -> bool:
        """Whether an event that we do not know is old: what is past is forgotten in time."""
        since = self.synced_at
        return since is not None and _epoch(event.get("created")) < since - SLACK


def _told(event: Mapping[str, Any]) -> dict[str, Any]:
    """What is passed on of an event."""
    start, end = event.get("start"), event.get("end")
    organizer = event.get("organizer")
    attendees = event.get("attendees")
    return {
        "event_id": event["id"],
        "etag": _text(event.get("etag")),
        "status": _text(event.get("status")),
        "summary": _text(event.get("summary")),
        "description": _text(event.get("description")),
        "location": _text(event.get("location")),
        "start": _when(start),
        "end": _when(end),
        "all_day": isinstance(start, dict) and "date" in start,
        "organizer": _text(organizer.get("email")) if isinstance(organizer, dict) else "",
        "attendees": [
            {"email": _text(one.get("email")), "response": _text(one.get("responseStatus"))}
            for one in (attendees if isinstance(attendees, list) else [])[:MOST_ATTENDEES]
            if isinstance(one, dict)
        ],
        "recurring_event_id": event.get("recurringEventId"),
        "link": _text(event.get("htmlLink")),
        "created": _text(event.get("created")),
        "updated": _text(event.get("updated")),
    }


def _text(value: Any) -> str:
    return value[:LONGEST_TEXT] if isinstance(value, str) else ""


def _when(value: Any) -> str | None:
    """A moment with its offset, or a day: `2026-02-08T10:00:00+01:00`, `2026-02-08`."""
    if not isinstance(value, dict):
        return None
    return _text(value.get("dateTime")) or _text(value.get("date")) or None


def _epoch(text: Any) -> float:
    from datetime import UTC, datetime

    try:
        moment = datetime.fromisoformat(text)
    except (ValueError, TypeError):
        return 0.0
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _fit(known: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
    """As many events as may be remembered, what ends last first."""
    import json

    sizes = {id: len(json.dumps([id, *entry])) for id, entry in known.items()}
    if sum(sizes.values()) <= LARGEST_MEMORY:
        return dict(known)
    kept, room = {}, LARGEST_MEMORY
    for id in sorted(known, key=lambda id: _epoch(known[id][2]), reverse=True):
        room -= sizes[id]
        if room < 0:
            break
        kept[id] = known[id]
    return kept


def past_days(config: Mapping[str, Any]) -> float:
    days = config.get("past_days", 1)
    if isinstance(days, bool) or not isinstance(days, int | float) or not 0 <= days <= 36_500:
        raise Misconfigured("config.past_days must be a number of days")
    return float(days)
