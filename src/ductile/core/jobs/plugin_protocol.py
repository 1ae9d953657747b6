"""The plugin protocol, versions 1 and 2: one JSON object in, one JSON object out.

Requests are encoded here and responses parsed; `judge` decides what an exit code means. A response
that violates the protocol is a value (`ProtocolError`), never an exception.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

import orjson

from ductile._fast_dataclass import dataclass
from ductile.core.jobs.limits import DEEPEST, dedupe_key_flaw, too_deep
from ductile.core.values.json_integers import has_integer_beyond_64_bits
from ductile.model import STDOUT_CAP, Json

LONGEST_RETRY_AFTER = 86_400
NO_RESULT = "protocol 2 requires a result with status ok"

_BOM = b"\xef\xbb\xbf"
_LOG_LEVELS = {
    "debug": "debug",
    "info": "info",
    "warn": "warn",
    "warning": "warn",
    "error": "error",
}


def request_context(
    baggage: Mapping[str, Json],
    *,
    plugin: str,
    pipeline: str | None = None,
    step_id: str | None = None,
) -> dict[str, Json]:
    """The `context` of a request: the baggage, and the plugin, pipeline and step of the job."""
    context = {**baggage, "ductile_plugin": plugin}
    if pipeline:
        context["ductile_pipeline"] = pipeline
    if step_id:
        context["ductile_step_id"] = step_id
    return context


def envelope_of(column: Json) -> Mapping[str, Json]:
    """The envelope of an event that a `handle` job's `payload` column holds.

    An object with neither `type` nor `payload` (a script wrote the row) is the event's payload.
    """
    if isinstance(column, dict) and ("type" in column or "payload" in column):
        return column
    return {"payload": column}


def event_of(
    payload: Json,
    *,
    type: str,
    source: str,
    timestamp: str,
    event_id: str,
    dedupe_key: str | None = None,
) -> dict[str, Json]:
    """The event in a `handle` job's `payload` column; the arguments fill in missing fields."""
    envelope = envelope_of(payload)
    inner = envelope.get("payload")

    def text(key: str, default: str | None) -> str | None:
        value = envelope.get(key)
        return value if isinstance(value, str) and value else default

    return {
        "type": text("type", type),
        "payload": {} if inner is None else inner,
        "dedupe_key": text("dedupe_key", dedupe_key),
        "source": text("source", source),
        "timestamp": text("timestamp", timestamp),
        "event_id": text("event_id", event_id),
    }


def add_context(payload: Json, context: Mapping[str, Json]) -> Json:
    """`payload` with the context keys that it lacks, so that plugins find all values in one place.

    Applies to objects only. It is idempotent, so the result of `with` over the merged payload may
    be passed to `encode_request`.
    """
    return {**context, **payload} if isinstance(payload, dict) else payload


def encode_request(
    *,
    protocol: int,
    job_id: str,
    command: str,
    config: Json | orjson.Fragment,
    state: Json | orjson.Fragment,
    context: Mapping[str, Json],
    deadline_at: str,
    payload: Json = None,
    event: Mapping[str, Json] | None = None,
    workspace_dir: str | None = None,
) -> bytes:
    """One request, followed by a newline for plugins that read a line.

    `event` (see `event_of`) is given for `handle` alone; its payload, with the context's
    keys added, is then the request's payload as well. `config` and `state` may be JSON that
    is already encoded.
    """
    request: dict[str, Json] = {
        "protocol": protocol,
        "job_id": job_id,
        "command": command,
        "config": {} if config is None else config,
        "state": {} if state is None else state,
    }
    if protocol >= 2:
        request["context"] = dict(context)
    if event is not None:
        payload = add_context(event["payload"], context)
        request["event"] = {**event, "payload": payload}
    request["payload"] = {} if payload is None else payload
    request["deadline_at"] = deadline_at
    if workspace_dir is not None:
        request["workspace_dir"] = workspace_dir
    return orjson.dumps(request, option=orjson.OPT_APPEND_NEWLINE)


class LogLine(NamedTuple):
    """A log line that a plugin adds to its job."""

    level: str
    message: str


@dataclass(frozen=True, slots=True)
class EmittedEvent:
    """An event as the plugin wrote it, before the core adds source, time and id."""

    type: str
    payload: Json
    dedupe_key: str | None


@dataclass(frozen=True, slots=True)
class Response:
    """A response that conforms to the protocol, whatever it reports about the job."""

    status: Literal["ok", "error"]
    result: Json
    error: str | None
    retry: bool
    events: tuple[EmittedEvent, ...]
    state_updates: dict[str, Json] | None
    logs: tuple[LogLine, ...]
    retry_after: float | None
    """Seconds until the upstream accepts the next call, if the plugin knows."""
    raw: dict[str, Json]
    """The whole document, unknown keys and all."""

    @property
    def missing_result(self) -> bool:
        """Whether `result` is missing on `ok` with protocol 2: logged, not failed."""
        return self.status == "ok" and self.result is None


@dataclass(frozen=True, slots=True)
class ProtocolError:
    """Why the output of a plugin is not a valid response."""

    reason: str


