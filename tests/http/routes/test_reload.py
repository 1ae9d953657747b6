"""A reload keeps open requests; its settings apply to the next ones."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.engine.site import Gate
from tests.http.harness import CONFIG, ECHO, Answer, ApiHarness, running_api
from tests.http.subscriber import subscribed
from tests.waiting import WAIT_LIMIT

PIPELINES = """\
pipelines:
  - {name: slow, on: never, execution_mode: synchronous, timeout: 60s, steps: [{uses: slow}]}
"""
DONE = """echo '{"status":"ok","result":"slept"}'\n"""


def allowing(callers: int, level: str = "warn") -> str:
    text = CONFIG.replace("  enabled: true", f"  enabled: true\n  max_concurrent_sync: {callers}")
    return text.replace("max_workers: 2", f"max_workers: 4, log_level: {level}") + PIPELINES


class Caller:
    """A synchronous call in a thread."""

    def __init__(self, api: ApiHarness) -> None:
        self._answers: list[Answer] = []
        self._thread = threading.Thread(
            target=lambda: self._answers.append(api.ask("POST", "/pipeline/slow", "{}"))
        )
        self._thread.start()

    def waits(self) -> bool:
        return self._thread.is_alive()

    def answer(self) -> Answer:
        self._thread.join(WAIT_LIMIT)
        (answer,) = self._answers
        return answer


@pytest.fixture
def gate() -> Iterator[Gate]:
    with tempfile.TemporaryDirectory(prefix="dt-") as folder:
        gate = Gate(Path(folder), "gate")
        yield gate
        gate.close()


@pytest.fixture
def start_gateway(gate: Gate) -> Iterator[Callable[[str], ApiHarness]]:
    slow = f"#!/bin/sh\ncat > /dev/null\n{gate.script()}{DONE}"
    with ExitStack() as stack:
        yield lambda text: stack.enter_context(
            running_api(text, plugins={"slow": slow, "echo": ECHO})
        )


def reload(api: ApiHarness, text: str) -> None:
    api.write("config.yaml", text)
    assert api.ask("POST", "/system/reload").status == 200


def test_synchronous_calls_and_streams_survive_a_reload(
    start_gateway: Callable[[str], ApiHarness], gate: Gate
) -> None:
    api = start_gateway(allowing(1))
    with subscribed(api, "?topic=jobs") as subscriber:
        caller = Caller(api)
        gate.arrived()
        for level in ("info", "error", "warn"):
            reload(api, allowing(1, level))
        assert caller.waits()
        gate.open()
        answer = caller.answer()
        assert (answer.status, answer.json["status"]) == (200, "succeeded")
        assert answer.json["result"]["result"] == "slept"
        received = [subscriber.next()["event"] for _ in range(3)]
        assert received == ["job.queued", "job.started", "job.succeeded"]


def test_raised_limit_admits_more_calls_at_once(
    start_gateway: Callable[[str], ApiHarness], gate: Gate
) -> None:
    api = start_gateway(allowing(1))
    first = Caller(api)
    gate.arrived()
    refused = api.ask("POST", "/pipeline/slow", "{}")
    assert (refused.status, refused.json["code"]) == (503, "too_many_synchronous_calls")
    reload(api, allowing(2))
    second = Caller(api)
    gate.arrived()
    assert api.ask("POST", "/pipeline/slow", "{}").status == 503
    gate.open(2)
    assert {first.answer().status, second.answer().status} == {200}


def test_lowered_limit_keeps_open_calls_and_admits_no_more(
    start_gateway: Callable[[str], ApiHarness], gate: Gate
) -> None:
    api = start_gateway(allowing(2))
    callers = [Caller(api)]
    gate.arrived()
    callers.append(Caller(api))
    gate.arrived()
    reload(api, allowing(1))
    assert all(caller.waits() for caller in callers)
    gate.open()
    until_one_is_left(callers)
    assert api.ask("POST", "/pipeline/slow", "{}").status == 503
    gate.open()
    assert {caller.answer().status for caller in callers} == {200}
    last = Caller(api)
    gate.arrived()
    gate.open()
    assert last.answer().status == 200


def until_one_is_left(callers: list[Caller]) -> None:
    for caller in callers * 2000:
        caller._thread.join(0.01)
        if sum(caller.waits() for caller in callers) == 1:
            return
    pytest.fail("no call ended")
