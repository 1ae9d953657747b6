"""A temporary copy of a job's workspace for one dry run."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ductile.engine.services import Services
from ductile.engine.workspaces import copy_tree, remove_tree, walk_tree
from ductile.model import Job


@contextmanager
def sandbox(gateway: Services, job: Job) -> Iterator[tuple[Path, Path | None]]:
    """A directory with a copy of the job's initial files, and the path they came from.

    Always a copy, never hard links: what the plugin writes must not change other files.
    """
    source = gateway.compiled.workspaces.find_source(job)
    root = gateway.state_dir / "sandbox"
    root.mkdir(mode=0o700, exist_ok=True)
    box = root / gateway.entropy.uuid()
    try:
        if source is None:
            box.mkdir(mode=0o700)
        else:
            copy_tree(source, box)
        yield box, source
    finally:
        remove_tree(box)
        with contextlib.suppress(OSError):
            root.rmdir()


def measure_tree(tree: Path, most: int) -> int:
    """The total size of the regular files in bytes, or the first sum above `most`."""
    found = 0
    for entry in walk_tree(tree):
        with contextlib.suppress(FileNotFoundError):
            about = entry.stat(follow_symlinks=False)
            found += about.st_size if stat.S_ISREG(about.st_mode) else 0
        if found > most:
            return found
    return found


def files_below(box: Path) -> dict[str, tuple[int, int]]:
    """Every file with its size and modification time."""
    found = {}
    for entry in walk_tree(box):
        with contextlib.suppress(OSError):
            about = entry.stat(follow_symlinks=False)
            if not stat.S_ISDIR(about.st_mode):
                name = os.path.relpath(entry.path, box)
                found[name] = (about.st_size, about.st_mtime_ns)
    return found
