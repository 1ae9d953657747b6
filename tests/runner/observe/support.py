"""Whether this machine permits observation."""

from __future__ import annotations

import ctypes
import os

from ductile.runner.sandbox.system_calls import syscall

_SECCOMP = {"x86_64": 317, "aarch64": 277}


def can_observe() -> bool:
    """Whether the kernel has seccomp notifications, for a processor that the observer knows."""
    if os.uname().machine not in _SECCOMP:
        return False
    try:
        # SECCOMP_GET_ACTION_AVAIL of SECCOMP_RET_USER_NOTIF.
        syscall(_SECCOMP[os.uname().machine], 2, 0, ctypes.byref(ctypes.c_uint32(0x7FC00000)))
    except OSError:
        return False
    return True
