"""The lines in which a file differs from its sealed text."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import pytest

from ductile.config.checksums import Seal
from ductile.config.sealed_text import describe_lines, find_changed_lines, keep_texts

BEFORE = [b"a", b"b", b"c", b"d", b"e"]


@pytest.mark.parametrize(
    ("after", "shown"),
    [
        ([b"a", b"B", b"c", b"d", b"e"], "line 2"),
        ([b"a", b"B", b"c", b"d", b"e", b"f"], "lines 2, 6"),
        ([b"a", b"c", b"d", b"e"], "line 2"),
        ([b"x", b"a", b"b", b"y", b"z", b"d", b"e"], "lines 1, 4-5"),
        ([], "line 1"),
    ],
)
def test_changed_lines_are_named(after: list[bytes], shown: str) -> None:
    assert describe_lines(find_changed_lines(b"\n".join(BEFORE), b"\n".join(after))) == shown


def test_equal_texts_have_no_changed_lines() -> None:
    assert find_changed_lines(b"a\nb", b"a\nb") == []


def test_large_difference_is_one_range() -> None:
    before = b"same\n" + b"x\ny\n" * 1000 + b"same"
    after = b"same\n" + b"y\nz\n" * 1000 + b"same"
    assert find_changed_lines(before, after) == [(2, 2001)]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can change owners")
def test_root_removes_nothing_through_a_link_of_the_owner(tmp_path: Path) -> None:
    state, others = tmp_path / "state", tmp_path / "others"
    for path in (state, others):
        path.mkdir()
    (others / "file").touch()
    (state / "sealed").symlink_to(others)
    os.chown(state, 65534, 65534)
    with suppress(PermissionError):
        keep_texts(state, Seal(tmp_path / ".checksums"))
    assert (others / "file").exists()
