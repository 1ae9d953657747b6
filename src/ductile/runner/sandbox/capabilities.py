"""The capabilities of a sandboxed process, where the gateway runs as root or has some of its own.

Landlock and the filter do not cover what these permit: devices and raw disks, packets of any kind,
programs in the kernel, the time and name of the machine.
"""

from __future__ import annotations

import ctypes
import os

from ductile.runner.sandbox.system_calls import libc

_VERSION_3 = 0x20080522
_KEPT = (
    *(0, 1, 3, 4),  # CHOWN, DAC_OVERRIDE, FOWNER, FSETID
    *(5, 6, 7),  # KILL, SETGID, SETUID
    10,  # NET_BIND_SERVICE
)
"""Files of every user, as far as Landlock grants them; programs that become another user; ports
below 1024, as far as the network is granted."""

_Words = ctypes.c_uint32 * 6
"""Effective, permitted and inheritable ones, of which the lower 32 come first."""


def drop_capabilities() -> None:
    """Keep only `_KEPT`, permanently where new privileges are refused."""
    header = (ctypes.c_uint32 * 2)(_VERSION_3, 0)
    words = _Words()
    _call("capget", header, words)
    if any(words):
        low = sum(1 << number for number in _KEPT)
        _call("capset", header, _Words(*(word & low for word in words[:3])))


def _call(name: str, *arguments: object) -> None:
    if getattr(libc(), name)(*arguments):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
