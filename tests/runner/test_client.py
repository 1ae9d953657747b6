"""A slot that buffers launches while it runs another."""

from __future__ import annotations

import os
import select
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from ductile.model import Ending, Launch, Outcome
from ductile.runner.client import BUFFER_LIMIT, SlotClient
from ductile.runner.connection import SlotLost
from ductile.runner.pool import RunnerPool
from tests.runner.processes import Fifo, Plugins
from tests.waiting import WAIT_LIMIT, process_state, stop_process, until


def outcome_of(slot: SlotClient) -> Outcome:
    """The next outcome, waiting for the slot's answer as a dispatcher does."""
    while True:
        outcome = slot.read_outcome()
        if outcome is not None:
            return outcome
        if slot.has_answer:
            continue
        assert slot.connection is not None
        assert select.select([slot.connection.sock], [], [], WAIT_LIMIT)[0], (
            "the slot does not answer"
        )


def is_given_back(slot: SlotClient) -> bool:
    assert slot.read_outcome() is None
    return not slot.buffered


@pytest.fixture
def slot(pool: RunnerPool) -> SlotClient:
    return pool.slot(0)


class Gate:
    def __init__(self, path: str) -> None:
        os.mkfifo(path)
        self.path, self._fd = path, os.open(path, os.O_RDWR)

    def open(self) -> None:
        os.write(self._fd, b"\n")

    def close(self) -> None:
        os.close(self._fd)


@pytest.fixture
def first(plugins: Plugins, tmp_path: Path, slot: SlotClient, pool: RunnerPool) -> Iterator[Gate]:
    """A run that ends when its gate is opened."""
    gate = Gate(str(tmp_path / "gate"))
    script = plugins.shell(f"read _ < {gate.path}; echo first")
    assert slot.start(plugins.launch(script)) is None
    yield gate
    pool.stop()
    gate.close()
    while slot._active is not None:
        try:
            slot.read_outcome()
        except SlotLost as broken:
            slot.replace(broken)


def test_buffered_launch_starts_by_itself_after_the_one_before_it(
    slot: SlotClient, plugins: Plugins, first: Gate, fifo: Fifo
) -> None:
    assert slot.buffer(plugins.launch(plugins.shell(f"echo began > {fifo.path}; echo second")))
    first.open()
    # Before the outcome of the first is read.
    assert fifo.line() == "began"
    assert outcome_of(slot).stdout == b"first\n"
    slot.advance()
    assert outcome_of(slot).stdout == b"second\n"
    assert not slot.buffered


def test_a_buffered_launch_does_not_start_early(
    slot: SlotClient, plugins: Plugins, first: Gate, fifo: Fifo
) -> None:
    assert slot.buffer(plugins.launch(plugins.shell(f"echo second > {fifo.path}")))
    assert not select.select([fifo._fd], [], [], 0.3)[0]
    first.open()
    assert fifo.line() == "second"


def test_buffered_launches_start_one_after_the_other(
    slot: SlotClient, plugins: Plugins, first: Gate
) -> None:
    for number in range(BUFFER_LIMIT):
        assert slot.buffer(plugins.launch("/bin/echo", str(number)))
    first.open()
    assert outcome_of(slot).stdout == b"first\n"
    for number in range(BUFFER_LIMIT):
        slot.advance()
        assert outcome_of(slot).stdout == b"%d\n" % number


def test_a_busy_slot_buffers_launches_up_to_the_limit(
    slot: SlotClient, plugins: Plugins, first: Gate, pool: RunnerPool
) -> None:
    launch = plugins.launch("/bin/true")
    assert not pool.slot(1).buffer(launch)
    assert [slot.buffer(launch) for _ in range(BUFFER_LIMIT + 1)] == [True] * BUFFER_LIMIT + [False]
    first.open()


def test_a_launch_that_is_too_large_is_not_buffered(
    slot: SlotClient, plugins: Plugins, first: Gate
) -> None:
    assert not slot.buffer(plugins.launch("/bin/cat", request=b"x" * 20_000))
    first.open()
    assert outcome_of(slot).stdout == b"first\n"


def test_a_launch_with_an_invalid_command_line_is_not_buffered(
    slot: SlotClient, plugins: Plugins, first: Gate
) -> None:
    assert not slot.buffer(plugins.launch("/bin/echo", "a\0b"))
    first.open()


