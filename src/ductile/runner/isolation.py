"""Protection of the gateway from the plugins that run with its user's rights.

Zygotes load this module with the Python of their plugin, which may be 3.9.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import ctypes
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_PR_SET_DUMPABLE = 4
_OOM_STEP = 500
_OOM_MAX = 1000

Streams = tuple[int, int, int]
"""The descriptors for stdin, stdout and stderr of a plugin."""


def forbid_inspection() -> None:
    """Deny other processes of this user the access to our memory, environment and descriptors.

    A fork inherits this; a program that is executed does not.
    """
    prctl(_PR_SET_DUMPABLE, 0)


def allow_inspection() -> None:
    """Undo `forbid_inspection`, in a fork that becomes a plugin's process without an exec."""
    prctl(_PR_SET_DUMPABLE, 1)


# Looked up once: a fork that calls it later has it already.
_libc_prctl = ctypes.CDLL(None, use_errno=True).prctl


def prctl(option: int, value: int) -> None:
    """Set an attribute of this process; OSError if that fails."""
    if _libc_prctl(option, value, 0, 0, 0):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


_oom_score = b""


def plugin_oom_score() -> bytes:
    """The value of `oom_score_adj` for plugins: above our own, so that the kernel kills them first
    where memory is short."""
    global _oom_score
    if not _oom_score:
        with open("/proc/self/oom_score_adj", "rb", buffering=0) as file:
            own = int(file.read())
        _oom_score = b"%d" % min(own + _OOM_STEP, _OOM_MAX)
    return _oom_score


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


# What the kernel's exec, or `posix_spawn`, does otherwise


def handled_signals() -> tuple[int, ...]:
    """The signals that this process does not handle by default."""
    catchable = _signal.valid_signals() - {_signal.SIGKILL, _signal.SIGSTOP}
    return tuple(number for number in catchable if _signal.getsignal(number) is not _signal.SIG_DFL)


def prepare_child(
    streams: Streams, handled: tuple[int, ...], restrict: Callable[[], None] | None = None
) -> None:
    """In a fork that is to run a plugin's code: become the leader of a new group, with default
    signals, these streams and no other descriptor, and a memory that its user may inspect.

    `handled` comes from `handled_signals`. Objects that own a descriptor from 3 must be gone,
    except for what `restrict` uses, which is called before.
    """
    reset_process(streams, handled)
    if restrict is not None:
        restrict()
    _close_others()
    allow_inspection()


def reset_process(streams: Streams, handled: tuple[int, ...]) -> None:
    """In a fork: become the leader of a new group, with default signals and these streams."""
    os.setpgid(0, 0)
    # Not by the functions of `signal`: the enumerations behind them touch a hundred pages of
    # memory, and a fork copies each that it touches.
    for number in handled:
        _signal.signal(number, _signal.SIG_DFL)
    _signal.pthread_sigmask(_signal.SIG_SETMASK, ())
    for target, stream in enumerate(streams):
        os.dup2(stream, target)


def _close_others() -> None:
    if sys.version_info >= (3, 10):  # noqa: UP036
        # One system call.
        os.closerange(3, 2**31 - 1)
        return
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2:
            try:
                os.close(int(name))
            except OSError:
                pass
