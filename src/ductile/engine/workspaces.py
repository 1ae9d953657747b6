"""One directory per job, cloned on every hop, so that branches cannot change each other's files."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator, Set
from contextlib import contextmanager
from datetime import datetime, timedelta
from operator import attrgetter
from pathlib import Path

from ductile import files
from ductile.log import logger
from ductile.model import Job
from ductile.runner.sandbox.temporary import remove_directory

LONGEST_MARKER = 100
FICLONE = 0x40049409
"""The ioctl that shares the blocks of a file until one copy is written (reflink)."""


MARKER = ".ductile-workspaces"
"""A file in a directory that several nodes share: all of them read the same id from it."""


def read_marker(root: Path, new_id: str) -> str:
    """The id in the marker of a shared directory, which gets `new_id` if it has no marker."""
    files.create(root)
    marker, draft = root / MARKER, root / f"{MARKER}.{new_id}"
    if not marker.exists():
        draft.write_text(new_id, encoding="ascii")
        # A link appears with its content, and only one node can create it.
        with contextlib.suppress(FileExistsError):
            os.link(draft, marker)
        draft.unlink()
    with marker.open(encoding="ascii", errors="replace") as file:
        return file.read(LONGEST_MARKER)


class Workspaces:
    """The job directories below `root`.

    `wanted` decides whether the jobs of a pipeline have one; '' is a job outside of pipelines.
    `first` are the steps whose parent job, if any, belongs to another pipeline; `dependent` are
    those that fail without the files of the step before them.
    """

    def __init__(
        self,
        root: Path,
        wanted: Callable[[str], bool],
        *,
        first: Set[tuple[str, str]] = frozenset(),
        dependent: Set[tuple[str, str]] = frozenset(),
        hardlink: bool = False,
    ) -> None:
        self._root, self._wanted, self._first, self._hardlink = root, wanted, first, hardlink
        self._dependent = dependent

    def wants(self, job: Job) -> bool:
        """Whether the job has a directory."""
        return self._wanted(job.pipeline)

    def provide(self, job: Job) -> str | None:
        """Create the job's directory for this attempt: a clone of its parent's, or empty."""
        if not self.wants(job):
            return None
        own = self.path(job.id)
        partial = own.with_name(f".{own.name}")
        files.create(self._root)
        for leftover in (partial, own):
            remove_tree(leftover)
        if (warning := self.describe_missing_files(job)) is not None:
            logger("worker").warning(warning, plugin=job.plugin, job_id=job.id)
        source = self.find_source(job)
        try:
            if source is not None:
                copy_tree(source, partial, _link_file if self._hardlink else None)
            else:
                partial.mkdir(mode=0o700)
            partial.chmod(0o700)
        except OSError:
            # An incomplete copy is useless, and may be what fills the disk.
            remove_tree(partial)
            raise
        # Complete or absent: a crash leaves only the name of the partial copy.
        partial.rename(own)
        return str(own)

    def find_source(self, job: Job) -> Path | None:
        """The directory that the job's files are copied from; None if it starts empty."""
        parent = self.path(job.parent_job_id) if job.parent_job_id else None
        return parent if parent is not None and parent.is_dir() else None

    def find_failure(self, job: Job) -> str | None:
        """Why the job cannot run without the files of the previous step; None if it can."""
        if (job.pipeline, job.step_path) not in self._dependent:
            return None
        if self.describe_missing_files(job) is None:
            return None
        return (
            f"the files of the previous job {job.parent_job_id} are not in {self._root}: they were "
            "removed (service.workspace_retention), or are on another node (state.workspaces)"
        )

    def describe_missing_files(self, job: Job) -> str | None:
        """A warning if the files of the previous step are gone; None otherwise.

        Unless `find_failure` says otherwise the job runs anyway: it may not need them, as
        when every pipeline has workspaces.
        """
        follows = job.parent_job_id and (job.pipeline, job.step_path) not in self._first
        if not follows or not self.wants(job) or self.find_source(job) is not None:
            return None
        parent = f"the files of the previous job {job.parent_job_id} are gone"
        return f"{parent} (service.workspace_retention); the workspace starts empty"

    def path(self, job_id: str) -> Path:
        """The directory of a job. Raises `ValueError` for an id that leads out of the root."""
        if job_id in ("", ".", "..") or "/" in job_id or "\0" in job_id:
            raise ValueError(f"{job_id!r} is not a valid job id")
        return self._root / job_id

    def sweep(self, now: datetime, retention: float, in_use: Callable[[str], bool]) -> int:
        """Remove directories that are not in use and past retention; returns how many."""
        if not self._root.is_dir():
            return 0
        removed = 0
        before = (now - timedelta(seconds=retention)).timestamp()
        for entry in os.scandir(self._root):
            if entry.name == MARKER:
                continue
            with contextlib.suppress(FileNotFoundError):
                old = entry.stat(follow_symlinks=False).st_mtime < before
                if old and not in_use(entry.name.lstrip(".")):
                    if entry.is_dir(follow_symlinks=False):
                        remove_tree(Path(entry.path))
                    else:
                        os.unlink(entry.path)  # noqa: PTH108 - a scandir entry is a path
                    removed += 1
        return removed


