"""A slot that is told what to run next while it runs another."""

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
    """The next outcome, waiting for the slot's word as a dispatcher does."""
    while True:
        outcome = slot.read_outcome()
        if outcome is not None:
            return outcome
        if slot.has_answer:
            continue
        assert slot.connection is not None
        assert select.select([slot.connection.sock], [], [], WAIT_LIMIT)[0], "the slot says nothing"


def come_back(slot: SlotClient) -> bool:
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
    """A run that has begun and ends when its gate is opened."""
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


def test_what_is_lined_up_begins_by_itself_when_the_one_before_has_ended(
    slot: SlotClient, plugins: Plugins, first: Gate, fifo: Fifo
) -> None:
    assert slot.buffer(plugins.launch(plugins.shell(f"echo began > {fifo.path}; echo second")))
    first.open()
    # Nobody has looked for the first one's outcome yet.
    assert fifo.line() == "began"
    assert outcome_of(slot).stdout == b"first\n"
    slot.advance()
    assert outcome_of(slot).stdout == b"second\n"
    assert not slot.buffered


def test_it_does_not_begin_before(
    slot: SlotClient, plugins: Plugins, first: Gate, fifo: Fifo
) -> None:
    assert slot.buffer(plugins.launch(plugins.shell(f"echo second > {fifo.path}")))
    assert not select.select([fifo._fd], [], [], 0.3)[0]
    first.open()
    assert fifo.line() == "second"


def test_several_begin_one_after_the_other(slot: SlotClient, plugins: Plugins, first: Gate) -> None:
    for number in range(BUFFER_LIMIT):
        assert slot.buffer(plugins.launch("/bin/echo", str(number)))
    first.open()
    assert outcome_of(slot).stdout == b"first\n"
    for number in range(BUFFER_LIMIT):
        slot.advance()
        assert outcome_of(slot).stdout == b"%d\n" % number


def test_only_some_can_be_lined_up_and_only_behind_another(
    slot: SlotClient, plugins: Plugins, first: Gate, pool: RunnerPool
) -> None:
    launch = plugins.launch("/bin/true")
    assert not pool.slot(1).buffer(launch)
    assert [slot.buffer(launch) for _ in range(BUFFER_LIMIT + 1)] == [True] * BUFFER_LIMIT + [False]
    first.open()


def test_what_is_too_large_to_be_sent_at_once_is_not_lined_up(
    slot: SlotClient, plugins: Plugins, first: Gate
) -> None:
    assert not slot.buffer(plugins.launch("/bin/cat", request=b"x" * 20_000))
    first.open()
    assert outcome_of(slot).stdout == b"first\n"


def test_a_command_line_that_no_system_call_takes_is_not_lined_up(
    slot: SlotClient, plugins: Plugins, first: Gate
) -> None:
    assert not slot.buffer(plugins.launch("/bin/echo", "a\0b"))
    first.open()


def test_what_has_not_begun_comes_back_when_it_is_recalled(
    slot: SlotClient, plugins: Plugins, first: Gate, fifo: Fifo
) -> None:
    assert slot.buffer(plugins.launch(plugins.shell(f"echo no > {fifo.path}")))
    slot.recall()
    until(lambda: come_back(slot))
    first.open()
    assert outcome_of(slot).stdout == b"first\n"
    # And the slot is as before.
    assert slot.run(plugins.launch(plugins.shell(f"echo yes > {fifo.path}"))).exit_code == 0
    assert fifo.line() == "yes"


def test_all_that_has_not_begun_comes_back(slot: SlotClient, plugins: Plugins, first: Gate) -> None:
    for _ in range(BUFFER_LIMIT):
        assert slot.buffer(plugins.launch("/bin/true"))
    slot.recall()
    until(lambda: come_back(slot))
    first.open()
    assert outcome_of(slot).stdout == b"first\n"


