"""Waiting for a condition, with one limit for every test.

A test that waits longer than `WAIT_LIMIT` has failed. The limit is far longer than anything takes
on a busy machine, since a test that passes never waits for it to end.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

WAIT_LIMIT = 45.0
"""Seconds until a wait is given up, in every test. Less than the longest `wait` over HTTP: what
answers only at its end is late."""
_SHORTEST_PAUSE = 0.002
_LONGEST_PAUSE = 0.05


def until(condition: Callable[[], T]) -> T:
    """Return what `condition` returns, once that is true; for what the system does not report."""
    start = time.monotonic()
    while not (found := condition()):
        waited = time.monotonic() - start
        assert waited < WAIT_LIMIT, f"did not come true within {WAIT_LIMIT:.0f} s"
        # The longer it takes, the more a frequent check would take from what it waits for.
        time.sleep(min(max(waited / 20, _SHORTEST_PAUSE), _LONGEST_PAUSE))
    return found


def process_state(pid: int) -> str:
    """The letter that `ps` shows; empty when the process is gone."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def stop_process(pid: int) -> None:
    """Send SIGSTOP, and return when the process has stopped: it reads and writes until then."""
    os.kill(pid, signal.SIGSTOP)
    until(lambda: process_state(pid) == "T")
