"""The files of an open SQLite ledger, compared with the files that are at its path now.

SQLite keeps using the files that it has opened. If they are moved, deleted or replaced, its commits
succeed, but no other process and no later start sees them.
"""

from __future__ import annotations

import os
from pathlib import Path

from ductile import files
from ductile.errors import LedgerError, LedgerMoved

FILES = ("", "-wal", "-shm")
"""Suffixes of the files that SQLite keeps open."""
_DELETED = " (deleted)"
"""What the kernel appends to the path of a descriptor whose file has no name any more."""


def check_access(path: Path, *, read_only: bool) -> None:
    """Raise `LedgerError` if this user cannot use a file of the ledger that exists."""
    wanted = os.R_OK if read_only else os.R_OK | os.W_OK
    for suffix in FILES:
        file = path.with_name(path.name + suffix)
        try:
            usable = not file.exists() or os.access(file, wanted)
        except OSError as error:
            raise LedgerError(f"the ledger {path} cannot be read: {error.strerror}") from error
        if not usable:
            raise LedgerError(files.describe_access(file))


def refuse_lost_database(path: Path) -> None:
    """Raise `LedgerError` for a WAL with data whose database is missing or empty.

    SQLite would discard the WAL, and with it the newest commits.
    """
    wal = path.with_name(f"{path.name}-wal")
    if _size(path) == 0 and _size(wal) > 0:
        raise LedgerError(
            f"the ledger {path} is missing, but its newest commits are in {wal}; put the database "
            "back next to it, or restore a backup (ductile system restore); to start with an empty "
            f"ledger, move {wal} away"
        )


def _size(path: Path) -> int:
    """The size of a file; 0 if it does not exist."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


class OpenFiles:
    """Created after SQLite has opened its files; `close` releases the descriptors.

    The descriptors are `O_PATH`: closing any other one would drop SQLite's locks.
    """

    def __init__(self, path: Path) -> None:
        self._opened: list[tuple[Path, int, tuple[int, int]]] = []
        for suffix in FILES:
            file = path.with_name(path.name + suffix)
            try:
                descriptor = os.open(file, os.O_PATH | os.O_CLOEXEC)
            except FileNotFoundError:
                continue
            self._opened.append((file, descriptor, _identity(os.fstat(descriptor))))

    def check(self) -> None:
        """Raise `LedgerMoved` unless every file is still at its path."""
        for path, descriptor, identity in self._opened:
            try:
                found: os.stat_result | None = path.stat()
            except FileNotFoundError:
                found = None
            except OSError as error:
                raise LedgerMoved(f"{path} cannot be reached: {error.strerror}") from error
            if found is None or _identity(found) != identity:
                raise LedgerMoved(_describe(path, descriptor, is_replaced=found is not None))

    def close(self) -> None:
        while self._opened:
            os.close(self._opened.pop()[1])


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


def _describe(path: Path, descriptor: int, *, is_replaced: bool) -> str:
    if os.fstat(descriptor).st_nlink == 0:
        what = f"{path} was {'deleted and replaced' if is_replaced else 'deleted'}"
        then = "stop the gateway and restore a backup (ductile system restore)"
    else:
        place = _current_path(descriptor)
        replaced = " and replaced" if is_replaced else ""
        what = f"{path} was moved to {place}{replaced}"
        then = "move it back; the gateway then continues"
    return f"{what} while the gateway uses it; nothing is written any more; {then}"


def _current_path(descriptor: int) -> str:
    """Where the file is now, as far as the kernel knows."""
    place = str(Path(f"/proc/self/fd/{descriptor}").readlink())
    return "another name" if place.endswith(_DELETED) else place