def test_a_recalled_launch_comes_back_unstarted(
    slot: SlotClient, plugins: Plugins, first: Gate, fifo: Fifo
) -> None:
    assert slot.buffer(plugins.launch(plugins.shell(f"echo no > {fifo.path}")))
    slot.recall()
    until(lambda: is_given_back(slot))
    first.open()
    assert outcome_of(slot).stdout == b"first\n"
    # The slot works as before.
    assert slot.run(plugins.launch(plugins.shell(f"echo yes > {fifo.path}"))).exit_code == 0
    assert fifo.line() == "yes"


def test_all_buffered_launches_come_back_when_recalled(
    slot: SlotClient, plugins: Plugins, first: Gate
) -> None:
    for _ in range(BUFFER_LIMIT):
        assert slot.buffer(plugins.launch("/bin/true"))
    slot.recall()
    until(lambda: is_given_back(slot))
    first.open()
    assert outcome_of(slot).stdout == b"first\n"


def test_a_recall_does_not_affect_a_launch_that_has_started(
    slot: SlotClient, plugins: Plugins, first: Gate, fifo: Fifo
) -> None:
    assert slot.buffer(plugins.launch(plugins.shell(f"echo began > {fifo.path}; sleep 0.2")))
    for _ in range(BUFFER_LIMIT - 1):
        assert slot.buffer(plugins.launch("/bin/false"))
    first.open()
    assert fifo.line() == "began"
    slot.recall()
    assert outcome_of(slot).stdout == b"first\n"
    slot.advance()
    assert outcome_of(slot).exit_code == 0
    assert not slot.buffered


def read_recall_late(slot: SlotClient, plugins: Plugins, first: Gate, *buffered: Launch) -> None:
    """Have the first run end before its slot reads the buffered launches and their recall."""
    until(lambda: len(plugins.alive()) > 0)
    [running] = plugins.alive()
    stop_process(slot.pid)
    for launch in buffered:
        assert slot.buffer(launch)
    slot.recall()
    first.open()
    # A zombie: a process that is not alive may be ending, with its slot not notified yet.
    until(lambda: process_state(running) == "Z")
    os.kill(slot.pid, signal.SIGCONT)
    assert outcome_of(slot).stdout == b"first\n"
    slot.advance()


def test_recall_read_after_the_run_is_too_late(
    slot: SlotClient, plugins: Plugins, first: Gate
) -> None:
    read_recall_late(slot, plugins, first, plugins.launch("/bin/echo", "second"))
    assert outcome_of(slot).stdout == b"second\n"


def test_recall_that_is_too_late_for_the_next_launch_returns_the_others(
    slot: SlotClient, plugins: Plugins, first: Gate, tmp_path: Path
) -> None:
    gate = Gate(str(tmp_path / "second"))
    second = plugins.launch(plugins.shell(f"read _ < {gate.path}; echo second"))
    others = [plugins.launch("/bin/false") for _ in range(BUFFER_LIMIT - 1)]
    read_recall_late(slot, plugins, first, second, *others)
    until(lambda: is_given_back(slot))
    gate.open()
    assert outcome_of(slot).stdout == b"second\n"
    gate.close()


def test_nothing_is_buffered_while_launches_are_recalled(
    slot: SlotClient, plugins: Plugins, first: Gate
) -> None:
    assert slot.buffer(plugins.launch("/bin/true"))
    slot.recall()
    assert not slot.can_buffer
    assert not slot.buffer(plugins.launch("/bin/true"))
    first.open()


def test_nothing_is_buffered_behind_a_run_that_caused_a_recall(
    slot: SlotClient, plugins: Plugins, first: Gate
) -> None:
    """It takes long: they would be recalled again and again, and all others would overtake them."""
    assert slot.buffer(plugins.launch("/bin/echo", "recalled"))
    slot.recall()
    until(lambda: is_given_back(slot))
    assert not slot.can_buffer
    assert not slot.buffer(plugins.launch("/bin/echo", "another"))
    first.open()
    assert outcome_of(slot).stdout == b"first\n"
    assert slot.start(plugins.launch("/bin/echo", "another")) is None
    assert slot.can_buffer
    assert outcome_of(slot).stdout == b"another\n"


