"""A control group (version 2) for a runner and all that it starts.

A process can leave its parent, session and environment behind, but not its control group. It exists
only where we may create one: as root, or where the service manager delegates a group to us.
"""

from __future__ import annotations

import os
import signal
import time

from ductile.runner import reaper

PREFIX = "ductile-"
OF_ZYGOTES = "-warm"
"""How the name of the group of zygotes ends."""
_PATIENCE = 5.0
_PAUSE = 0.002


class Cgroup:
    def __init__(self, path: str) -> None:
        self.path = path

    def add(self, pid: int) -> None:
        """Move a process into the group, before it starts others."""
        try:
            self._write("cgroup.procs", b"%d" % pid)
        except FileNotFoundError:
            # Another gateway took it for one that was left behind.
            os.mkdir(self.path)
            self._write("cgroup.procs", b"%d" % pid)

    def kill(self) -> None:
        """Kill every process of the group, and wait until it is empty.

        TimeoutError where one cannot be killed. Our own children are to be reaped by the caller.
        """
        give_up = time.monotonic() + _PATIENCE
        while pids := self._pids():
            if time.monotonic() > give_up:
                raise TimeoutError(f"processes cannot be killed: {pids}")
            try:
                # In one step, which no fork escapes.
                self._write("cgroup.kill", b"1")
            except FileNotFoundError:
                # Linux before 5.14.
                for pid in pids:
                    reaper.send_signal(pid, signal.SIGKILL)
            time.sleep(_PAUSE)

    def remove(self) -> None:
        """Remove the group, if it is empty."""
        try:
            os.rmdir(self.path)
        except OSError:
            pass

    def _pids(self) -> list[int]:
        try:
            with open(f"{self.path}/cgroup.procs", "rb", buffering=0) as file:
                return list(map(int, file.read().split()))
        except FileNotFoundError:
            return []

    def _write(self, name: str, data: bytes) -> None:
        # Without O_CREAT: in a directory that is not a control group, nothing must appear.
        fd = os.open(f"{self.path}/{name}", os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(fd, data)
        finally:
            os.close(fd)


def create(name: str) -> Cgroup | None:
    """The group of this name below our own, empty; None where there is no such thing.

    Processes that an earlier gateway has left in it are killed. Empty groups that other gateways
    have left are removed.
    """
    parent = find_parent()
    if parent is None:
        return None
    group = Cgroup(f"{parent}/{name}")
    try:
        for left in os.listdir(parent):
            # Not the other one of our own two, which is empty before its first process.
            is_ours = left.removesuffix(OF_ZYGOTES) == name.removesuffix(OF_ZYGOTES)
            if left.startswith(PREFIX) and not is_ours:
                Cgroup(f"{parent}/{left}").remove()
        if not os.path.isdir(group.path):
            os.mkdir(group.path)
        group.kill()
    except OSError:
        return None
    return group


def find_parent() -> str | None:
    """The directory of our own group; None where we may not create groups in it."""
    try:
        with open("/proc/self/cgroup", "rb") as file:
            lines = os.fsdecode(file.read()).splitlines()
        with open("/proc/self/mountinfo", "rb") as file:
            mounts = os.fsdecode(file.read()).splitlines()
    except OSError:
        return None
    own = next((line[3:] for line in lines if line.startswith("0::/")), None)
    for mount in mounts:
        fields, _, kind = mount.partition(" - ")
        if own is None or not kind.startswith("cgroup2 "):
            continue
        root, point = fields.split()[3:5]
        inside = os.path.relpath(own, root)
        path = os.path.normpath(f"{point}/{inside}")
        if not inside.startswith("..") and os.access(path, os.W_OK | os.X_OK):
            return path
    return None
