"""Run a gateway that tests kill: `python driver.py CONFIG_DIR`."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def shorten_times() -> None:
    """Detect dead and silent nodes in six seconds instead of fifteen."""
    from datetime import timedelta

    from ductile.engine.recovery import dead_nodes, lease, node_heartbeat, schema_check
    from ductile.store.engines import postgres

    dead_nodes.LOST_AFTER = dead_nodes.FENCE_AFTER = timedelta(seconds=6)
    lease.TERMINATE_AFTER = 3.0
    node_heartbeat.CHECK_SECONDS = schema_check.CHECK_SECONDS = 0.5
    postgres.CALL_TIMEOUT = 4.0


def shift_clock(seconds: float) -> None:
    """Have a wall clock that is wrong by this much, as a machine without NTP."""
    from datetime import UTC, datetime, timedelta

    from ductile.clock import SystemClock

    SystemClock.now = lambda _self: datetime.now(UTC) + timedelta(seconds=seconds)  # type: ignore[method-assign]


def main() -> int:
    from ductile.config import load
    from ductile.http.server.run import serve

    environ = dict(os.environ)
    if "DUCTILE_TEST_SHORT_TIMES" in environ:
        shorten_times()
    if shift := environ.get("DUCTILE_TEST_CLOCK_SHIFT"):
        shift_clock(float(shift))
    return serve(load(Path(sys.argv[1]), environ=environ), environ=environ)


if __name__ == "__main__":
    sys.exit(main())
