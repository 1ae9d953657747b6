"""What is known of a dead gateway's jobs: which of them had certainly not begun."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ductile.engine.dispatch import started_log
from ductile.engine.dispatch.started_log import CELL, StartedLog, unbegun
from ductile.runner.started_flags import BEGUN, NOWHERE, mapped


@pytest.fixture
def file(tmp_path: Path) -> Iterator[StartedLog]:
    file = StartedLog(tmp_path, "boot-1", cells=3)
    file.stand()
    yield file
    file.close()


def test_what_was_entered_has_not_begun(file: StartedLog, tmp_path: Path) -> None:
    file.enter("a", 1)
    file.enter("b", 2)
    assert unbegun(tmp_path) == {("boot-1", "a", 1), ("boot-1", "b", 2)}


def test_what_a_slot_has_noted_has(file: StartedLog, tmp_path: Path) -> None:
    place = file.enter("a", 1)
    file.enter("b", 2)
    mapped(file.fd)[place] = BEGUN
    assert unbegun(tmp_path) == {("boot-1", "b", 2)}


def test_where_no_cell_is_left_nothing_is_known(file: StartedLog, tmp_path: Path) -> None:
    places = [file.enter(f"job {number}", 1) for number in range(4)]
    assert places.index(NOWHERE) == 3
    assert len(unbegun(tmp_path)) == 3
    file.leave(places[0])
    file.leave(NOWHERE)
    file.revoke(NOWHERE)
    assert file.enter("another", 1) == places[0]
    assert file.enter("one more", 1) == NOWHERE


def test_a_cell_that_is_used_again_is_the_new_ones(file: StartedLog, tmp_path: Path) -> None:
    place = file.enter("first, with a long name", 1)
    mapped(file.fd)[place] = BEGUN
    file.leave(place)
    assert file.enter("b", 1) == place
    assert unbegun(tmp_path) == {("boot-1", "b", 1)}


def test_what_was_left_unbegun_and_begins_after_all_has_begun(
    file: StartedLog, tmp_path: Path
) -> None:
    """It was cancelled before it began, and retried: the same attempt, in another cell."""
    old, new = file.enter("a", 1), file.enter("a", 1)
    file.leave(old)
    mapped(file.fd)[new] = BEGUN
    assert unbegun(tmp_path) == frozenset()


def test_of_a_claim_that_did_not_come_to_be_nothing_is_known(
    file: StartedLog, tmp_path: Path
) -> None:
    """The same attempt may begin from another cell, or from none."""
    place = file.enter("a", 1)
    file.revoke(place)
    assert unbegun(tmp_path) == frozenset()
    assert file.enter("a", 1) == place
    assert unbegun(tmp_path) == {("boot-1", "a", 1)}


@pytest.mark.parametrize("id", ["x" * CELL, "x" * (CELL - 2)], ids=["long", "just too long"])
def test_an_id_that_does_not_fit_has_no_cell(file: StartedLog, tmp_path: Path, id: str) -> None:
    assert file.enter(id, 1) == NOWHERE
    assert unbegun(tmp_path) == frozenset()


def test_the_longest_that_fits_is_known_whole(file: StartedLog, tmp_path: Path) -> None:
    id = "x" * (CELL - 3)
    assert file.enter(id, 1) != NOWHERE
    assert unbegun(tmp_path) == {("boot-1", id, 1)}


@pytest.mark.parametrize("id", ["\udc80", "a\0b", "", "with a space 7"])
def test_an_odd_id_does_no_harm(file: StartedLog, tmp_path: Path, id: str) -> None:
    file.enter(id, 1)
    file.enter("a", 1)
    assert ("boot-1", "a", 1) in unbegun(tmp_path)


def test_after_a_boot_of_the_kernel_nothing_is_known(
    file: StartedLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the slots had noted may not have come to the disk."""
    file.enter("a", 1)
    other = tmp_path / "boot_id"
    other.write_text("another boot\n")
    monkeypatch.setattr(started_log, "_KERNEL_BOOT", other)
    assert unbegun(tmp_path) == frozenset()


