"""HTTP clients of a running gateway, over its local socket or a URL, bounded in time and size."""

from __future__ import annotations

import errno
import json
import socket
import struct
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol
from urllib.parse import quote, urlencode, urlsplit

from ductile.core.jobs.state_machine import ENDED
from ductile.engine.socket_path import short_address
from ductile.errors import ConfigError, DuctileError, NotRunning, UsageError

HEADERS = {"Host": "localhost", "X-Ductile-Client": "cli", "Content-Type": "application/json"}
RESPONSE_TIMEOUT = 30.0
MAX_RESPONSE_BYTES = 256 * 1024 * 1024
STREAM_TIMEOUT = 45.0
"""Three heartbeats of the event stream; a connection that is silent for longer is dead."""
MIN_WAIT, MAX_WAIT = 0.1, 1.0
"""Seconds of one long poll for a job; a scheduled retry is noticed between two polls."""

Json = dict[str, Any]


class GatewayApi(Protocol):
    """The local API of a gateway: one that is running, or one inside this process."""

    running: bool
    """Whether a running gateway responds, rather than this process."""

    def get(self, path: str, **query: object) -> Json:
        """Return the response, or raise the gateway's error as a `DuctileError`."""

    def post(self, path: str, body: Mapping[str, Any]) -> Json: ...

    def delete(self, path: str, **query: object) -> Json: ...


class JobRunner(GatewayApi, Protocol):
    """An API whose gateway runs jobs."""

    def finish_job(
        self, job_id: str, timeout: float | None, on_wait: Callable[[str], None]
    ) -> Json:
        """Return the job once it has ended or is scheduled for a retry, or after the timeout.

        `on_wait` is called with each reason why the job does not run yet.
        """


class ApiError(DuctileError):
    """An error response of the gateway."""

    def __init__(self, body: Mapping[str, Any]) -> None:
        if "error" not in body and "reason" in body:
            body = _normalize_error(body)
        details = {key: value for key, value in body.items() if key not in ("error", "code")}
        super().__init__(str(body.get("error", "the gateway rejected the request")), **details)
        self.code = str(body.get("code", "error"))
        self.exit_code = _EXIT_CODES.get(self.code, DuctileError.exit_code)


_EXIT_CODES = {kind.code: kind.exit_code for kind in (UsageError, ConfigError)}


def _normalize_error(body: Mapping[str, Any]) -> Json:
    """Convert an error of a route below /gateway/ (status, reason, detail) to `error`, `code`."""
    rest = {key: body[key] for key in body.keys() - {"status", "reason", "detail"}}
    text = body.get("detail", body["reason"])
    if "field" in body:
        text = f"{text}: {body['field']}"
    return {"error": text, "code": body["reason"], **rest}


def path_to(*segments: str) -> str:
    """Return the path of these segments, each quoted."""
    return "".join(f"/{quote(segment, safe='')}" for segment in segments)


def with_query(path: str, query: Mapping[str, object]) -> str:
    """Append the parameters that are not None."""
    given = {name: _format_parameter(value) for name, value in query.items() if value is not None}
    return f"{path}?{urlencode(given)}" if given else path


def _format_parameter(value: object) -> object:
    if isinstance(value, bool):
        return "true" if value else "false"
    # Seconds without an exponent, and with no more than milliseconds.
    return f"{value:.3f}" if isinstance(value, float) else value


def read_response(status: int, raw: bytes) -> Json:
    """Return the JSON object of a response; raise `ApiError` for an error."""
    try:
        document = json.loads(raw)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise ApiError({"error": f"the gateway returned status {status} without a JSON object"})
    if status >= 400:
        raise ApiError(document)
    return document


def wait_for_job(
    api: GatewayApi, job_id: str, timeout: float | None, on_wait: Callable[[str], None]
) -> Json:
    """See `JobRunner.finish_job`."""
    deadline = None if timeout is None else time.monotonic() + timeout
    reported, wait = None, MIN_WAIT
    while True:
        left = wait if deadline is None else max(deadline - time.monotonic(), 0.0)
        job = api.get(path_to("job", job_id), wait=min(wait, left) or None)
        if job["status"] in ENDED or job.get("next_retry_at") or left <= 0:
            return job
        reason = job.get("waits_for")
        if reason and reason != reported:
            on_wait(reason)
            reported = reason
        wait = min(wait * 2, MAX_WAIT)


