"""What a sandbox costs per job: one slot, with and without, taking turns."""

from __future__ import annotations

import os
import tempfile
import time
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

from bench.findings import Check, Findings, median, table
from ductile.model import Ending, Launch
from ductile.plugins.sandbox import SYSTEM
from ductile.runner.pool import RunnerPool
from ductile.runner.sandbox.policy import NETWORK_NONE, Policy
from ductile.runner.sandbox.restrict import probe

TICKS = os.sysconf("SC_CLK_TCK")


def measure(*, quick: bool) -> Findings:
    rounds, jobs = (5, 100) if quick else (11, 400)
    found = Findings("sandbox")
    cpu: dict[str, list[float]] = defaultdict(list)
    wall: dict[str, list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        launches = _launches(Path(folder))
        pool = RunnerPool(1)
        pool.start()
        try:
            slot = pool.slot(0)
            for _ in range(rounds):
                for name, launch in launches.items():
                    began, used = time.perf_counter(), _cpu_seconds(slot.pid)
                    for _ in range(jobs):
                        outcome = slot.run(launch)
                        assert (outcome.ending, outcome.exit_code) == (Ending.EXITED, 0), outcome
                    cpu[name].append((_cpu_seconds(slot.pid) - used) / jobs * 1000)
                    wall[name].append((time.perf_counter() - began) / jobs * 1000)
        finally:
            pool.stop()
    rows = [
        {"launch": name, "CPU ms": median(cpu[name]), "ms": median(wall[name])} for name in launches
    ]
    print(table(rows))
    more = median(cpu["sandboxed"]) - median(cpu["plain"])
    longer = median(wall["sandboxed"]) - median(wall["plain"])
    found.checks.append(Check("CPU time more per sandboxed job", more, "ms", at_most=3.0))
    found.checks.append(Check("time more per sandboxed job", longer, "ms", at_most=3.0))
    return found


def _launches(folder: Path) -> dict[str, Launch]:
    support = probe()
    policy = Policy(
        abi=support.abi,
        seccomp=support.seccomp,
        network=NETWORK_NONE,
        ports=(),
        memory=512 << 20,
        processes=64,
        cpu_time=60,
        file_size=1 << 30,
        temporary=str(folder / "tmp"),
        read=SYSTEM,
        write=(),
    )
    plain = Launch(("/bin/true",), {}, b"{}", 60.0)
    return {"plain": plain, "sandboxed": replace(plain, sandbox=policy.encode())}


def _cpu_seconds(pid: int) -> float:
    """Of a process and the children that it has waited for."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / TICKS
