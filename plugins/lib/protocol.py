"""Protocol 2 for plugins in Python: one request in, one response out.

    import sys
    sys.path.insert(0, __file__.rpartition("/")[0] + "/../lib")
    from protocol import Failure, Request, Response, serve

    def poll(request: Request) -> Response:
        response = Response("found one")
        response.emit("thing.found", {"id": 7}, key=f"{request.instance}:7")
        return response

    if __name__ == "__main__":
        serve({"poll": poll})

A plugin does not need this module: the protocol is one JSON object on stdin and one on stdout.
Only `json` and `sys` are imported, so that a plugin starts fast.
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
"""The exit code for an invalid configuration, which is not retried."""
MAX_RESPONSE = 10 * 1024 * 1024
MAX_STATE = 1024 * 1024
MAX_DETAILS = 64 * 1024
"""The gateway keeps this much of stderr."""


class Failure(Exception):
    """The job fails with this message. With `retry=False` it is not retried.

    `details` are written to stderr, which the gateway stores with the attempt: the output of a
    program or the body of a reply. They must not contain secrets (`redact.py`).
    """

    def __init__(self, message: str, *, retry: bool = True, details: str = "") -> None:
        super().__init__(message)
        self.retry, self.details = retry, details


class ConfigError(Failure):
    """The configuration is invalid; the job is not retried."""

    def __init__(self, message: str, *, details: str = "") -> None:
        super().__init__(message, retry=False, details=details)


class Request:
    """The request of the gateway."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.job_id: str = document.get("job_id") or ""
        self.command: str = document.get("command") or ""
        self.config: dict[str, Any] = document.get("config") or {}
        self.state: dict[str, Any] = document.get("state") or {}
        self.context: dict[str, Any] = document.get("context") or {}
        self.event: dict[str, Any] = document.get("event") or {}
        """For `handle`: `type payload dedupe_key source timestamp event_id`."""
        self.payload: Any = document.get("payload")
        """The payload of the job; for `handle` that of the event. Usually an object."""
        self.workspace_dir: str | None = document.get("workspace_dir")
        self.deadline_at: str = document.get("deadline_at") or ""
        self.instance: str = self.context.get("ductile_plugin") or "plugin"
        """The name of this plugin in the configuration; an alias has its own."""

    def remaining(self) -> float:
        """Seconds until the gateway terminates this process; an hour if there is no deadline."""
        from datetime import UTC, datetime

        try:
            deadline = datetime.fromisoformat(self.deadline_at)
        except ValueError:
            return 3600.0
        if deadline.tzinfo is None:
            deadline = deadline.replace(tzinfo=UTC)
        return (deadline - datetime.now(deadline.tzinfo)).total_seconds()


class Response:
    """A successful result: a short summary, events, state updates and log lines."""

    def __init__(self, result: Any, *, state: Mapping[str, Any] | None = None) -> None:
        self.result = result
        self.state = state
        """`state_updates`; None or empty leaves the state unchanged. They replace the state for
        commands in the manifest's `fact_outputs`, and are merged into it for others."""
        self.events: list[dict[str, Any]] = []
        self.logs: list[dict[str, str]] = []

    def emit(self, type: str, payload: Any, *, key: str | None = None) -> None:
        """Emit an event; the jobs that it starts have `key` as their dedupe key."""
        event = {"type": type, "payload": payload}
        self.events.append(event if key is None else {**event, "dedupe_key": key})

    def log(self, level: str, message: str) -> None:
        """Add a log line: `debug`, `info`, `warn` or `error`. It must not contain secrets."""
        self.logs.append({"level": level, "message": message})

    def encode(self) -> bytes:
        """The response as JSON. Raises `Failure` if the gateway would not accept it."""
        whole = {
            "status": "ok",
            "result": self.result,
            "events": self.events,
            "state_updates": self.state,
            "logs": self.logs,
        }
        sent = {key: value for key, value in whole.items() if value or key == "result"}
        try:
            written, state = _encode(sent), _encode(self.state or {})
        except (ValueError, TypeError, RecursionError):
            raise Failure("the response cannot be encoded as JSON") from None
        if len(written) > MAX_RESPONSE or len(state) > MAX_STATE:
            raise Failure("the response exceeds the size limit of the gateway")
        return written


def serve(commands: Mapping[str, Callable[[Request], Response]]) -> NoReturn:
    """Read the request, run its command, write the response and exit.

    A `Failure` becomes an error response, and its details go to stderr. Of any other exception
    only type and location are reported, because its message may contain secrets.
    """
    try:
        document = json.loads(sys.stdin.buffer.read())
        if document.get("protocol") != PROTOCOL:
            raise ConfigError(f"this plugin requires protocol {PROTOCOL}")
        request = Request(document)
        if request.command not in commands:
            raise Failure(f"there is no command {request.command!r}", retry=False)
        code, written = 0, commands[request.command](request).encode()
    except Failure as failure:
        code = EX_CONFIG if isinstance(failure, ConfigError) else 1
        written = _encode({"status": "error", "error": str(failure), "retry": failure.retry})
        sys.stderr.buffer.write(failure.details.encode("utf-8", "replace")[:MAX_DETAILS])
    except Exception as error:  # noqa: BLE001 - the edge of the process
        code = 1
        written = _encode(
            {
                "status": "error",
                "error": f"unexpected error in this plugin: {describe_error(error)}",
            }
        )
    sys.stdout.buffer.write(written)
    sys.stdout.buffer.flush()
    sys.exit(code)


def _encode(document: Mapping[str, Any]) -> bytes:
    """JSON in UTF-8 without NaN and lone surrogates, as the gateway requires."""
    return json.dumps(document, ensure_ascii=False, allow_nan=False).encode("utf-8", "replace")


def describe_error(error: BaseException) -> str:
    """Type and location of an exception, without its message, which may contain secrets."""
    frame, places = error.__traceback__, []
    while frame is not None:
        code = frame.tb_frame.f_code
        places.append(f"{code.co_filename.rpartition('/')[2]}:{frame.tb_lineno} {code.co_name}")
        frame = frame.tb_next
    return f"{type(error).__name__} at {' > '.join(places[1:] or places)}"
