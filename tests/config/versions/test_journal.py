"""Several files are replaced as a whole, whatever happens in between."""

from __future__ import annotations

import json
import os
import signal
import stat
from pathlib import Path

import pytest

from ductile import failpoint
from ductile.config.versions.journal import (
    JOURNAL,
    FileReplacement,
    finish_interrupted,
    replace_files,
)
from ductile.errors import ConfigError, Refused


def replacements(root: Path) -> list[FileReplacement]:
    return [
        FileReplacement(root / "a.yaml", b"a1", b"a2"),
        FileReplacement(root / "sub" / "new.yaml", None, b"n2", 0o640),
        FileReplacement(root / "old.yaml", b"o1", None, moved_to=root / "old.yaml.away"),
    ]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "sub").mkdir()
    (tmp_path / "a.yaml").write_bytes(b"a1")
    (tmp_path / "a.yaml").chmod(0o604)
    (tmp_path / "old.yaml").write_bytes(b"o1")
    return tmp_path


def content(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file() and not path.name.endswith(".staged")
    }


BEFORE = {"a.yaml": b"a1", "old.yaml": b"o1"}
AFTER = {"a.yaml": b"a2", "sub/new.yaml": b"n2", "old.yaml.away": b"o1"}


def test_files_are_replaced_with_their_modes(root: Path) -> None:
    replace_files(root, replacements(root))
    assert content(root) == AFTER
    modes = [stat.S_IMODE((root / name).stat().st_mode) for name in ("a.yaml", "sub/new.yaml")]
    assert modes == [0o604, 0o640]
    assert list(root.rglob("*.staged")) == []


def test_missing_directory_is_created_only_if_files_are_replaced(root: Path) -> None:
    """As after the restore of an archive on a new machine."""
    wanted = [*replacements(root), FileReplacement(root / "conf" / "more" / "x", None, b"x")]
    (root / "sub").rmdir()
    (root / "old.yaml").write_bytes(b"changed")
    with pytest.raises(Refused, match="has changed meanwhile"):
        replace_files(root, wanted)
    assert {path.name for path in root.iterdir()} == {"a.yaml", "old.yaml"}
    (root / "old.yaml").write_bytes(b"o1")
    replace_files(root, wanted)
    assert content(root) == {**AFTER, "conf/more/x": b"x"}
    assert stat.S_IMODE((root / "conf").stat().st_mode) == 0o700


def kill_at(point: str, count: int, root: Path) -> None:
    """Replace the files in a process that is killed at a failpoint."""
    pid = os.fork()
    if pid == 0:
        failpoint._name, failpoint._left = point, count
        replace_files(root, replacements(root))
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL


@pytest.mark.parametrize(
    ("point", "count", "expected"),
    [
        ("replace.staged", 1, BEFORE),
        ("replace.journaled", 1, AFTER),
        ("replace.renamed", 1, AFTER),
        ("replace.renamed", 2, AFTER),
        ("replace.renamed", 3, AFTER),
    ],
)
def test_crash_leaves_all_files_or_none(
    root: Path, point: str, count: int, expected: dict[str, bytes]
) -> None:
    kill_at(point, count, root)
    finish_interrupted(root)
    assert content(root) == expected
    # The next replacement is not disturbed by what the crash has left.
    if expected is BEFORE:
        replace_files(root, replacements(root))
        assert content(root) == AFTER


def test_file_that_was_changed_after_the_crash_is_not_overwritten(root: Path) -> None:
    kill_at("replace.journaled", 1, root)
    (root / "a.yaml").write_bytes(b"by hand")
    with pytest.raises(ConfigError, match="changed since"):
        finish_interrupted(root)
    assert (root / "a.yaml").read_bytes() == b"by hand"
    assert (root / "old.yaml").exists()


def test_replacement_without_its_staged_file_is_not_completed_in_part(root: Path) -> None:
    kill_at("replace.journaled", 1, root)
    replacements(root)[1].staged.unlink()
    with pytest.raises(ConfigError, match="changed since"):
        finish_interrupted(root)
    assert content(root).items() >= BEFORE.items()


def test_file_that_has_changed_is_not_replaced(root: Path) -> None:
    (root / "old.yaml").write_bytes(b"changed")
    with pytest.raises(Refused, match="has changed meanwhile"):
        replace_files(root, replacements(root))
    assert content(root) == {**BEFORE, "old.yaml": b"changed"}
    assert list(root.rglob("*.staged")) == []


@pytest.mark.parametrize(
    "row",
    [
        {"path": "/etc/passwd", "target": "/etc/shadow", "before": None, "after": "00"},
        {"path": "/etc/passwd", "target": "/tmp/passwd.x", "before": None, "after": None},
        {"path": "a.yaml", "target": "a.yaml", "before": None, "after": "00"},
    ],
)
def test_journal_with_other_renames_is_refused(root: Path, row: dict[str, str | None]) -> None:
    (root / JOURNAL).write_text(json.dumps({"version": 1, "files": [row]}))
    with pytest.raises(ConfigError, match="cannot be completed"):
        finish_interrupted(root)
