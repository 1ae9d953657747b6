"""`python -m bench [NAME...] [--quick]`: measure, print, write bench/out/NAME.json."""

from __future__ import annotations

import argparse
import importlib
import os
import sys

from bench import revision
from bench.findings import Findings, summary
from bench.gateway import warm
from bench.processes import Moment, others_share

NAMES = (
    "throughput",
    "latency",
    "warm",
    "sandbox",
    "tracing",
    "claim",
    "blocked_keys",
    "rate_keys",
    "job_lists",
    "routing",
    "hops",
    "webhooks",
    "schedules",
    "agents",
    "retention",
    "idle",
    "startup",
    "dashboard",
    "postgres",
    "engines",
    "nodes",
    "shares",
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}")
    parser.add_argument("--quick", action="store_true", help="rough figures in a minute")
    parser.add_argument(
        "--against",
        metavar="REVISION",
        help="also measure this git revision, in turns; by default the last release",
    )
    arguments = parser.parse_args()
    if arguments.against:
        os.environ[revision.VARIABLE] = arguments.against
    unknown = set(arguments.names) - set(NAMES)
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}")
    print(f"load average {os.getloadavg()[0]:.2f}", flush=True)
    warm()
    found: list[Findings] = []
    for name in arguments.names or NAMES:
        print(f"\n{name}", flush=True)
        began = Moment.now()
        findings: Findings = importlib.import_module(f"bench.{name}").measure(quick=arguments.quick)
        findings.others = others_share(began)
        print(f"others had {findings.others:.0%} of the machine")
        findings.write()
        found.append(findings)
    print(f"\n{summary(found)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
