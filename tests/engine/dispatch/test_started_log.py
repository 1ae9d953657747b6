"""What is known of a dead gateway's jobs: which of them had certainly not begun."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ductile.engine.dispatch import started_log
from ductile.engine.dispatch.started_log import ENTRY_BYTES, StartedLog, read_unstarted
from ductile.runner.started_flags import NO_ENTRY, STARTED, map_flags


@pytest.fixture
def file(tmp_path: Path) -> Iterator[StartedLog]:
    file = StartedLog(tmp_path, "boot-1", entries=3)
    file.activate()
    yield file
    file.close()


def test_what_was_entered_has_not_begun(file: StartedLog, tmp_path: Path) -> None:
    file.add("a", 1)
    file.add("b", 2)
    assert read_unstarted(tmp_path) == {("boot-1", "a", 1), ("boot-1", "b", 2)}


def test_what_a_slot_has_noted_has(file: StartedLog, tmp_path: Path) -> None:
    place = file.add("a", 1)
    file.add("b", 2)
    map_flags(file.fd)[place] = STARTED
    assert read_unstarted(tmp_path) == {("boot-1", "b", 2)}


def test_where_no_cell_is_left_nothing_is_known(file: StartedLog, tmp_path: Path) -> None:
    places = [file.add(f"job {number}", 1) for number in range(4)]
    assert places.index(NO_ENTRY) == 3
    assert len(read_unstarted(tmp_path)) == 3
    file.release(places[0])
    file.release(NO_ENTRY)
    file.revoke(NO_ENTRY)
    assert file.add("another", 1) == places[0]
    assert file.add("one more", 1) == NO_ENTRY


def test_a_cell_that_is_used_again_is_the_new_ones(file: StartedLog, tmp_path: Path) -> None:
    place = file.add("first, with a long name", 1)
    map_flags(file.fd)[place] = STARTED
    file.release(place)
    assert file.add("b", 1) == place
    assert read_unstarted(tmp_path) == {("boot-1", "b", 1)}


def test_what_was_left_unbegun_and_begins_after_all_has_begun(
    file: StartedLog, tmp_path: Path
) -> None:
    """It was cancelled before it began, and retried: the same attempt, in another cell."""
    old, new = file.add("a", 1), file.add("a", 1)
    file.release(old)
    map_flags(file.fd)[new] = STARTED
    assert read_unstarted(tmp_path) == frozenset()


def test_of_a_claim_that_did_not_come_to_be_nothing_is_known(
    file: StartedLog, tmp_path: Path
) -> None:
    """The same attempt may begin from another cell, or from none."""
    place = file.add("a", 1)
    file.revoke(place)
    assert read_unstarted(tmp_path) == frozenset()
    assert file.add("a", 1) == place
    assert read_unstarted(tmp_path) == {("boot-1", "a", 1)}


@pytest.mark.parametrize(
    "id", ["x" * ENTRY_BYTES, "x" * (ENTRY_BYTES - 2)], ids=["long", "just too long"]
)
def test_an_id_that_does_not_fit_has_no_cell(file: StartedLog, tmp_path: Path, id: str) -> None:
    assert file.add(id, 1) == NO_ENTRY
    assert read_unstarted(tmp_path) == frozenset()


def test_the_longest_that_fits_is_known_whole(file: StartedLog, tmp_path: Path) -> None:
    id = "x" * (ENTRY_BYTES - 3)
    assert file.add(id, 1) != NO_ENTRY
    assert read_unstarted(tmp_path) == {("boot-1", id, 1)}


@pytest.mark.parametrize("id", ["\udc80", "a\0b", "", "with a space 7"])
def test_an_odd_id_does_no_harm(file: StartedLog, tmp_path: Path, id: str) -> None:
    file.add(id, 1)
    file.add("a", 1)
    assert ("boot-1", "a", 1) in read_unstarted(tmp_path)


def test_after_a_boot_of_the_kernel_nothing_is_known(
    file: StartedLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the slots had noted may not have come to the disk."""
    file.add("a", 1)
    other = tmp_path / "boot_id"
    other.write_text("another boot\n")
    monkeypatch.setattr(started_log, "_KERNEL_BOOT", other)
    assert read_unstarted(tmp_path) == frozenset()