def test_nothing_is_buffered_while_a_launch_is_being_sent(
    slot: SlotClient, plugins: Plugins
) -> None:
    stop_process(slot.pid)
    assert slot.start(plugins.launch("/bin/cat", request=b"x" * 5_000_000)) is None
    assert slot.is_sending
    assert not slot.can_buffer
    os.kill(slot.pid, signal.SIGCONT)
    while slot.is_sending:
        slot.read_outcome()
    assert slot.can_buffer
    assert len(outcome_of(slot).stdout) == 5_000_000


def test_an_overdue_slot_starts_no_buffered_launch(
    slot: SlotClient, plugins: Plugins, first: Gate, fifo: Fifo
) -> None:
    """From that moment on, another worker may run its buffered launches."""
    until(lambda: len(plugins.alive()) > 0)
    assert slot.buffer(plugins.launch(plugins.shell(f"echo no > {fifo.path}")))
    pid = slot.pid
    stop_process(pid)
    slot.deadline = 0.0
    with pytest.raises(SlotLost) as late:
        slot.read_outcome()
    first.open()
    until(lambda: not plugins.alive())
    os.kill(pid, signal.SIGCONT)
    until(lambda: not Path(f"/proc/{pid}/exe").exists())
    assert not select.select([fifo._fd], [], [], 0)[0]
    assert slot.replace(late.value) is not None


