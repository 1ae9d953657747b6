"""One gateway a state directory: a flock that its runner and slots hold as well."""

from __future__ import annotations

import fcntl
import hashlib
import os
import time
from pathlib import Path

from ductile import files
from ductile.errors import Locked, Refused

PATIENCE = 5.0
"""A killed gateway's slots need a moment to end, and hold the lock until they have; a command
that works without a gateway ends by itself."""
_COMMAND = "command"
"""Stands behind the PID of a holder that is no gateway."""


class InstanceLock:
    def __init__(self, state_dir: Path) -> None:
        self.path = state_dir / "ductile.lock"
        self.fd = -1

    def acquire(self, wait: float = PATIENCE, *, to_stay: bool = False) -> None:
        """Take the lock or raise `Locked`; `to_stay` is for a gateway, which serves.

        Waits only while its last holder is dead, or a command.
        """
        fd = self._open()
        deadline = time.monotonic() + wait
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                pid, stays = _read(self.path)
                lives = pid is not None and is_alive(pid)
                if (lives and stays) or time.monotonic() >= deadline:
                    os.close(fd)
                    works = f"a command (pid {pid}) still works in"
                    owns = f"another gateway (pid {pid}) owns"
                    what = works if lives and not stays else owns
                    raise Locked(f"{what} {self.path.parent}", pid=pid) from None
                time.sleep(0.005)
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}{'' if to_stay else f' {_COMMAND}'}\n".encode(), 0)
        self.fd = fd

    def _open(self) -> int:
        try:
            files.create(self.path.parent)
            return os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            why = f"{error.filename}: {error.strerror}"
            what = f"the state directory {self.path.parent} cannot be used: {why}"
            mend = "let this user write there, or set state.path (with state.url, state.dir)"
            raise Refused(f"{what}; {mend}") from error

    def release(self) -> None:
        if self.fd >= 0:
            os.ftruncate(self.fd, 0)
            os.close(self.fd)
            self.fd = -1


def holder(path: Path) -> int | None:
    """The PID that the lock file names, if any."""
    return _read(path)[0]


def _read(path: Path) -> tuple[int | None, bool]:
    """The PID that the lock file names, if any, and whether it is a gateway's."""
    try:
        pid, _, kind = path.read_text().strip().partition(" ")
        return int(pid or 0) or None, kind != _COMMAND
    except (OSError, ValueError):
        return None, True


def running_pid(state_dir: Path) -> int | None:
    """The PID of the gateway, or the command, that owns this state directory."""
    path = state_dir / "ductile.lock"
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return holder(path)
    finally:
        os.close(fd)
    return None


def command_runs(state_dir: Path) -> bool:
    """Whether who owns this state directory is a command, which works without a gateway."""
    return running_pid(state_dir) is not None and not _read(state_dir / "ductile.lock")[1]


def state_dir_id(state_dir: Path) -> str:
    """A short name for this directory, that its plugins' processes carry."""
    return hashlib.blake2b(str(state_dir.resolve()).encode(), digest_size=8).hexdigest()


def is_alive(pid: int) -> bool:
    """Whether the process runs; one that is dead and not yet reaped does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in ("Z", "X")
