"""What a gateway costs that does nothing: memory and CPU of all its processes."""

from __future__ import annotations

import time

from bench import processes
from bench.findings import Check, Findings, table
from bench.gateway import Place, running

SETTLE = 1.0


def measure(*, quick: bool) -> Findings:
    seconds = 3.0 if quick else 10.0
    with running(Place()) as gateway:
        time.sleep(SETTLE)
        family = gateway.family()
        before, began = [processes.cpu(pid) for pid in family], time.monotonic()
        time.sleep(seconds)
        used = [processes.cpu(pid) - at for pid, at in zip(family, before, strict=True)]
        took = time.monotonic() - began
        memory = [processes.pss(pid) for pid in family]
    names = ["gateway", "runner", *["slot"] * (len(family) - 2)]
    rows = [
        {"process": name, "PSS MB": size / 1e6, "CPU %": cpu / took * 100}
        for name, size, cpu in zip(names, memory, used, strict=True)
    ]
    print(table(rows))
    found = Findings("idle")
    found.checks = [
        Check("memory of all processes (PSS)", sum(memory) / 1e6, "MB", at_most=55.0),
        Check("CPU of all processes", sum(used) / took * 100, "%", at_most=1.0),
    ]
    found.details = {"rows": rows, "seconds": took}
    return found
