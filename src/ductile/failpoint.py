"""Named places where a test may kill the process, like a power failure.

`DUCTILE_FAILPOINT=settle.before:3` kills it with SIGKILL the third time it gets there.
Unset, a failpoint costs one comparison.
"""

from __future__ import annotations

import os
import signal

_name, _, _count = os.environ.get("DUCTILE_FAILPOINT", "").partition(":")
_left = int(_count or 1)


def failpoint(name: str) -> None:
    """Kill the process here if the environment names this failpoint."""
    if not _name or name != _name:
        return
    global _left
    _left -= 1
    if _left <= 0:
        os.kill(os.getpid(), signal.SIGKILL)
