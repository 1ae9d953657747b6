"""One gateway per state directory: a flock that its runner and slots hold as well."""

from __future__ import annotations

import fcntl
import hashlib
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ductile import files
from ductile.errors import Locked, Refused

WAIT_SECONDS = 5.0
"""The slots of a killed gateway hold the lock until they have ended; a command that runs without a
gateway ends by itself."""
NAME = "ductile.lock"
_COMMAND = "command"
"""Follows the PID of a holder that is not a gateway."""


class InstanceLock:
    def __init__(self, state_dir: Path) -> None:
        self.path = state_dir / NAME
        self.fd = -1
        self._for_gateway = False
        self._replaced: list[int] = []
        """Descriptors of removed lock files."""

    def acquire(self, wait: float = WAIT_SECONDS, *, for_gateway: bool = False) -> None:
        """Take the lock or raise `Locked`.

        Waits only while the last holder is dead or a command.
        """
        fd = self._open()
        deadline = time.monotonic() + wait
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if self._is_at_path(fd):
                    break
                # The file was removed meanwhile: a lock on it excludes no other process.
                os.close(fd)
                fd = self._open()
            except BlockingIOError:
                holder = _read_holder(fd)
                if (holder.is_alive and holder.is_gateway) or time.monotonic() >= deadline:
                    os.close(fd)
                    raise _locked(holder, self.path.parent) from None
                time.sleep(0.005)
            except OSError as error:
                os.close(fd)
                raise self._unusable(error) from error
        self._for_gateway = for_gateway
        self._take(fd)

    def keep(self) -> bool:
        """Create and lock the file again if it was removed; whether this process has the lock.

        Without the file, another gateway could start on the same ledger. The first descriptor stays
        open, because the runner holds it too. An error that does not tell whether the file is there
        changes nothing: the next call finds out.
        """
        try:
            if self._is_at_path(self.fd):
                return True
        except OSError:
            return True
        fd = self._open()
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            found = os.fstat(fd)
            os.close(fd)
            return any(os.path.samestat(found, os.fstat(own)) for own in (self.fd, *self._replaced))
        self._replaced.append(self.fd)
        self._take(fd)
        return True

    def _take(self, fd: int) -> None:
        os.ftruncate(fd, 0)
        suffix = "" if self._for_gateway else f" {_COMMAND}"
        os.pwrite(fd, f"{os.getpid()}{suffix}\n".encode(), 0)
        self.fd = fd

    def _is_at_path(self, fd: int) -> bool:
        """Whether the file at the path is the one that is open; OSError if that is unknown."""
        try:
            found = self.path.lstat()
        except FileNotFoundError:
            return False
        return os.path.samestat(found, os.fstat(fd))

    def _open(self) -> int:
        try:
            files.create(self.path.parent)
            return files.open_or_create(self.path)
        except OSError as error:
            raise self._unusable(error) from error

    def _unusable(self, error: OSError) -> Refused:
        problem = f"the state directory {self.path.parent} cannot be used"
        if isinstance(error, PermissionError) and os.path.lexists(self.path):
            return Refused(f"{problem}: {files.describe_access(self.path)}")
        reason = f"{error.filename or self.path}: {error.strerror}"
        action = "let this user write there, or set state.path (with state.url, state.dir)"
        return Refused(f"{problem}: {reason}; {action}", run="ductile system doctor")

    def release(self) -> None:
        if self.fd >= 0:
            os.ftruncate(self.fd, 0)
            for fd in (self.fd, *self._replaced):
                os.close(fd)
            self.fd, self._replaced = -1, []


def _locked(holder: LockHolder, state_dir: Path) -> Locked:
    is_command = holder.is_alive and holder.is_gateway is False
    kind = "a command" if is_command else "another gateway"
    who = kind if holder.pid is None else f"{kind} (pid {holder.pid})"
    return Locked(f"{who} uses {state_dir}", pid=holder.pid)


class LockHolder(NamedTuple):
    """The process that holds the lock of a state directory."""

    pid: int | None
    """From the kernel; None if it is not visible here, such as in another container."""
    is_gateway: bool | None
    """False for a command; None if the file does not show it, as in the first moment of a lock."""

    @property
    def is_alive(self) -> bool:
        """Whether the process that took the lock runs; its remaining children may hold it too."""
        return self.pid is not None and is_alive(self.pid)


def find_holder(state_dir: Path) -> LockHolder | None:
    """The gateway or command that holds the lock of this state directory; None without one."""
    path = state_dir / NAME
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _read_holder(fd)
    finally:
        os.close(fd)
    return None


def _read_holder(fd: int) -> LockHolder:
    """The holder by the kernel's table of locks: any process can write to the file.

    The content of the file distinguishes a command from a gateway, and several processes
    where the table alone does not.
    """
    words = os.pread(fd, 64, 0).decode(errors="replace").split()
    pid = _find_locker(os.fstat(fd), words[0] if words else "")
    kinds = {(str(pid),): True, (str(pid), _COMMAND): False}
    return LockHolder(pid, kinds.get(tuple(words)))


def _find_locker(file: os.stat_result, written_pid: str) -> int | None:
    """The process that has locked this file with `flock`, and has not been replaced since.

    The kernel keeps naming a process that has ended while its children hold the lock. Files of
    several file systems may have the same inode number, and some file systems have another device
    number in the table. A process of which neither the device nor its open files show that it has
    locked this file counts only if the file names it.
    """
    try:
        lines = Path("/proc/locks").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    inode = f":{file.st_ino}"
    exact = f"{os.major(file.st_dev):02x}:{os.minor(file.st_dev):02x}{inode}"
    certain, possible = list[int](), list[int]()
    for line in lines:
        # `1: FLOCK  ADVISORY  WRITE 4000 fe:00:1234 0 EOF`; a waiting process has an arrow.
        words = line.split()
        if len(words) != 8 or (words[1], words[3]) != ("FLOCK", "WRITE"):
            continue
        pid, where = int(words[4]), words[5]
        if not where.endswith(inode) or pid <= 0:
            continue
        opened = has_open(pid, file)
        if opened or (opened is None and where == exact):
            certain.append(pid)
        elif opened is None:
            possible.append(pid)
    named = [pid for pid in certain or possible if str(pid) == written_pid]
    return next(iter(named or certain), None)


def has_open(pid: int, file: os.stat_result) -> bool | None:
    """Whether the process has this file open; None if this user may not see it, or it ended."""
    try:
        descriptors = list(Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return None
    for descriptor in descriptors:
        with suppress(OSError):
            found = descriptor.stat()
            if (found.st_dev, found.st_ino) == (file.st_dev, file.st_ino):
                return True
    return None if not is_alive(pid) else False


def compute_state_dir_id(state_dir: Path) -> str:
    """A short id of this directory, which the environment of plugin processes contains."""
    return hashlib.blake2b(str(state_dir.resolve()).encode(), digest_size=8).hexdigest()


def is_alive(pid: int) -> bool:
    """Whether the process runs; a zombie does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in ("Z", "X")
