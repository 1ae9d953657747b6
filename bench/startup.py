"""How long until it is there: a gateway that answers, a command line that helps."""

from __future__ import annotations

import subprocess
import time

from bench.findings import Check, Findings, median
from bench.gateway import Gateway, Place, environment, executable, has_cli


def measure(*, quick: bool) -> Findings:
    times = 3 if quick else 10
    found = Findings("startup")
    first, again = [], []
    for _ in range(times):
        place = Place()
        first.append(ready(place))
        again.append(ready(place))
    found.checks = [
        Check("first start to ready, on no ledger", median(first), "s", at_most=0.3),
        Check("start to ready", median(again), "s", at_most=0.3),
    ]
    if has_cli():
        helps = [help_time() for _ in range(times)]
        found.checks.append(Check("ductile --help", median(helps) * 1000, "ms", at_most=100.0))
        found.details["help_s"] = helps
    found.details |= {"first_s": first, "again_s": again}
    for check in found.checks:
        print(f"{check.what}: {check.measured:.3g} {check.unit} (median of {times})")
    return found


def ready(place: Place) -> float:
    gateway = Gateway(place)
    try:
        return gateway.until_ready()
    finally:
        gateway.stop()


def help_time() -> float:
    began = time.perf_counter()
    subprocess.run(
        [str(executable()), "--help"], env=environment(), capture_output=True, check=True
    )
    return time.perf_counter() - began
