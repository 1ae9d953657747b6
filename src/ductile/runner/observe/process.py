"""A process that waits in an observed system call: its memory, descriptors and resource usage."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator

from ductile.runner import reaper

_PAGE = 4096
_STREAMS = (b"TCP", b"MPTCP", b"SCTP")
"""As the kernel names protocols."""
_KIB = 1024


class ObservedProcess:
    def __init__(self, task: int) -> None:
        """`task` is the number of a thread. OSError if it is gone."""
        self._task = task
        with open(f"/proc/{task}/status", "rb", buffering=0) as file:
            lines = dict(line.partition(b":")[::2] for line in file.read().splitlines())
        self.pid = int(lines[b"Tgid"])
        # What RLIMIT_DATA counts; a process that ends has none.
        self.data_bytes = int(lines.get(b"VmData", b"0 kB").split()[0]) * _KIB

    def cpu_seconds(self) -> float:
        try:
            # The clock of a process: its number, inverted, and 2 for "all that it has run".
            return time.clock_gettime(~self.pid << 3 | 2)
        except OSError:
            return 0.0

    def count_tasks(self, root: int) -> int:
        """All tasks below a process."""
        found, waiting = 0, list(reaper.children(root))
        while waiting:
            pid = waiting.pop()
            try:
                found += len(os.listdir(f"/proc/{pid}/task"))
            except OSError:
                continue
            waiting += reaper.children(pid)
        return found

    # Memory

    def read_memory(self, address: int, size: int) -> bytes:
        fd = os.open(f"/proc/{self._task}/mem", os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.pread(fd, size, address)
        finally:
            os.close(fd)

    def read_text(self, address: int) -> str:
        """A text that ends with a NUL, at most of a path's length."""
        raw = b""
        while len(raw) < _PAGE and b"\0" not in raw:
            # To the end of the page: the next one may not exist.
            size = _PAGE - (address + len(raw)) % _PAGE
            chunk = self.read_memory(address + len(raw), size)
            if not chunk:
                break
            raw += chunk
        return os.fsdecode(raw.partition(b"\0")[0])

    # Paths

    def resolve(self, folder: str, path: str) -> str:
        """The real path. `folder` is `.` or `fd/N`: what a relative path starts from."""
        if not path.startswith("/"):
            at = os.readlink(f"/proc/{self._task}/{'cwd' if folder == '.' else folder}")
            if not path:
                return at
            path = os.path.join(at, path)
        return self._real(path)

    def parent(self, folder: str, path: str) -> str:
        """The real path of the directory that contains a path."""
        head = os.path.dirname(path.rstrip("/"))
        return self.resolve(folder, head or ("/" if path.startswith("/") else "."))

    def _real(self, path: str) -> str:
        """Links to `self` lead to this process, not to the one that reads them here."""
        for name in ("self", "thread-self"):
            own = f"/proc/{name}"
            if path == own or path.startswith(f"{own}/"):
                path = f"/proc/{self.pid}{path[len(own) :]}"
        real = os.path.realpath(path)
        ours = f"/proc/{os.getpid()}"
        if real == ours or real.startswith(f"{ours}/"):
            real = os.path.realpath(f"/proc/{self.pid}{real[len(ours) :]}")
        return real

    # Descriptors

    def size_of(self, fd: int) -> int:
        """The size of an open regular file; 0 for anything else."""
        try:
            about = os.stat(f"/proc/{self.pid}/fd/{fd & 0xFFFFFFFF}")
            if not stat.S_ISREG(about.st_mode) or not self._may_write(fd):
                return 0
        except OSError:
            return 0
        return about.st_size

    def _may_write(self, fd: int) -> bool:
        with open(f"/proc/{self.pid}/fdinfo/{fd & 0xFFFFFFFF}", "rb") as file:
            flags = next(line for line in file if line.startswith(b"flags:"))
        return int(flags.split()[1], 8) & os.O_ACCMODE != os.O_RDONLY

    def sizes(self) -> Iterator[int]:
        try:
            names = os.listdir(f"/proc/{self.pid}/fd")
        except OSError:
            return
        for name in names:
            yield self.size_of(int(name))

    def is_stream(self, fd: int) -> bool:
        """Whether a descriptor is a socket for TCP; yes where that cannot be determined."""
        try:
            # Container runtimes refuse `pidfd_getfd`.
            path = f"/proc/{self.pid}/fd/{fd & 0xFFFFFFFF}"
            return os.getxattr(path, "system.sockprotoname").startswith(_STREAMS)
        except OSError:
            return True


def find_interpreter(program: str) -> str:
    """The interpreter that a script names; empty for other programs."""
    try:
        # A pipe, which the kernel does not execute either, would keep the listener waiting.
        fd = os.open(program, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(fd, "rb", buffering=0) as file:
            first = (file.read(256) or b"").partition(b"\n")[0]
    except OSError:
        return ""
    words = first[2:].split()
    return os.fsdecode(words[0]) if first.startswith(b"#!") and words else ""


def hide_number(path: str, pid: int, *, is_leader: bool) -> str:
    """`/proc/self` for the files of the first process itself, `/proc/PID` for those of others."""
    parts = path.split("/", 3)
    if len(parts) < 3 or parts[1] != "proc" or not parts[2].isdigit():
        return path
    own = is_leader and int(parts[2]) == pid
    return "/".join(("", "proc", "self" if own else "PID", *parts[3:]))
