"""What a sandbox costs per job: cold in one slot and warm in slots of zygotes, with and without, in
turns."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from bench.findings import Check, Findings, median, table
from ductile.model import Ending, Launch, WarmStart
from ductile.plugins.sandbox import SYSTEM
from ductile.runner.client import SlotClient
from ductile.runner.pool import RunnerPool
from ductile.runner.sandbox.policy import NETWORK_NONE, Policy
from ductile.runner.sandbox.restrict import probe
from ductile.runner.warm.zygote_pool import ZygotePool

TICKS = os.sysconf("SC_CLK_TCK")
PLAIN, PYTHON, WARM = "plain", "python", "warm"
SANDBOXED = "sandboxed"
PLUGIN = f"#!{sys.executable}\nimport json, sys\njson.load(sys.stdin)\nprint('{{}}')\n"


def measure(*, quick: bool) -> Findings:
    rounds, jobs = (5, 100) if quick else (11, 400)
    found = Findings("sandbox")
    cpu: dict[str, list[float]] = defaultdict(list)
    wall: dict[str, list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder, _cases(Path(folder)) as cases:
        for _ in range(rounds):
            for name, (slot, launch) in cases.items():
                began, used = time.perf_counter(), _cpu_seconds(slot.pid)
                for _ in range(jobs):
                    outcome = slot.run(launch)
                    assert (outcome.ending, outcome.exit_code) == (Ending.EXITED, 0), outcome
                cpu[name].append((_cpu_seconds(slot.pid) - used) / jobs * 1000)
                wall[name].append((time.perf_counter() - began) / jobs * 1000)
    rows = [{"launch": name, "CPU ms": median(cpu[name]), "ms": median(wall[name])} for name in cpu]
    print(table(rows))
    for kind in (PLAIN, PYTHON, WARM):
        more = median(cpu[f"{kind}, {SANDBOXED}"]) - median(cpu[kind])
        longer = median(wall[f"{kind}, {SANDBOXED}"]) - median(wall[kind])
        found.checks.append(Check(f"{kind}: CPU time more per job", more, "ms", at_most=3.0))
        found.checks.append(Check(f"{kind}: time more per job", longer, "ms", at_most=3.0))
    found.details = {"rows": rows}
    return found


@contextmanager
def _cases(folder: Path) -> Iterator[dict[str, tuple[SlotClient, Launch]]]:
    """The slot and the launch of each: a program, a Python plugin, and this plugin warm."""
    script = folder / "plugin.py"
    script.write_text(PLUGIN)
    script.chmod(0o755)
    policy = _policy(folder)
    pool = RunnerPool(1)
    pools = [pool]
    pool.start()
    try:
        cold = pool.slot(0)
        cases = {}
        for kind, program in ((PLAIN, "/bin/true"), (PYTHON, str(script))):
            launch = Launch((program,), {}, b"{}", 60.0)
            cases[kind] = cold, launch
            cases[f"{kind}, {SANDBOXED}"] = cold, replace(launch, sandbox=policy)
        for name, sandbox in ((WARM, b""), (f"{WARM}, {SANDBOXED}", policy)):
            zygote = ZygotePool(pool, _warm_start(script, is_confined=bool(sandbox)))
            pools.append(zygote)
            zygote.start()
            slot = zygote.fork_slot()
            assert slot is not None
            cases[name] = slot, Launch((str(script),), {}, b"{}", 60.0, sandbox=sandbox)
        yield cases
    finally:
        for one in reversed(pools):
            one.stop()


def _warm_start(script: Path, *, is_confined: bool) -> WarmStart:
    line = PLUGIN.partition("\n")[0]
    return WarmStart(
        "p", str(script), (sys.executable,), str(script), line, ("json",), {}, is_confined
    )


def _policy(folder: Path) -> bytes:
    support = probe()
    return Policy(
        abi=support.abi,
        seccomp=support.seccomp,
        network=NETWORK_NONE,
        ports=(),
        memory=512 << 20,
        processes=64,
        cpu_time=60,
        file_size=1 << 30,
        temporary=str(folder / "tmp"),
        read=(*SYSTEM, sys.prefix, sys.base_prefix, str(folder)),
        write=(),
    ).encode()


def _cpu_seconds(pid: int) -> float:
    """Of a process and the children that it has waited for."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / TICKS
