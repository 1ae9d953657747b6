"""One gateway per state directory: a flock that its runner and slots hold as well."""

from __future__ import annotations

import fcntl
import hashlib
import os
import time
from pathlib import Path

from ductile import files
from ductile.errors import Locked, Refused

WAIT_SECONDS = 5.0
"""The slots of a killed gateway hold the lock until they have ended; a command that runs without a
gateway ends by itself."""
_COMMAND = "command"
"""Follows the PID of a holder that is not a gateway."""


class InstanceLock:
    def __init__(self, state_dir: Path) -> None:
        self.path = state_dir / "ductile.lock"
        self.fd = -1

    def acquire(self, wait: float = WAIT_SECONDS, *, for_gateway: bool = False) -> None:
        """Take the lock or raise `Locked`.

        Waits only while the last holder is dead or a command.
        """
        fd = self._open()
        deadline = time.monotonic() + wait
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                pid, is_gateway = _read_holder(self.path)
                alive = pid is not None and is_alive(pid)
                if (alive and is_gateway) or time.monotonic() >= deadline:
                    os.close(fd)
                    kind = "a command" if alive and not is_gateway else "another gateway"
                    text = f"{kind} (pid {pid}) uses {self.path.parent}"
                    raise Locked(text, pid=pid) from None
                time.sleep(0.005)
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}{'' if for_gateway else f' {_COMMAND}'}\n".encode(), 0)
        self.fd = fd

    def _open(self) -> int:
        try:
            files.create(self.path.parent)
            return os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            problem = f"the state directory {self.path.parent} cannot be used"
            reason = f"{error.filename}: {error.strerror}"
            action = "let this user write there, or set state.path (with state.url, state.dir)"
            raise Refused(f"{problem}: {reason}; {action}") from error

    def release(self) -> None:
        if self.fd >= 0:
            os.ftruncate(self.fd, 0)
            os.close(self.fd)
            self.fd = -1


def _read_holder(path: Path) -> tuple[int | None, bool]:
    """The PID in the lock file, if any, and whether it is a gateway's."""
    try:
        pid, _, kind = path.read_text().strip().partition(" ")
        return int(pid or 0) or None, kind != _COMMAND
    except (OSError, ValueError):
        return None, True


def find_running_pid(state_dir: Path) -> int | None:
    """The PID of the gateway or command that holds the lock of this state directory."""
    path = state_dir / "ductile.lock"
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _read_holder(path)[0]
    finally:
        os.close(fd)
    return None


def is_held_by_command(state_dir: Path) -> bool:
    """Whether a command, not a gateway, holds the lock of this state directory."""
    held = find_running_pid(state_dir) is not None
    return held and not _read_holder(state_dir / "ductile.lock")[1]


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
