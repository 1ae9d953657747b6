"""Protection of the gateway from the plugins that run with its user's rights."""

from __future__ import annotations

import ctypes
import os
from functools import cache

_PR_SET_DUMPABLE = 4
_OOM_STEP = 500
_OOM_MAX = 1000


def forbid_inspection() -> None:
    """Deny other processes of this user the access to our memory, environment and descriptors.

    A fork inherits this; a program that is executed does not.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


@cache
def plugin_oom_score() -> bytes:
    """The value of `oom_score_adj` for plugins: above our own, so that the kernel kills them first
    where memory is short."""
    with open("/proc/self/oom_score_adj", "rb", buffering=0) as file:
        own = int(file.read())
    return b"%d" % min(own + _OOM_STEP, _OOM_MAX)


def set_oom_score(pid: int, score: bytes) -> None:
    """Set it for a child that may have ended, or that may have another user's rights."""
    try:
        fd = os.open(f"/proc/{pid}/oom_score_adj", os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        return
    try:
        os.write(fd, score)
    except OSError:
        pass
    finally:
        os.close(fd)
