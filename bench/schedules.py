"""What ten thousand schedule entries cost while none of them is due."""

from __future__ import annotations

import time

from bench import processes
from bench.findings import Check, Findings
from bench.gateway import Place, running

PLUGINS, ENTRIES = 100, 100
SETTLE = 2.0


def measure(*, quick: bool) -> Findings:
    seconds = 5.0 if quick else 20.0
    with running(Place(more=_config())) as gateway:
        time.sleep(SETTLE)
        before, began = processes.cpu(gateway.pid), time.monotonic()
        time.sleep(seconds)
        share = (processes.cpu(gateway.pid) - before) / (time.monotonic() - began) * 100
    print(f"{PLUGINS * ENTRIES:,} entries, none due: {share:.2f} % of a core")
    found = Findings("schedules")
    found.checks = [Check("10,000 entries, none due", share, "% of a core", at_most=1.0)]
    return found


def _config() -> str:
    lines = ["plugins:"]
    for plugin in range(PLUGINS):
        lines += [f"  p{plugin}:", "    uses: shell", "    schedules:"]
        lines += [
            f'      - {{id: s{entry}, cron: "{entry % 60} {plugin % 24} 29 2 *", jitter: 1h}}'
            for entry in range(ENTRIES)
        ]
    return "\n".join(lines) + "\n"
