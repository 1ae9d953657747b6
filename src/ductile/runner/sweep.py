"""Finding processes by the mark that every plugin carries in its environment."""

from __future__ import annotations

import os
import signal
import time

MARK = "DUCTILE_BOOT"
PATIENCE = 10.0
_PAUSE = 0.005


def sweep(marker: str) -> int:
    """Kill every process but ourselves that carries `DUCTILE_BOOT=<marker>:...`.

    Returns how many, once none is left. TimeoutError where one cannot be killed.
    """
    entry = os.fsencode(f"{MARK}={marker}:")
    killed: set[int] = set()
    give_up = time.monotonic() + PATIENCE
    while found := [pid for pid in _others() if _kill_if_marked(pid, entry)]:
        killed.update(found)
        if time.monotonic() > give_up:
            raise TimeoutError(f"processes that cannot be killed: {sorted(found)}")
        time.sleep(_PAUSE)
    return len(killed)


def carries(pid: int, entry: bytes) -> bool:
    """Whether the environment that a process was started with has a variable that begins so.

    False of a zombie, of one that is gone, and of another user's.
    """
    try:
        # A process whose first thread has ended shows its environment in the others only.
        environ = _read(f"/proc/{pid}/environ") or b"\0".join(
            _read(f"/proc/{pid}/task/{task}/environ") for task in os.listdir(f"/proc/{pid}/task")
        )
    except OSError:
        return False
    return b"\0" + entry in b"\0" + environ


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _others() -> list[int]:
    me = os.getpid()
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != me]


def _kill_if_marked(pid: int, entry: bytes) -> bool:
    if not carries(pid, entry):
        return False
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        # Asked again of what the handle holds: the number may have passed to another.
        if not carries(pid, entry):
            return False
        signal.pidfd_send_signal(handle, signal.SIGKILL)
    except ProcessLookupError:
        return False
    finally:
        os.close(handle)
    return True
