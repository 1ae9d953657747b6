"""Find new, updated and cancelled events in pages of a calendar."""

from __future__ import annotations

from protocol import ConfigError, Failure

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from http_api import Reply

PAGE = 250
MAX_KNOWN = 600_000
"""Bytes of stored events; the gateway stores at most 1 MiB of state."""
MAX_TEXT = 8_000
MAX_SUMMARY = 80
MAX_ATTENDEES = 100
SLACK = 60.0


class Sync:
    """An incremental or a full sync; it may take several runs."""

    def __init__(self, config: Mapping[str, Any], state: Mapping[str, Any], now: float) -> None:
        self._config, self._now = config, now
        known = state.get("known") or {}
        self.known: dict[str, list[Any]] = {id: list(entry) for id, entry in known.items()}
        """By event id: etag, start, end, summary, number of the last full sync, cancelled."""
        self.sync_token: str | None = state.get("sync_token")
        self.page_token: str | None = state.get("page_token")
        self.full: int = state.get("full") or 1
        self.synced_at: float | None = state.get("synced_at")
        self.began: float | None = state.get("began")
        self.read_from: float | None = state.get("read_from")
        """Events that ended before this time were never read."""
        self.dropped_until: float = state.get("dropped_until") or 0.0
        """Events that end by this time may have been dropped, because the state is limited."""
        self.quiet = self.synced_at is None and not config.get("emit_existing")
        """Events that exist at the first sync are not emitted."""
        self.changes: list[tuple[str, dict[str, Any]]] = []

    def query(self) -> dict[str, Any]:
        """The next query. With a sync token, the other parameters must not change."""
        query: dict[str, Any] = {"maxResults": PAGE, "showDeleted": "true"}
        query["singleEvents"] = "true" if self._config.get("expand_recurring") else "false"
        if self.sync_token:
            query["syncToken"] = self.sync_token
        else:
            from datetime import UTC, datetime

            query["timeMin"] = datetime.fromtimestamp(self._get_earliest(), UTC).isoformat()
        if self.page_token:
            query["pageToken"] = self.page_token
        return query

    def _get_earliest(self) -> int:
        return int((self.began or self._now) - read_past_days(self._config) * 86_400)

    def restart(self) -> None:
        """Start a full sync; known events are not emitted again."""
        self.sync_token = self.page_token = self.began = None
        self.full += 1
        self.changes.clear()

    def add_page(self, reply: Reply) -> bool:
        """Process a page; whether there is another one."""
        document = reply.json()
        items = document.get("items") or []
        if self.began is None:
            self.began = reply.get_time(self._now)
        for event in items if isinstance(items, list) else ():
            if isinstance(event, dict) and isinstance(event.get("id"), str):
                self._process_event(event)
        following = document.get("nextPageToken")
        if isinstance(following, str) and following:
            if following == self.page_token:
                raise Failure("Google returned the same page twice")
            self.page_token = following
            return True
        if not isinstance(document.get("nextSyncToken"), str):
            raise Failure("Google returned no sync token")
        if not self.sync_token:
            self._cancel_missing()
            if self.read_from is None:
                self.read_from = self._get_earliest()
        if items or self.synced_at is None:
            self.synced_at = self.began
        self.sync_token, self.page_token, self.began = document["nextSyncToken"], None, None
        return False

    def state(self) -> dict[str, Any]:
        """The state for the next run."""
        known = _trim(self.known)
        dropped = [_to_seconds(self.known[id][2]) for id in self.known.keys() - known.keys()]
        return {
            "known": known,
            "sync_token": self.sync_token,
            "page_token": self.page_token,
            "full": self.full,
            "began": self.began,
            "synced_at": self.synced_at,
            "read_from": self.read_from,
            "dropped_until": max([self.dropped_until, *dropped]),
        }

    def _process_event(self, event: Mapping[str, Any]) -> None:
        known = self.known.get(event["id"])
        if known is not None and known[0] == event.get("etag"):
            known[4] = self.full
        elif event.get("status") == "cancelled":
            self._process_cancelled(event, known)
        else:
            payload = _build_payload(event)
            existed = known is not None or self._was_dropped(event, payload)
            kind = "updated" if existed else "created"
            self._remember(event, payload, cancelled=False)
            self._add_change(kind, payload)

    def _process_cancelled(self, event: Mapping[str, Any], known: list[Any] | None) -> None:
        """A cancelled event has only its id; the other fields come from the state.

        A cancelled date of a series is a separate event, which was never seen before.
        """
        self.known.pop(event["id"], None)
        series = event.get("recurringEventId")
        remembered = known or self.known.get(str(series)) or [None] * 6
        payload = {
            "event_id": event["id"],
            "etag": _get_text(event.get("etag")) or remembered[0],
            "summary": remembered[3],
            "start": _get_time(event.get("originalStartTime")) or remembered[1],
            "end": None if known is None else known[2],
        }
        if series:
            self._remember(event, payload, cancelled=True)
        if known is not None or series:
            self._add_change("cancelled", payload)

    def _cancel_missing(self) -> None:
        """A full sync returns every future event, so a missing one is cancelled."""
        for id, known in list(self.known.items()):
            if known[4] != self.full and not known[5] and _to_seconds(known[2]) > self._now:
                self._process_cancelled({"id": id}, known)

    def _remember(
        self, event: Mapping[str, Any], payload: Mapping[str, Any], *, cancelled: bool
    ) -> None:
        summary = (payload["summary"] or "")[:MAX_SUMMARY]
        entry = [event.get("etag"), payload["start"], payload["end"], summary, self.full, cancelled]
        self.known[event["id"]] = entry

    def _add_change(self, kind: str, payload: dict[str, Any]) -> None:
        if not self.quiet:
            self.changes.append((kind, payload))

    def _was_dropped(self, event: Mapping[str, Any], payload: Mapping[str, Any]) -> bool:
        """Whether an unknown event existed before, but is not stored.

        An early `created` is not enough: an invitation, an import or a move to this calendar keeps
        the time at which the event was first created elsewhere.
        """
        if self.synced_at is None or _to_seconds(event.get("created")) >= self.synced_at - SLACK:
            return False
        end = _to_seconds(payload["end"])
        if end <= self.dropped_until:
            return True
        # The end of a series is that of its first date, so it says nothing about the others.
        return not event.get("recurrence") and end < (self.read_from or 0.0)


