"""The client against servers that behave and servers that do not; waiting for a job."""

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
    """A listener with more callers than its queue has room for."""
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
    """A server that answers one request with these bytes, and keeps what it was asked."""
    listener = socket.socket(socket.AF_UNIX)
    threads = []

    def start(answer: bytes) -> list[bytes]:
        listener.bind(str(where))
        listener.listen()
        asked: list[bytes] = []

        def work() -> None:
            peer, _ = listener.accept()
            with peer:
                asked.append(peer.recv(65536))
                peer.sendall(answer)

        threads.append(threading.Thread(target=work))
        threads[0].start()
        return asked

    yield start
    for thread in threads:
        thread.join()
    listener.close()


def test_a_gateway_that_many_ask_at_once_is_there(full: socket.socket, where: Path) -> None:
    assert GatewayClient.is_listening(where)


def test_who_finds_the_queue_full_waits_for_its_turn(full: socket.socket, where: Path) -> None:
    with ThreadPoolExecutor(1) as threads:
        asked = threads.submit(GatewayClient(where).get, "/healthz")
        with ExitStack() as stack:
            while True:
                peer = stack.enter_context(full.accept()[0])
                peer.settimeout(0.05)
                with suppress(TimeoutError):
                    if peer.recv(65536):
                        peer.sendall(answer(200, {"status": "ok"}))
                        break
            assert asked.result(WAIT_LIMIT) == {"status": "ok"}


def test_a_signal_does_not_end_the_wait(
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


def test_who_waits_too_long_in_a_full_queue_is_told(
    full: socket.socket, where: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "RESPONSE_TIMEOUT", 0.05)
    with pytest.raises(NotRunning, match="did not respond within"):
        GatewayClient(where).get("/healthz")


def answer(status: int, body: Any) -> bytes:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = f"HTTP/1.1 {status} X\r\nContent-Length: {len(raw)}\r\nConnection: close\r\n\r\n"
    return head.encode() + raw


def test_it_names_itself_and_asks_with_a_query(where: Path, serve: Serve) -> None:
    asked = serve(answer(200, {"jobs": []}))
    assert GatewayClient(where).get("/jobs", status="dead", plugin=None) == {"jobs": []}
    assert asked[0].startswith(b"GET /jobs?status=dead HTTP/1.1")
    assert b"X-Ductile-Client: cli" in asked[0]


def test_segments_of_a_path_are_quoted() -> None:
    assert path_to("plugin", "../a b", "poll") == "/plugin/..%2Fa%20b/poll"


@pytest.mark.parametrize(("slug", "code"), [("not_found", 1), ("usage", 2), ("config_invalid", 78)])
def test_a_refusal_keeps_its_words(where: Path, serve: Serve, slug: str, code: int) -> None:
    serve(answer(400, {"error": "no", "code": slug, "plugin": "x"}))
    with pytest.raises(ApiError, match="no") as refused:
        GatewayClient(where).post("/plugin/x/poll", {})
    error = refused.value
    assert (error.code, error.exit_code, error.details) == (slug, code, {"plugin": "x"})


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]"])
def test_an_answer_that_is_none(where: Path, serve: Serve, body: bytes) -> None:
    serve(answer(200, body))
    with pytest.raises(ApiError, match="without a JSON object"):
        GatewayClient(where).get("/jobs")


def test_nobody_there(where: Path) -> None:
    assert not GatewayClient.is_listening(where)
    with pytest.raises(NotRunning, match="no gateway responds at"):
        GatewayClient(where).get("/jobs")
    assert not GatewayClient.is_listening(Path("/tmp") / ("x" * 200))


def test_a_socket_that_was_left_behind(where: Path) -> None:
    with socket.socket(socket.AF_UNIX) as gone:
        gone.bind(str(where))
    assert not GatewayClient.is_listening(where)


def test_a_gateway_that_dies_while_it_is_asked(where: Path, serve: Serve) -> None:
    serve(b"")
    with pytest.raises(NotRunning, match="job 7 had not finished"):
        GatewayClient(where).finish_job("7", None, lambda _: None)


def test_a_gateway_that_hangs(where: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "RESPONSE_TIMEOUT", 0.05)
    with socket.socket(socket.AF_UNIX) as deaf:
        deaf.bind(str(where))
        deaf.listen()
        with pytest.raises(NotRunning, match="did not respond"):
            GatewayClient(where).get("/jobs")


def test_an_answer_without_end(where: Path, serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "MAX_RESPONSE_BYTES", 10)
    serve(answer(200, {"jobs": ["x" * 100]}))
    with pytest.raises(ApiError, match="exceeds 10 bytes"):
        GatewayClient(where).get("/jobs")


class Answers:
    """A door that has these states of one job to tell, one after the other."""

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


def test_waiting_goes_on_until_the_end_and_says_why_once() -> None:
    told: list[str] = []
    door = Answers(QUEUED, QUEUED, RUNNING, {"status": "dead"})
    assert wait_for_job(door, "7", None, told.append) == {"status": "dead"}
    assert told == ["all workers are busy"]
    assert door.waits == [0.1, 0.2, 0.4, 0.8]


def test_a_retry_is_not_waited_for() -> None:
    assert wait_for_job(Answers(RUNNING, RETRY), "7", None, lambda _: None) is RETRY


def test_waiting_has_an_end() -> None:
    assert wait_for_job(Answers(RUNNING), "7", 0.0, lambda _: None) is RUNNING


def test_seconds_are_asked_for_without_an_exponent() -> None:
    assert with_query("/job/1", {"wait": 3.2e-05, "seen": None}) == "/job/1?wait=0.000"
    assert with_query("/job/1", {"wait": 0.19999999999999998}) == "/job/1?wait=0.200"
