"""What was sent and what waits, as the plugin's state keeps it. Bounded in every direction."""

from __future__ import annotations

import json

from message import Message

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MOST_SENT = 2000
MOST_WAITING = 50
LARGEST_WAITING = 400_000
FIRST_WAIT = 60.0
LONGEST_WAIT = 3600.0


class Waiting:
    """A message that one channel still owes."""

    def __init__(self, message: Message, channel: str) -> None:
        self.message, self.channel = message, channel
        self.tries = 0
        self.next_at = 0.0
        self.error = ""
        self.failed = False
        """Whether it was given up: it stays only to be told of."""

    def postpone(self, error: str, now: float, asked: float = 0.0) -> None:
        self.tries += 1
        self.error = error
        pause = min(FIRST_WAIT * 2 ** (self.tries - 1), LONGEST_WAIT)
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
        """How many units were sent in this run: what the state must not forget."""
        self.dropped: list[Waiting] = []

    def was_sent(self, key: str) -> bool:
        return key in self._sent

    def remember(self, key: str) -> None:
        self._sent[key] = None
        self.fresh += 1

    def keep(self, waiting: Waiting) -> None:
        if waiting not in self.waiting:
            self.waiting.append(waiting)

    def due(self, now: float, most: int) -> list[Waiting]:
        """What to try again, the longest due first."""
        ready = [one for one in self.waiting if not one.failed and one.next_at <= now]
        return sorted(ready, key=lambda one: one.next_at)[:most]

    def state(self) -> dict[str, Any]:
        waiting = [one.document() for one in self.waiting]
        while len(waiting) > MOST_WAITING or len(json.dumps(waiting)) > LARGEST_WAITING:
            self.dropped.append(self.waiting.pop(0))
            del waiting[0]
        return {"sent": list(self._sent)[-MOST_SENT:], "waiting": waiting}


def _read(document: dict[str, Any]) -> Waiting:
    waiting = Waiting(Message(**document["message"]), document["channel"])
    waiting.tries, waiting.next_at = document["tries"], document["next_at"]
    waiting.error, waiting.failed = document["error"], document["failed"]
    return waiting
