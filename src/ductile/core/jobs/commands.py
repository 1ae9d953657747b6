"""The commands with a fixed meaning, and the default timeout of each command."""

from __future__ import annotations

POLL = "poll"
HANDLE = "handle"
HEALTH = "health"
INIT = "init"

DEFAULT_TIMEOUTS = {POLL: 60.0, HANDLE: 120.0, HEALTH: 10.0, INIT: 30.0}
OTHER_TIMEOUT = 60.0


def default_timeout(command: str) -> float:
    """Seconds, unless the configuration sets another timeout."""
    return DEFAULT_TIMEOUTS.get(command, OTHER_TIMEOUT)
