"""Starts a plugin under the filter that reports its system calls."""

from __future__ import annotations

import ctypes
import errno
import os
import socket

from ductile.runner import isolation, protocol, supervisor
from ductile.runner.observe import calls
from ductile.runner.observe.listener import FAILURE_BYTES, CallObserver
from ductile.runner.observe.record import Record, write_record
from ductile.runner.plugin_process import Spawner
from ductile.runner.sandbox.seccomp import FilterProgram
from ductile.runner.sandbox.system_calls import PR_SET_NO_NEW_PRIVS, libc, prctl

_SECCOMP = {"x86_64": 317, "aarch64": 277}
_SET_FILTER, _NEW_LISTENER = 1, 1 << 3
_LOWEST_CHANNEL = 900
"""A plugin has no descriptor of this number by itself."""
_SOL_SOCKET, _SCM_RIGHTS = 1, 1


class _Message(ctypes.Structure):
    """`struct msghdr`."""

    _fields_ = (
        ("name", ctypes.c_void_p),
        ("name_length", ctypes.c_uint),
        ("parts", ctypes.c_void_p),
        ("part_count", ctypes.c_size_t),
        ("control", ctypes.c_void_p),
        ("control_length", ctypes.c_size_t),
        ("flags", ctypes.c_int),
    )


class _MessagePart(ctypes.Structure):
    _fields_ = (("start", ctypes.c_void_p), ("length", ctypes.c_size_t))


class _Rights(ctypes.Structure):
    """`struct cmsghdr` with one descriptor."""

    _fields_ = (
        ("length", ctypes.c_size_t),
        ("level", ctypes.c_int),
        ("kind", ctypes.c_int),
        ("fd", ctypes.c_int),
        ("padding", ctypes.c_int),
    )


class Observation:
    """In place of a sandbox: applied in the fork, closed when no process of the job is left."""

    temporary = ""

    def __init__(self, report: int) -> None:
        self._report = report
        self._record = Record()
        ours, theirs = socket.socketpair()
        self._channel = _move_up(theirs)
        program = calls.build_filter(os.uname().machine, self._channel)
        self._filter = FilterProgram(len(program) // 8, program)
        self._listener = CallObserver(ours, self._record)
        libc()
        # Prepared here: what the fork allocates after the filter is installed may be reported, and
        # would wait for a listener that was not sent yet.
        self._byte = ctypes.create_string_buffer(b"L")
        self._part = _MessagePart(ctypes.addressof(self._byte), 1)
        self._rights = _Rights(ctypes.sizeof(ctypes.c_size_t) + 12, _SOL_SOCKET, _SCM_RIGHTS, -1, 0)
        self._message = _Message(
            None,
            0,
            ctypes.addressof(self._part),
            1,
            ctypes.addressof(self._rights),
            ctypes.sizeof(self._rights),
            0,
        )
        self._listener.start()

    def apply(self) -> None:
        """In the fork."""
        isolation.allow_inspection()
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        call = libc().syscall
        send = libc().sendmsg
        number, channel = ctypes.c_long(_SECCOMP[os.uname().machine]), self._channel
        filter, message = ctypes.byref(self._filter), ctypes.byref(self._message)
        listener = call(number, ctypes.c_long(_SET_FILTER), ctypes.c_long(_NEW_LISTENER), filter)
        if listener < 0:
            code = ctypes.get_errno() or errno.EINVAL
            os.write(channel, code.to_bytes(FAILURE_BYTES, "little"))
            raise OSError(code, os.strerror(code))
        self._rights.fd = listener
        send(channel, message, 0)

    def release(self) -> None:
        """The process has started."""
        os.close(self._channel)
        self._channel = -1

    def close(self) -> None:
        if self._channel >= 0:
            self.release()
        self._listener.wait()
        write_record(self._report, self._record)


def _move_up(sock: socket.socket) -> int:
    """A copy of a descriptor with a high number; the socket is closed."""
    import fcntl

    with sock:
        return fcntl.fcntl(sock.fileno(), fcntl.F_DUPFD_CLOEXEC, _LOWEST_CHANNEL)


class ObservingSpawner(Spawner):
    def __init__(self, report: int) -> None:
        self._report = report

    def confine(self, request: protocol.RunRequest) -> Observation:  # noqa: ARG002
        return Observation(self._report)


def serve(control: int, started_log: int, lock: int, report: int) -> None:
    """Serve the caller as a runner does."""
    supervisor.prepare_process(control, started_log, lock)
    os.set_inheritable(report, False)
    connection = socket.socket(fileno=control)
    supervisor.serve(supervisor.Supervisor(connection), None, ObservingSpawner(report))
