"""Refusals of tools: a code, what to do about it, and the name that was probably meant."""

from __future__ import annotations

from ductile.errors import DuctileError
from ductile.http.mcp.results import Json, shorten

FIXES = {
    "usage": "correct the argument that the message names",
    "not_found": "look the name or id up with find, jobs, runs, schedules or deliveries",
    "forbidden": "an operator can create a token with the scope: ductile token create",
    "unauthorized": "the token has expired or was revoked; an operator can create another",
    "budget_spent": "an operator can create another lease: ductile token create --for NAME",
    "count_changed": "repeat the dry run, look at what it would touch, and pass its count",
    "content_changed": "start again: call the same without cursor",
    "preview_needed": "call the same with dry_run: true, then pass its count as expected",
    "plan_needed": "call the same with dry_run: true, then pass the id of its plan",
    "config_invalid": "correct the problems with config {action: set}; config {action: check}",
    "sealed": "leave the decision to an operator: ductile config set … --lock",
    "idempotency_key_reused": "use a new idempotency_key for another request",
    "too_many_waits": "call again without wait_s",
    "too_many_open_requests": "end other waiting calls, or call without wait_s",
    "body_too_large": "pass less in one call",
    "not_running": "an operator has to start the gateway: ductile system start",
}
MENDS = "this command, or the tool that does the same (config set writes and loads)"
OTHERWISE = "read the message; look at the present state with overview or job, then try again"


def describe_refusal(error: DuctileError) -> Json:
    details = dict(error.details)
    close = details.pop("nearest", None) or details.pop("suggestion", None)
    described = {
        "code": error.code,
        "message": error.message,
        "fix": FIXES.get(error.code, OTHERWISE),
        **({"nearest": close} if close else {}),
        **details,
    }
    if error.code == "forbidden" and "scope" in details:
        described["fix"] = f"an operator can create a token with the scope {details['scope']}"
    elif "run" in details:
        described["fix"] = f"{MENDS}: {details['run']}"
    refusal: Json = shorten({"error": described})
    return refusal