def test_where_the_kernel_does_not_name_its_boot_nothing_is_known(
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
def test_a_file_that_says_nothing_is_no_evidence(tmp_path: Path, text: bytes | None) -> None:
    if text is not None:
        (tmp_path / "started_log").write_bytes(text)
    assert read_unstarted(tmp_path) == frozenset()


def test_a_file_that_was_cut_says_what_is_left(file: StartedLog, tmp_path: Path) -> None:
    file.add("a", 1)
    file.add("b", 1)
    os.truncate(tmp_path / "started_log", started_log.HEAD_BYTES + 2 * ENTRY_BYTES + 10)
    assert read_unstarted(tmp_path) <= {("boot-1", "a", 1), ("boot-1", "b", 1)}


def test_the_file_of_the_boot_before_stays_until_the_next_one_stands(
    file: StartedLog, tmp_path: Path
) -> None:
    file.add("a", 1)
    following = StartedLog(tmp_path, "boot-2", entries=3)
    following.add("b", 1)
    assert read_unstarted(tmp_path) == {("boot-1", "a", 1)}
    following.activate()
    assert read_unstarted(tmp_path) == {("boot-2", "b", 1)}
    following.close()


def test_it_is_for_its_owner_alone(file: StartedLog, tmp_path: Path) -> None:
    assert file.fd
    assert (tmp_path / "started_log").stat().st_mode & 0o777 == 0o600


def cannot_be_written(file: StartedLog, path: Path) -> None:
    reading = os.open(path, os.O_RDONLY)
    os.dup2(reading, file.fd)
    os.close(reading)


def test_where_it_cannot_be_written_nothing_is_known_any_more(
    file: StartedLog, tmp_path: Path
) -> None:
    file.add("a", 1)
    cannot_be_written(file, tmp_path / "started_log")
    assert file.add("b", 1) == NO_ENTRY
    assert file.add("c", 1) == NO_ENTRY
    assert read_unstarted(tmp_path) == frozenset()


def test_nor_where_a_claim_cannot_be_revoked(file: StartedLog, tmp_path: Path) -> None:
    place = file.add("a", 1)
    cannot_be_written(file, tmp_path / "started_log")
    file.revoke(place)
    assert read_unstarted(tmp_path) == frozenset()


def test_one_that_failed_before_it_stood_does_not(tmp_path: Path) -> None:
    file = StartedLog(tmp_path, "boot-1", entries=3)
    cannot_be_written(file, tmp_path / "started_log.new")
    assert file.add("a", 1) == NO_ENTRY
    file.activate()
    file.close()
    assert list(tmp_path.iterdir()) == []


def test_a_disk_without_room_for_all_of_it_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slot that is told of a place beyond its end would die of every launch."""
    write = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, text, at: write(fd, text[:200], at))
    with pytest.raises(OSError, match="No space left") as refused:
        StartedLog(tmp_path, "boot-1", entries=3)
    assert refused.value.filename == str(tmp_path / "started_log.new")


def test_what_was_left_of_a_start_that_broke_off_is_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "started_log.new")
    file = StartedLog(tmp_path, "boot-1", entries=3)
    file.add("a", 1)
    file.activate()
    file.close()
    assert read_unstarted(tmp_path) == {("boot-1", "a", 1)}


@pytest.mark.parametrize("kind", [os.mkfifo, os.mkdir], ids=["a pipe", "a directory"])
def test_what_is_no_file_is_no_evidence(tmp_path: Path, kind: Callable[[Path], None]) -> None:
    kind(tmp_path / "started_log")
    assert read_unstarted(tmp_path) == frozenset()


def test_a_link_is_no_evidence(file: StartedLog, tmp_path: Path) -> None:
    file.add("a", 1)
    (tmp_path / "started_log").rename(tmp_path / "elsewhere")
    (tmp_path / "started_log").symlink_to(tmp_path / "elsewhere")
    assert read_unstarted(tmp_path) == frozenset()
