"""What is wrong with a plugin's answer, and what its author can do about it.

`judge` decides what becomes of a job; this only explains, for `plugin test`.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator, Mapping
from dataclasses import field

from ductile.core.jobs.plugin_protocol import NO_RESULT, ProtocolError, Response
from ductile.core.jobs.retry import EX_CONFIG
from ductile.core.values.suggest import nearest
from ductile.errors import Severity
from ductile.model import STDERR_CAP, Ending, Json, Outcome
from ductile.record import dataclass

KNOWN_KEYS = ("status", "result", "error", "retry", "events", "state_updates", "logs")
OFTEN_MEANT = {"state": "state_updates", "event": "events", "log": "logs", "message": "result"}
MEANS_OK = frozenset({"success", "succeeded", "successful", "done", "completed", "pass", "true"})
MEANS_ERROR = frozenset({"fail", "failed", "failure", "err", "false"})
NOT_FOUND = 127
LOOKED_AT = 256 * 1024
TRIES = 50
SHOWN = 60

ONE_OBJECT = 'write one JSON object such as {"status": "ok", "result": "done"}'
TO_STDERR = (
    "stdout is for the response alone: send everything else to stderr "
    "(print(..., file=sys.stderr), console.error, echo ... >&2)"
)


@dataclass(frozen=True, slots=True)
class Advice:
    what: str
    hint: str
    severity: Severity = Severity.ERROR
    """An error is why the attempt fails; a warning costs something else."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What the manifest and the config say of the command."""

    plugin: str
    command: str
    protocol: int
    timeout: float
    emits: Mapping[str, tuple[str, ...]] | None = field(default=None)
    """The declared events with their values; None where nothing is declared."""


def advise(
    outcome: Outcome, response: Response | ProtocolError | None, expected: Expected
) -> tuple[Advice, ...]:
    """Everything worth telling the author of an answer, what it fails by first."""
    found = [*_of_ending(outcome, expected)]
    if isinstance(response, ProtocolError):
        found.append(_of_protocol_error(outcome, response))
        found.extend(_of_crash(outcome))
    elif response is not None:
        found.extend(_of_exit(outcome, response))
        found.extend(_of_response(response, expected))
        found.extend(_of_events(response, expected))
    return tuple(sorted(found, key=lambda advice: advice.severity is Severity.WARNING))


def _warning(what: str, hint: str) -> Advice:
    return Advice(what, hint, Severity.WARNING)


def _of_ending(outcome: Outcome, expected: Expected) -> Iterator[Advice]:
    if outcome.ending is Ending.NOT_SPAWNED:
        yield Advice(
            outcome.reason or "the entrypoint could not be started",
            "its first line must name an interpreter that is there, as #!/usr/bin/env python3, "
            "and the file must be executable, with LF line ends",
        )
    elif outcome.ending is Ending.TIMED_OUT:
        key = f"plugins.{expected.plugin}.timeouts.{expected.command}"
        yield Advice(
            f"it did not end within {expected.timeout:g} s",
            f"do less, or raise {key}; the request's deadline_at says when it will be ended",
        )
    elif outcome.ending is Ending.LINGERED:
        yield _warning(
            "it closed stdout and ran on, until it was killed; what it had written counts",
            "end when the response is written: nothing that a job starts outlives it",
        )
    if outcome.reason and outcome.ending is Ending.EXITED:
        yield Advice(outcome.reason, "save the file with LF line ends")
    elif outcome.exit_code == NOT_FOUND:
        yield Advice(
            "exit code 127: a command was not found",
            "a plugin gets PATH and little else of the environment; name the interpreter or the "
            "command by its whole path, or see that it is on the gateway's PATH",
        )
    if outcome.stderr_truncated:
        yield _warning(f"stderr was cut at {STDERR_CAP // 1024} KiB", "log less, or to a file")


def _of_exit(outcome: Outcome, response: Response) -> Iterator[Advice]:
    code = outcome.exit_code if outcome.ending is Ending.EXITED else None
    if code and response.status == "ok":
        yield Advice(
            f"{_ended(code)} in spite of status ok",
            "end with exit code 0 where all went well; else say status error, and what it was",
        )


def _of_crash(outcome: Outcome) -> Iterator[Advice]:
    code = outcome.exit_code
    if not code or outcome.ending is not Ending.EXITED or code == NOT_FOUND:
        return
    lines = outcome.stderr.decode("utf-8", "replace").split("\n")
    crashed = any(line.startswith("Traceback (most recent call last)") for line in lines)
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    said = f": {_short(last)}" if last else ""
    hint = "catch what can go wrong, and answer with status error and a text"
    if code == EX_CONFIG:
        hint = "exit code 78 says that the configuration is wrong; the job is not retried"
    yield Advice(f"{'the program crashed' if crashed else _ended(code)}{said}", hint)


def _ended(code: int) -> str:
    if code > 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"


