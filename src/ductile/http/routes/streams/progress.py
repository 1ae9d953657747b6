"""What running jobs report of their progress, for one subscriber of the event stream."""

from __future__ import annotations

from typing import Any

import orjson

from ductile.clock import to_text
from ductile.http.middleware.context import PROGRESS_INTERVAL, AppContext

IDLE_INTERVAL = 3600.0
"""While nothing runs: the start of a job is an event."""


class ProgressFeed:
    """Finds what has changed since the last look. Nothing of it is stored."""

    scopes = frozenset({"jobs:ro"})

    def __init__(self, context: AppContext) -> None:
        self._context, self._services = context, context.services
        self._sent: dict[str, tuple[float, str]] = {}

    @property
    def interval(self) -> float:
        """Seconds until the next look."""
        return PROGRESS_INTERVAL if self._services.owned_jobs() else IDLE_INTERVAL

    async def read(self) -> str:
        """The events for the progress that was not sent yet. They have no id: none is resumed."""
        # The output of all jobs is read once for all subscribers.
        shared = await self._context.running_progress()
        # Not of a job that has ended meanwhile: its end was sent.
        found = {id: shared[id] for id in self._services.running_ids() if id in shared}
        reported = {id: (one["percent"], one["message"]) for id, one in found.items()}
        changed = [id for id, report in reported.items() if self._sent.get(id) != report]
        self._sent = reported
        return "".join(self._encode({"job_id": id, **found[id]}) for id in changed)

    def _encode(self, data: dict[str, Any]) -> str:
        event = {"topic": "jobs", "type": "job.progress", "at": to_text(self._services.clock.now())}
        text = orjson.dumps({**event, "data": data}).decode()
        return f"event: job.progress\ndata: {text}\n\n"
