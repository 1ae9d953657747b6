"""Which attempts of a dead gateway had certainly not started."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ductile.engine.dispatch import started_log
from ductile.engine.dispatch.started_log import ENTRY_BYTES, StartedLog, read_unstarted
from ductile.runner.started_flags import NO_ENTRY, STARTED, is_past_deadline, map_flags


@pytest.fixture
def file(tmp_path: Path) -> Iterator[StartedLog]:
    file = StartedLog(tmp_path, "boot-1", entries=3)
    file.activate()
    yield file
    file.close()


def test_an_added_attempt_has_not_started(file: StartedLog, tmp_path: Path) -> None:
    file.add("a", 1)
    file.add("b", 2)
    assert read_unstarted(tmp_path) == {("boot-1", "a", 1), ("boot-1", "b", 2)}


def test_a_flagged_attempt_has_started(file: StartedLog, tmp_path: Path) -> None:
    place = file.add("a", 1)
    file.add("b", 2)
    map_flags(file.fd)[place] = STARTED
    assert read_unstarted(tmp_path) == {("boot-1", "b", 2)}


def test_an_attempt_without_a_free_entry_is_unknown(file: StartedLog, tmp_path: Path) -> None:
    places = [file.add(f"job {number}", 1) for number in range(4)]
    assert places.index(NO_ENTRY) == 3
    assert len(read_unstarted(tmp_path)) == 3
    file.release(places[0])
    file.release(NO_ENTRY)
    file.revoke(NO_ENTRY)
    assert file.add("another", 1) == places[0]
    assert file.add("one more", 1) == NO_ENTRY


def test_deadline_is_shared_with_slots_and_changes_nothing_else(
    file: StartedLog, tmp_path: Path
) -> None:
    flags = map_flags(file.fd)
    file.add("a", 1)
    assert not is_past_deadline(flags)
    file.set_deadline(time.monotonic() + 3600)
    assert not is_past_deadline(flags)
    file.set_deadline(time.monotonic())
    assert is_past_deadline(flags)
    assert not is_past_deadline(None)
    assert read_unstarted(tmp_path) == {("boot-1", "a", 1)}


def test_a_reused_entry_belongs_to_the_new_attempt(file: StartedLog, tmp_path: Path) -> None:
    place = file.add("first, with a long name", 1)
    map_flags(file.fd)[place] = STARTED
    file.release(place)
    assert file.add("b", 1) == place
    assert read_unstarted(tmp_path) == {("boot-1", "b", 1)}


def test_an_attempt_that_started_with_another_entry_has_started(
    file: StartedLog, tmp_path: Path
) -> None:
    """It was cancelled before it started, and retried: the same attempt, with another entry."""
    old, new = file.add("a", 1), file.add("a", 1)
    file.release(old)
    map_flags(file.fd)[new] = STARTED
    assert read_unstarted(tmp_path) == frozenset()


def test_an_attempt_whose_claim_was_rolled_back_is_unknown(
    file: StartedLog, tmp_path: Path
) -> None:
    """The same attempt may start with another entry, or with none."""
    place = file.add("a", 1)
    file.revoke(place)
    assert read_unstarted(tmp_path) == frozenset()
    assert file.add("a", 1) == place
    assert read_unstarted(tmp_path) == {("boot-1", "a", 1)}


@pytest.mark.parametrize(
    "id", ["x" * ENTRY_BYTES, "x" * (ENTRY_BYTES - 2)], ids=["long", "just too long"]
)
def test_an_id_that_is_too_long_has_no_entry(file: StartedLog, tmp_path: Path, id: str) -> None:
    assert file.add(id, 1) == NO_ENTRY
    assert read_unstarted(tmp_path) == frozenset()


def test_the_longest_id_that_fits_is_read_whole(file: StartedLog, tmp_path: Path) -> None:
    id = "x" * (ENTRY_BYTES - 3)
    assert file.add(id, 1) != NO_ENTRY
    assert read_unstarted(tmp_path) == {("boot-1", id, 1)}


@pytest.mark.parametrize("id", ["\udc80", "a\0b", "", "with a space 7"])
def test_an_unusual_id_does_not_affect_other_entries(
    file: StartedLog, tmp_path: Path, id: str
) -> None:
    file.add(id, 1)
    file.add("a", 1)
    assert ("boot-1", "a", 1) in read_unstarted(tmp_path)


def test_a_file_from_before_a_kernel_boot_is_not_used(
    file: StartedLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The flags may not have been written to the disk."""
    file.add("a", 1)
    other = tmp_path / "boot_id"
    other.write_text("another boot\n")
    monkeypatch.setattr(started_log, "_KERNEL_BOOT", other)
    assert read_unstarted(tmp_path) == frozenset()