def _of_protocol_error(outcome: Outcome, error: ProtocolError) -> Advice:
    return Advice(error.reason, _hint(outcome, error.reason))


def _hint(outcome: Outcome, reason: str) -> str:
    text = outcome.stdout[:LOOKED_AT].decode("utf-8", "replace")
    if reason.startswith(("status is", "the response has no status")):
        return _of_status(text)
    return next((hint for words, hint in _BY_REASON.items() if words in reason), _of_text(text))


_BY_REASON = {
    "stdout is empty": f"{ONE_OBJECT} before it ends, and flush it",
    "byte order mark": "write UTF-8 without a byte order mark",
    "not UTF-8": "write UTF-8; in Python: sys.stdout.reconfigure(encoding='utf-8')",
    "64 bits": "send large numbers as text",
    "levels deep": "flatten it, or put the inner part into a string",
    "MiB": "write large data to a file, and answer with its path",
    "state_updates is": 'it must be an object: {"state_updates": {"cursor": 7}}',
    "events[": 'an event is {"type": "thing.happened", "payload": {...}}',
    "events is": 'it must be a list: {"events": [{"type": "thing.happened", "payload": {}}]}',
    "retry is": "say true or false, without quotes",
    "it must be one JSON object": 'wrap it: {"status": "ok", "result": ...}',
    "surrogate": "write characters beyond U+FFFF as they are, or as a pair of escapes",
    "trailing comma": "JSON takes no comma after the last item; let a library write it",
}


def _of_status(text: str) -> str:
    """The response is an object, but its status is missing, or is none of the two words."""
    try:
        document: dict[str, Json] = json.loads(text)
    except ValueError:
        return 'the status is "ok" or "error"'
    status = document.get("status")
    if status is not None:
        word = str(status).strip().lower()
        meant = "ok" if word in MEANS_OK | {"ok"} else "error" if word in MEANS_ERROR else None
        return f'say "status": "{meant}"' if meant else 'the status is "ok" or "error"'
    close = nearest("status", (key for key in document if key != "status"))
    if close:
        return f'the key is "status", not {close!r}'
    for key, value in document.items():
        if key.lower() in MEANS_OK | {"ok"} and isinstance(value, bool):
            return f'say "status": "{"ok" if value else "error"}" in place of {key!r}'
    return 'add "status": "ok", or "error" with an "error" text'


def _of_text(text: str) -> str:
    """stdout is no JSON, or more than one document of it."""
    before, after = _around(text)
    if before:
        return f"{_short(before)!r} stands before the response; {TO_STDERR}"
    if after.startswith("{"):
        return "two responses: one request has one; join them into one object"
    if after:
        return f"{_short(after)!r} stands after the response; {TO_STDERR}"
    start = text.lstrip()
    if start.startswith("{'") or "'status'" in start:
        return "this looks like a printed Python dict; print(json.dumps(response)) in its place"
    if any(word in text for word in ("NaN", "Infinity")):
        return "JSON has no NaN and no Infinity; send null or text"
    if start.startswith("{"):
        return "let a JSON library write it: json.dumps, JSON.stringify, jq -n"
    return f"{ONE_OBJECT}; {TO_STDERR}"


def _around(text: str) -> tuple[str, str]:
    """What stands before and after the first JSON object with a status in `text`."""
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


def _of_response(response: Response, expected: Expected) -> Iterator[Advice]:
    raw = response.raw
    if response.status == "error":
        if response.error is None:
            yield _warning("status is error, but nothing says what it was", 'add an "error" text')
        if response.events or response.state_updates:
            yield _warning(
                "a failed attempt's events and state_updates have no effect",
                "send them with status ok only",
            )
    elif expected.protocol >= 2 and response.missing_result:
        yield _warning(
            f"{NO_RESULT}; its absence is logged",
            'add "result": a short text for people',
        )
    if response.status == "ok" and raw.get("error"):
        yield _warning(
            "an error beside status ok is ignored", "say status error where one happened"
        )
    for key in raw:
        if key not in KNOWN_KEYS:
            close = OFTEN_MEANT.get(key) or nearest(key, KNOWN_KEYS)
            hint = f"did you mean {close!r}?" if close else f"known are: {', '.join(KNOWN_KEYS)}"
            yield _warning(f"the key {key!r} is ignored", hint)
    yield from _of_logs(raw.get("logs"), len(response.logs))


def _of_logs(logs: Json, kept: int) -> Iterator[Advice]:
    lines = logs if isinstance(logs, list) else [logs] if logs else []
    if len(lines) > kept:
        yield _warning(
            f"{len(lines) - kept} of {len(lines)} logs are dropped: they have no message",
            'a log is {"level": "info", "message": "..."}',
        )


def _of_events(response: Response, expected: Expected) -> Iterator[Advice]:
    """Events beside what the manifest declares; `<...>` there stands for any type."""
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
                    "send it, or take it out of values.emit",
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
