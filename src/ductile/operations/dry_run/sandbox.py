"""A temporary copy of a job's workspace for one dry run."""

from __future__ import annotations

import contextlib
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ductile.engine.services import Services
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
            shutil.copytree(source, box, symlinks=True, ignore=_special)
        yield box, source
    finally:
        shutil.rmtree(box, ignore_errors=True)
        with contextlib.suppress(OSError):
            root.rmdir()


def _special(directory: str, names: list[str]) -> set[str]:
    """The sockets, pipes and devices, which cannot be copied."""
    modes = {name: (Path(directory) / name).lstat().st_mode for name in names}
    plain = (stat.S_ISREG, stat.S_ISDIR, stat.S_ISLNK)
    return {name for name, mode in modes.items() if not any(kind(mode) for kind in plain)}


def files_below(box: Path) -> dict[str, tuple[int, int]]:
    """Every file with its size and modification time."""
    found = {}
    for path in box.rglob("*"):
        with contextlib.suppress(OSError):
            about = path.lstat()
            if not stat.S_ISDIR(about.st_mode):
                found[str(path.relative_to(box))] = (about.st_size, about.st_mtime_ns)
    return found
