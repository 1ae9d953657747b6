"""The flags that a slot sets when it starts a launch."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ductile.model import Ending
from ductile.runner.client import SlotClient
from ductile.runner.connection import SlotLost
from ductile.runner.pool import RunnerPool
from ductile.runner.started_flags import DEADLINE, DEADLINE_AT, STARTED
from tests.runner.processes import Fifo, Plugins
from tests.runner.test_client import outcome_of

FIRST, SECOND = 128, 192
"""After the deadline, whose bytes may have any value."""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "started_log"
    path.write_bytes(bytes(256))
    return path


@pytest.fixture
def slot(file: Path) -> Iterator[SlotClient]:
    with file.open("r+b") as opened:
        pool = RunnerPool(1, started_log_fd=opened.fileno())
        pool.start()
        yield pool.slot(0)
        pool.stop()


def flagged(file: Path) -> list[int]:
    bytes_of_entries = file.read_bytes()[FIRST:]
    return [place for place, byte in enumerate(bytes_of_entries, FIRST) if byte == STARTED]


def lost(slot: SlotClient) -> bool:
    """Whether the slot dies and its launch is lost."""
    with pytest.raises(SlotLost) as broken:
        outcome_of(slot)
    outcome = slot.replace(broken.value)
    return outcome is not None and outcome.ending is Ending.LOST


def test_a_slot_sets_the_flag_of_a_launch_when_it_starts(
    slot: SlotClient, file: Path, plugins: Plugins, fifo: Fifo
) -> None:
    script = plugins.shell(f"echo began > {fifo.path}; sleep 0.1")
    assert slot.start(plugins.launch(script), FIRST) is None
    assert slot.buffer(plugins.launch(script), SECOND)
    assert fifo.line() == "began"
    assert flagged(file) == [FIRST]
    assert outcome_of(slot).exit_code == 0
    slot.advance()
    assert fifo.line() == "began"
    assert flagged(file) == [FIRST, SECOND]
    assert outcome_of(slot).exit_code == 0


def test_a_launch_that_cannot_be_spawned_is_flagged(
    slot: SlotClient, file: Path, plugins: Plugins
) -> None:
    """The flag is set before the spawn: a crash may follow at any time."""
    assert slot.start(plugins.launch("/no/such/program"), FIRST) is None
    assert outcome_of(slot).errno is not None
    assert flagged(file) == [FIRST]


def test_a_launch_without_an_entry_is_not_flagged(
    slot: SlotClient, file: Path, plugins: Plugins
) -> None:
    assert slot.start(plugins.launch("/bin/true")) is None
    assert outcome_of(slot).exit_code == 0
    assert flagged(file) == []


def test_a_plugin_does_not_get_the_file(slot: SlotClient, file: Path, plugins: Plugins) -> None:
    assert slot.start(plugins.launch(plugins.shell("ls -l /proc/self/fd")), FIRST) is None
    assert file.name.encode() not in outcome_of(slot).stdout


def test_a_launch_that_cannot_be_flagged_is_not_started(
    slot: SlotClient, file: Path, plugins: Plugins, fifo: Fifo
) -> None:
    """After a crash it would be taken for unstarted, although it ran."""
    os.truncate(file, 0)
    assert slot.start(plugins.launch(plugins.shell(f"echo no > {fifo.path}")), FIRST) is None
    assert lost(slot)
    assert not select.select([fifo._fd], [], [], 0)[0]


def test_a_launch_with_an_entry_is_not_started_without_a_file(
    pool: RunnerPool, plugins: Plugins, fifo: Fifo
) -> None:
    slot = pool.slot(0)
    assert slot.start(plugins.launch(plugins.shell(f"echo no > {fifo.path}")), FIRST) is None
    assert lost(slot)
    assert not select.select([fifo._fd], [], [], 0)[0]


def set_deadline(file: Path, seconds: float) -> None:
    with file.open("r+b") as opened:
        os.pwrite(opened.fileno(), DEADLINE.pack(time.monotonic() + seconds), DEADLINE_AT)


def test_a_job_ends_when_the_gateway_has_not_moved_the_deadline(
    slot: SlotClient, file: Path, plugins: Plugins, fifo: Fifo
) -> None:
    script = plugins.shell(f"echo began > {fifo.path}; sleep 1000")
    set_deadline(file, 3600)
    assert slot.start(plugins.launch(script), FIRST) is None
    assert slot.buffer(plugins.launch(script), SECOND)
    assert fifo.line() == "began"
    set_deadline(file, 0)
    assert lost(slot)
    assert plugins.alive() == []
    assert flagged(file) == [FIRST]


def test_nothing_starts_after_the_deadline(
    slot: SlotClient, file: Path, plugins: Plugins, fifo: Fifo
) -> None:
    script = plugins.shell(f"echo began > {fifo.path}")
    set_deadline(file, 0)
    assert slot.start(plugins.launch(script), FIRST) is None
    assert lost(slot)
    assert flagged(file) == []
    set_deadline(file, 3600)
    assert slot.start(plugins.launch(script), FIRST) is None
    assert outcome_of(slot).exit_code == 0
