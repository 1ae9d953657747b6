"""Which processes hold a file or a port, found without opening it.

Opening a file of the ledger without SQLite and closing it again would drop SQLite's locks.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator
from pathlib import Path

from ductile.config import Settings
from ductile.engine.instance_lock import NAME

NEAR_PORTS = 20
FIRST_READER, LAST_READER = 123, 127
"""Bytes of a `-shm` file: each is a lock that readers share during a transaction."""


def holders(path: Path) -> set[int]:
    """The other processes that have the file open, as far as this user can see.

    A lock taken with `flock` is held by every process that inherited its descriptor, while the
    kernel still names the process that took it.
    """
    wanted = path.resolve()
    return {pid for pid in _other_processes() if wanted in _opened_by(pid)}


def locked_directories() -> set[Path]:
    """The state directories whose lock a process has open, as far as this user can see."""
    opened = {path for pid in _other_processes() for path in _opened_by(pid)}
    return {path.parent for path in opened if path.name == NAME}


def find_listener(port: int) -> str | None:
    """The process that listens on a TCP port, with its name; None if this user cannot see it."""
    sockets = {Path(f"socket:[{inode}]") for inode in _listening(port)}
    for pid in sorted({*_other_processes(), os.getpid()}) if sockets else ():
        if not sockets.isdisjoint(_opened_by(pid)):
            return f"process {pid}{_describe_program(pid)}"
    return None


def _describe_program(pid: int) -> str:
    try:
        return f" ({Path(f'/proc/{pid}/comm').read_text(errors='replace').strip()})"
    except OSError:
        return ""  # It has ended meanwhile.


def _listening(port: int) -> Iterator[str]:
    """The inodes of the sockets that listen on a port."""
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            lines = Path(table).read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        for words in map(str.split, lines):
            if words[3] == "0A" and int(words[1].rpartition(":")[2], 16) == port:
                yield words[9]


def is_port_taken(host: str, port: int) -> bool:
    """Whether a listener cannot be bound because another one has the address."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            trial.bind(address)
    except OSError as error:
        return error.errno == errno.EADDRINUSE
    return False


def find_free_port(host: str, port: int, settings: Settings) -> int:
    """The next port that is free now and no other listener of these settings wants; the same one
    if there is none near it.
    """
    own = {settings.api.address[1], settings.webhooks.address[1]}
    near = (other for other in range(port + 1, min(port + NEAR_PORTS, 65536)) if other not in own)
    return next((other for other in near if not is_port_taken(host, other)), port)


def _other_processes() -> set[int]:
    pids = {int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()}
    return pids - {os.getpid()}


def _opened_by(pid: int) -> Iterator[Path]:
    try:
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            yield descriptor.readlink()
    except OSError:
        return  # It has ended, or belongs to another user.


def wal_readers(ledger: Path) -> set[int]:
    """The processes that hold a read transaction on a SQLite ledger now."""
    try:
        inode = ledger.with_name(f"{ledger.name}-shm").stat().st_ino
        lines = Path("/proc/locks").read_text(encoding="ascii").splitlines()
    except OSError:
        return set()
    found = set()
    for line in lines:
        # `1: POSIX  ADVISORY  READ 4000 fe:00:1234 124 124`; a waiting process has an arrow.
        words = line.split()
        if len(words) == 8 and words[1] == "POSIX" and words[5].endswith(f":{inode}"):
            first, last = int(words[6]), words[7]
            if first >= FIRST_READER and last != "EOF" and int(last) <= LAST_READER:
                found.add(int(words[4]))
    return found
