"""What may stand in a path, after the `?` and in a header: each name described once.

A name that means something else on some route has an entry of its own for it, `/path name`.
"""

from __future__ import annotations

from typing import Any

from ductile.http.middleware.idempotency import LONGEST_KEY
from ductile.http.openapi.notation import Schema, kind
from ductile.http.requests import LARGEST_PAGE, PAGE

_TEXT = {"type": "string"}
_COUNT = {"type": "integer", "minimum": 0}
_LIMIT = {"type": "integer", "minimum": 1, "maximum": LARGEST_PAGE, "default": PAGE}
_WHOLE_LIMIT = {**_LIMIT, "default": LARGEST_PAGE}
_FLAG = {"type": "boolean", "default": False}
_SECONDS = {"type": "number", "minimum": 0}

NAMES: dict[str, tuple[Schema, str]] = {
    "plugin": (_TEXT, "A plugin's name."),
    "command": (_TEXT, "A command's name."),
    "job_id": (_TEXT, "A job's id."),
    "begins": (_TEXT, "The beginning of an id."),
    "name": (_TEXT, "A pipeline's name."),
    "/scheduler/next name": (_TEXT, "`plugin`, or `plugin/id` for one of its entries."),
    "/scheduler/explain name": (_TEXT, "`plugin`, or `plugin/id` for one of its entries."),
    "instance_id": (_TEXT, "The id that the start of a pipeline was answered with."),
    "schedule": (_TEXT, "The id of a schedule entry."),
    "which": (_TEXT, "A token's id or name."),
    "relay_id": (_TEXT, "The id of an event on its way to another gateway."),
    "instance": (_TEXT, "Another gateway, by its name in `instances`."),
    "reminder_id": (_TEXT, "A reminder's id."),
    "delivery_id": (_TEXT, "A delivery's id."),
    "webhook_id": (_TEXT, "The id of a webhook."),
    "/gateway/deliveries webhook_id": ({"type": "integer", "minimum": 0}, "Of this webhook."),
    "agent_id": (_TEXT, "An agent's id."),
    "fact_type": (_TEXT, "Facts of this type."),
    "status": (kind("JobStatus"), "In this state; `pending`, `ok` and `error` are known too."),
    "/gateway/deliveries status": (kind("DeliveryStatus"), "In this state."),
    "/relays status": (kind("DeliveryStatus"), "In this state."),
    "submitted_by": (kind("SubmittedBy"), "From this producer."),
    "since": (kind("time"), "Not before this time."),
    "from": (kind("time"), "Ended at this time or later, as `since`."),
    "to": (kind("time"), "Ended at this time or before."),
    "query": (_TEXT, "This text stands in the error, in stderr or in the response."),
    "include_result": (_FLAG, "With their responses."),
    "limit": (_LIMIT, "So many at most."),
    "/gateway/heartbeats limit": (_WHOLE_LIMIT, "So many at most."),
    "/gateway/capabilities limit": (_WHOLE_LIMIT, "So many at most."),
    "/gateway/cron limit": (_WHOLE_LIMIT, "So many at most."),
    "before": (_COUNT, "Go on behind a page, by its `cursor`."),
    "after": (_TEXT, "Go on behind this place: a `cursor`, or the id of an event."),
    "/gateway/cron after": (_COUNT, "Go on behind a page, by its `cursor`."),
    "last": (_COUNT, "The newest so many, at most 1,000."),
    "topic": (_TEXT, "Only these topics, divided by commas."),
    "window": ({**_TEXT, "default": "24h"}, "How far back: `30m`, `24h`, `7d`."),
    "wait": (_SECONDS, "Answer when it has ended, or after so many seconds (60 at most)."),
    "/system/backup wait": (_COUNT, "Answer when it is made, or after so many seconds."),
    "seen": (_COUNT, "How many ended jobs are known already; with `wait`."),
    "flat": (_FLAG, "A list in place of a tree."),
    "async": (_FLAG, "Answer at once, also for a synchronous pipeline."),
    "live": (_FLAG, "Only agents that live."),
    "dry_run": (_FLAG, "Say what would be done; change nothing."),
    "count": ({"type": "integer", "minimum": 1, "maximum": 1000, "default": 20}, "So many fires."),
}
IDEMPOTENCY_KEY: dict[str, Any] = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "The same key within a day answers with the same job; with another body 422.",
    "schema": {"type": "string", "minLength": 1, "maxLength": LONGEST_KEY},
}
LAST_EVENT_ID: dict[str, Any] = {
    "name": "Last-Event-ID",
    "in": "header",
    "required": False,
    "description": "The id of the last event that was seen; all that came after it follows.",
    "schema": {"type": "string", "pattern": "^[0-9]{1,18}(-[0-9]{1,18})?$"},
}
HEADERS: dict[tuple[str, str], list[dict[str, Any]]] = {
    ("POST", "/plugin/{plugin}/{command}"): [IDEMPOTENCY_KEY],
    ("POST", "/pipeline/{name}"): [IDEMPOTENCY_KEY],
    ("POST", "/job/{job_id}/retry"): [IDEMPOTENCY_KEY],
    ("POST", "/job/{job_id}/replay"): [IDEMPOTENCY_KEY],
    ("POST", "/jobs/retry"): [IDEMPOTENCY_KEY],
    ("POST", "/gateway/deliveries"): [IDEMPOTENCY_KEY],
    ("GET", "/events"): [LAST_EVENT_ID],
}


def parameter(path: str, name: str, place: str) -> dict[str, Any]:
    """A parameter of a route, in its `path` or `query`."""
    schema, text = NAMES.get(f"{path} {name}") or NAMES.get(name) or (_TEXT, "")
    return {
        "name": name,
        "in": place,
        "required": place == "path",
        "description": text,
        "schema": schema,
    }
