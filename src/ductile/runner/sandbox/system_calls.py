"""System calls that Python does not have."""

from __future__ import annotations

import ctypes
import os
from functools import cache

PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS = 22, 38
SECCOMP_FILTER = 2


@cache
def libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def syscall(*arguments: object) -> int:
    result: int = libc().syscall(*map(_as_c, arguments))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def _as_c(argument: object) -> object:
    return ctypes.c_long(argument) if isinstance(argument, int) else argument


def prctl(*arguments: object) -> None:
    if libc().prctl(*map(_as_c, arguments)):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
