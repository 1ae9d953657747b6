"""Subreapers: adopting the orphans below a process, and clearing them away."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Callable

_PR_SET_CHILD_SUBREAPER = 36
_QUICK_ROUNDS = 2
_FREEZE_ROUNDS = 50
_SHORTEST_PAUSE = 0.0002
_LONGEST_PAUSE = 0.01
# Absent from kernels built without CONFIG_PROC_CHILDREN.
_LISTS_CHILDREN = os.path.exists(f"/proc/{os.getpid()}/task/{os.getpid()}/children")


def become_subreaper() -> None:
    """Orphans below this process become its children. Not inherited by a fork."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def children(pid: int) -> list[int]:
    """The children of a process, zombies too; none if it is gone."""
    if not _LISTS_CHILDREN:
        return _children_by_scan(pid)
    while True:
        try:
            tasks = os.listdir(f"/proc/{pid}/task")
        except (FileNotFoundError, ProcessLookupError):
            return []
        found: list[int] = []
        try:
            for task in tasks:
                with open(f"/proc/{pid}/task/{task}/children", "rb", buffering=0) as file:
                    found += map(int, file.read().split())
        except (FileNotFoundError, ProcessLookupError):
            # A thread that ends leaves its children to another, which may have been asked before.
            continue
        return found


def _children_by_scan(parent: int) -> list[int]:
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                # The command's name may hold spaces and parentheses of its own.
                fields = file.read().rpartition(b")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[1]) == parent:
            found.append(int(name))
    return found


def send(pid: int, number: int) -> None:
    """Signal a process that may be gone, or that may have taken another user's rights."""
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        pass


def send_group(pgid: int, number: int) -> None:
    try:
        os.killpg(pgid, number)
    except (ProcessLookupError, PermissionError):
        pass


def reap(pid: int) -> bool:
    """Whether this child is gone, without waiting for it."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True


def has_ended(pid: int) -> bool:
    """Whether this child has ended, which is yet to be reaped."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def reap_orphans(leader: int) -> None:
    """Reap what has ended below a job, short of its leader: its end is the job's."""
    try:
        while (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
            if ended.si_pid == leader:
                return
            reap(ended.si_pid)
    except ChildProcessError:
        pass


def childless() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return True
    return False


def clear(spare: Callable[[int], bool] | None = None, patience: float = float("inf")) -> bool:
    """Kill and reap every child but those to `spare`, and what comes up from below them.

    True when none is left; false when `patience` seconds were not enough.
    """
    if spare is None and childless():
        return True
    give_up = time.monotonic() + patience
    pause = _SHORTEST_PAUSE
    rounds = 0
    while doomed := _doomed(spare):
        rounds += 1
        if rounds > _QUICK_ROUNDS:
            for pid in _freeze(spare):
                slay(pid)
        for pid in doomed:
            slay(pid)
        reaped = sum([reap(pid) for pid in doomed])
        if time.monotonic() > give_up:
            break
        if not reaped:
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
    return not doomed


def _doomed(spare: Callable[[int], bool] | None) -> list[int]:
    while True:
        found = children(os.getpid())
        if spare is not None:
            return [pid for pid in found if not spare(pid)]
        if found or childless():
            return found
        time.sleep(_SHORTEST_PAUSE)


def slay(pid: int) -> None:
    """Kill a process, and its whole group where the group cannot be anybody else's.

    A group is killed in one stroke that no fork outruns. Sessions are only ever inherited,
    so one that is not ours was opened by what we are clearing away.
    """
    try:
        if os.getsid(pid) != os.getsid(0):
            send_group(os.getpgid(pid), signal.SIGKILL)
    except ProcessLookupError:
        pass
    send(pid, signal.SIGKILL)


def _freeze(spare: Callable[[int], bool] | None) -> set[int]:
    """Stop all that is below us but what to `spare`, and say what that was.

    Processes that fork as fast as they are killed are held still by it: what is stopped
    forks no more, and gives no other the room to.
    """
    stopped: set[int] = set()
    for _ in range(_FREEZE_ROUNDS):
        found = _descendants([pid for pid in _doomed(spare) if not reap(pid)]) - stopped
        if not found:
            break
        for pid in found:
            send(pid, signal.SIGSTOP)
        stopped |= found
    return stopped


def _descendants(roots: list[int]) -> set[int]:
    known = set(roots)
    edge = list(roots)
    while edge:
        fresh = [child for child in children(edge.pop()) if child not in known]
        known.update(fresh)
        edge += fresh
    return known
