"""What was observed in one run, as it is written and read."""

from __future__ import annotations

import json
import os
from typing import Any

MAX_PATHS = 20_000
_INTERNET = (2, 10)
_UNIX, _NETLINK = 1, 16
_STREAM, _DATAGRAM = 1, 2
_USUAL_PROTOCOLS = (0, 6, 17)


class Record:
    """Bounded: a plugin decides how many files it opens."""

    def __init__(self) -> None:
        self.paths: set[tuple[str, str]] = set()
        """How, and the path: `read`, `list` (a directory), `write` (a file that exists), `change`
        (the entries of a directory)."""
        self.tcp: set[int] = set()
        self.udp: set[int] = set()
        self.needs_all: set[str] = set()
        """Why a list of ports is not enough."""
        self.unix: set[str] = set()
        self.families: set[int] = set()
        """Families of sockets that no sandbox permits."""
        self.memory = 0
        """Of the process that had most, in bytes."""
        self.cpu_time = 0.0
        self.file_size = 0
        self.tasks = 1
        """Processes and threads at the same time."""
        self.missed = 0
        """System calls whose arguments could not be read."""
        self.problem = ""

    def note_missed(self, error: Exception) -> None:
        """A call whose arguments cannot be read, as a rule because its process was killed."""
        self.missed += 1
        if not isinstance(error, OSError):
            self.problem = f"{type(error).__name__}: {error}"

    def note_usage(self, memory: int, cpu: float) -> None:
        self.memory = max(self.memory, memory)
        self.cpu_time = max(self.cpu_time, cpu)

    def note_size(self, size: int) -> None:
        self.file_size = max(self.file_size, size)

    def note_path(self, how: str, path: str) -> None:
        if len(self.paths) < MAX_PATHS:
            self.paths.add((how, path))
        elif (how, path) not in self.paths:
            self.missed += 1

    def note_socket(self, family: int, kind: int, protocol: int) -> None:
        if family in _INTERNET:
            if kind not in (_STREAM, _DATAGRAM) or protocol not in _USUAL_PROTOCOLS:
                self.needs_all.add("it uses protocols other than TCP and UDP")
        elif family not in (_UNIX, _NETLINK):
            self.families.add(family)

    def note_address(self, call: str, is_stream: bool, port: int) -> None:
        if not is_stream:
            self.udp.add(port)
        elif call == "bind":
            self.needs_all.add("it accepts TCP connections, or chooses the port it connects from")
        else:
            self.tcp.add(port)

    def note_unix(self, name: str) -> None:
        if len(self.unix) < MAX_PATHS:
            self.unix.add(name)

    def encode(self) -> bytes:
        fields = {
            name: sorted(value) if isinstance(value, set) else value
            for name, value in vars(self).items()
        }
        return json.dumps(fields).encode("utf-8", "surrogateescape")


def decode_record(encoded: bytes) -> Record:
    record = Record()
    found: dict[str, Any] = json.loads(encoded.decode("utf-8", "surrogateescape"))
    for name, value in found.items():
        if name == "paths":
            record.paths = {(how, path) for how, path in value}
        else:
            setattr(record, name, set(value) if isinstance(value, list) else value)
    return record


def write_record(fd: int, record: Record) -> None:
    """Whole: the file is read when the run has been answered. It replaces the record of an attempt
    to start the plugin that is repeated."""
    os.ftruncate(fd, 0)
    os.lseek(fd, 0, os.SEEK_SET)
    rest = memoryview(record.encode())
    while rest:
        rest = rest[os.write(fd, rest) :]
