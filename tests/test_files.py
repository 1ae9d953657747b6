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
def test_what_is_no_directory_stands_in_the_way(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "dangling").symlink_to("nowhere")
    with pytest.raises(OSError, match=name.partition("/")[0]):
        files.create(tmp_path / name)
