"""Landlock: which files, TCP ports and processes can be reached."""

from __future__ import annotations

import errno
import os
import stat
import struct

from ductile.runner.sandbox.policy import NETWORK_ALL, Policy
from ductile.runner.sandbox.system_calls import syscall

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_GET_VERSION = 1
_RULE_PATH, _RULE_PORT = 1, 2

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR, _REFER, _TRUNCATE = (
    1 << bit for bit in (0, 1, 2, 3, 13, 14)
)
_MAKE_AND_REMOVE = sum(1 << bit for bit in range(4, 13))
READ = _EXECUTE | _READ_FILE | _READ_DIR
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE
"""The rights that a rule about a file, not a directory, may have."""
_BIND_TCP, _CONNECT_TCP = 1, 2
_SCOPE_ABSTRACT_SOCKETS, _SCOPE_SIGNALS = 1, 2

DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")


def find_abi() -> int:
    """The version of Landlock that this process can use; 0 if there is none."""
    try:
        return syscall(_CREATE_RULESET, None, 0, _GET_VERSION)
    except OSError:
        return 0


def _rights(abi: int) -> int:
    rights = READ | _WRITE_FILE | _MAKE_AND_REMOVE
    if abi >= 2:
        rights |= _REFER
    return rights | _TRUNCATE if abi >= 3 else rights


def create_ruleset(policy: Policy) -> int:
    """The descriptor of the rules of a policy."""
    by_port = policy.abi >= 4 and policy.network != NETWORK_ALL
    handled = _BIND_TCP | _CONNECT_TCP if by_port else 0
    scoped = _SCOPE_ABSTRACT_SOCKETS | _SCOPE_SIGNALS if policy.abi >= 6 else 0
    attributes = struct.pack("<QQQ", _rights(policy.abi), handled, scoped)
    ruleset = syscall(_CREATE_RULESET, attributes, len(attributes), 0)
    try:
        for path in policy.read:
            add_path(ruleset, path, READ)
        for path in policy.write:
            add_path(ruleset, path, _rights(policy.abi))
        for path in (*policy.own, *DEVICES):
            add_path(ruleset, path, _rights(policy.abi), follows=True)
        for port in policy.ports if by_port else ():
            syscall(_ADD_RULE, ruleset, _RULE_PORT, struct.pack("<QQ", _CONNECT_TCP, port), 0)
    except BaseException:
        os.close(ruleset)
        raise
    return ruleset


def add_path(ruleset: int, path: str, rights: int, *, follows: bool = False) -> None:
    """Nothing is added for a path that does not exist or cannot be reached.

    Without `follows`, that includes paths with links: granted paths had none when they were
    checked, and a plugin that may write next to one could put a link to the gateway's files there.
    """
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.EACCES, errno.ENOTDIR, errno.ELOOP):
            return
        raise
    try:
        # Not by `openat2`, which the filters of services refuse (RestrictSUIDSGID of systemd).
        if not follows and os.readlink(f"/proc/self/fd/{fd}") != path:
            return
        if not stat.S_ISDIR(os.fstat(fd).st_mode):
            rights &= _OF_FILES
        syscall(_ADD_RULE, ruleset, _RULE_PATH, struct.pack("<Qi", rights, fd), 0)
    finally:
        os.close(fd)


def apply_ruleset(ruleset: int) -> None:
    """For this process and all that it starts."""
    syscall(_RESTRICT_SELF, ruleset, 0)