def _read_retry_after(value: Json) -> float | None:
    """The seconds, limited to a day; None if it is absent or not a positive number.

    Not an error: plugins could use the key for something else before it had a meaning.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        return None
    return float(min(value, LONGEST_RETRY_AFTER))


def read_response(stdout: bytes, *, overflowed: bool) -> Response | ProtocolError:
    """Parse the stdout of a plugin; `overflowed` says that it exceeded the limit.

    Integers are limited to signed 64 bits, as in the ledger. The last of duplicate keys counts.
    `null` means an absent field, as some languages write it. U+0000 is replaced by U+FFFD. Valid
    log lines are kept; invalid ones are dropped without an error.
    """
    document = _decode(stdout, overflowed)
    if isinstance(document, ProtocolError):
        return document
    status = document.get("status")
    if status is None:
        return ProtocolError("the response has no status")
    if status not in ("ok", "error"):
        return ProtocolError(f"status is {_shown(status)}; it must be 'ok' or 'error'")
    retry = document.get("retry")
    if retry is not None and not isinstance(retry, bool):
        return ProtocolError(f"retry is {_shown(retry)}; it must be true or false")
    state_updates = document.get("state_updates")
    if state_updates is not None and not isinstance(state_updates, dict):
        return ProtocolError(f"state_updates is {_shown(state_updates)}; it must be an object")
    events = _events(document.get("events"))
    if isinstance(events, ProtocolError):
        return events
    return Response(
        status=status,
        result=document.get("result"),
        error=_text(document.get("error")),
        retry=retry is not False,
        retry_after=_read_retry_after(document.get("retry_after")),
        events=events,
        state_updates=state_updates,
        logs=_logs(document.get("logs")),
        raw=document,
    )


def without_nul(value: Json) -> Json:
    """`value` with U+FFFD for every U+0000, which PostgreSQL cannot store in text."""
    if isinstance(value, str):
        return value.replace("\0", "\ufffd")
    if isinstance(value, list):
        return [without_nul(item) for item in value]
    if isinstance(value, dict):
        return {without_nul(key): without_nul(item) for key, item in value.items()}
    return value


def _decode(stdout: bytes, overflowed: bool) -> dict[str, Json] | ProtocolError:
    if overflowed or len(stdout) > STDOUT_CAP:
        return ProtocolError(f"stdout is larger than {STDOUT_CAP // 1024**2} MiB")
    try:
        document = orjson.loads(stdout)
    except orjson.JSONDecodeError as error:
        return ProtocolError(_why_not_json(stdout, error))
    if not isinstance(document, dict):
        return ProtocolError(f"stdout is {_shown(document)}; it must be one JSON object")
    if too_deep(document, stdout):
        return ProtocolError(f"the response is nested more than {DEEPEST} levels deep")
    if has_integer_beyond_64_bits(stdout):
        return ProtocolError("the response contains an integer beyond 64 bits")
    if b"\\u0000" in stdout:
        cleaned: dict[str, Json] = without_nul(document)
        return cleaned
    return document


def _why_not_json(stdout: bytes, error: orjson.JSONDecodeError) -> str:
    if not stdout.strip():
        return "stdout is empty; it must be one JSON object"
    if stdout.startswith(_BOM):
        return "stdout begins with a byte order mark; write UTF-8 without one"
    try:
        stdout.decode()
    except UnicodeDecodeError as broken:
        return f"stdout is not UTF-8 (byte {broken.start})"
    if error.msg.startswith("unexpected content after document"):
        place = f"line {error.lineno} column {error.colno}"
        return f"stdout contains more than one JSON object ({place}); write logs to stderr"
    return f"stdout is not JSON: {error}"


def _events(value: Json) -> tuple[EmittedEvent, ...] | ProtocolError:
    if not value and (value is None or isinstance(value, list)):
        return ()
    if not isinstance(value, list):
        return ProtocolError(f"events is {_shown(value)}; it must be a list")
    events = []
    for index, event in enumerate(value):
        if not isinstance(event, dict):
            return ProtocolError(f"events[{index}] is {_shown(event)}; it must be an object")
        type_, key = event.get("type"), event.get("dedupe_key")
        if not isinstance(type_, str) or not type_:
            return ProtocolError(f"events[{index}].type is {_shown(type_)}; it must be text")
        if key is not None and not isinstance(key, str):
            return ProtocolError(f"events[{index}].dedupe_key is {_shown(key)}; it must be text")
        if flaw := dedupe_key_flaw(key):
            return ProtocolError(f"events[{index}].dedupe_key {flaw}")
        payload = event.get("payload")
        events.append(EmittedEvent(type_, {} if payload is None else payload, key or None))
    return tuple(events)


def _logs(value: Json) -> tuple[LogLine, ...]:
    if not value:
        return ()
    lines = []
    for entry in value if isinstance(value, list) else [value]:
        level, message = (
            (entry.get("level"), entry.get("message"))
            if isinstance(entry, dict)
            else ("info", entry)
        )
        if isinstance(message, str):
            lines.append(LogLine(_LOG_LEVELS.get(str(level).lower(), "info"), message))
    return tuple(lines)


def _text(value: Json) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return orjson.dumps(value).decode()


LONGEST_SHOWN = 60


def _shown(value: Json) -> str:
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    text = orjson.dumps(value).decode()
    # A prefix could be part of a secret, which redaction would not recognise.
    return text if len(text) <= LONGEST_SHOWN else f"{len(text)} characters"
