"""Finding plugin processes by the variable that each has in its environment."""

from __future__ import annotations

import os
import signal
import time

from ductile.runner import reaper

BOOT_VARIABLE = "DUCTILE_BOOT"
SCAN_TIMEOUT = 10.0
_PAUSE = 0.01
_QUIET_ROUNDS = 2
_LOOKS = 25
_ENV_END_FIELD = 48
"""The index of `env_end` in /proc/PID/stat, counted from the field after the command."""


def kill_marked_processes(marker: str) -> int:
    """Kill every process but this one whose environment has `DUCTILE_BOOT=<marker>:...`.

    Returns how many were found, once none is left; not all processes of a killed group are counted.
    TimeoutError where one cannot be killed.
    """
    entry = os.fsencode(f"{BOOT_VARIABLE}={marker}:")
    killed: set[int] = set()
    give_up = time.monotonic() + SCAN_TIMEOUT
    quiet = 0
    while True:
        marked, unclear = _kill_round(entry)
        killed |= marked
        quiet = 0 if marked or unclear else quiet + 1
        if quiet == _QUIET_ROUNDS:
            return len(killed)
        if time.monotonic() > give_up:
            if not marked:
                return len(killed)
            raise TimeoutError(f"processes cannot be killed: {sorted(marked)}")
        time.sleep(_PAUSE)


def _kill_round(entry: bytes) -> tuple[set[int], bool]:
    """The processes that were marked, and whether one could not be classified yet.

    All processes are looked at once, then only new ones: a process that forks and ends again and
    again is never met on the way through a long list, but is always among the newest.
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
            elif _is_in_exec(pid):
                unclear = True
        known |= fresh
    return marked, unclear


def has_variable(pid: int, entry: bytes) -> bool:
    """Whether a process was started with an environment variable that begins with `entry`.

    False for a zombie, for a process that is gone, and for one of another user.
    """
    environ = _read(f"/proc/{pid}/environ")
    if not environ:
        # A process whose first thread has ended shows its environment only in the other threads.
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


def _is_in_exec(pid: int) -> bool:
    """Whether it is between two programs: it has the new one, but no environment yet."""
    stat = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    return len(stat) > _ENV_END_FIELD and stat[_ENV_END_FIELD] == b"0" and _has_program(pid)


def _has_program(pid: int) -> bool:
    try:
        return bool(os.readlink(f"/proc/{pid}/exe"))
    except OSError:
        return False


def _kill_if_marked(pid: int, entry: bytes) -> bool:
    """Uses a handle that is opened before the check: the kernel reuses process numbers."""
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        group = os.getpgid(pid) if os.getsid(pid) != os.getsid(0) else None
        if not has_variable(pid, entry):
            return False
        # The whole group at once: one by one, a process that forks and ends would escape.
        if group is not None:
            reaper.signal_group(group, signal.SIGKILL)
            return True
        signal.pidfd_send_signal(handle, signal.SIGKILL)
    except ProcessLookupError:
        return False
    finally:
        os.close(handle)
    return True
