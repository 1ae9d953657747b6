"""The private temporary directories of sandboxed jobs."""

from __future__ import annotations

import contextlib
import itertools
import os

_MAX_REMOVED = 10_000
"""Entries of a tree."""
_MAX_LEFTOVER = 1_000_000
"""The same at the start of a gateway."""


def make_directory(parent: str) -> str:
    """A new directory in `parent`, which is created if only it is missing; without a state
    directory, as in a test of a plugin, in the system's directory for such files."""
    try:
        os.mkdir(parent, 0o700)
    except FileExistsError:
        pass
    except FileNotFoundError:
        parent = os.environ.get("TMPDIR", "/tmp")
    path = os.path.join(parent, os.urandom(12).hex())
    os.mkdir(path, 0o700)
    return path


def remove_leftovers(parent: str, before: float) -> int:
    """Remove directories that were last changed before this time; returns how many were."""
    try:
        names = os.listdir(parent)
    except FileNotFoundError:
        return 0
    removed = 0
    for name in names:
        path = os.path.join(parent, name)
        with contextlib.suppress(FileNotFoundError):
            if os.lstat(path).st_mtime < before:
                removed += remove_directory(path, _MAX_LEFTOVER)
    return removed


def remove_directory(path: str, most: int = _MAX_REMOVED) -> bool:
    """Remove a tree that no process uses; false if some of it is left.

    Bounded: a slot has its next job to start. What is left is removed at the start of a gateway.
    """
    try:
        os.rmdir(path)
    except OSError:
        if os.path.islink(path):
            return False
    else:
        return True
    # Emptied at the top, one after the other: a tree may be deeper than a path is long, and than
    # Python recurses.
    waiting, left = [path], most
    while waiting and left > 0:
        here = waiting.pop()
        with contextlib.suppress(OSError):
            os.chmod(here, 0o700)
            with os.scandir(here) as entries:
                found = list(itertools.islice(entries, left))
            left -= len(found)
            waiting += _empty(found, None if here == path else path)
        if here != path:
            with contextlib.suppress(OSError):
                os.rmdir(here)
    try:
        os.rmdir(path)
    except OSError:
        return False
    return True


def _empty(entries: list[os.DirEntry[str]], top: str | None) -> list[str]:
    """Remove files, and move directories to `top`; the directories."""
    found = []
    for entry in entries:
        with contextlib.suppress(OSError):
            if not entry.is_dir(follow_symlinks=False):
                os.unlink(entry.path)
                continue
            path = entry.path
            if top is not None:
                os.chmod(path, 0o700)
                path = os.path.join(top, os.urandom(12).hex())
                os.rename(entry.path, path)
            found.append(path)
    return found