class _LocalConnection(HTTPConnection):
    def __init__(self, path: Path | str) -> None:
        super().__init__("localhost", timeout=RESPONSE_TIMEOUT)
        self._path = path

    def connect(self) -> None:
        until = time.monotonic() + RESPONSE_TIMEOUT
        while not self._try_connect(until - time.monotonic()):
            self.close()
        assert self.sock is not None
        self.sock.settimeout(self.timeout)

    def _try_connect(self, seconds: float) -> bool:
        """Return False if a signal interrupted the attempt."""
        if seconds <= 0:
            raise TimeoutError("the socket's accept queue is full")
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        # The kernel lets only a blocking socket wait for a place in a full accept queue.
        timeout = struct.pack("ll", *divmod(int(seconds * 1e6) + 1, 1_000_000))
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, timeout)
        try:
            with short_address(Path(self._path)) as address:
                self.sock.connect(address)
            self.sock.getpeername()
        except BlockingIOError as error:
            raise TimeoutError("the socket's accept queue is full") from error
        except OSError as error:
            if error.errno != errno.ENOTCONN:
                raise
            return False
        return True


class GatewayClient:
    """The API of a running gateway. Raises `NotRunning` if it does not respond."""

    running = True

    headers: Mapping[str, str] = HEADERS

    def __init__(self, path: Path | str) -> None:
        self.path = path

    @staticmethod
    def is_listening(path: Path) -> bool:
        """Return whether a process accepts connections on this socket."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(RESPONSE_TIMEOUT)
            try:
                with short_address(path) as address:
                    probe.connect(address)
            except BlockingIOError:
                return True  # Its accept queue is full.
            except OSError:
                return False
        return True

    def connect(self) -> HTTPConnection:
        """Return a connection that is opened by its first request."""
        return _LocalConnection(self.path)

    def get(self, path: str, **query: object) -> Json:
        return self._request_json("GET", with_query(path, query), None)

    def post(self, path: str, body: Mapping[str, Any]) -> Json:
        return self._request_json("POST", path, json.dumps(body).encode())

    def delete(self, path: str, **query: object) -> Json:
        return self._request_json("DELETE", with_query(path, query), None)

    def finish_job(
        self, job_id: str, timeout: float | None, on_wait: Callable[[str], None]
    ) -> Json:
        try:
            return wait_for_job(self, job_id, timeout, on_wait)
        except NotRunning as error:
            message = f"{error.message}; job {job_id} had not finished"
            raise NotRunning(message, job_id=job_id) from error

    def _request_json(self, method: str, target: str, body: bytes | None) -> Json:
        return read_response(*self.request(method, target, body))

    def request(
        self,
        method: str,
        target: str,
        body: bytes | None,
        headers: Mapping[str, str] = MappingProxyType({}),
    ) -> tuple[int, bytes]:
        """Return the status and body of any response. `headers` replace our own."""
        given = {name.lower() for name in headers}
        own = {name: value for name, value in self.headers.items() if name.lower() not in given}
        connection = self.connect()
        try:
            # A gateway that rejects a body before its end has sent a response anyway.
            with suppress(BrokenPipeError):
                connection.request(method, target, body, {**own, **headers})
            response = connection.getresponse()
            raw = response.read(MAX_RESPONSE_BYTES + 1)
        except TimeoutError as error:
            message = f"the gateway at {self.path} did not respond within {RESPONSE_TIMEOUT:.0f} s"
            raise NotRunning(message) from error
        except (OSError, HTTPException) as error:
            reason = str(error) or type(error).__name__
            raise NotRunning(f"no gateway responds at {self.path}: {reason}") from error
        finally:
            connection.close()
        if len(raw) > MAX_RESPONSE_BYTES:
            message = f"the response exceeds {MAX_RESPONSE_BYTES} bytes; request fewer rows"
            raise ApiError({"error": message})
        return response.status, raw


class RemoteClient(GatewayClient):
    """The API of a gateway at a URL, with a token."""

    def __init__(self, url: str, token: str | None) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError(
                f"{url!r} is not a valid gateway URL; use http://HOST:PORT or https://HOST"
            )
        try:
            self._port = parts.port
        except ValueError:
            raise UsageError(f"{url!r} has an invalid port") from None
        super().__init__(f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}")
        self._host, self._secure = parts.hostname, parts.scheme == "https"
        self.headers = {"Content-Type": "application/json"}
        if token is not None:
            if not token.isascii() or not token.isprintable():
                raise UsageError("the token must be printable ASCII text")
            self.headers["Authorization"] = f"Bearer {token}"

    def connect(self) -> HTTPConnection:
        kind = HTTPSConnection if self._secure else HTTPConnection
        return kind(self._host, self._port, timeout=RESPONSE_TIMEOUT)
