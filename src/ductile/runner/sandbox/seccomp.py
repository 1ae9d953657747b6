"""The seccomp filter: which system calls fail."""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import sys
from functools import cache
from typing import NamedTuple

from ductile.runner.sandbox.policy import NETWORK_ALL, NETWORK_NONE, NETWORK_PORTS
from ductile.runner.sandbox.system_calls import PR_SET_SECCOMP, SECCOMP_FILTER, prctl

LOAD, _AND, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x45, 0x06
_ALLOW = 0x7FFF0000
_FAIL = 0x00050000
_AT_NUMBER, _AT_ARCH, AT_ARGUMENTS = 0, 4, 16
_X32 = 0x40000000
_AF_UNIX, _AF_INET, _AF_INET6, _AF_NETLINK = 1, 2, 10, 16
_SOCK_STREAM, _SOCK_DGRAM, _SOCK_RAW, _SOCK_SEQPACKET = 1, 2, 3, 5
_SOCK_TYPE_MASK = 0xF
_TCP, _UDP = 6, 17
_MSG_FASTOPEN = 0x20000000
_IO_URING = (425, 426, 427)
_PIDFD_GETFD = 438


class _Calls(NamedTuple):
    """The numbers of system calls of a processor architecture."""

    arch: int
    socket: int
    socketpair: int
    with_flags: tuple[tuple[int, int], ...]
    """`sendto`, `sendmsg` and `sendmmsg`, with the index of their flags."""
    tracing: tuple[int, ...]
    prlimit: int


_CALLS = {
    "x86_64": _Calls(0xC000003E, 41, 53, ((44, 3), (46, 2), (307, 3)), (101, 310, 311), 302),
    "aarch64": _Calls(0xC00000B7, 198, 199, ((206, 3), (211, 2), (269, 3)), (117, 270, 271), 261),
}

Instruction = tuple[int, int, int, int]
"""Code, jumps if true and if false, operand."""


ALLOWED: Instruction = (_RETURN, 0, 0, _ALLOW)


def fail(code: int) -> Instruction:
    return _RETURN, 0, 0, _FAIL | code


def when(number: int, body: list[Instruction]) -> list[Instruction]:
    """Run a body, which returns, for one system call."""
    return [(_EQUAL, 0, len(body), number), *body]


def _only(
    values: tuple[int, ...], argument: int, failure: Instruction, mask: int = 0xFFFFFFFF
) -> list[Instruction]:
    """Return a failure unless these bits of an argument are one of these values."""
    tests = [(_EQUAL, len(values) - at, 0, value) for at, value in enumerate(values)]
    return [(LOAD, 0, 0, AT_ARGUMENTS + 8 * argument), (_AND, 0, 0, mask), *tests, failure]


def begin_filter(machine: str) -> list[Instruction]:
    """What no sandbox permits: other processor modes, io_uring, and access to other processes."""
    calls = _CALLS[machine]
    program: list[Instruction] = [
        (LOAD, 0, 0, _AT_ARCH),
        (_EQUAL, 1, 0, calls.arch),
        fail(errno.ENOSYS),
        (LOAD, 0, 0, _AT_NUMBER),
        (_AT_LEAST, 0, 1, _X32),
        fail(errno.ENOSYS),
    ]
    # Programs that find no io_uring do without.
    for number in _IO_URING:
        program += when(number, [fail(errno.ENOSYS)])
    for number in (*calls.tracing, _PIDFD_GETFD):
        program += when(number, [fail(errno.EPERM)])
    # Not for other processes, which a limit of processor time would kill.
    program += when(calls.prlimit, [*_only((0,), 0, fail(errno.EPERM)), ALLOWED])
    return program


@cache
def build_filter(machine: str, network: str) -> bytes:
    """The program: which system calls fail, by processor architecture and network access.

    Sockets of the family Unix are refused too, except for connected pairs: Landlock does not check
    who connects to a socket's path, and the gateway's own socket needs no token.
    """
    calls = _CALLS[machine]
    refused, allowed = fail(errno.EACCES), ALLOWED
    program = begin_filter(machine)
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
    program += when(calls.socket, sockets[network])
    # A pair of datagram sockets could be connected to another socket.
    connected = _only((_SOCK_STREAM, _SOCK_SEQPACKET), 1, refused, _SOCK_TYPE_MASK)
    pair = [*_only((_AF_UNIX,), 0, refused), *connected, allowed]
    program += when(calls.socketpair, pair)
    for number, index in calls.with_flags if network == NETWORK_PORTS else ():
        flags = (LOAD, 0, 0, AT_ARGUMENTS + 8 * index)
        program += when(number, [flags, (_ANY_BIT, 0, 1, _MSG_FASTOPEN), refused, allowed])
    program.append(allowed)
    return b"".join(struct.pack("<HBBI", *instruction) for instruction in program)


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
