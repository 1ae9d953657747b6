"""One gateway a state directory: a flock that its runner and slots hold as well."""

from __future__ import annotations

import fcntl
import hashlib
import os
import time
from pathlib import Path

from ductile import directory
from ductile.errors import Locked, Refused

WAIT_FOR_THE_DEAD = 5.0
"""A killed gateway's slots need a moment to end; they hold the lock until they have."""


class InstanceLock:
    def __init__(self, state_dir: Path) -> None:
        self.path = state_dir / "ductile.lock"
        self.fd = -1

    def acquire(self, wait: float = WAIT_FOR_THE_DEAD) -> None:
        """Take the lock or raise `Locked`; waits only while its last holder is dead."""
        fd = self._open()
        deadline = time.monotonic() + wait
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                pid = holder(self.path)
                if (pid is not None and is_alive(pid)) or time.monotonic() >= deadline:
                    os.close(fd)
                    raise Locked(
                        f"another gateway (pid {pid}) owns {self.path.parent}", pid=pid
                    ) from None
                time.sleep(0.005)
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        self.fd = fd

    def _open(self) -> int:
        try:
            directory.create(self.path.parent)
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
    try:
        return int(path.read_text().strip() or 0) or None
    except (OSError, ValueError):
        return None


def running_pid(state_dir: Path) -> int | None:
    """The PID of the gateway that owns this state directory, if one is alive."""
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
