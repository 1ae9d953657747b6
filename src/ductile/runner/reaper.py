"""Subreapers: adopting the orphans below a process, and killing them."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import os
import time

from ductile.runner import isolation

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_PR_SET_CHILD_SUBREAPER = 36
_ROUNDS_WITHOUT_STOPPING = 2
_STOP_ROUNDS = 50
_SHORTEST_PAUSE = 0.0002
_LONGEST_PAUSE = 0.01
# Kernels built without CONFIG_PROC_CHILDREN do not have this file.
_LISTS_CHILDREN = os.path.exists(f"/proc/{os.getpid()}/task/{os.getpid()}/children")


def become_subreaper() -> None:
    """Have orphans below this process become its children. A fork does not inherit this."""
    isolation.prctl(_PR_SET_CHILD_SUBREAPER, 1)


def children(pid: int) -> list[int]:
    """The children of a process, with zombies; none if it is gone."""
    if not _LISTS_CHILDREN:
        return _scan_for_children(pid)
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
            # A thread that ends leaves its children to another, which may have been read before.
            continue
        return found


def _scan_for_children(parent: int) -> list[int]:
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                # The command's name may contain spaces and parentheses.
                fields = file.read().rpartition(b")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[1]) == parent:
            found.append(int(name))
    return found


def send_signal(pid: int, number: int) -> None:
    """Signal a process that may be gone, or that may have another user's rights."""
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        pass


def signal_group(pgid: int, number: int) -> None:
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
    """Whether this child, which is not reaped yet, has ended."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def reap_orphans(leader: int) -> None:
    """Reap what has ended below a job, except its leader, whose end is the end of the job."""
    try:
        while (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
            if ended.si_pid == leader:
                return
            reap(ended.si_pid)
    except ChildProcessError:
        pass


def has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def kill_children(
    spare: Callable[[int], bool] | None = None, patience: float = float("inf")
) -> bool:
    """Kill and reap every child but those to `spare`, and the orphans that come up from below them.

    True when none is left; false when `patience` seconds were not enough.
    """
    if spare is None and not has_children():
        return True
    give_up = time.monotonic() + patience
    pause = _SHORTEST_PAUSE
    rounds = 0
    while targets := _children_to_kill(spare):
        rounds += 1
        if rounds > _ROUNDS_WITHOUT_STOPPING:
            for pid in _stop_descendants(spare):
                kill_with_group(pid)
        for pid in targets:
            kill_with_group(pid)
        reaped = sum([reap(pid) for pid in targets])
        if time.monotonic() > give_up:
            break
        if not reaped:
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
    return not targets


def _children_to_kill(spare: Callable[[int], bool] | None) -> list[int]:
    while True:
        found = children(os.getpid())
        if spare is not None:
            return [pid for pid in found if not spare(pid)]
        if found or not has_children():
            return found
        time.sleep(_SHORTEST_PAUSE)


def kill_with_group(pid: int) -> None:
    """Kill a process, and its whole group where the group can only be its own.

    A group is killed in one step that no fork escapes. Sessions are only inherited, so a session
    that is not ours was opened by the processes that are to be killed.
    """
    try:
        if os.getsid(pid) != os.getsid(0):
            signal_group(os.getpgid(pid), _signal.SIGKILL)
    except ProcessLookupError:
        pass
    send_signal(pid, _signal.SIGKILL)


def _stop_descendants(spare: Callable[[int], bool] | None) -> set[int]:
    """Stop all processes below us but those to `spare`, and return them.

    Some processes fork as fast as they are killed. A stopped process does not fork.
    """
    stopped: set[int] = set()
    for _ in range(_STOP_ROUNDS):
        found = _descendants([pid for pid in _children_to_kill(spare) if not reap(pid)]) - stopped
        if not found:
            break
        for pid in found:
            send_signal(pid, _signal.SIGSTOP)
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
