"""Protocol 2 for plugins in Python: one request in, one answer out.

    import sys
    sys.path.insert(0, __file__.rpartition("/")[0] + "/../lib")
    from protocol import Answer, Failure, Request, serve

    def poll(request: Request) -> Answer:
        answer = Answer("found one")
        answer.emit("thing.found", {"id": 7}, key=f"{request.instance}:7")
        return answer

    if __name__ == "__main__":
        serve({"poll": poll})

A plugin can do without: everything here is a convenience over one JSON object on stdin and
one on stdout. Only `json` and `sys` are imported on the way, so that a plugin starts fast.
"""

from __future__ import annotations

import json
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, NoReturn

PROTOCOL = 2
EX_CONFIG = 78
"""The exit code that says: the configuration is wrong, do not try again."""
LARGEST_ANSWER = 10 * 1024 * 1024
LARGEST_STATE = 1024 * 1024
LARGEST_SAID = 64 * 1024
"""As much as the gateway keeps of stderr."""


class Failure(Exception):
    """The job fails with this message. `retry=False`: trying again would change nothing.

    `said` is what others said about it, for whoever looks for the cause: it is kept with the
    attempt, as its stderr. Never a secret (`quoting.py`).
    """

    def __init__(self, message: str, *, retry: bool = True, said: str = "") -> None:
        super().__init__(message)
        self.retry, self.said = retry, said


class Misconfigured(Failure):
    """The operator has to change the configuration first; never retried."""

    def __init__(self, message: str, *, said: str = "") -> None:
        super().__init__(message, retry=False, said=said)


class Request:
    """What the gateway asks for."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.job_id: str = document.get("job_id") or ""
        self.command: str = document.get("command") or ""
        self.config: dict[str, Any] = document.get("config") or {}
        self.state: dict[str, Any] = document.get("state") or {}
        self.context: dict[str, Any] = document.get("context") or {}
        self.event: dict[str, Any] = document.get("event") or {}
        """For `handle`: `type payload dedupe_key source timestamp event_id`."""
        self.payload: Any = document.get("payload")
        """The job's payload; for `handle` the event's. Mostly an object, not always."""
        self.workspace_dir: str | None = document.get("workspace_dir")
        self.deadline_at: str = document.get("deadline_at") or ""
        self.instance: str = self.context.get("ductile_plugin") or "plugin"
        """The name this plugin goes by in the configuration: an alias has its own."""

    def remaining(self) -> float:
        """Seconds until the gateway ends this process; an hour where it does not say."""
        from datetime import UTC, datetime

        try:
            deadline = datetime.fromisoformat(self.deadline_at)
        except ValueError:
            return 3600.0
        if deadline.tzinfo is None:
            deadline = deadline.replace(tzinfo=UTC)
        return (deadline - datetime.now(deadline.tzinfo)).total_seconds()


class Answer:
    """A job done: a short summary for people, and what follows from it."""

    def __init__(self, result: Any, *, state: Mapping[str, Any] | None = None) -> None:
        self.result = result
        self.state = state
        """`state_updates`; None or empty leaves the state as it is. A command that the
        manifest's `fact_outputs` names replaces the state with them, others merge them."""
        self.events: list[dict[str, Any]] = []
        self.logs: list[dict[str, str]] = []

    def emit(self, type: str, payload: Any, *, key: str | None = None) -> None:
        """Emit an event; the jobs it leads to take `key` as their dedupe key."""
        event = {"type": type, "payload": payload}
        self.events.append(event if key is None else {**event, "dedupe_key": key})

    def log(self, level: str, message: str) -> None:
        """Keep a line with the job: `debug`, `info`, `warn` or `error`. Never a secret."""
        self.logs.append({"level": level, "message": message})

    def encoded(self) -> bytes:
        """The answer as it is sent. Raises `Failure` where the gateway would not take it."""
        whole = {
            "status": "ok",
            "result": self.result,
            "events": self.events,
            "state_updates": self.state,
            "logs": self.logs,
        }
        sent = {key: value for key, value in whole.items() if value or key == "result"}
        try:
            written, state = _encoded(sent), _encoded(self.state or {})
        except (ValueError, TypeError, RecursionError):
            raise Failure("the answer cannot be written as JSON") from None
        if len(written) > LARGEST_ANSWER or len(state) > LARGEST_STATE:
            raise Failure("the answer is larger than the gateway takes")
        return written


def serve(commands: Mapping[str, Callable[[Request], Answer]]) -> NoReturn:
    """Read the request, run its command, write the answer, exit.

    A `Failure` becomes an error answer, and what was said about it goes to stderr. Any other
    exception becomes one too, but only its type and its place are told: its message may hold
    what must not be told.
    """
    try:
        document = json.loads(sys.stdin.buffer.read())
        if document.get("protocol") != PROTOCOL:
            raise Misconfigured(f"this plugin speaks protocol {PROTOCOL}")
        request = Request(document)
        if request.command not in commands:
            raise Failure(f"there is no command {request.command!r}", retry=False)
        code, written = 0, commands[request.command](request).encoded()
    except Failure as failure:
        code = EX_CONFIG if isinstance(failure, Misconfigured) else 1
        written = _encoded({"status": "error", "error": str(failure), "retry": failure.retry})
        sys.stderr.buffer.write(failure.said.encode("utf-8", "replace")[:LARGEST_SAID])
    except Exception as error:  # noqa: BLE001 - the edge of the process
        code = 1
        written = _encoded({"status": "error", "error": f"a bug in this plugin: {place_of(error)}"})
    sys.stdout.buffer.write(written)
    sys.stdout.buffer.flush()
    sys.exit(code)


def _encoded(document: Mapping[str, Any]) -> bytes:
    """UTF-8, as the gateway wants it: no NaN, and no half of a surrogate pair."""
    return json.dumps(document, ensure_ascii=False, allow_nan=False).encode("utf-8", "replace")


def place_of(error: BaseException) -> str:
    """An exception's type and way, without its message, which may hold what must not be told."""
    frame, places = error.__traceback__, []
    while frame is not None:
        code = frame.tb_frame.f_code
        places.append(f"{code.co_filename.rpartition('/')[2]}:{frame.tb_lineno} {code.co_name}")
        frame = frame.tb_next
    return f"{type(error).__name__} at {' > '.join(places[1:] or places)}"
