"""Replace several files as a whole: after a crash at any point, all of them or none.

The new files are written next to the old ones, then a journal in the directory of config.yaml
names them, then they are renamed. Until the journal exists nothing has changed; from then on every
process that reads the configuration completes the renames first.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from blake3 import blake3

from ductile._fast_dataclass import dataclass
from ductile.config.loader.files import lock_directories, replace, set_access, sync_directory
from ductile.errors import ConfigError, Problem, Refused
from ductile.failpoint import failpoint
from ductile.files import as_owner, create, give_to_owner

JOURNAL = ".replacing"
STAGED = "staged"
"""The suffix of a new file, whose name begins with a dot: no include reads it."""


@dataclass(frozen=True, slots=True)
class FileReplacement:
    """A file before and after; None where there is no file."""

    path: Path
    """Without symlinks."""
    before: bytes | None
    after: bytes | None
    """None moves the file to `moved_to`; nothing is deleted."""
    mode: int = 0o600
    """Of a new file; one that exists keeps its mode and owner."""
    owner: tuple[int, int] | None = None
    moved_to: Path | None = None

    @property
    def staged(self) -> Path:
        return self.path.with_name(f".{self.path.name}.{STAGED}")


def replace_files(root: Path, files: Iterable[FileReplacement]) -> None:
    """Replace the files as a whole; `root` is the directory of config.yaml.

    Raises `Refused`, with nothing changed, if a file is not as it was, or cannot be written.
    """
    changed = [file for file in files if file.before != file.after]
    if not changed:
        return
    staged: list[Path] = []
    created: list[Path] = []
    try:
        for file in changed:
            _create_directory(file.path.parent, created)
        with lock_directories([root, *(file.path.parent for file in changed)]):
            for file in changed:
                _check_unchanged(file)
            for file in changed:
                if file.after is not None:
                    staged.append(file.staged)
                    _stage(file, file.after)
            # The journal must not be durable before the names of the files that it refers to.
            for directory in {path.parent for path in staged}:
                sync_directory(directory)
            failpoint("replace.staged")
            replace(root / JOURNAL, json.dumps(_describe(changed)).encode())
            staged.clear()
            created.clear()
            failpoint("replace.journaled")
            _complete(root, [_JournalEntry.of(file) for file in changed])
    except OSError as error:
        raise Refused(
            f"cannot write {error.filename or root}: {error.strerror}; the user of the gateway "
            "needs to write to the directory"
        ) from error
    finally:
        for path in staged:
            path.unlink(missing_ok=True)
        for path in reversed(created):
            with suppress(OSError):
                path.rmdir()


def _create_directory(path: Path, created: list[Path]) -> None:
    """Create a directory durably, with its missing parents; they are added to `created`."""
    for directory in (*reversed(path.parents), path):
        if not directory.is_dir():
            create(directory)
            created.append(directory)
            sync_directory(directory.parent)


def _check_unchanged(file: FileReplacement) -> None:
    if _read(file.path) != file.before:
        raise Refused(f"{file.path} has changed meanwhile; nothing was written; try again")


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _stage(file: FileReplacement, data: bytes) -> None:
    file.staged.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(file.staged, flags, 0o600)
    with os.fdopen(descriptor, "wb") as target:
        target.write(data)
        target.flush()
        _give_access(file, descriptor)
        os.fsync(descriptor)


def _give_access(file: FileReplacement, descriptor: int) -> None:
    """Keep the owner and mode of the file that is replaced, or those of its earlier version."""
    try:
        old = file.path.stat()
        owner, mode = (old.st_uid, old.st_gid), stat.S_IMODE(old.st_mode)
    except FileNotFoundError:
        if os.geteuid() != 0 or file.owner is None:
            give_to_owner(file.staged, descriptor)
            os.fchmod(descriptor, file.mode)
            return
        owner, mode = file.owner, file.mode
    set_access(descriptor, *owner, mode)


@dataclass(frozen=True, slots=True)
class _JournalEntry:
    """A rename that the journal names, and the hashes of the file before and after it."""

    path: Path
    source: Path
    target: Path
    before: str | None
    after: str | None

    @classmethod
    def of(cls, file: FileReplacement) -> _JournalEntry:
        before, after = _hash(file.before), _hash(file.after)
        if file.after is not None:
            return cls(file.path, file.staged, file.path, before, after)
        assert file.moved_to is not None
        return cls(file.path, file.path, file.moved_to, before, after)

    @classmethod
    def parse(cls, row: Mapping[str, Any]) -> _JournalEntry:
        """Raises `ValueError` for a rename that this module would not have written."""
        path, target = Path(row["path"]), Path(row["target"])
        staged = path.with_name(f".{path.name}.{STAGED}")
        source = staged if row["after"] is not None else path
        is_move = source == path and target.name.startswith(f"{path.name}.")
        if (
            not path.is_absolute()
            or target.parent != path.parent
            or not (target == path or is_move)
        ):
            raise ValueError(str(path))
        return cls(path, source, target, row["before"], row["after"])

    def describe(self) -> dict[str, str | None]:
        return {
            "path": str(self.path),
            "target": str(self.target),
            "before": self.before,
            "after": self.after,
        }


def _hash(data: bytes | None) -> str | None:
    return None if data is None else blake3(data).hexdigest()


def _describe(files: Iterable[FileReplacement]) -> dict[str, Any]:
    return {"version": 1, "files": [_JournalEntry.of(file).describe() for file in files]}


def _complete(root: Path, entries: Iterable[_JournalEntry]) -> None:
    directories = set()
    for entry in entries:
        if os.path.lexists(entry.source):
            os.rename(entry.source, entry.target)  # noqa: PTH104 - never follows a link
        directories.add(entry.path.parent)
        failpoint("replace.renamed")
    for directory in directories:
        sync_directory(directory)
    (root / JOURNAL).unlink(missing_ok=True)
    sync_directory(root)


def finish_interrupted(root: Path) -> None:
    """Complete a replacement that a crash has interrupted, before the files are read.

    Raises `ConfigError` if this process cannot, or if a file was changed since.
    """
    if not os.path.lexists(root / JOURNAL):
        return
    try:
        # As root, only with the rights of the owner of the directory, who can write any journal.
        with as_owner(root), lock_directories([root]):
            entries = _read_journal(root)
            if entries is None:
                return
            for entry in entries:
                if not _can_complete(entry):
                    raise ConfigError([_conflict(root, entry)])
            _complete(root, entries)
    except (OSError, ValueError, KeyError, TypeError) as error:
        message = (
            f"the replacement of the files was interrupted and cannot be completed: {error}; "
            "run this command as the owner of the directory"
        )
        raise ConfigError([Problem(message, file=str(root / JOURNAL))]) from error


def _read_journal(root: Path) -> list[_JournalEntry] | None:
    """The renames of the journal; None if another process has just completed them."""
    data = _read(root / JOURNAL)
    if data is None:
        return None
    return [_JournalEntry.parse(row) for row in json.loads(data)["files"]]


def _can_complete(entry: _JournalEntry) -> bool:
    """Whether the rename was made, or both of its files are as the journal names them."""
    found = _hash(_read(entry.path))
    if found == entry.after:
        return True
    return found == entry.before and entry.after in (None, _hash(_read(entry.source)))


def _conflict(root: Path, entry: _JournalEntry) -> Problem:
    return Problem(
        "the replacement of the files was interrupted, and this file, or its staged version, "
        f"was changed since; to keep the files as they are, delete {root / JOURNAL}",
        file=str(entry.path),
    )
