"""The private temporary directories of sandboxed jobs."""

from __future__ import annotations

import contextlib
import os

_MAX_REMOVED = 10_000


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
                removed += remove_directory(path)
    return removed


def remove_directory(path: str) -> bool:
    """Remove a tree that no process uses; false if some of it is left.

    Bounded: a slot has its next job to start. What is left is removed at the start of a gateway.
    """
    try:
        os.rmdir(path)
    except OSError:
        pass
    else:
        return True
    removed = 0
    try:
        os.chmod(path, 0o700)
        for here, folders, files in os.walk(path, topdown=True):
            for name in folders:
                if not os.path.islink(os.path.join(here, name)):
                    os.chmod(os.path.join(here, name), 0o700)
            removed += len(files) + len(folders)
            if removed > _MAX_REMOVED:
                return False
        for here, folders, files in os.walk(path, topdown=False):
            for name in files:
                os.unlink(os.path.join(here, name))
            for name in folders:
                inner = os.path.join(here, name)
                (os.unlink if os.path.islink(inner) else os.rmdir)(inner)
        os.rmdir(path)
    except OSError:
        return False
    return True
