"""Receives the system calls of an observed plugin, and records what they touch."""

from __future__ import annotations

import errno
import fcntl
import os
import select
import signal
import socket
import stat
import struct
import threading
from typing import NamedTuple

from ductile.runner import reaper
from ductile.runner.observe import calls
from ductile.runner.observe.process import ObservedProcess, find_interpreter, hide_number
from ductile.runner.observe.record import MAX_PATHS, Record

_RECEIVE, _SEND = 0xC0502100, 0xC0182101
_NOTICE = struct.Struct("<QIIiIQ6Q")
_ANSWER = struct.Struct("<QqiI")
_CONTINUE = 1
_LISTENER_SECONDS = 10
_END_SECONDS = 5.0
_PATH_ONLY, _CREATE, _DIRECTORY, _TEMPORARY_FILE, _TRUNCATE = (
    os.O_PATH,
    os.O_CREAT,
    os.O_DIRECTORY,
    os.O_TMPFILE & ~os.O_DIRECTORY,
    os.O_TRUNC,
)
_WRITABLE_AND_PRIVATE = 2
_MAP_PRIVATE = 2
_AF_UNIX, _AF_NETLINK = 1, 16
_NEGATIVE = 1 << 31
FAILURE_BYTES = 4
"""Of an error's number, which is sent in place of the listener."""
_TERMINAL = "/dev/tty"
"""A plugin has none: the call fails."""
_CACHE = "__pycache__"
"""Python does without, where it cannot write it."""


class _NamedPath(NamedTuple):
    """A path in a system call."""

    folder: str
    """What a relative path starts from, as `ObservedProcess.resolve` takes it."""
    text: str
    parent: str
    """The real path of the directory that contains it."""
    entry: str
    """The path of the entry itself, which may be a link."""