def test_answer_that_arrives_while_the_slot_is_given_up_counts(
    slot: SlotClient, plugins: Plugins, first: Gate, fifo: Fifo, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the launch that it has started would be taken for unstarted."""
    assert slot.buffer(plugins.launch(plugins.shell(f"echo began > {fifo.path}; sleep 3600")))
    first.open()
    assert fifo.line() == "began"
    assert slot.connection is not None
    fill, early = slot.connection.reader.receive, [BlockingIOError()]

    def late() -> bool:
        if early:
            raise early.pop()
        return fill()

    inbox = slot.connection.reader
    monkeypatch.setattr(type(inbox), "receive", lambda _self, _flags=0: late())
    slot.deadline = 0.0
    outcome = slot.read_outcome()
    assert outcome is not None
    assert outcome.stdout == b"first\n"
    slot.advance()
    with pytest.raises(SlotLost) as broken:
        slot.read_outcome()
    assert broken.value.launch_taken
    assert slot.replace(broken.value) is not None


def test_a_disconnected_slot_starts_nothing_and_is_replaced(
    slot: SlotClient, plugins: Plugins, first: Gate, fifo: Fifo
) -> None:
    assert slot.buffer(plugins.launch(plugins.shell(f"echo no > {fifo.path}")))
    slot.disconnect()
    first.open()
    assert slot.run(plugins.launch(plugins.shell(f"echo yes > {fifo.path}"))).exit_code == 0
    assert fifo.line() == "yes"


def test_a_recall_after_the_start_changes_nothing(
    slot: SlotClient, plugins: Plugins, first: Gate, fifo: Fifo
) -> None:
    script = plugins.shell(f"echo began > {fifo.path}; sleep 0.2; echo second")
    assert slot.buffer(plugins.launch(script))
    first.open()
    assert fifo.line() == "began"
    slot.recall()
    assert outcome_of(slot).stdout == b"first\n"
    slot.advance()
    assert outcome_of(slot).stdout == b"second\n"


def test_a_cancel_of_an_ended_run_does_not_hit_the_next_one(
    slot: SlotClient, plugins: Plugins, first: Gate, fifo: Fifo
) -> None:
    script = plugins.shell(f"echo began > {fifo.path}; sleep 0.2; echo second")
    assert slot.buffer(plugins.launch(script))
    first.open()
    assert fifo.line() == "began"
    slot.cancel(0.0)
    assert outcome_of(slot).ending is Ending.EXITED
    slot.advance()
    assert outcome_of(slot).stdout == b"second\n"


def test_a_buffered_launch_can_be_cancelled_once_it_has_started(
    slot: SlotClient, plugins: Plugins, first: Gate, fifo: Fifo
) -> None:
    assert slot.buffer(plugins.launch(plugins.shell(f"echo began > {fifo.path}; sleep 3600")))
    first.open()
    assert outcome_of(slot).stdout == b"first\n"
    slot.advance()
    assert fifo.line() == "began"
    slot.cancel(0.0)
    assert outcome_of(slot).ending is Ending.CANCELLED


def test_a_buffered_launch_has_its_own_timeout(
    slot: SlotClient, plugins: Plugins, first: Gate
) -> None:
    assert slot.buffer(plugins.launch("/bin/sleep", "3600", timeout=0.2))
    first.open()
    assert outcome_of(slot).ending is Ending.EXITED
    slot.advance()
    assert outcome_of(slot).ending is Ending.TIMED_OUT


def test_a_slot_that_dies_loses_its_run_and_no_buffered_launch(
    slot: SlotClient, plugins: Plugins, first: Gate, fifo: Fifo
) -> None:
    assert slot.buffer(plugins.launch(plugins.shell(f"echo no > {fifo.path}")))
    os.kill(slot.pid, signal.SIGKILL)
    with pytest.raises(SlotLost) as broken:
        outcome_of(slot)
    lost = slot.replace(broken.value)
    assert lost is not None
    assert lost.ending is Ending.LOST
    assert not slot.buffered
    assert slot.run(plugins.launch(plugins.shell(f"echo yes > {fifo.path}"))).exit_code == 0
    assert fifo.line() == "yes"


def test_slot_that_dies_with_a_buffered_launch_has_taken_the_first(
    slot: SlotClient, plugins: Plugins, first: Gate, fifo: Fifo
) -> None:
    """The unread data is not the first launch, which must not be started again."""
    until(lambda: len(plugins.alive()) > 0)
    stop_process(slot.pid)
    assert slot.buffer(plugins.launch("/bin/true"))
    os.kill(slot.pid, signal.SIGKILL)
    with pytest.raises(SlotLost) as broken:
        outcome_of(slot)
    assert broken.value.launch_taken
    assert slot.replace(broken.value) is not None


def test_a_partly_sent_frame_ends_the_connection(
    slot: SlotClient, plugins: Plugins, first: Gate, fifo: Fifo
) -> None:
    """The slot would take the next frame for the rest of it."""
    until(lambda: len(plugins.alive()) > 0)
    stop_process(slot.pid)
    assert slot.connection is not None
    slot.connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
    script = plugins.shell(f"echo no > {fifo.path}")
    assert not slot.buffer(plugins.launch(script, request=b"x" * 12_000))
    assert not slot.buffered
    with pytest.raises(SlotLost) as broken:
        outcome_of(slot)
    lost = slot.replace(broken.value)
    assert lost is not None
    assert lost.ending is Ending.LOST
    assert slot.run(plugins.launch(plugins.shell(f"echo yes > {fifo.path}"))).exit_code == 0
    assert fifo.line() == "yes"


def test_slot_that_dies_after_it_advanced_has_taken_the_next_launch(
    slot: SlotClient, plugins: Plugins, first: Gate, fifo: Fifo
) -> None:
    assert slot.buffer(plugins.launch(plugins.shell(f"echo began > {fifo.path}; sleep 3600")))
    first.open()
    assert outcome_of(slot).stdout == b"first\n"
    slot.advance()
    assert fifo.line() == "began"
    os.kill(slot.pid, signal.SIGKILL)
    with pytest.raises(SlotLost) as broken:
        outcome_of(slot)
    assert broken.value.launch_taken
    assert slot.replace(broken.value) is not None


@pytest.mark.parametrize("program", ["echo {}", "sleep 0.006; echo {}"], ids=["short", "longer"])
def test_many_buffered_launches_are_answered_in_order(
    slot: SlotClient, plugins: Plugins, program: str
) -> None:
    """With recalls at any time: launches that come back are buffered again."""

    def launch(number: int) -> Launch:
        return plugins.launch(plugins.shell(program.format(number)))

    assert slot.start(launch(0)) is None
    for number in range(100):
        while slot.can_buffer and number + slot.buffered < 99:
            assert slot.buffer(launch(number + slot.buffered + 1))
        if number % 3 == 0:
            slot.recall()
        assert outcome_of(slot).stdout == b"%d\n" % number
        if slot.buffered:
            slot.advance()
        elif number < 99:
            assert slot.start(launch(number + 1)) is None