def copy_tree(source: Path, target: Path, copy: Callable[[str, str], object] | None = None) -> None:
    """Copy a tree without recursion; stops at the first error and raises it.

    By default files are cloned.
    """
    copy, copied = copy or _FileCloner(source), []
    pending = [(str(source), str(target))]
    while pending:
        here, there = pending.pop()
        os.mkdir(there, 0o700)  # noqa: PTH102 - a scandir entry is a path
        copied.append((here, there))
        with os.scandir(here) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    pending.append((entry.path, f"{there}/{entry.name}"))
                else:
                    copy(entry.path, f"{there}/{entry.name}")
    # Last, because a read-only directory has to be filled first.
    for here, there in reversed(copied):
        shutil.copystat(here, there)


def _link_file(source: str, target: str) -> None:
    if stat.S_ISLNK(os.lstat(source).st_mode):
        shutil.copy2(source, target, follow_symlinks=False)
    else:
        os.link(source, target)


class _FileCloner:
    """Clones the files of a tree by sharing their blocks, or copies them.

    Nothing is copied if the whole tree would fill the disk, on which the ledger may be.
    """

    def __init__(self, tree: Path) -> None:
        self._tree, self._may_copy = tree, False

    def __call__(self, source: str, target: str) -> None:
        mode = os.lstat(source).st_mode
        if stat.S_ISLNK(mode):
            shutil.copy2(source, target, follow_symlinks=False)
        # A socket or FIFO is useless in another job's directory.
        if not stat.S_ISREG(mode):
            return
        with open(source, "rb") as reader, open(target, "wb") as writer:  # noqa: PTH123
            try:
                fcntl.ioctl(writer.fileno(), FICLONE, reader.fileno())
            except OSError:
                self._check_free_space(target)
                shutil.copyfileobj(reader, writer)
        shutil.copystat(source, target)

    def _check_free_space(self, target: str) -> None:
        if self._may_copy:
            return
        size, free = _measure(self._tree), shutil.disk_usage(target).free
        if size > free:
            text = f"the files to copy need {size >> 20} MiB, but {free >> 20} MiB are free on the "
            raise OSError(errno.ENOSPC, f"{text}disk of {self._tree.parent}")
        self._may_copy = True


def _measure(tree: Path) -> int:
    """The total size of the regular files in bytes."""
    found = 0
    for entry in walk_tree(tree):
        about = entry.stat(follow_symlinks=False)
        found += about.st_size if stat.S_ISREG(about.st_mode) else 0
    return found


def remove_tree(tree: Path) -> None:
    """Remove a directory with its content, as far as possible; nothing if there is none."""
    if os.path.lexists(tree):
        remove_directory(str(tree), sys.maxsize)


@contextmanager
def temporary_tree() -> Iterator[Path]:
    """A new directory for files of plugins, without symlinks on its path."""
    tree = Path(tempfile.mkdtemp(prefix="ductile-")).resolve()
    try:
        yield tree
    finally:
        remove_tree(tree)


def walk_tree(tree: Path) -> Iterator[os.DirEntry[str]]:
    """Everything below a directory, each directory before its content; follows no link.

    Plugins write these trees: their depth is that of the longest path, not that of the stack. What
    cannot be read is left out.
    """
    pending = [str(tree)]
    while pending:
        try:
            with os.scandir(pending.pop()) as entries:
                found = sorted(entries, key=attrgetter("name"))
        except OSError:
            continue
        yield from found
        inner = [entry.path for entry in found if entry.is_dir(follow_symlinks=False)]
        pending += reversed(inner)