def test_of_several_that_are_recalled_the_one_that_has_begun_stays(
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


def hear_recall_late(slot: SlotClient, plugins: Plugins, first: Gate, *lined_up: Launch) -> None:
    """Have the first run end before its slot reads what is lined up, and that it is recalled."""
    until(lambda: len(plugins.alive()) > 0)
    [running] = plugins.alive()
    stop_process(slot.pid)
    for launch in lined_up:
        assert slot.buffer(launch)
    slot.recall()
    first.open()
    # Not that it is not alive: it may be on its way out, and its slot not told yet.
    until(lambda: process_state(running) == "Z")
    os.kill(slot.pid, signal.SIGCONT)
    assert outcome_of(slot).stdout == b"first\n"
    slot.advance()


def test_a_recall_that_is_heard_only_when_the_one_before_has_ended_is_too_late(
    slot: SlotClient, plugins: Plugins, first: Gate
) -> None:
    hear_recall_late(slot, plugins, first, plugins.launch("/bin/echo", "second"))
    assert outcome_of(slot).stdout == b"second\n"


def test_a_recall_that_is_too_late_for_the_next_is_not_for_those_behind_it(
    slot: SlotClient, plugins: Plugins, first: Gate, tmp_path: Path
) -> None:
    gate = Gate(str(tmp_path / "second"))
    second = plugins.launch(plugins.shell(f"read _ < {gate.path}; echo second"))
    others = [plugins.launch("/bin/false") for _ in range(BUFFER_LIMIT - 1)]
    hear_recall_late(slot, plugins, first, second, *others)
    until(lambda: come_back(slot))
    gate.open()
    assert outcome_of(slot).stdout == b"second\n"
    gate.close()


def test_nothing_is_lined_up_behind_what_is_recalled(
    slot: SlotClient, plugins: Plugins, first: Gate
) -> None:
    assert slot.buffer(plugins.launch("/bin/true"))
    slot.recall()
    assert not slot.can_buffer
    assert not slot.buffer(plugins.launch("/bin/true"))
    first.open()


def test_behind_what_others_were_recalled_from_nothing_is_lined_up(
    slot: SlotClient, plugins: Plugins, first: Gate
) -> None:
    """It takes its time: they would be recalled again and again, and be overtaken by all others."""
    assert slot.buffer(plugins.launch("/bin/echo", "recalled"))
    slot.recall()
    until(lambda: come_back(slot))
    assert not slot.can_buffer
    assert not slot.buffer(plugins.launch("/bin/echo", "another"))
    first.open()
    assert outcome_of(slot).stdout == b"first\n"
    assert slot.start(plugins.launch("/bin/echo", "another")) is None
    assert slot.can_buffer
    assert outcome_of(slot).stdout == b"another\n"


def test_behind_a_launch_that_is_still_being_sent_nothing_is_lined_up(
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


def test_a_slot_that_is_late_begins_nothing_of_its_line(
    slot: SlotClient, plugins: Plugins, first: Gate, fifo: Fifo
) -> None:
    """What it has in line goes to another, from that moment on."""
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


def test_an_answer_that_comes_while_it_is_given_up_counts(
    slot: SlotClient, plugins: Plugins, first: Gate, fifo: Fifo, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else what it has begun by then would be taken for what has not."""
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


def test_a_slot_that_is_abandoned_begins_nothing_and_is_replaced(
    slot: SlotClient, plugins: Plugins, first: Gate, fifo: Fifo
) -> None:
    assert slot.buffer(plugins.launch(plugins.shell(f"echo no > {fifo.path}")))
    slot.disconnect()
    first.open()
    assert slot.run(plugins.launch(plugins.shell(f"echo yes > {fifo.path}"))).exit_code == 0
    assert fifo.line() == "yes"


def test_a_recall_that_comes_too_late_changes_nothing(
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


def test_a_cancel_of_the_one_that_has_ended_does_not_hit_the_next(
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


def test_the_next_can_be_cancelled_once_it_has_begun(
    slot: SlotClient, plugins: Plugins, first: Gate, fifo: Fifo
) -> None:
    assert slot.buffer(plugins.launch(plugins.shell(f"echo began > {fifo.path}; sleep 3600")))
    first.open()
    assert outcome_of(slot).stdout == b"first\n"
    slot.advance()
    assert fifo.line() == "began"
    slot.cancel(0.0)
    assert outcome_of(slot).ending is Ending.CANCELLED


def test_the_next_has_a_time_limit_of_its_own(
    slot: SlotClient, plugins: Plugins, first: Gate
) -> None:
    assert slot.buffer(plugins.launch("/bin/sleep", "3600", timeout=0.2))
    first.open()
    assert outcome_of(slot).ending is Ending.EXITED
    slot.advance()
    assert outcome_of(slot).ending is Ending.TIMED_OUT


def test_a_slot_that_dies_loses_the_one_that_runs_and_not_the_next(
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


def test_a_slot_that_dies_before_it_has_read_what_is_next_has_taken_the_first(
    slot: SlotClient, plugins: Plugins, first: Gate, fifo: Fifo
) -> None:
    """Something is left unread, and it is not the launch: that must not be made again."""
    until(lambda: len(plugins.alive()) > 0)
    stop_process(slot.pid)
    assert slot.buffer(plugins.launch("/bin/true"))
    os.kill(slot.pid, signal.SIGKILL)
    with pytest.raises(SlotLost) as broken:
        outcome_of(slot)
    assert broken.value.launch_taken
    assert slot.replace(broken.value) is not None


def test_what_went_into_the_socket_in_part_ends_the_line(
    slot: SlotClient, plugins: Plugins, first: Gate, fifo: Fifo
) -> None:
    """The slot would take what comes next for the rest of it."""
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


def test_a_slot_that_dies_once_it_has_gone_on_has_taken_the_next(
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
def test_many_in_a_row_are_all_answered_in_order(
    slot: SlotClient, plugins: Plugins, program: str
) -> None:
    """With recalls at all times: what comes back is handed over again."""

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
