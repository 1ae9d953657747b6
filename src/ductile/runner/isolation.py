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

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_OOM_STEP = 500
_OOM_MAX = 1000
_LAST_DESCRIPTOR = 2**31 - 2

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


def end_with_parent(*, is_wanted: bool) -> None:
    """Whether the kernel kills this process when the thread ends that has started it."""
    prctl(_PR_SET_PDEATHSIG, _signal.SIGKILL if is_wanted else 0)


# Looked up once: a fork that calls it later has it already.
_libc_prctl = ctypes.CDLL(None, use_errno=True).prctl


def prctl(option: int, value: int) -> None:
    """Set an attribute of this process; OSError if that fails."""
    if _libc_prctl(option, value, 0, 0, 0):
        raise _errno_as_error()


def _errno_as_error() -> OSError:
    code = ctypes.get_errno()
    return OSError(code, os.strerror(code))


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


def find_code_descriptors() -> list[int]:
    """The descriptors of files from which this process executes code, in order.

    Newer versions of libffi keep one, from which they map the code of further C callbacks.
    """
    with open("/proc/self/maps", "rb") as maps:
        parts = [line.rstrip(b"\n").split(None, 5) for line in maps]
    executed = {part[5] for part in parts if len(part) == 6 and b"x" in part[1]}
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(b"/proc/self/fd/" + name.encode()) in executed:
                found.append(int(name))
        except OSError:
            continue
    return sorted(found)


def make_child_preparation(
    handled: tuple[int, ...], kept: list[int]
) -> Callable[[Streams, Callable[[], None] | None], None]:
    """What to call in a fork that is to run a plugin's code: become the leader of a new group, with
    default signals, these streams, and a memory that its user may inspect.

    `handled` comes from `handled_signals`, `kept` from `find_code_descriptors`: no other descriptor
    stays open. Objects that own one from 3 must be gone, except for what the second argument uses,
    which is called before.
    """
    # All that it needs is looked up here: a fork copies each page that a lookup writes to.
    set_group, set_handler, default = os.setpgid, _signal.signal, _signal.SIG_DFL
    set_mask, replace, duplicate = _signal.pthread_sigmask, _signal.SIG_SETMASK, os.dup2
    set_attribute, dumpable = _libc_prctl, _PR_SET_DUMPABLE
    close_others = os.closerange if sys.version_info >= (3, 10) else _close_others
    ranges, first = [], 3
    for end in (*(number for number in kept if number >= first), _LAST_DESCRIPTOR):
        ranges.append((first, end))
        first = end + 1
    # The C library looks up a function at its first call.
    close_others(_LAST_DESCRIPTOR, _LAST_DESCRIPTOR + 1)

    def prepare(streams: Streams, restrict: Callable[[], None] | None) -> None:
        set_group(0, 0)
        for number in handled:
            set_handler(number, default)
        set_mask(replace, ())
        stdin, stdout, stderr = streams
        duplicate(stdin, 0)
        duplicate(stdout, 1)
        duplicate(stderr, 2)
        if restrict is not None:
            restrict()
        for first, end in ranges:
            close_others(first, end)
        if set_attribute(dumpable, 1, 0, 0, 0):
            raise _errno_as_error()

    return prepare


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


def _close_others(first: int, end: int) -> None:
    """As `os.closerange`, which closes one by one before Python 3.10."""
    for name in os.listdir("/proc/self/fd"):
        if first <= int(name) < end:
            try:
                os.close(int(name))
            except OSError:
                pass
