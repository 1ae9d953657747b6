"""The system calls that are observed, and the filter that reports them."""

from __future__ import annotations

import errno
from typing import NamedTuple

from ductile.runner.sandbox import seccomp
from ductile.runner.sandbox.seccomp import Instruction

_NOTIFY: Instruction = (0x06, 0, 0, 0x7FC00000)
CURRENT_DIRECTORY = -100


class PathCall(NamedTuple):
    """A system call that names files."""

    what: str
    """`open`, `open how` (openat2), `create`, `execute`, `truncate`; `make`, `remove` and `move`
    (also link) change the entries of directories."""
    paths: tuple[tuple[int, int], ...]
    """The indexes of directory and path; -1 for the current directory."""
    flags: int = -1
    """The index of the flags, or of a pointer to them."""


_AT_CALLS = {
    "openat": PathCall("open", ((0, 1),), 2),
    "openat2": PathCall("open how", ((0, 1),), 2),
    "execve": PathCall("execute", ((-1, 0),)),
    "execveat": PathCall("execute", ((0, 1),)),
    "truncate": PathCall("truncate", ((-1, 0),)),
    "mkdirat": PathCall("make", ((0, 1),)),
    "mknodat": PathCall("make", ((0, 1),)),
    "unlinkat": PathCall("remove", ((0, 1),)),
    "renameat": PathCall("move", ((0, 1), (2, 3))),
    "renameat2": PathCall("move", ((0, 1), (2, 3))),
    "linkat": PathCall("move", ((0, 1), (2, 3))),
    "symlinkat": PathCall("make", ((1, 2),)),
}
_OLD_CALLS = {
    "open": PathCall("open", ((-1, 0),), 1),
    "creat": PathCall("create", ((-1, 0),)),
    "mkdir": PathCall("make", ((-1, 0),)),
    "mknod": PathCall("make", ((-1, 0),)),
    "rmdir": PathCall("remove", ((-1, 0),)),
    "unlink": PathCall("remove", ((-1, 0),)),
    "rename": PathCall("move", ((-1, 0), (-1, 1))),
    "link": PathCall("move", ((-1, 0), (-1, 1))),
    "symlink": PathCall("make", ((-1, 1),)),
}
_FORKS = ("clone", "fork", "vfork")
_NUMBERS = {
    "x86_64": {
        "open": 2,
        "creat": 85,
        "mkdir": 83,
        "mknod": 133,
        "rmdir": 84,
        "unlink": 87,
        "rename": 82,
        "link": 86,
        "symlink": 88,
        "openat": 257,
        "openat2": 437,
        "execve": 59,
        "execveat": 322,
        "truncate": 76,
        "mkdirat": 258,
        "mknodat": 259,
        "unlinkat": 263,
        "renameat": 264,
        "renameat2": 316,
        "linkat": 265,
        "symlinkat": 266,
        "socket": 41,
        "connect": 42,
        "bind": 49,
        "sendto": 44,
        "sendmsg": 46,
        "sendmmsg": 307,
        "clone": 56,
        "fork": 57,
        "vfork": 58,
        "exit_group": 231,
        "mmap": 9,
        "brk": 12,
        "munmap": 11,
        "mremap": 25,
        "close": 3,
        "seccomp": 317,
    },
    "aarch64": {
        "openat": 56,
        "openat2": 437,
        "execve": 221,
        "execveat": 281,
        "truncate": 45,
        "mkdirat": 34,
        "mknodat": 33,
        "unlinkat": 35,
        "renameat": 38,
        "renameat2": 276,
        "linkat": 37,
        "symlinkat": 36,
        "socket": 198,
        "connect": 203,
        "bind": 200,
        "sendto": 206,
        "sendmsg": 211,
        "sendmmsg": 269,
        "clone": 220,
        "exit_group": 94,
        "mmap": 222,
        "brk": 214,
        "munmap": 215,
        "mremap": 216,
        "close": 57,
        "seccomp": 277,
    },
}


def is_known(machine: str) -> bool:
    return machine in _NUMBERS


def call_numbers(machine: str) -> dict[str, int]:
    return _NUMBERS[machine]


def path_calls(machine: str) -> dict[int, PathCall]:
    known = _NUMBERS[machine]
    calls = {**_AT_CALLS, **_OLD_CALLS}
    return {known[name]: call for name, call in calls.items() if name in known}


def fork_calls(machine: str) -> frozenset[int]:
    known = _NUMBERS[machine]
    return frozenset(known[name] for name in _FORKS if name in known)


def build_filter(machine: str, channel: int) -> bytes:
    """The program. Messages on the descriptor `channel` are not reported: the listener itself is
    sent there. What no sandbox permits fails as in a sandbox."""
    numbers = _NUMBERS[machine]
    low, high = ((seccomp.LOAD, 0, 0, seccomp.AT_ARGUMENTS + 8 * 4 + half) for half in (0, 4))
    own = (seccomp.LOAD, 0, 0, seccomp.AT_ARGUMENTS)
    flags = (seccomp.LOAD, 0, 0, seccomp.AT_ARGUMENTS + 8)
    bodies: dict[str, seccomp.Body] = {name: [_NOTIFY] for name in numbers} | {
        # Without an address, the socket was connected before.
        "sendto": [low, (0x15, 0, 2, 0), high, (0x15, 1, 0, 0), _NOTIFY, seccomp.ALLOWED],
        "sendmsg": [own, (0x15, 1, 0, channel), _NOTIFY, seccomp.ALLOWED],
        # A second listener is impossible, and programs that want one do without.
        "seccomp": [
            flags,
            (seccomp.ANY_BIT, 0, 1, 1 << 3),
            seccomp.fail(errno.EBUSY),
            seccomp.ALLOWED,
        ],
        "clone": seccomp.refuse_namespaces(otherwise=_NOTIFY),
    }
    observed = {numbers[name]: body for name, body in bodies.items()}
    return seccomp.assemble(machine, seccomp.refused_calls(machine) | observed)
