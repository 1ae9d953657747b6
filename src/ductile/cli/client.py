"""Talking to a running gateway: HTTP over its local socket, bounded in time and size."""

from __future__ import annotations

import errno
import json
import socket
import struct
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol
from urllib.parse import quote, urlencode

from ductile.core.jobs.state_machine import ENDED
from ductile.errors import ConfigError, DuctileError, NotRunning, UsageError

HEADERS = {"Host": "localhost", "X-Ductile-Client": "cli", "Content-Type": "application/json"}
ANSWER_WITHIN = 30.0
LARGEST_ANSWER = 256 * 1024 * 1024
SILENCE = 45.0
"""Three heartbeats of the stream of events; a connection that is quieter is dead."""
SHORTEST_WAIT, LONGEST_WAIT = 0.1, 1.0
"""Seconds of one question; between two of them a retry that was scheduled is seen."""

Json = dict[str, Any]


class Door(Protocol):
    """The routes of a gateway, running or not, by one interface."""

    running: bool
    """Whether a gateway answers, or this process in its stead."""

    def get(self, path: str, **query: object) -> Json:
        """The answer, or a `DuctileError` that says what the gateway said."""

    def post(self, path: str, body: Mapping[str, Any]) -> Json: ...

    def delete(self, path: str, **query: object) -> Json: ...


class Workplace(Door, Protocol):
    """A door behind which jobs are run."""

    def finish(self, job_id: str, timeout: float | None, waiting: Callable[[str], None]) -> Json:
        """The job once it has ended or will be retried later, or when the time is up.

        `waiting` is told, once for each, why the job does not run yet.
        """


class Said(DuctileError):
    """A refusal, as the gateway worded it."""

    def __init__(self, body: Mapping[str, Any]) -> None:
        if "error" not in body and "reason" in body:
            body = _in_one_shape(body)
        details = {key: value for key, value in body.items() if key not in ("error", "code")}
        super().__init__(str(body.get("error", "the gateway rejected the request")), **details)
        self.code = str(body.get("code", "error"))
        self.exit_code = _EXIT_CODES.get(self.code, DuctileError.exit_code)


_EXIT_CODES = {kind.code: kind.exit_code for kind in (UsageError, ConfigError)}


def _in_one_shape(body: Mapping[str, Any]) -> Json:
    """What stands below /gateway/ as status, reason and detail, like any other error."""
    rest = {key: body[key] for key in body.keys() - {"status", "reason", "detail"}}
    text = body.get("detail", body["reason"])
    if "field" in body:
        text = f"{text}: {body['field']}"
    return {"error": text, "code": body["reason"], **rest}


def path_to(*parts: str) -> str:
    """A path of these segments, each quoted."""
    return "".join(f"/{quote(part, safe='')}" for part in parts)


def with_query(path: str, query: Mapping[str, object]) -> str:
    given = {
        # Seconds as people write them: no exponent, no more than milliseconds.
        name: f"{value:.3f}" if isinstance(value, float) else value
        for name, value in query.items()
        if value is not None
    }
    return f"{path}?{urlencode(given)}" if given else path


def read_answer(status: int, raw: bytes) -> Json:
    """The document of an answer; an error is raised."""
    try:
        document = json.loads(raw)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise Said({"error": f"the gateway returned status {status} without a JSON object"})
    if status >= 400:
        raise Said(document)
    return document


def wait_for(
    door: Door, job_id: str, timeout: float | None, waiting: Callable[[str], None]
) -> Json:
    """See `Workplace.finish`."""
    deadline = None if timeout is None else time.monotonic() + timeout
    told, turn = None, SHORTEST_WAIT
    while True:
        left = turn if deadline is None else max(deadline - time.monotonic(), 0.0)
        job = door.get(path_to("job", job_id), wait=min(turn, left) or None)
        if job["status"] in ENDED or job.get("next_retry_at") or left <= 0:
            return job
        why = job.get("waits_for")
        if why and why != told:
            waiting(why)
            told = why
        turn = min(turn * 2, LONGEST_WAIT)


class _LocalConnection(HTTPConnection):
    def __init__(self, path: Path | str) -> None:
        super().__init__("localhost", timeout=ANSWER_WITHIN)
        self._path = path

    def connect(self) -> None:
        until = time.monotonic() + ANSWER_WITHIN
        while not self._is_connected(until - time.monotonic()):
            self.close()
        assert self.sock is not None
        self.sock.settimeout(self.timeout)

    def _is_connected(self, seconds: float) -> bool:
        """False where a signal came between."""
        if seconds <= 0:
            raise TimeoutError("the socket's accept queue is full")
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        # The kernel lets only a blocking socket wait for a place in a queue that is full.
        patience = struct.pack("ll", *divmod(int(seconds * 1e6) + 1, 1_000_000))
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, patience)
        try:
            self.sock.connect(str(self._path))
            self.sock.getpeername()
        except BlockingIOError as error:
            raise TimeoutError("the socket's accept queue is full") from error
        except OSError as error:
            if error.errno != errno.ENOTCONN:
                raise
            return False
        return True


class Client:
    """A running gateway. `NotRunning` where it does not answer."""

    running = True

    headers: Mapping[str, str] = HEADERS

    def __init__(self, path: Path | str) -> None:
        self.path = path

    @staticmethod
    def answers(path: Path) -> bool:
        """Whether somebody listens on this socket."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(ANSWER_WITHIN)
            try:
                probe.connect(str(path))
            except BlockingIOError:
                return True  # Many ask at once.
            except OSError:
                return False
        return True

    def connect(self) -> HTTPConnection:
        """A connection that has yet to be opened."""
        return _LocalConnection(self.path)

    def get(self, path: str, **query: object) -> Json:
        return self._ask("GET", with_query(path, query), None)

    def post(self, path: str, body: Mapping[str, Any]) -> Json:
        return self._ask("POST", path, json.dumps(body).encode())

    def delete(self, path: str, **query: object) -> Json:
        return self._ask("DELETE", with_query(path, query), None)

    def finish(self, job_id: str, timeout: float | None, waiting: Callable[[str], None]) -> Json:
        try:
            return wait_for(self, job_id, timeout, waiting)
        except NotRunning as error:
            message = f"{error.message}; job {job_id} had not finished"
            raise NotRunning(message, job_id=job_id) from error

    def _ask(self, method: str, target: str, body: bytes | None) -> Json:
        return read_answer(*self.call(method, target, body))

    def call(
        self,
        method: str,
        target: str,
        body: bytes | None,
        headers: Mapping[str, str] = MappingProxyType({}),
    ) -> tuple[int, bytes]:
        """Status and body of the answer, whatever they are. `headers` go before our own."""
        given = {name.lower() for name in headers}
        own = {name: value for name, value in self.headers.items() if name.lower() not in given}
        connection = self.connect()
        try:
            # Whoever refuses a body before its end has answered all the same.
            with suppress(BrokenPipeError):
                connection.request(method, target, body, {**own, **headers})
            response = connection.getresponse()
            raw = response.read(LARGEST_ANSWER + 1)
        except TimeoutError as error:
            message = f"the gateway at {self.path} did not respond within {ANSWER_WITHIN:.0f} s"
            raise NotRunning(message) from error
        except (OSError, HTTPException) as error:
            why = str(error) or type(error).__name__
            raise NotRunning(f"no gateway responds at {self.path}: {why}") from error
        finally:
            connection.close()
        if len(raw) > LARGEST_ANSWER:
            raise Said(
                {"error": f"the response exceeds {LARGEST_ANSWER} bytes; request fewer rows"}
            )
        return response.status, raw