def _build_payload(event: Mapping[str, Any]) -> dict[str, Any]:
    """The payload of an event."""
    start, end = event.get("start"), event.get("end")
    organizer = event.get("organizer")
    attendees = event.get("attendees")
    return {
        "event_id": event["id"],
        "etag": _get_text(event.get("etag")),
        "status": _get_text(event.get("status")),
        "summary": _get_text(event.get("summary")),
        "description": _get_text(event.get("description")),
        "location": _get_text(event.get("location")),
        "start": _get_time(start),
        "end": _get_time(end),
        "all_day": isinstance(start, dict) and "date" in start,
        "organizer": _get_text(organizer.get("email")) if isinstance(organizer, dict) else "",
        "attendees": [
            {"email": _get_text(one.get("email")), "response": _get_text(one.get("responseStatus"))}
            for one in (attendees if isinstance(attendees, list) else [])[:MAX_ATTENDEES]
            if isinstance(one, dict)
        ],
        "recurring_event_id": event.get("recurringEventId"),
        "link": _get_text(event.get("htmlLink")),
        "created": _get_text(event.get("created")),
        "updated": _get_text(event.get("updated")),
    }


def _get_text(value: Any) -> str:
    return value[:MAX_TEXT] if isinstance(value, str) else ""


def _get_time(value: Any) -> str | None:
    """A time with its offset, or a date: `2026-02-08T10:00:00+01:00`, `2026-02-08`."""
    if not isinstance(value, dict):
        return None
    return _get_text(value.get("dateTime")) or _get_text(value.get("date")) or None


def _to_seconds(text: Any) -> float:
    from datetime import UTC, datetime

    try:
        time = datetime.fromisoformat(text)
    except (ValueError, TypeError):
        return 0.0
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()


def _trim(known: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
    """The events that fit into the state; those that end last are kept."""
    import json

    sizes = {id: len(json.dumps([id, *entry])) for id, entry in known.items()}
    if sum(sizes.values()) <= MAX_KNOWN:
        return dict(known)
    kept, room = {}, MAX_KNOWN
    for id in sorted(known, key=lambda id: _to_seconds(known[id][2]), reverse=True):
        room -= sizes[id]
        if room < 0:
            break
        kept[id] = known[id]
    return kept


def read_past_days(config: Mapping[str, Any]) -> float:
    days = config.get("past_days", 1)
    if isinstance(days, bool) or not isinstance(days, int | float) or not 0 <= days <= 36_500:
        raise ConfigError("config.past_days must be a number of days")
    return float(days)
