"""A reload while others are on the line: they stay, and what it brings holds for the next."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.engine.site import Gate
from tests.http.doors import CONFIG, ECHO, Answer, House, opened
from tests.http.following import following
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
    """A synchronous call, in a thread of its own."""

    def __init__(self, house: House) -> None:
        self._answers: list[Answer] = []
        self._thread = threading.Thread(
            target=lambda: self._answers.append(house.ask("POST", "/pipeline/slow", "{}"))
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
def open_house(gate: Gate) -> Iterator[Callable[[str], House]]:
    slow = f"#!/bin/sh\ncat > /dev/null\n{gate.script()}{DONE}"
    with ExitStack() as stack:
        yield lambda text: stack.enter_context(opened(text, plugins={"slow": slow, "echo": ECHO}))


def reload(house: House, text: str) -> None:
    house.write("config.yaml", text)
    assert house.ask("POST", "/system/reload").status == 200


def test_callers_and_followers_stay_on_the_line(
    open_house: Callable[[str], House], gate: Gate
) -> None:
    house = open_house(allowing(1))
    with following(house, "?topic=jobs") as follower:
        caller = Caller(house)
        gate.arrived()
        for level in ("info", "error", "warn"):
            reload(house, allowing(1, level))
        assert caller.waits()
        gate.open()
        answer = caller.answer()
        assert (answer.status, answer.json["status"]) == (200, "succeeded")
        assert answer.json["result"]["result"] == "slept"
        told = [follower.next()["event"] for _ in range(3)]
        assert told == ["job.queued", "job.started", "job.succeeded"]


def test_more_callers_are_let_in_at_once(open_house: Callable[[str], House], gate: Gate) -> None:
    house = open_house(allowing(1))
    first = Caller(house)
    gate.arrived()
    refused = house.ask("POST", "/pipeline/slow", "{}")
    assert (refused.status, refused.json["code"]) == (503, "too_many_synchronous_calls")
    reload(house, allowing(2))
    second = Caller(house)
    gate.arrived()
    assert house.ask("POST", "/pipeline/slow", "{}").status == 503
    gate.open(2)
    assert {first.answer().status, second.answer().status} == {200}


def test_fewer_callers_send_nobody_away_and_let_nobody_in(
    open_house: Callable[[str], House], gate: Gate
) -> None:
    house = open_house(allowing(2))
    callers = [Caller(house)]
    gate.arrived()
    callers.append(Caller(house))
    gate.arrived()
    reload(house, allowing(1))
    assert all(caller.waits() for caller in callers)
    gate.open()
    until_one_is_left(callers)
    assert house.ask("POST", "/pipeline/slow", "{}").status == 503
    gate.open()
    assert {caller.answer().status for caller in callers} == {200}
    last = Caller(house)
    gate.arrived()
    gate.open()
    assert last.answer().status == 200


def until_one_is_left(callers: list[Caller]) -> None:
    for caller in callers * 2000:
        caller._thread.join(0.01)
        if sum(caller.waits() for caller in callers) == 1:
            return
    pytest.fail("nobody's call ended")
