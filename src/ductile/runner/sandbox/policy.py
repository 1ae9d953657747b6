"""What one plugin may touch, and what of it a kernel does not hold."""

from __future__ import annotations

import os
from typing import NamedTuple

NETWORK_NONE, NETWORK_PORTS, NETWORK_ALL = "none", "ports", "all"

FILES, NETWORK, SOCKETS, PROCESSES, SIGNALS = "files", "network", "sockets", "processes", "signals"
"""What can be held: access to files; to the network; to Unix sockets; to the memory of other
processes; signals to other processes."""
SYSTEM_CALLS = "system calls"
"""System calls that plugins do not need: user namespaces, io_uring, System V IPC, keyrings, bpf."""
PROCESS_LIMIT = "limit of processes"


class Support(NamedTuple):
    """What a kernel can enforce."""

    abi: int
    """The version of Landlock; 0 if there is none."""
    seccomp: bool
    is_root: bool = False
    """The kernel does not limit the number of root's processes."""


class Policy(NamedTuple):
    """What one plugin may touch; paths are absolute and without symlinks."""

    abi: int
    """Nothing newer than this version of Landlock is used; 0: no Landlock."""
    seccomp: bool
    network: str
    ports: tuple[int, ...]
    memory: int
    """Bytes of each process; 0, as in the following: no limit."""
    processes: int
    cpu_time: int
    file_size: int
    temporary: str
    """The directory in which each job gets a private one."""
    read: tuple[str, ...]
    write: tuple[str, ...]
    """Granted when the configuration was loaded: a link that is there now is not followed."""
    own: tuple[str, ...] = ()
    """The workspace and the temporary directory of the job."""

    def encode(self) -> bytes:
        """For `decode`, without the directories of the job: these may be appended after two NULs,
        with a NUL between them."""
        numbers = self.memory, self.processes, self.cpu_time, self.file_size
        head = self.abi, int(self.seccomp), self.network, " ".join(map(str, self.ports))
        texts = *map(str, head), " ".join(map(str, numbers)), self.temporary, *self.read, ""
        return os.fsencode("\0".join((*texts, *self.write)))


def decode(encoded: bytes) -> Policy:
    abi, seccomp, network, ports, numbers, temporary, *paths = os.fsdecode(encoded).split("\0")
    middle = paths.index("")
    rest = paths[middle + 1 :]
    end = rest.index("") if "" in rest else len(rest)
    memory, processes, cpu_time, file_size = map(int, numbers.split())
    return Policy(
        int(abi),
        seccomp == "1",
        network,
        tuple(map(int, ports.split())),
        memory,
        processes,
        cpu_time,
        file_size,
        temporary,
        tuple(paths[:middle]),
        tuple(rest[:end]),
        tuple(path for path in rest[end:] if path),
    )


def find_gaps(support: Support, network: str, processes: int) -> dict[str, str]:
    """What such a kernel does not hold of a policy, and why."""
    gaps = {}
    landlock = "the kernel has none, or a filter of the service or the container forbids it"
    if support.abi:
        landlock = f"the kernel has ABI {support.abi}"
    if support.abi < 3:
        gaps[FILES] = f"needs Landlock ABI 3, {landlock}"
    if network == NETWORK_PORTS and support.abi < 4:
        gaps[NETWORK] = f"ports need Landlock ABI 4, {landlock}"
    if not support.abi:
        # The filter refuses system calls, and not the files in /proc of other processes.
        gaps[PROCESSES] = f"needs Landlock, {landlock}"
    if support.abi < 6:
        gaps[SIGNALS] = f"needs Landlock ABI 6, {landlock}"
    if not support.seccomp:
        reason = "needs seccomp filters, which this kernel or processor does not have"
        gaps |= {SOCKETS: reason, PROCESSES: reason, SYSTEM_CALLS: reason}
        if network != NETWORK_ALL:
            gaps[NETWORK] = reason
    if processes and support.is_root:
        gaps[PROCESS_LIMIT] = "does not apply to root, which the gateway runs as"
    return gaps
