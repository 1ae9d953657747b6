"""ControlQueue of other threads and of signals: none is missed."""

from __future__ import annotations

import threading

from ductile.engine.control import ControlQueue, ControlRequest
from tests.runner.processes import descriptors
from tests.waiting import WAIT_LIMIT


def test_they_come_out_in_the_order_in_which_they_went_in() -> None:
    requests = ControlQueue()
    asked = [ControlRequest.RELOAD, ControlRequest.RELOAD, ControlRequest.STOP]
    for request in asked:
        requests.put(request)
    assert [requests.get() for _ in asked] == asked


def test_whoever_waits_is_woken_by_another_thread() -> None:
    requests, found = ControlQueue(), []
    reader = threading.Thread(target=lambda: found.append(requests.get()))
    reader.start()
    requests.put(ControlRequest.STOP)
    reader.join(WAIT_LIMIT)
    assert found == [ControlRequest.STOP]


def test_nobody_who_asks_waits_for_a_reader_that_does_not_come() -> None:
    requests = ControlQueue()
    for _ in range(100_000):
        requests.put(ControlRequest.RELOAD)
    requests.put(ControlRequest.STOP)
    while requests.get() is not ControlRequest.STOP:
        pass


def test_its_descriptors_go_with_it() -> None:
    before = descriptors()
    for _ in range(50):
        ControlQueue()
    assert not descriptors() - before
