"""What may be sent to each route, as schemas."""

from __future__ import annotations

from typing import Any

from ductile.core.agents import decision_log
from ductile.http.openapi.notation import Schema, fields
from ductile.http.routes.bulk import MOST_AT_ONCE

DRY_RUN = "dry_run?: flag - Say what would be done; change nothing."
TRIGGER = f"""
payload?: any - What the job is given; nothing is an empty object.
dedupe_key?: text - A job of the same plugin, command and key makes this one needless.
dedupe_ttl?: any - For how long: `1h`, or seconds.
{DRY_RUN}
"""
START = f"""
payload?: any - The payload of the event that starts it.
dedupe_key?: text - A first job of the same key makes this one needless.
dedupe_ttl?: any - For how long: `1h`, or seconds.
{DRY_RUN}
"""
MANY = f"""
filter: object - What to act on; at least one of its keys.
limit?: int - So many at most, from 1 to {MOST_AT_ONCE}; 100 by default.
{DRY_RUN}
"""
FILTER = """
plugin?: text
command?: text
status?: JobStatus
submitted_by?: SubmittedBy
before?: time - Made before this time.
"""
NEW_TOKEN = f"""
name: text
scopes: [text] - `*`, or a noun or plugin with :ro or :rw.
expires_in?: text - `30d`; without it the token does not end.
{DRY_RUN}
"""
HEARTBEAT = """
type: heartbeat|
agent_id: text
cluster_id: text
timestamp?: time
"""
NEW_REMINDER = f"""
agent_id: text
delay_ms?: int - Once, after so many milliseconds; or
schedule?: text - again and again, by a cron rule of five fields in UTC.
payload?: object
{DRY_RUN}
"""
SEND = f"""
webhook_id?: int - By its id, or by the two that follow.
source_identifier?: text
event_type?: text
payload?: any
{DRY_RUN}
"""
RETRY_DELIVERIES = f"""
status: dead|failed
since?: time
limit?: int
{DRY_RUN}
"""
NEW_WEBHOOK = f"""
source_identifier: text
event_type: text
agent_intent?: text
target_session: text
target_url?: text - Where outbound events go; or
plugin?: text - who is handed what comes in; or
pipeline?: text - what it starts.
secret?: text - At least 8 characters; without it one is made, and shown once.
{DRY_RUN}
"""


def _many() -> Schema:
    schema = fields(MANY)
    wanted = {**fields(FILTER), "minProperties": 1, "additionalProperties": False}
    schema["properties"]["filter"] = wanted
    schema["properties"]["limit"] |= {"minimum": 1, "maximum": MOST_AT_ONCE}
    return schema


def _decision_log() -> Schema:
    """Section by section, as they are judged."""
    sections: dict[str, Any] = {
        name: {
            "type": "object",
            "required": [field for field, rule in rules.items() if rule.required],
            "properties": {field: {"description": rule.must_be} for field, rule in rules.items()},
        }
        for name, rules in decision_log.SECTIONS.items()
    }
    return {"type": "object", "required": list(decision_log.REQUIRED), "properties": sections}


BODIES: dict[str, Schema] = {
    "/plugin/{plugin}/{command}": fields(TRIGGER),
    "/pipeline/{name}": fields(START),
    "/job/{job_id}/replay": fields(f"step?: text - That of its pipeline.\n{DRY_RUN}"),
    "/jobs/cancel": _many(),
    "/jobs/retry": _many(),
    "/tokens": fields(NEW_TOKEN),
    "/token/{which}/rotate": fields(f"expires_in?: text\n{DRY_RUN}"),
    "/system/backup": fields(f"path?: text\nreplace?: flag\n{DRY_RUN}"),
    "/gateway/heartbeat": fields(HEARTBEAT),
    "/gateway/messages": _decision_log(),
    "/gateway/cron": fields(NEW_REMINDER),
    "/gateway/deliveries": fields(SEND),
    "/gateway/deliveries/retry": fields(RETRY_DELIVERIES),
    "/gateway/webhook-configs": fields(NEW_WEBHOOK),
    "/gateway/webhooks/{webhook_id}": {},
}
"""By path; any other POST takes `dry_run`."""
ANY_OTHER = fields(DRY_RUN)
REQUIRED = frozenset(
    {
        "/jobs/cancel",
        "/jobs/retry",
        "/tokens",
        "/gateway/heartbeat",
        "/gateway/messages",
        "/gateway/cron",
        "/gateway/deliveries",
        "/gateway/deliveries/retry",
        "/gateway/webhook-configs",
    }
)
"""Routes that refuse a request without a body."""
