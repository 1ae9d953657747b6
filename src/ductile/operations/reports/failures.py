"""Which commands have failed and dead jobs that no operator has retried, acknowledged or ended.

The dashboard, `status`, `doctor` and the overview of agents answer with the same rows.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from ductile.store.engines.api import Tx
from ductile.store.failures import list_failing_commands

MAX_COMMANDS = 100


def list_failures(tx: Tx, now: datetime) -> dict[str, Any]:
    rows = list_failing_commands(tx, now, MAX_COMMANDS + 1)
    return {"failures": rows[:MAX_COMMANDS], "more": len(rows) > MAX_COMMANDS}
