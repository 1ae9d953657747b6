"""Finding processes by the mark that every plugin carries in its environment."""

from __future__ import annotations

import os
import signal
import time

from ductile.runner import reaper

MARK = "DUCTILE_BOOT"
PATIENCE = 10.0
_PAUSE = 0.01
_QUIET_ROUNDS = 2
_LOOKS = 25
# Counted from the field that follows the command.
_ENV_END = 48


def sweep(marker: str) -> int:
    """Kill every process but ourselves that carries `DUCTILE_BOOT=<marker>:...`.

    Returns how many were found, once none is left; those that fell with a group that was
    killed are not all counted. TimeoutError where one cannot be killed.
    """
    entry = os.fsencode(f"{MARK}={marker}:")
    killed: set[int] = set()
    give_up = time.monotonic() + PATIENCE
    quiet = 0
    while True:
        marked, unclear = _round(entry)
        killed |= marked
        quiet = 0 if marked or unclear else quiet + 1
        if quiet == _QUIET_ROUNDS:
            return len(killed)
        if time.monotonic() > give_up:
            if not marked:
                return len(killed)
            raise TimeoutError(f"processes that cannot be killed: {sorted(marked)}")
        time.sleep(_PAUSE)


def _round(entry: bytes) -> tuple[set[int], bool]:
    """Which were marked, and whether one could not be told yet.

    One look at all, then at the newcomers: what forks and ends, over and over, is never
    met on the way through a long list, but it is always among the newest.
    """
    known = {os.getpid()}
    marked: set[int] = set()
    unclear = False
    for _ in range(_LOOKS):
        fresh = {int(name) for name in os.listdir("/proc") if name.isdigit()} - known
        if not fresh:
            break
        for pid in sorted(fresh, reverse=True):
            if _kill_if_marked(pid, entry):
                marked.add(pid)
            elif _executing(pid):
                unclear = True
        known |= fresh
    return marked, unclear


def carries(pid: int, entry: bytes) -> bool:
    """Whether the environment that a process was started with has a variable that begins so.

    False of a zombie, of one that is gone, and of another user's.
    """
    environ = _read(f"/proc/{pid}/environ")
    if not environ:
        # A process whose first thread has ended shows its environment in the others only.
        environ = b"\0".join(_read(f"/proc/{pid}/task/{task}/environ") for task in _tasks(pid))
    return b"\0" + entry in b"\0" + environ


def _read(path: str) -> bytes:
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read()
    except OSError:
        return b""


def _tasks(pid: int) -> list[str]:
    try:
        return os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []


def _executing(pid: int) -> bool:
    """Whether it is between two programs: it has the new one, but no environment yet."""
    stat = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    return len(stat) > _ENV_END and stat[_ENV_END] == b"0" and _has_program(pid)


def _has_program(pid: int) -> bool:
    try:
        return bool(os.readlink(f"/proc/{pid}/exe"))
    except OSError:
        return False


def _kill_if_marked(pid: int, entry: bytes) -> bool:
    """Through a handle that is taken before the question is put: a number passes to others."""
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        group = os.getpgid(pid) if os.getsid(pid) != os.getsid(0) else None
        if not carries(pid, entry):
            return False
        # All of the group at once: one by one, a process that forks and ends outruns us.
        if group is not None:
            reaper.send_group(group, signal.SIGKILL)
            return True
        signal.pidfd_send_signal(handle, signal.SIGKILL)
    except ProcessLookupError:
        return False
    finally:
        os.close(handle)
    return True
