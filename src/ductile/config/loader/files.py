"""Read the files of a configuration: each once, with a size limit, hashed as it is read."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from blake3 import blake3

from ductile._fast_dataclass import dataclass
from ductile.config.loader.nodes import Location
from ductile.errors import Problem
from ductile.files import give_to_owner

MAX_BYTES = 16 * 1024 * 1024
MAX_FILES = 1000
Drafts = Mapping[Path, bytes | None]
"""Content that replaces that of files; None for a file that is to be absent."""


@dataclass(frozen=True, slots=True)
class Source:
    """The bytes of a file and their BLAKE3 hash, from one read."""

    path: Path
    data: bytes
    digest: str

    def text(self) -> str | Problem:
        """The bytes as UTF-8 without a byte order mark."""
        return decode(self.data, str(self.path))


def decode(data: bytes, file: str) -> str | Problem:
    """The text of a file, or the place of the first byte that is not UTF-8."""
    if data.startswith((b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")):
        return Location(file, 1, 1).problem(
            "the file starts with a byte order mark; save it without one", allowed="UTF-8"
        )
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        before = data[: error.start]
        line = before.count(b"\n") + 1
        column = len(before[before.rfind(b"\n") + 1 :].decode(errors="replace")) + 1
        return Location(file, line, column).problem(
            "the file is not UTF-8 text", found=f"byte 0x{data[error.start]:02x}", allowed="UTF-8"
        )


class Reader:
    """Reads the files that a configuration consists of.

    `hashes` has every file that was read; `symlinks` has every symlink on the way from `/`, for
    the caller to allow or refuse. A symlink that leads out of its root is never followed.
    `drafts` replace the content of their files, whether they exist or not; None hides a file.
    """

    def __init__(self, root: Path, drafts: Drafts | None = None) -> None:
        self.root = root
        self._drafts = drafts or {}
        self.hashes: dict[Path, str] = {}
        self.symlinks: dict[Path, Location] = {}
        self.problems: list[Problem] = []
        self._full = False

    def read(self, path: Path, asked: Location) -> Source | None:
        """The file at `path`, which is named at `asked`; None, with a problem, on failure.

        If no other file names it, `asked` is in the file itself and the problem has no location.
        """
        if len(self.hashes) >= MAX_FILES:
            if not self._full:
                self._refuse(
                    path,
                    asked,
                    "the configuration has too many files",
                    f"at most {MAX_FILES} files",
                )
            self._full = True
            return None
        if self._drafts.get(path, b"") is None:
            self._refuse(path, asked, f"there is no file {path}; create it, or correct the path")
            return None
        real = self._resolve(path, asked)
        if real is None:
            return None
        try:
            draft = self._drafts.get(path)
            data = self._read_bytes(real) if draft is None else draft
        except OSError as error:
            reason = os.strerror(error.errno or errno.EIO)
            self._refuse(path, asked, f"cannot read {path}: {reason}")
            return None
        if data is None:
            self._refuse(path, asked, f"{path} is not a regular file", "a regular file")
            return None
        if len(data) > MAX_BYTES:
            self._refuse(path, asked, f"{path} is too large", f"at most {MAX_BYTES // 1024**2} MiB")
            return None
        digest = blake3(data).hexdigest()
        self.hashes[path] = digest
        return Source(path, data, digest)

    def exists(self, path: Path) -> bool:
        """Whether the path names anything; links are not followed."""
        if path in self._drafts:
            return self._drafts[path] is not None
        return os.path.lexists(path) or self.is_directory(path)

    def is_directory(self, path: Path) -> bool:
        """Whether it is a directory, or would be with the drafts."""
        return is_directory(path) or any(draft.parent == path for draft in self._present())

    def list_files(self, directory: Path, suffix: str) -> list[Path]:
        """See `list_files`; raises `OSError`."""
        found = list_files(directory, suffix) if is_directory(directory) else []
        new = {path for path in self._present() if path.parent == directory}
        new = {path for path in new if path.name.endswith(suffix) and path.name[0] != "."}
        return sorted(path for path in {*found, *new} if self.exists(path))

    def _present(self) -> list[Path]:
        return [path for path, data in self._drafts.items() if data is not None]

    def _read_bytes(self, real: Path) -> bytes | None:
        # O_NONBLOCK: opening a FIFO must not wait for a writer.
        # O_NOFOLLOW: the file that is opened is the one that was resolved and checked.
        descriptor = os.open(real, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return None
            with open(descriptor, "rb", closefd=False) as file:
                return file.read(MAX_BYTES + 1)
        finally:
            os.close(descriptor)

    def _resolve(self, path: Path, asked: Location) -> Path | None:
        root = self.root if path.is_relative_to(self.root) else path.parent
        try:
            for step in (*reversed(path.parents), path):
                if step.is_symlink():
                    self.symlinks.setdefault(step, asked)
            real = path.resolve(strict=path not in self._drafts)
        except FileNotFoundError:
            self._refuse(path, asked, f"there is no file {path}; create it, or correct the path")
            return None
        except (OSError, RuntimeError) as error:
            self._refuse(path, asked, f"cannot resolve {path}: {error}")
            return None
        if not real.is_relative_to(root.resolve()):
            why = f"{path} is a symlink out of {root}, to {real}"
            self._refuse(path, asked, why, "a target inside that directory")
            return None
        return real

    def _refuse(
        self, path: Path, asked: Location, message: str, allowed: str | None = None
    ) -> None:
        report = asked.problem if asked.file != str(path) else Problem
        self.problems.append(report(message, allowed=allowed))


@contextmanager
def lock_directories(directories: Iterable[Path]) -> Iterator[None]:
    """Serialize the processes that replace files in these directories."""
    with ExitStack() as stack:
        for directory in sorted(set(directories)):
            descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            stack.callback(os.close, descriptor)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield


def sync_directory(directory: Path) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def absolute(base: Path, path: Path | str) -> Path:
    """`path` relative to `base`, without `..`; symlinks are kept, so they can be reported."""
    return Path(os.path.normpath(base.absolute() / path))


def is_directory(path: Path) -> bool:
    """Whether it is a directory; false if that cannot be determined."""
    return os.path.isdir(path)  # noqa: PTH112 - the method raises PermissionError


def list_files(directory: Path, suffix: str) -> list[Path]:
    """The files of a directory with this suffix, sorted, without hidden ones (of editors).

    Stops after one more than the maximum number of files, which is refused later.
    """
    names = []
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.name.endswith(suffix) and not entry.name.startswith("."):
                names.append(entry.name)
                if len(names) > MAX_FILES:
                    break
    return [directory / name for name in sorted(names)]


def replace(path: Path, data: bytes, *, like: os.stat_result | None = None) -> None:
    """Replace a file by `data` atomically and durably.

    The new file is readable by its owner alone, or has the mode and owner of `like`. What root
    writes without `like` belongs to the owner of the directory.
    """
    from tempfile import mkstemp

    descriptor, name = mkstemp(prefix=f".{path.name}.", dir=path.parent)
    draft = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            if like is None:
                give_to_owner(draft, descriptor)
            else:
                set_access(descriptor, like.st_uid, like.st_gid, stat.S_IMODE(like.st_mode))
            os.fsync(descriptor)
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def set_access(descriptor: int, uid: int, gid: int, mode: int) -> None:
    """Set owner, group and mode of a file. PermissionError if they cannot be kept.

    Only root may give a file to a group without being its member. Ours takes its place where a
    group has the rights of all others, so that no user gets more or fewer rights.
    """
    found = os.fstat(descriptor)
    try:
        if (uid, gid) != (found.st_uid, found.st_gid):
            os.fchown(descriptor, uid, gid)
    except PermissionError:
        of_others = (mode & stat.S_IRWXO) << 3
        if uid != found.st_uid or mode & stat.S_IRWXG != of_others:
            raise
    os.fchmod(descriptor, mode)
