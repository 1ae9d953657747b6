"""Directories that we make are their owner's alone, all the way down."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ductile import files


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077, 0o777])
def test_every_one_that_is_made_is_private_whatever_the_umask(tmp_path: Path, mask: int) -> None:
    with umask(mask):
        files.create(tmp_path / "a" / "b" / "c")
    assert [mode(tmp_path / name) for name in ("a", "a/b", "a/b/c")] == [0o700] * 3


def test_one_that_exists_keeps_its_mode(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a").chmod(0o755)
    files.create(tmp_path / "a" / "b")
    files.create(tmp_path / "a")
    assert mode(tmp_path / "a") == 0o755


def test_a_relative_path_is_made_from_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    files.create(Path("a") / ".." / "b")
    assert mode(tmp_path / "b") == 0o700


def test_one_that_another_makes_meanwhile_is_taken_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mkdir = Path.mkdir

    def overtaken(path: Path, mode: int = 0o777) -> None:
        mkdir(path, 0o755)
        mkdir(path, mode)

    monkeypatch.setattr(Path, "mkdir", overtaken)
    files.create(tmp_path / "a")
    assert mode(tmp_path / "a") == 0o755


@pytest.mark.parametrize("name", ["file", "file/below", "dangling"])
def test_file_in_place_of_a_directory_is_an_error(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "dangling").symlink_to("nowhere")
    with pytest.raises(OSError, match=name.partition("/")[0]):
        files.create(tmp_path / name)


@pytest.mark.parametrize("link", ["symlink_to", "hardlink_to"])
def test_new_file_replaces_a_link_and_leaves_its_target(tmp_path: Path, link: str) -> None:
    target, path = tmp_path / "target", tmp_path / "new"
    target.write_text("kept")
    getattr(path, link)(target)
    descriptor = files.open_new(path)
    try:
        os.write(descriptor, b"new")
    finally:
        os.close(descriptor)
    assert (target.read_text(), path.read_text()) == ("kept", "new")
    assert not path.is_symlink()
    assert mode(path) == 0o600


def test_link_that_appears_while_a_new_file_is_opened_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, path = tmp_path / "target", tmp_path / "new"
    target.write_text("kept")

    def replant(link: Path, *, missing_ok: bool) -> None:
        assert missing_ok
        link.symlink_to(target)

    monkeypatch.setattr(Path, "unlink", replant)
    with pytest.raises(FileExistsError):
        files.open_new(path)
    assert target.read_text() == "kept"
