"""The control queue: no request of a thread or signal is missed."""

from __future__ import annotations

import threading

from ductile.engine.control import ControlQueue, ControlRequest
from tests.runner.processes import descriptors
from tests.waiting import WAIT_LIMIT


def test_requests_are_read_in_order() -> None:
    requests = ControlQueue()
    asked = [ControlRequest.RELOAD, ControlRequest.RELOAD, ControlRequest.STOP]
    for request in asked:
        requests.put(request)
    assert [requests.get() for _ in asked] == asked


def test_put_wakes_a_waiting_reader() -> None:
    requests, found = ControlQueue(), []
    reader = threading.Thread(target=lambda: found.append(requests.get()))
    reader.start()
    requests.put(ControlRequest.STOP)
    reader.join(WAIT_LIMIT)
    assert found == [ControlRequest.STOP]


def test_put_does_not_block_without_a_reader() -> None:
    requests = ControlQueue()
    for _ in range(100_000):
        requests.put(ControlRequest.RELOAD)
    requests.put(ControlRequest.STOP)
    while requests.get() is not ControlRequest.STOP:
        pass


def test_pipe_is_closed_with_the_queue() -> None:
    before = descriptors()
    for _ in range(50):
        ControlQueue()
    assert not descriptors() - before
