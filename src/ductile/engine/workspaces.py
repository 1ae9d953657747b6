"""One directory a job, cloned on every hop, so that no branch can change another's files."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import stat
from collections.abc import Callable, Set
from datetime import datetime, timedelta
from pathlib import Path

from ductile import files
from ductile.log import logger
from ductile.model import Job

FICLONE = 0x40049409
"""The ioctl by which a file system shares a file's blocks until one side is written."""


class Workspaces:
    """`wanted` says whether the jobs of a pipeline have one; '' is a job outside pipelines.

    `first` are the pipelines' steps whose parent, if any, is a job of something else.
    """

    def __init__(
        self,
        root: Path,
        wanted: Callable[[str], bool],
        *,
        first: Set[tuple[str, str]] = frozenset(),
        hardlink: bool = False,
    ) -> None:
        self._root, self._wanted, self._first, self._hardlink = root, wanted, first, hardlink

    def wants(self, job: Job) -> bool:
        """Whether the job has a directory at all."""
        return self._wanted(job.pipeline)

    def provide(self, job: Job) -> str | None:
        """The job's directory, fresh for this attempt: a clone of its parent's, or empty."""
        if not self.wants(job):
            return None
        own = self.path(job.id)
        making = own.with_name(f".{own.name}")
        files.create(self._root)
        for leftover in (making, own):
            shutil.rmtree(leftover, ignore_errors=True)
        if (gone := self.gone(job)) is not None:
            logger("worker").warning(gone, plugin=job.plugin, job_id=job.id)
        source = self.source(job)
        try:
            if source is not None:
                _copy_tree(source, making, _link if self._hardlink else _Cloning(source))
            else:
                making.mkdir(mode=0o700)
            making.chmod(0o700)
        except OSError:
            # Half a copy is of no use to anybody, and may be what fills the disk.
            shutil.rmtree(making, ignore_errors=True)
            raise
        # Complete or absent: a crash half-way leaves a name that nobody looks for.
        making.rename(own)
        return str(own)

    def source(self, job: Job) -> Path | None:
        """Where the files are that the job begins with; None where it begins with none."""
        parent = self.path(job.parent_job_id) if job.parent_job_id else None
        return parent if parent is not None and parent.is_dir() else None

    def gone(self, job: Job) -> str | None:
        """What became of the files of the step before it, where they are not there any more.

        No reason to refuse it: it may have no use for them, as where every pipeline has
        workspaces.
        """
        follows = job.parent_job_id and (job.pipeline, job.step_path) not in self._first
        if not follows or not self.wants(job) or self.source(job) is not None:
            return None
        parent = f"the files of job {job.parent_job_id}, which it was to begin with"
        return f"{parent}, are gone (service.workspace_retention): its directory is empty"

    def path(self, job_id: str) -> Path:
        """Where a job's files are. An id that would leave the directory has no such place."""
        if job_id in ("", ".", "..") or "/" in job_id or "\0" in job_id:
            raise ValueError(f"{job_id!r} is no job id")
        return self._root / job_id

    def sweep(self, now: datetime, retention: float, in_use: Callable[[str], bool]) -> int:
        """Remove directories whose job nobody needs and that are past retention."""
        if not self._root.is_dir():
            return 0
        removed = 0
        before = (now - timedelta(seconds=retention)).timestamp()
        for entry in os.scandir(self._root):
            with contextlib.suppress(FileNotFoundError):
                old = entry.stat(follow_symlinks=False).st_mtime < before
                if old and not in_use(entry.name.lstrip(".")):
                    if entry.is_dir(follow_symlinks=False):
                        shutil.rmtree(entry.path, ignore_errors=True)
                    else:
                        os.unlink(entry.path)  # noqa: PTH108 - a scandir entry is a path
                    removed += 1
        return removed


def _copy_tree(source: Path, target: Path, copy: Callable[[str, str], object]) -> None:
    """All that is below; stops at the first error, and raises that one, unlike `copytree`."""
    copied = []
    waiting = [(str(source), str(target))]
    while waiting:
        here, there = waiting.pop()
        os.mkdir(there, 0o700)  # noqa: PTH102 - a scandir entry is a path
        copied.append((here, there))
        with os.scandir(here) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    waiting.append((entry.path, f"{there}/{entry.name}"))
                else:
                    copy(entry.path, f"{there}/{entry.name}")
    # Last, for a directory that nobody may write to is filled as well.
    for here, there in reversed(copied):
        shutil.copystat(here, there)


def _link(source: str, target: str) -> None:
    if stat.S_ISLNK(os.lstat(source).st_mode):
        shutil.copy2(source, target, follow_symlinks=False)
    else:
        os.link(source, target)


class _Cloning:
    """Shares the blocks of a tree's files where the file system can; else copies them, unless all
    of them together would fill the disk, on which the ledger may be."""

    def __init__(self, tree: Path) -> None:
        self._tree, self._may_copy = tree, False

    def __call__(self, source: str, target: str) -> None:
        mode = os.lstat(source).st_mode
        if stat.S_ISLNK(mode):
            shutil.copy2(source, target, follow_symlinks=False)
        # A socket or FIFO means nothing in another job's directory.
        if not stat.S_ISREG(mode):
            return
        with open(source, "rb") as reader, open(target, "wb") as writer:  # noqa: PTH123
            try:
                fcntl.ioctl(writer.fileno(), FICLONE, reader.fileno())
            except OSError:
                self._check_room(target)
                shutil.copyfileobj(reader, writer)
        shutil.copystat(source, target)

    def _check_room(self, target: str) -> None:
        if self._may_copy:
            return
        size, free = _size(self._tree), shutil.disk_usage(target).free
        if size > free:
            told = f"the files to copy take {size >> 20} MiB, and {free >> 20} MiB are free on the "
            raise OSError(errno.ENOSPC, f"{told}disk of {self._tree.parent}")
        self._may_copy = True


def _size(tree: Path) -> int:
    """The bytes of its regular files."""
    found = 0
    for here, _, names in os.walk(tree):
        for name in names:
            about = os.lstat(f"{here}/{name}")
            found += about.st_size if stat.S_ISREG(about.st_mode) else 0
    return found