def test_where_the_kernel_does_not_name_its_boot_nothing_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(started_log, "_KERNEL_BOOT", tmp_path / "absent")
    file = StartedLog(tmp_path, "boot-1", cells=1)
    file.stand()
    file.enter("a", 1)
    file.close()
    assert unbegun(tmp_path) == frozenset()


@pytest.mark.parametrize(
    "text",
    [None, b"", b"\0" * 500, b"boot-1", b"\xff" * 1000, b"boot-1 \n" + b"x" * 5000],
    ids=["none", "empty", "zeros", "cut", "binary", "another file"],
)
def test_a_file_that_says_nothing_is_no_evidence(tmp_path: Path, text: bytes | None) -> None:
    if text is not None:
        (tmp_path / "started_log").write_bytes(text)
    assert unbegun(tmp_path) == frozenset()


def test_a_file_that_was_cut_says_what_is_left(file: StartedLog, tmp_path: Path) -> None:
    file.enter("a", 1)
    file.enter("b", 1)
    os.truncate(tmp_path / "started_log", started_log.HEAD + 2 * CELL + 10)
    assert unbegun(tmp_path) <= {("boot-1", "a", 1), ("boot-1", "b", 1)}


def test_the_file_of_the_boot_before_stays_until_the_next_one_stands(
    file: StartedLog, tmp_path: Path
) -> None:
    file.enter("a", 1)
    following = StartedLog(tmp_path, "boot-2", cells=3)
    following.enter("b", 1)
    assert unbegun(tmp_path) == {("boot-1", "a", 1)}
    following.stand()
    assert unbegun(tmp_path) == {("boot-2", "b", 1)}
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
    file.enter("a", 1)
    cannot_be_written(file, tmp_path / "started_log")
    assert file.enter("b", 1) == NOWHERE
    assert file.enter("c", 1) == NOWHERE
    assert unbegun(tmp_path) == frozenset()


def test_nor_where_a_claim_cannot_be_revoked(file: StartedLog, tmp_path: Path) -> None:
    place = file.enter("a", 1)
    cannot_be_written(file, tmp_path / "started_log")
    file.revoke(place)
    assert unbegun(tmp_path) == frozenset()


def test_one_that_failed_before_it_stood_does_not(tmp_path: Path) -> None:
    file = StartedLog(tmp_path, "boot-1", cells=3)
    cannot_be_written(file, tmp_path / "started_log.new")
    assert file.enter("a", 1) == NOWHERE
    file.stand()
    file.close()
    assert list(tmp_path.iterdir()) == []


def test_a_disk_without_room_for_all_of_it_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slot that is told of a place beyond its end would die of every launch."""
    write = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, text, at: write(fd, text[:200], at))
    with pytest.raises(OSError, match="No space left") as refused:
        StartedLog(tmp_path, "boot-1", cells=3)
    assert refused.value.filename == str(tmp_path / "started_log.new")


def test_what_was_left_of_a_start_that_broke_off_is_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "started_log.new")
    file = StartedLog(tmp_path, "boot-1", cells=3)
    file.enter("a", 1)
    file.stand()
    file.close()
    assert unbegun(tmp_path) == {("boot-1", "a", 1)}


@pytest.mark.parametrize("kind", [os.mkfifo, os.mkdir], ids=["a pipe", "a directory"])
def test_what_is_no_file_is_no_evidence(tmp_path: Path, kind: Callable[[Path], None]) -> None:
    kind(tmp_path / "started_log")
    assert unbegun(tmp_path) == frozenset()


def test_a_link_is_no_evidence(file: StartedLog, tmp_path: Path) -> None:
    file.enter("a", 1)
    (tmp_path / "started_log").rename(tmp_path / "elsewhere")
    (tmp_path / "started_log").symlink_to(tmp_path / "elsewhere")
    assert unbegun(tmp_path) == frozenset()
