"""Processes as /proc describes them: which belong together, what they use."""

from __future__ import annotations

import os
import resource
from dataclasses import dataclass
from pathlib import Path

_TICK = 1 / os.sysconf("SC_CLK_TCK")
PROC = Path("/proc")


def descendants(pid: int) -> list[int]:
    """All below a process, by the parent that each names."""
    below: dict[int, list[int]] = {}
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            fields = _stat(int(entry.name))
            if fields:
                below.setdefault(int(fields[1]), []).append(int(entry.name))
    found: list[int] = []
    edge = [pid]
    while edge:
        children = below.get(edge.pop(), [])
        found += children
        edge += children
    return found


def _stat(pid: int) -> list[str]:
    """The fields after the command's name, which may hold spaces and parentheses."""
    try:
        return (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def pss(pid: int) -> int:
    """Bytes: what is its own, and its share of what it shares."""
    for line in (PROC / str(pid) / "smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return 0


def cpu(pid: int) -> float:
    """Seconds on a core, of all its threads that live, to the nanosecond."""
    total = 0
    try:
        for task in (PROC / str(pid) / "task").iterdir():
            total += int((task / "schedstat").read_text().split()[0])
    except OSError:
        return 0.0
    return total / 1e9


def program(pid: int) -> str | None:
    """The file that it executes."""
    try:
        return str((PROC / str(pid) / "exe").readlink())
    except OSError:
        return None


def reaped_cpu(pid: int) -> float:
    """Seconds that children which it has reaped had used."""
    fields = _stat(pid)
    return (int(fields[13]) + int(fields[14])) * _TICK if fields else 0.0


@dataclass(frozen=True)
class Usage:
    """CPU seconds so far: the gateway, its runner with the slots, and the plugins they ran."""

    gateway: float
    runner: float
    plugins: float

    def __sub__(self, other: Usage) -> Usage:
        return Usage(
            self.gateway - other.gateway,
            self.runner - other.runner,
            self.plugins - other.plugins,
        )

    def __truediv__(self, jobs: int) -> Usage:
        return Usage(self.gateway / jobs, self.runner / jobs, self.plugins / jobs)


def usage(family: list[int]) -> Usage:
    gateway, *runner = family
    return Usage(
        gateway=cpu(gateway),
        runner=sum(map(cpu, runner)),
        plugins=sum(map(reaped_cpu, runner)),
    )


@dataclass(frozen=True)
class Moment:
    """CPU seconds so far: of the whole machine, how many there were, and of our own."""

    busy: float
    there: float
    own: float

    @classmethod
    def now(cls) -> Moment:
        user, nice, system, idle, waiting, *rest = [
            int(field) * _TICK for field in (PROC / "stat").read_text().split("\n")[0].split()[1:9]
        ]
        busy = user + nice + system + sum(rest)
        own = sum(
            used.ru_utime + used.ru_stime
            for used in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        )
        return cls(busy, busy + idle + waiting, own)


def others_share(since: Moment) -> float:
    """The share of the machine that other programs used since then; call it after ours ended."""
    now = Moment.now()
    others = (now.busy - since.busy) - (now.own - since.own)
    return max(0.0, others / (now.there - since.there))
