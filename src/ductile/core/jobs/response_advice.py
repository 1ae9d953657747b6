"""What is wrong with a plugin's response, and how its author can fix it."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator, Mapping
from dataclasses import field

from ductile._fast_dataclass import dataclass
from ductile.core.jobs.plugin_protocol import NO_RESULT, ProtocolError, Response
from ductile.core.jobs.retry import EX_CONFIG
from ductile.core.values.suggest import nearest
from ductile.errors import Severity
from ductile.model import STDERR_CAP, Ending, Json, Outcome

KNOWN_KEYS = (
    "status",
    "result",
    "error",
    "retry",
    "retry_after",
    "events",
    "state_updates",
    "logs",
)
OFTEN_MEANT = {"state": "state_updates", "event": "events", "log": "logs", "message": "result"}
MEANS_OK = frozenset({"success", "succeeded", "successful", "done", "completed", "pass", "true"})
MEANS_ERROR = frozenset({"fail", "failed", "failure", "err", "false"})
NOT_FOUND = 127
LOOKED_AT = 256 * 1024
TRIES = 50
SHOWN = 60
_IS_ABOUT_STATUS = re.compile(r"(^|; )(status is|the response has no status)")
"""Of an error: the exit code may precede it."""

ONE_OBJECT = 'write one JSON object such as {"status": "ok", "result": "done"}'
TO_STDERR = (
    "stdout is for the response only: write everything else to stderr "
    "(print(..., file=sys.stderr), console.error, echo ... >&2)"
)


@dataclass(frozen=True, slots=True)
class Advice:
    what: str
    hint: str
    severity: Severity = Severity.ERROR
    """An error fails the attempt; a warning does not."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What manifest and configuration say about the command."""

    plugin: str
    command: str
    protocol: int
    timeout: float
    emits: Mapping[str, tuple[str, ...]] | None = field(default=None)
    """The declared events with their values; None if nothing is declared."""


def advise(
    outcome: Outcome, response: Response | ProtocolError | None, expected: Expected
) -> tuple[Advice, ...]:
    """All advice for the author of a response, errors first."""
    found = [*_advise_on_ending(outcome, expected)]
    if isinstance(response, ProtocolError):
        found.append(_advise_on_protocol_error(outcome, response))
        found.extend(_advise_on_crash(outcome))
    elif response is not None:
        found.extend(_advise_on_exit(outcome, response))
        found.extend(_advise_on_response(response, expected))
        found.extend(_advise_on_events(response, expected))
    return tuple(sorted(found, key=lambda advice: advice.severity is Severity.WARNING))


def _warning(what: str, hint: str) -> Advice:
    return Advice(what, hint, Severity.WARNING)


def _advise_on_ending(outcome: Outcome, expected: Expected) -> Iterator[Advice]:
    if outcome.ending is Ending.NOT_SPAWNED:
        yield Advice(
            outcome.reason or "the entrypoint could not be started",
            "its first line must name an existing interpreter, such as #!/usr/bin/env python3, "
            "and the file must be executable, with LF line endings",
        )
    elif outcome.ending is Ending.TIMED_OUT:
        key = f"plugins.{expected.plugin}.timeouts.{expected.command}"
        yield Advice(
            f"it did not finish within {expected.timeout:g} s",
            f"do less, or raise {key}; deadline_at in the request is the time of the kill",
        )
    elif outcome.ending is Ending.LINGERED:
        yield _warning(
            "it closed stdout and continued until it was killed; its output counts",
            "exit after writing the response: no process outlives its job",
        )
    if outcome.reason and outcome.ending is Ending.EXITED:
        hint = "save the file with LF line endings, with a first line that names an interpreter"
        yield Advice(outcome.reason, hint)
    elif outcome.exit_code == NOT_FOUND:
        yield Advice(
            "exit code 127: a command was not found",
            "a plugin inherits PATH and few other variables; name the interpreter or the "
            "command by its full path, or add it to the gateway's PATH",
        )
    if outcome.stderr_truncated:
        yield _warning(f"stderr was cut at {STDERR_CAP // 1024} KiB", "log less, or to a file")


def _advise_on_exit(outcome: Outcome, response: Response) -> Iterator[Advice]:
    code = outcome.exit_code if outcome.ending is Ending.EXITED else None
    if code and response.status == "ok":
        yield Advice(
            f"{_ended(code)} in spite of status ok",
            "exit with 0 on success; otherwise report status error with an error text",
        )


def _advise_on_crash(outcome: Outcome) -> Iterator[Advice]:
    code = outcome.exit_code
    if not code or outcome.ending is not Ending.EXITED or code == NOT_FOUND:
        return
    lines = outcome.stderr.decode("utf-8", "replace").split("\n")
    crashed = any(line.startswith("Traceback (most recent call last)") for line in lines)
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    said = f": {_short(last)}" if last else ""
    hint = "catch exceptions, and respond with status error and an error text"
    if code == EX_CONFIG:
        hint = "exit code 78 means that the configuration is wrong; the job is not retried"
    yield Advice(f"{'the program crashed' if crashed else _ended(code)}{said}", hint)


def _ended(code: int) -> str:
    if code > 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"


def _advise_on_protocol_error(outcome: Outcome, error: ProtocolError) -> Advice:
    text = outcome.stdout[:LOOKED_AT].decode("utf-8", "replace")
    return Advice(error.reason, find_hint(text, error.reason))


def find_hint(text: str, reason: str) -> str:
    """How to correct a response that was refused for this reason."""
    if _IS_ABOUT_STATUS.search(reason):
        return _advise_on_status(text)
    return next(
        (hint for words, hint in _BY_REASON.items() if words in reason), _advise_on_text(text)
    )


