"""The seccomp filter: which system calls fail."""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import sys
from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

from ductile.runner.sandbox.policy import NETWORK_ALL, NETWORK_NONE, NETWORK_PORTS
from ductile.runner.sandbox.system_calls import PR_SET_SECCOMP, SECCOMP_FILTER, prctl

LOAD, _AND, _EQUAL, _AT_LEAST, ANY_BIT, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x45, 0x06
_ALLOW = 0x7FFF0000
_FAIL = 0x00050000
_AT_NUMBER, _AT_ARCH, AT_ARGUMENTS = 0, 4, 16
_X32 = 0x40000000
_AF_UNIX, _AF_INET, _AF_INET6, _AF_NETLINK = 1, 2, 10, 16
_SOCK_STREAM, _SOCK_DGRAM, _SOCK_RAW, _SOCK_SEQPACKET = 1, 2, 3, 5
_SOCK_TYPE_MASK = 0xF
_TCP, _UDP = 6, 17
_MSG_FASTOPEN = 0x20000000
_NAMESPACES = 0x7E020080
"""`CLONE_NEW*` for `unshare` and `clone`: user, mount, process ids, network, and the others."""
_PRIO_PROCESS, _IOPRIO_PROCESS = 0, 1
_IO_URING = (425, 426, 427)
_CLONE3 = 435
_PIDFD_GETFD = 438


class _Calls(NamedTuple):
    """The numbers of system calls of a processor architecture."""

    arch: int
    socket: int
    socketpair: int
    with_flags: tuple[tuple[int, int], ...]
    """`sendto`, `sendmsg` and `sendmmsg`, with the index of their flags."""
    of_process: tuple[int, ...]
    """Calls whose first argument is a process, or 0 for the caller: `prlimit`, and those that set
    its scheduling and its cores."""
    priorities: tuple[int, int]
    """`setpriority` and `ioprio_set`: processes of a kind, then which."""
    with_namespaces: tuple[int, int]
    """`clone` and `unshare`, whose first argument has the flags."""
    refused: tuple[int, ...]
    """In the order of `_CALLS`: access to other processes; objects that are not files and are
    shared by the processes of a user, also after the end of a job; other namespaces; parts of the
    kernel that had many vulnerabilities. What only a capability permits, such as `mount`, is
    refused without the filter."""


_CALLS = {
    "x86_64": _Calls(
        0xC000003E,
        *(41, 53, ((44, 3), (46, 2), (307, 3))),
        # prlimit64, sched_setaffinity, sched_setattr, sched_setparam, sched_setscheduler
        (302, 203, 314, 142, 144),
        (141, 251),
        (56, 272),
        (
            *(101, 310, 311, 312),  # ptrace, process_vm_readv, process_vm_writev, kcmp
            *(29, 30, 31, *range(64, 72), 220),  # System V shared memory, semaphores, messages
            *(240, 241),  # mq_open, mq_unlink
            *(248, 249, 250),  # add_key, request_key, keyctl
            308,  # setns
            *(298, 321, 323),  # perf_event_open, bpf, userfaultfd
        ),
    ),
    "aarch64": _Calls(
        0xC00000B7,
        *(198, 199, ((206, 3), (211, 2), (269, 3))),
        (261, 122, 274, 118, 119),
        (140, 30),
        (220, 97),
        (
            *(117, 270, 271, 272),
            *range(186, 198),
            *(180, 181),
            *(217, 218, 219),
            268,
            *(241, 280, 282),
        ),
    ),
}

Instruction = tuple[int, int, int, int]
"""Code, jumps if true and if false, operand."""
Body = list[Instruction]
"""What is done with one system call; it returns."""

ALLOWED: Instruction = (_RETURN, 0, 0, _ALLOW)


def fail(code: int) -> Instruction:
    return _RETURN, 0, 0, _FAIL | code


def _only(
    values: tuple[int, ...], argument: int, failure: Instruction, mask: int = 0
) -> list[Instruction]:
    """Return a failure unless an argument, or these bits of it, are one of these values."""
    tests = [(_EQUAL, len(values) - at, 0, value) for at, value in enumerate(values)]
    bits = [(_AND, 0, 0, mask)] if mask else []
    return [(LOAD, 0, 0, AT_ARGUMENTS + 8 * argument), *bits, *tests, failure]


def refuse_namespaces(otherwise: Instruction = ALLOWED) -> Body:
    """For `clone` and `unshare`."""
    return [
        (LOAD, 0, 0, AT_ARGUMENTS),
        (ANY_BIT, 0, 1, _NAMESPACES),
        fail(errno.EPERM),
        otherwise,
    ]


