"""Sent and pending messages in the plugin's state, both limited in number and size."""

from __future__ import annotations

import json

from message import Message

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MAX_SENT = 2000
MAX_PENDING = 50
MAX_PENDING_BYTES = 400_000
FIRST_WAIT = 60.0
MAX_WAIT = 3600.0


class PendingMessage:
    """A message that a channel has not sent yet."""

    def __init__(self, message: Message, channel: str) -> None:
        self.message, self.channel = message, channel
        self.tries = 0
        self.next_at = 0.0
        self.error = ""
        self.failed = False
        """Whether it is given up, and kept only to be reported."""

    def postpone(self, error: str, now: float, asked: float = 0.0) -> None:
        self.tries += 1
        self.error = error
        pause = min(FIRST_WAIT * 2 ** (self.tries - 1), MAX_WAIT)
        self.next_at = now + max(pause, asked)

    def document(self) -> dict[str, Any]:
        return {**vars(self), "message": self.message.document()}


class Outbox:
    def __init__(self, state: dict[str, Any]) -> None:
        sent = state.get("sent")
        self._sent = dict.fromkeys(sent if isinstance(sent, list) else ())
        raw = state.get("waiting")
        self.waiting = [_read(one) for one in (raw if isinstance(raw, list) else ())]
        self.fresh = 0
        """The number of units sent in this run, which the state must keep."""
        self.dropped: list[PendingMessage] = []

    def was_sent(self, key: str) -> bool:
        return key in self._sent

    def remember(self, key: str) -> None:
        self._sent[key] = None
        self.fresh += 1

    def keep(self, waiting: PendingMessage) -> None:
        if waiting not in self.waiting:
            self.waiting.append(waiting)

    def list_due(self, now: float, limit: int) -> list[PendingMessage]:
        """Pending messages to retry, the longest due first."""
        ready = [one for one in self.waiting if not one.failed and one.next_at <= now]
        return sorted(ready, key=lambda one: one.next_at)[:limit]

    def state(self) -> dict[str, Any]:
        waiting = [one.document() for one in self.waiting]
        while len(waiting) > MAX_PENDING or len(json.dumps(waiting)) > MAX_PENDING_BYTES:
            self.dropped.append(self.waiting.pop(0))
            del waiting[0]
        return {"sent": list(self._sent)[-MAX_SENT:], "waiting": waiting}


def _read(document: dict[str, Any]) -> PendingMessage:
    waiting = PendingMessage(Message(**document["message"]), document["channel"])
    waiting.tries, waiting.next_at = document["tries"], document["next_at"]
    waiting.error, waiting.failed = document["error"], document["failed"]
    return waiting