_BY_REASON = {
    "stdout is empty": f"{ONE_OBJECT} before exiting, and flush it",
    "byte order mark": "write UTF-8 without a byte order mark",
    "not UTF-8": "write UTF-8; in Python: sys.stdout.reconfigure(encoding='utf-8')",
    "64 bits": "send large numbers as strings",
    "levels deep": "flatten it, or encode the inner part as a string",
    "MiB": "write large data to a file, and return its path",
    "state_updates is": 'it must be an object: {"state_updates": {"cursor": 7}}',
    "events[": 'an event is {"type": "thing.happened", "payload": {...}}',
    "events is": 'it must be a list: {"events": [{"type": "thing.happened", "payload": {}}]}',
    "retry is": "write true or false, without quotes",
    "it must be one JSON object": 'wrap it: {"status": "ok", "result": ...}',
    "surrogate": "write characters beyond U+FFFF as they are, or as a pair of escapes",
    "trailing comma": "JSON does not allow a comma after the last item; use a library to write it",
}


def _advise_on_status(text: str) -> str:
    """The response is an object, but its status is missing or not valid."""
    try:
        document: Json = json.loads(text)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        return 'the status is "ok" or "error"'
    status = document.get("status")
    if status is not None:
        word = str(status).strip().lower()
        meant = "ok" if word in MEANS_OK | {"ok"} else "error" if word in MEANS_ERROR else None
        return f'write "status": "{meant}"' if meant else 'the status is "ok" or "error"'
    close = nearest("status", (key for key in document if key != "status"))
    if close:
        return f'the key is "status", not {close!r}'
    for key, value in document.items():
        if key.lower() in MEANS_OK | {"ok"} and isinstance(value, bool):
            return f'write "status": "{"ok" if value else "error"}" instead of {key!r}'
    return 'add "status": "ok", or "error" with an "error" text'


def _advise_on_text(text: str) -> str:
    """stdout is not valid JSON, or more than one document."""
    before, after = _around(text)
    if before:
        return f"{_short(before)!r} precedes the response; {TO_STDERR}"
    if after.startswith("{"):
        return "there are two responses; combine them into one object"
    if after:
        return f"{_short(after)!r} follows the response; {TO_STDERR}"
    start = text.lstrip()
    if start.startswith("{'") or "'status'" in start:
        return "this looks like a printed Python dict; use print(json.dumps(response))"
    if any(word in text for word in ("NaN", "Infinity")):
        return "JSON has no NaN or Infinity; send null or a string"
    if start.startswith("{"):
        return "use a JSON library to write it: json.dumps, JSON.stringify, jq -n"
    return f"{ONE_OBJECT}; {TO_STDERR}"


def _around(text: str) -> tuple[str, str]:
    """The text before and after the first JSON object with a status in `text`."""
    decoder = json.JSONDecoder()
    position = -1
    for _ in range(TRIES):
        position = text.find("{", position + 1)
        if position < 0:
            break
        try:
            document, end = decoder.raw_decode(text, position)
        except (ValueError, RecursionError):
            continue
        if isinstance(document, dict) and "status" in document:
            return text[:position].strip(), text[end:].strip()
    return "", ""


def _advise_on_response(response: Response, expected: Expected) -> Iterator[Advice]:
    raw = response.raw
    if response.status == "error":
        if response.error is None:
            yield _warning("status is error, but there is no error text", 'add an "error" text')
        if response.events or response.state_updates:
            yield _warning(
                "a failed attempt's events and state_updates have no effect",
                "send them with status ok only",
            )
    elif expected.protocol >= 2 and response.missing_result:
        yield _warning(
            f"{NO_RESULT}; a missing result is logged",
            'add "result": a short text for operators',
        )
    if response.status == "ok" and raw.get("error"):
        yield _warning("an error next to status ok is ignored", "use status error if one happened")
    for key in raw:
        if key not in KNOWN_KEYS:
            close = OFTEN_MEANT.get(key) or nearest(key, KNOWN_KEYS)
            hint = f"did you mean {close!r}?" if close else f"known keys: {', '.join(KNOWN_KEYS)}"
            yield _warning(f"the key {key!r} is ignored", hint)
    yield from _advise_on_logs(raw.get("logs"), len(response.logs))


def _advise_on_logs(logs: Json, kept: int) -> Iterator[Advice]:
    lines = logs if isinstance(logs, list) else [logs] if logs else []
    if len(lines) > kept:
        yield _warning(
            f"{len(lines) - kept} of {len(lines)} logs are dropped: they have no message",
            'a log is {"level": "info", "message": "..."}',
        )


def _advise_on_events(response: Response, expected: Expected) -> Iterator[Advice]:
    """Events that differ from the manifest's declaration; `<...>` there matches any type."""
    declared = expected.emits
    if declared is None or any(name.startswith("<") for name in declared):
        return
    for event in response.events:
        values = declared.get(event.type)
        if values is None:
            known = ", ".join(sorted(declared)) or "none"
            close = nearest(event.type, declared)
            hint = f"did you mean {close!r}?" if close else f"declared are: {known}"
            yield _warning(
                f"event {event.type!r} is not among values.emit of {expected.command}", hint
            )
            continue
        for value in values:
            if not _has(event.payload, value.removeprefix("payload.").split(".")):
                yield _warning(
                    f"event {event.type!r} lacks {value}, which the manifest declares",
                    "send it, or remove it from values.emit",
                )


def _has(payload: Json, keys: list[str]) -> bool:
    for key in keys:
        if key == "*":
            return True
        if not isinstance(payload, dict) or key not in payload:
            return False
        payload = payload[key]
    return True


def _short(text: str) -> str:
    line = text.split("\n", 1)[0].strip()
    return line if len(line) <= SHOWN else f"{line[: SHOWN - 1]}…"