def refused_calls(machine: str) -> dict[int, Body]:
    """What no sandbox permits, by the number of the system call."""
    calls = _CALLS[machine]
    # Programs that find no io_uring do without. A filter cannot read the flags of `clone3`, in
    # whose place C libraries use `clone`.
    bodies: dict[int, Body] = {number: [fail(errno.ENOSYS)] for number in (*_IO_URING, _CLONE3)}
    bodies |= {number: [fail(errno.EPERM)] for number in (*calls.refused, _PIDFD_GETFD)}
    bodies |= {number: refuse_namespaces() for number in calls.with_namespaces}
    # Not for other processes: a limit of processor time would kill them, and they would keep a low
    # priority after the end of the job. A filter does not know the numbers of the job's own ones.
    refused = fail(errno.EPERM)
    bodies |= {number: [*_only((0,), 0, refused), ALLOWED] for number in calls.of_process}
    kinds = _PRIO_PROCESS, _IOPRIO_PROCESS
    for number, kind in zip(calls.priorities, kinds):  # noqa: B905 - zygotes may be 3.9
        bodies[number] = [*_only((kind,), 0, refused), *_only((0,), 1, refused), ALLOWED]
    return bodies


def assemble(machine: str, bodies: Mapping[int, Body]) -> bytes:
    """The program of a filter that allows what has no body, and no other processor mode."""
    leaves: list[tuple[int, Body]] = [(0, [ALLOWED])]
    for number in sorted(bodies):
        if leaves[-1][0] == number:
            leaves.pop()
        leaves += [(number, bodies[number]), (number + 1, [ALLOWED])]
    # Of numbers with the same body, only the first one is compared.
    whole = [leaves[0]]
    whole += [leaf for at, leaf in enumerate(leaves[1:]) if leaf[1] != leaves[at][1]]
    program: list[Instruction] = [
        (LOAD, 0, 0, _AT_ARCH),
        (_EQUAL, 1, 0, _CALLS[machine].arch),
        fail(errno.ENOSYS),
        (LOAD, 0, 0, _AT_NUMBER),
        *_bisect([*whole, (_X32, [fail(errno.ENOSYS)])]),
    ]
    return b"".join(struct.pack("<HBBI", *instruction) for instruction in program)


def _bisect(leaves: list[tuple[int, Body]]) -> list[Instruction]:
    """The body of the last leaf whose number is not larger than that of the system call.

    By bisection: for each installation of a filter the kernel runs it for every system call.
    """
    if len(leaves) == 1:
        return leaves[0][1]
    middle = len(leaves) // 2
    below, above = _bisect(leaves[:middle]), _bisect(leaves[middle:])
    return [(_AT_LEAST, len(below), 0, leaves[middle][0]), *below, *above]


@cache
def build_filter(machine: str, network: str) -> bytes:
    """The program: which system calls fail, by processor architecture and network access.

    Sockets of the family Unix are refused too, except for connected pairs: Landlock does not check
    who connects to a socket's path, and the gateway's own socket needs no token.
    """
    calls = _CALLS[machine]
    refused, allowed = fail(errno.EACCES), ALLOWED
    bodies = refused_calls(machine)
    family = _only((_AF_INET, _AF_INET6, _AF_NETLINK), 0, refused)
    # Protocols such as MPTCP, and data in the first packet, are not subject to Landlock's ports.
    # Where no protocol is named, other types choose one, such as SCTP. Netlink uses raw ones.
    types = _only((_SOCK_STREAM, _SOCK_DGRAM, _SOCK_RAW), 1, refused, _SOCK_TYPE_MASK)
    protocol = [*types, *_only((0, _TCP, _UDP), 2, refused)]
    sockets = {
        NETWORK_NONE: [refused],
        NETWORK_PORTS: [*family, *protocol, allowed],
        NETWORK_ALL: [*family, allowed],
    }
    bodies[calls.socket] = sockets[network]
    # A pair of datagram sockets could be connected to another socket.
    connected = _only((_SOCK_STREAM, _SOCK_SEQPACKET), 1, refused, _SOCK_TYPE_MASK)
    bodies[calls.socketpair] = [*_only((_AF_UNIX,), 0, refused), *connected, allowed]
    for number, index in calls.with_flags if network == NETWORK_PORTS else ():
        flags = (LOAD, 0, 0, AT_ARGUMENTS + 8 * index)
        bodies[number] = [flags, (ANY_BIT, 0, 1, _MSG_FASTOPEN), refused, allowed]
    return assemble(machine, bodies)


class FilterProgram(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def apply_filter(program: bytes) -> None:
    """For this process and all that it starts."""
    whole = FilterProgram(len(program) // 8, program)
    prctl(PR_SET_SECCOMP, SECCOMP_FILTER, ctypes.byref(whole), 0, 0)


def has_seccomp() -> bool:
    """Whether filters can be applied to processes of this machine."""
    if os.uname().machine not in _CALLS or sys.byteorder != "little":
        return False
    try:
        prctl(PR_SET_SECCOMP, SECCOMP_FILTER, None, 0, 0)
    except OSError as error:
        # It has tried to read the filter.
        return error.errno == errno.EFAULT
    return False