def test_a_file_without_a_kernel_boot_id_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(started_log, "_KERNEL_BOOT", tmp_path / "absent")
    file = StartedLog(tmp_path, "boot-1", entries=1)
    file.activate()
    file.add("a", 1)
    file.close()
    assert read_unstarted(tmp_path) == frozenset()


@pytest.mark.parametrize(
    "text",
    [None, b"", b"\0" * 500, b"boot-1", b"\xff" * 1000, b"boot-1 \n" + b"x" * 5000],
    ids=["none", "empty", "zeros", "cut", "binary", "another file"],
)
def test_an_invalid_file_is_not_used(tmp_path: Path, text: bytes | None) -> None:
    if text is not None:
        (tmp_path / "started_log").write_bytes(text)
    assert read_unstarted(tmp_path) == frozenset()


def test_a_truncated_file_has_only_true_entries(file: StartedLog, tmp_path: Path) -> None:
    file.add("a", 1)
    file.add("b", 1)
    os.truncate(tmp_path / "started_log", started_log.HEAD_BYTES + 2 * ENTRY_BYTES + 10)
    assert read_unstarted(tmp_path) <= {("boot-1", "a", 1), ("boot-1", "b", 1)}


def test_file_of_the_last_boot_is_kept_until_the_new_one_is_activated(
    file: StartedLog, tmp_path: Path
) -> None:
    file.add("a", 1)
    following = StartedLog(tmp_path, "boot-2", entries=3)
    following.add("b", 1)
    assert read_unstarted(tmp_path) == {("boot-1", "a", 1)}
    following.activate()
    assert read_unstarted(tmp_path) == {("boot-2", "b", 1)}
    following.close()


def test_only_the_owner_may_read_the_file(file: StartedLog, tmp_path: Path) -> None:
    assert file.fd
    assert (tmp_path / "started_log").stat().st_mode & 0o777 == 0o600


def cannot_be_written(file: StartedLog, path: Path) -> None:
    reading = os.open(path, os.O_RDONLY)
    os.dup2(reading, file.fd)
    os.close(reading)


def test_a_file_that_cannot_be_written_is_removed(file: StartedLog, tmp_path: Path) -> None:
    file.add("a", 1)
    cannot_be_written(file, tmp_path / "started_log")
    assert file.add("b", 1) == NO_ENTRY
    assert file.add("c", 1) == NO_ENTRY
    assert read_unstarted(tmp_path) == frozenset()


def test_a_file_in_which_a_claim_cannot_be_revoked_is_removed(
    file: StartedLog, tmp_path: Path
) -> None:
    place = file.add("a", 1)
    cannot_be_written(file, tmp_path / "started_log")
    file.revoke(place)
    assert read_unstarted(tmp_path) == frozenset()


def test_a_file_that_failed_is_not_activated(tmp_path: Path) -> None:
    file = StartedLog(tmp_path, "boot-1", entries=3)
    cannot_be_written(file, tmp_path / "started_log.new")
    assert file.add("a", 1) == NO_ENTRY
    file.activate()
    file.close()
    assert list(tmp_path.iterdir()) == []


def test_a_disk_without_room_for_the_file_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slot would die of every launch whose entry is beyond the end of the file."""
    write = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, text, at: write(fd, text[:200], at))
    with pytest.raises(OSError, match="No space left") as refused:
        StartedLog(tmp_path, "boot-1", entries=3)
    assert refused.value.filename == str(tmp_path / "started_log.new")


def test_a_file_of_an_interrupted_start_is_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "started_log.new")
    file = StartedLog(tmp_path, "boot-1", entries=3)
    file.add("a", 1)
    file.activate()
    file.close()
    assert read_unstarted(tmp_path) == {("boot-1", "a", 1)}


@pytest.mark.parametrize("kind", [os.mkfifo, os.mkdir], ids=["a pipe", "a directory"])
def test_a_pipe_or_directory_is_not_used(tmp_path: Path, kind: Callable[[Path], None]) -> None:
    kind(tmp_path / "started_log")
    assert read_unstarted(tmp_path) == frozenset()


def test_a_symbolic_link_is_not_used(file: StartedLog, tmp_path: Path) -> None:
    file.add("a", 1)
    (tmp_path / "started_log").rename(tmp_path / "elsewhere")
    (tmp_path / "started_log").symlink_to(tmp_path / "elsewhere")
    assert read_unstarted(tmp_path) == frozenset()
