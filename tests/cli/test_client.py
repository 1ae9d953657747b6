"""The client of a running gateway: requests, errors, timeouts, waiting for a job."""

from __future__ import annotations

import json
import signal
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from ductile.cli import client
from ductile.cli.client import ApiError, GatewayClient, path_to, wait_for_job, with_query
from ductile.errors import NotRunning
from tests.waiting import WAIT_LIMIT


@pytest.fixture
def where() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="ductile-") as directory:
        yield Path(directory) / "d.sock"


@pytest.fixture
def full(where: Path) -> Iterator[socket.socket]:
    """A listener whose accept queue is full."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.socket(socket.AF_UNIX))
        listener.bind(str(where))
        listener.listen(0)
        listener.settimeout(WAIT_LIMIT)
        while True:
            caller = stack.enter_context(socket.socket(socket.AF_UNIX))
            caller.setblocking(False)
            try:
                caller.connect(str(where))
            except BlockingIOError:
                break
        yield listener


Serve = Callable[[bytes], list[bytes]]


@pytest.fixture
def serve(where: Path) -> Iterator[Serve]:
    """A server that sends these bytes as its response, and records the request."""
    listener = socket.socket(socket.AF_UNIX)
    threads = []

    def start(answer: bytes) -> list[bytes]:
        listener.bind(str(where))
        listener.listen()
        requests: list[bytes] = []

        def work() -> None:
            peer, _ = listener.accept()
            with peer:
                requests.append(peer.recv(65536))
                peer.sendall(answer)

        threads.append(threading.Thread(target=work))
        threads[0].start()
        return requests

    yield start
    for thread in threads:
        thread.join()
    listener.close()


def test_a_full_accept_queue_counts_as_listening(full: socket.socket, where: Path) -> None:
    assert GatewayClient.is_listening(where)


def test_a_request_waits_for_a_full_accept_queue(full: socket.socket, where: Path) -> None:
    with ThreadPoolExecutor(1) as threads:
        requests = threads.submit(GatewayClient(where).get, "/healthz")
        with ExitStack() as stack:
            while True:
                peer = stack.enter_context(full.accept()[0])
                peer.settimeout(0.05)
                with suppress(TimeoutError):
                    if peer.recv(65536):
                        peer.sendall(response(200, {"status": "ok"}))
                        break
            assert requests.result(WAIT_LIMIT) == {"status": "ok"}


def test_a_signal_does_not_end_the_wait_for_a_connection(
    full: socket.socket, where: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "RESPONSE_TIMEOUT", 0.3)
    heard: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda number, _: heard.append(number))
    signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
    try:
        with pytest.raises(NotRunning, match="did not respond within"):
            GatewayClient(where).get("/healthz")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
    assert heard


def test_a_full_accept_queue_times_out(
    full: socket.socket, where: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "RESPONSE_TIMEOUT", 0.05)
    with pytest.raises(NotRunning, match="did not respond within"):
        GatewayClient(where).get("/healthz")


def response(status: int, body: Any) -> bytes:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = f"HTTP/1.1 {status} X\r\nContent-Length: {len(raw)}\r\nConnection: close\r\n\r\n"
    return head.encode() + raw


def test_requests_have_the_client_header_and_a_query(where: Path, serve: Serve) -> None:
    requests = serve(response(200, {"jobs": []}))
    assert GatewayClient(where).get("/jobs", status="dead", plugin=None) == {"jobs": []}
    assert requests[0].startswith(b"GET /jobs?status=dead HTTP/1.1")
    assert b"X-Ductile-Client: cli" in requests[0]


def test_path_segments_are_quoted() -> None:
    assert path_to("plugin", "../a b", "poll") == "/plugin/..%2Fa%20b/poll"


@pytest.mark.parametrize(("slug", "code"), [("not_found", 1), ("usage", 2), ("config_invalid", 78)])
def test_an_error_keeps_its_code_and_details(
    where: Path, serve: Serve, slug: str, code: int
) -> None:
    serve(response(400, {"error": "no", "code": slug, "plugin": "x"}))
    with pytest.raises(ApiError, match="no") as refused:
        GatewayClient(where).post("/plugin/x/poll", {})
    error = refused.value
    assert (error.code, error.exit_code, error.details) == (slug, code, {"plugin": "x"})


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]"])
def test_a_response_that_is_not_an_object_is_an_error(
    where: Path, serve: Serve, body: bytes
) -> None:
    serve(response(200, body))
    with pytest.raises(ApiError, match="without a JSON object"):
        GatewayClient(where).get("/jobs")


def test_a_missing_socket_is_not_running(where: Path) -> None:
    assert not GatewayClient.is_listening(where)
    with pytest.raises(NotRunning, match="no gateway responds at"):
        GatewayClient(where).get("/jobs")
    assert not GatewayClient.is_listening(Path("/tmp") / ("x" * 200))


def test_an_abandoned_socket_is_not_listening(where: Path) -> None:
    with socket.socket(socket.AF_UNIX) as missing:
        missing.bind(str(where))
    assert not GatewayClient.is_listening(where)


def test_a_closed_connection_names_the_unfinished_job(where: Path, serve: Serve) -> None:
    serve(b"")
    with pytest.raises(NotRunning, match="job 7 had not finished"):
        GatewayClient(where).finish_job("7", None, lambda _: None)


def test_a_gateway_that_hangs_times_out(where: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "RESPONSE_TIMEOUT", 0.05)
    with socket.socket(socket.AF_UNIX) as deaf:
        deaf.bind(str(where))
        deaf.listen()
        with pytest.raises(NotRunning, match="did not respond"):
            GatewayClient(where).get("/jobs")


def test_a_response_that_is_too_large_is_refused(
    where: Path, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "MAX_RESPONSE_BYTES", 10)
    serve(response(200, {"jobs": ["x" * 100]}))
    with pytest.raises(ApiError, match="exceeds 10 bytes"):
        GatewayClient(where).get("/jobs")


class JobStates:
    """An API that returns these states of one job, one after the other."""

    running = True

    def __init__(self, *states: dict[str, Any]) -> None:
        self._states = list(states)
        self.waits: list[object] = []

    def get(self, path: str, **query: object) -> dict[str, Any]:
        self.waits.append(query["wait"])
        return self._states.pop(0) if len(self._states) > 1 else self._states[0]

    def post(self, path: str, body: Any) -> dict[str, Any]:
        raise AssertionError


QUEUED = {"status": "queued", "next_retry_at": None, "waits_for": "all workers are busy"}
RUNNING = {"status": "running", "next_retry_at": None}
RETRY = {"status": "queued", "next_retry_at": "2026-02-08T10:00:00.000000Z"}


def test_waiting_polls_until_the_end_and_reports_each_reason_once() -> None:
    result: list[str] = []
    door = JobStates(QUEUED, QUEUED, RUNNING, {"status": "dead"})
    assert wait_for_job(door, "7", None, result.append) == {"status": "dead"}
    assert result == ["all workers are busy"]
    assert door.waits == [0.1, 0.2, 0.4, 0.8]


def test_waiting_ends_when_a_retry_is_scheduled() -> None:
    assert wait_for_job(JobStates(RUNNING, RETRY), "7", None, lambda _: None) is RETRY


def test_waiting_ends_after_the_timeout() -> None:
    assert wait_for_job(JobStates(RUNNING), "7", 0.0, lambda _: None) is RUNNING


def test_seconds_in_queries_have_no_exponent() -> None:
    assert with_query("/job/1", {"wait": 3.2e-05, "seen": None}) == "/job/1?wait=0.000"
    assert with_query("/job/1", {"wait": 0.19999999999999998}) == "/job/1?wait=0.200"