class CallObserver(threading.Thread):
    """Answers the notices of one run, from the filter's installation to the end of the last
    process that has it."""

    def __init__(self, channel: socket.socket, record: Record) -> None:
        super().__init__(name="observer", daemon=True)
        self._channel, self._record = channel, record
        self._machine = os.uname().machine
        self._paths = calls.path_calls(self._machine)
        self._forks = calls.fork_calls(self._machine)
        self._names = {n: name for name, n in calls.call_numbers(self._machine).items()}
        self._leader = 0
        self._is_started = False
        self._written: set[str] = set()
        """Files that were opened to be written."""

    def run(self) -> None:
        self._channel.settimeout(_LISTENER_SECONDS)
        try:
            failure, fds, _, _ = socket.recv_fds(self._channel, FAILURE_BYTES, 1)
        except OSError as error:
            self._give_up(f"no listener: {error}")
            return
        finally:
            self._channel.close()
        if not fds:
            self._record.problem = _explain(int.from_bytes(failure, "little"))
            return
        try:
            self._serve(fds[0])
        except OSError as error:
            self._give_up(f"the observation ended early: {error}")
        finally:
            # Calls that are reported from now on fail; none is left waiting.
            os.close(fds[0])
            for path in self._written:
                self._note_size(path)

    def wait(self) -> None:
        """For the last notice: all processes have ended."""
        self.join(_END_SECONDS)
        if self.is_alive():
            self._record.problem = "the observation did not end with the plugin"

    def _give_up(self, problem: str) -> None:
        """End the processes, which may wait for an answer."""
        self._record.problem = problem
        for pid in reaper.children(os.getpid()):
            reaper.send_signal(pid, signal.SIGKILL)

    def _serve(self, listener: int) -> None:
        poller = select.poll()
        poller.register(listener, select.POLLIN)
        while True:
            for _, events in poller.poll():
                if not events & select.POLLIN:
                    return
                notice = bytearray(_NOTICE.size)
                try:
                    fcntl.ioctl(listener, _RECEIVE, notice)
                except FileNotFoundError:
                    # It was killed meanwhile.
                    continue
                id, task, _, number, _, _, *arguments = _NOTICE.unpack(notice)
                was_started = self._is_started
                try:
                    self._note(task, number, arguments)
                except Exception as error:  # noqa: BLE001 - the process waits for an answer
                    if isinstance(error, OSError) and not was_started:
                        # The program is not executed: all that follows could not be read either.
                        raise OSError(f"its memory cannot be read ({error})") from None
                    self._record.note_missed(error)
                try:
                    answer = bytearray(_ANSWER.pack(id, 0, 0, _CONTINUE))
                    fcntl.ioctl(listener, _SEND, answer)
                except FileNotFoundError:
                    continue

    def _note(self, task: int, number: int, arguments: list[int]) -> None:
        process = ObservedProcess(task)
        self._leader = self._leader or process.pid
        name = self._names.get(number, "")
        if self._is_started:
            self._record.note_usage(process.data_bytes, process.cpu_seconds())
        # Before, the process is a copy of this one.
        self._is_started = self._is_started or name == "execve"
        if number in self._paths:
            self._note_paths(process, self._paths[number], arguments)
        elif number in self._forks:
            self._record.tasks = max(self._record.tasks, process.count_tasks(os.getpid()) + 1)
        elif name == "mmap" and self._is_started:
            length, protection, flags = arguments[1:4]
            if protection & _WRITABLE_AND_PRIVATE and flags & _MAP_PRIVATE:
                self._record.note_usage(process.data_bytes + length, 0.0)
        elif name == "close":
            self._record.note_size(process.size_of(arguments[0]))
        elif name == "exit_group":
            for size in process.sizes():
                self._record.note_size(size)
        elif name in ("connect", "bind", "sendto", "sendmsg", "sendmmsg", "socket"):
            self._note_network(process, name, arguments)

    # Files

    def _note_paths(
        self, process: ObservedProcess, call: calls.PathCall, arguments: list[int]
    ) -> None:
        flags = arguments[call.flags] if call.flags >= 0 else 0
        if call.what == "open how":
            flags = struct.unpack("<Q", process.read_memory(flags, 8))[0]
        named = [self._read_name(process, arguments, pair) for pair in call.paths]
        if call.what in ("make", "remove", "move"):
            # Calls that fail for another reason need no right.
            if os.path.lexists(named[0].entry) != (call.what == "make"):
                for one in named:
                    self._note_change(process, one.parent, one.entry)
            return
        [(folder, text, _, _)] = named
        found = process.resolve(folder, text)
        if call.what == "execute":
            self._note_program(process, found)
        elif call.what == "truncate":
            self._note_open(process, found, os.O_WRONLY)
        elif call.what == "create":
            self._note_open(process, found, os.O_WRONLY | _CREATE)
        else:
            self._note_open(process, found, flags)

    def _read_name(
        self, process: ObservedProcess, arguments: list[int], pair: tuple[int, int]
    ) -> _NamedPath:
        directory, path = pair
        text = process.read_text(arguments[path])
        at = arguments[directory] if directory >= 0 else -1
        folder = "." if directory < 0 or _is_current(at) else f"fd/{at & 0xFFFFFFFF}"
        parent = process.parent(folder, text)
        return _NamedPath(folder, text, parent, os.path.join(parent, _last_part(text)))

    def _note_change(self, process: ObservedProcess, parent: str, path: str) -> None:
        entry = _last_part(path)
        self._note_size(os.path.join(parent, entry))
        if _CACHE not in (entry, os.path.basename(parent)):
            self._record.note_path("change", self._shown(process, parent))

    def _note_open(self, process: ObservedProcess, path: str, flags: int) -> None:
        if flags & _PATH_ONLY or path == _TERMINAL:
            return
        shown = self._shown(process, path)
        mode = flags & os.O_ACCMODE
        if mode != os.O_RDONLY and len(self._written) < MAX_PATHS:
            self._written.add(path)
        if flags & _TEMPORARY_FILE:
            self._record.note_path("change", shown)
        elif not os.path.lexists(path):
            if flags & _CREATE:
                self._note_change(process, os.path.dirname(path), path)
        elif mode != os.O_RDONLY or flags & _TRUNCATE:
            if os.access(path, os.W_OK):
                self._record.note_path("write", shown)
        elif os.access(path, os.R_OK):
            self._record.note_path("list" if os.path.isdir(path) else "read", shown)

    def _note_size(self, path: str) -> None:
        """Before a file that was written gets another name, and at the end."""
        if path in self._written:
            try:
                about = os.lstat(path)
            except OSError:
                return
            if stat.S_ISREG(about.st_mode):
                self._record.note_size(about.st_size)

    def _note_program(self, process: ObservedProcess, path: str) -> None:
        for _ in range(4):
            if not os.access(path, os.X_OK) or os.path.isdir(path):
                return
            self._record.note_path("read", self._shown(process, path))
            interpreter = find_interpreter(path)
            if not interpreter:
                return
            path = process.resolve(".", interpreter)

    def _shown(self, process: ObservedProcess, path: str) -> str:
        """The path, with `self` for the process that the sandbox would let inspect itself."""
        return hide_number(path, process.pid, is_leader=process.pid == self._leader)

    # Network

    def _note_network(self, process: ObservedProcess, name: str, arguments: list[int]) -> None:
        if name == "socket":
            family, kind, protocol = (number & 0xFFFFFFFF for number in arguments[:3])
            self._record.note_socket(family, kind & 0xF, protocol)
            return
        fd = arguments[0]
        if name == "sendto":
            pointer, length = arguments[4:6]
        elif name in ("sendmsg", "sendmmsg"):
            pointer, length = struct.unpack("<QI", process.read_memory(arguments[1], 12))
        else:
            pointer, length = arguments[1:3]
        if not pointer or not length:
            return
        address = process.read_memory(pointer, min(length, 128))
        family = int.from_bytes(address[:2], "little")
        if family == _AF_UNIX:
            self._record.note_unix(_unix_name(address[2:]))
        elif family in (socket.AF_INET, socket.AF_INET6) and len(address) >= 4:
            port = int.from_bytes(address[2:4], "big")
            self._record.note_address(name, process.is_stream(fd), port)


def _explain(code: int) -> str:
    """Why a process could not be observed, by the error of its first system call."""
    if code == errno.EBUSY:
        return "another program, such as a container runtime, observes its system calls already"
    if code:
        reason = os.strerror(code)
        return (
            f"no seccomp notifications ({reason}): they need Linux 5.5, and a filter of the "
            "service or the container may refuse them"
        )
    return "its process ended early: a filter of the service or the container may have killed it"


def _last_part(path: str) -> str:
    return os.path.basename(path.rstrip("/"))


def _is_current(directory: int) -> bool:
    number = directory & 0xFFFFFFFF
    return number - (1 << 32) == calls.CURRENT_DIRECTORY if number & _NEGATIVE else False


def _unix_name(raw: bytes) -> str:
    if raw.startswith(b"\0"):
        return "@" + raw[1:].decode("utf-8", "replace")
    return raw.partition(b"\0")[0].decode("utf-8", "replace")
