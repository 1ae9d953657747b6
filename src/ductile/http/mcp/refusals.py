"""Refusals of tools: a code, what to do about it, and the name that was probably meant."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

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
    "plan_changed": "call the same with dry_run: true, and pass the id of that plan",
    "invalid_params": "params of tools/call are {name: TEXT, arguments: {...}}; tools/list shows "
    "the arguments of each tool",
    "method_not_found": "call tools/list, tools/call, resources/read or prompts/get",
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
LOOKUPS = {
    "job": "jobs {}",
    "plugin": "find {}",
    "plugin or pipeline": "find {}",
    "pipeline": 'find {kind: "pipeline"}',
    "pipeline run": "runs {}",
    "schedule": "schedules {}",
    "approval": "approve {}",
    "delivery": "deliveries {}",
    "webhook": 'deliveries {what: "webhooks"}',
    "plan": 'config {action: "history"}',
    "snapshot": 'config {action: "history"}',
    "setting": 'config {action: "view"}',
}
"""Of what a message does not find, the call that lists what there is."""
RUN = "this command, or the tool that does the same (config set writes and loads)"
OTHERWISE = "read the message; look at the present state with overview or job, then try again"
_ABSENT = re.compile(rf"(?:there is no|unknown) ({'|'.join(LOOKUPS)})\b(?! or| run)")
_COMMAND = re.compile(r"plugin (\S+) has no command ")
_MEANT = re.compile(r"; did you mean '([^']+)'\?")


def describe_refusal(error: DuctileError) -> Json:
    details = dict(error.details)
    close = details.pop("nearest", None) or details.pop("suggestion", None) or _find_meant(error)
    described = {
        "code": error.code,
        "message": error.message,
        "fix": details.pop("fix", None) or _find_fix(error, close),
        **({"nearest": close} if close else {}),
        **{key: value for key, value in details.items() if value is not None},
    }
    refusal: Json = shorten({"error": described})
    return refusal


def explain_protocol_error(document: Any) -> Any:
    """The response of the SDK with what to do about a request that it does not understand."""
    error = document.get("error") if isinstance(document, dict) else None
    if not isinstance(error, dict) or isinstance(error.get("data"), dict):
        return document
    code = {-32601: "method_not_found", -32602: "invalid_params"}.get(error.get("code", 0))
    if code is None:
        return document
    data = {"code": code, "message": error.get("message", ""), "fix": FIXES[code]}
    return {**document, "error": {**error, "data": data}}


def _find_fix(error: DuctileError, close: object) -> str:
    details = error.details
    _, named, command = error.message.partition(": ductile token create ")
    if named:
        return f"an operator can run: ductile token create {command}"
    if error.code == "forbidden" and "scope" in details:
        return f"an operator can create a token with the scope {details['scope']}"
    if "run" in details:
        return f"{RUN}: {details['run']}"
    if error.code == "config_invalid" and (fix := _correct_setting(details)):
        return fix
    if wanted := _COMMAND.match(error.message):
        listed = f'find {{name: "{wanted[1]}"}} shows its commands'
        return f"call the same with {close!r}; {listed}" if close else listed
    if error.message.startswith("plan "):
        return f"{LOOKUPS['plan']} lists what there is"
    absent = _ABSENT.search(error.message)
    again = f"call the same with {close!r}" if close else ""
    if error.code in ("not_found", "usage", "refused") and (again or absent):
        listed = f"{LOOKUPS[absent[1]]} lists what there is" if absent else ""
        return "; ".join(filter(None, (again, listed)))
    return FIXES.get(error.code, OTHERWISE)


def _correct_setting(details: Mapping[str, Any]) -> str | None:
    """The call that corrects a setting, if it is the only wrong one."""
    problems: Any = details.get("problems") or ()
    only = problems[0] if len(problems) == 1 else {}
    if not only.get("path"):
        return None
    path, close, value = str(only["path"]), only.get("nearest"), "VALUE"
    if close and only.get("found") is None:
        # The key itself is unknown.
        path = ".".join(filter(None, (path.rpartition(".")[0], str(close))))
    elif close:
        value = repr(close)
    call = f'config {{action: "set", path: {path!r}, value: {value}}}'
    allowed = only.get("allowed")
    return f"{call}; allowed: {allowed}" if allowed and not close else call


def _find_meant(error: DuctileError) -> str | None:
    """The name that a message suggests, or the only problem of a configuration."""
    problems: Any = error.details.get("problems") or ()
    if len(problems) == 1:
        return str(problems[0]["nearest"]) if problems[0].get("nearest") else None
    found = _MEANT.search(error.message)
    return None if found is None else found[1]
