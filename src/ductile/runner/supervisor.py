"""The runner: forks slots, clears up after dead ones, and ends after all of them.

It speaks with the gateway over one socket that keeps messages apart: the number of a slot
comes in, its pid and socket go back. A slot that is asked for anew is killed first. When
the gateway is gone the slots have a second to end by themselves.
"""

from __future__ import annotations

import errno
import gc
import os
import select
import signal
import socket
import sys
import time
from struct import Struct

from ductile.runner import reaper, slot
from ductile.runner.started_flags import Cells, mapped

ASK = Struct("<I")
"""A slot's number."""
REPLY = Struct("<IiI")
"""The number, the pid of its new process, and 0 or why there is none, as an errno."""

_ENDING_PATIENCE = 1.0
_CLEARING_PATIENCE = 1.0


class Runner:
    def __init__(self, control: socket.socket, cells: Cells | None) -> None:
        self._control, self._cells = control, cells
        self._slots: dict[int, tuple[int, int]] = {}
        self._lifeline, self._held = os.pipe2(os.O_CLOEXEC)
        self._poller = select.poll()
        self._poller.register(control, select.POLLIN)
        self._clean = True

    def serve(self) -> None:
        try:
            self._attend()
        except ConnectionError:
            pass
        self._await([pidfd for _, pidfd in self._slots.values()], _ENDING_PATIENCE)
        reaper.clear()

    def _attend(self) -> None:
        """Until the gateway is gone."""
        while True:
            ready = dict(self._poller.poll(None if self._clean else 1000))
            for number, (_, pidfd) in list(self._slots.items()):
                if pidfd in ready:
                    self._bury(number)
            self._clear()
            if self._control.fileno() in ready:
                message = self._control.recv(ASK.size)
                if not message:
                    return
                self._fork(*ASK.unpack(message))

    def _clear(self) -> None:
        """What is below us and no slot was left behind by a dead one."""
        keep = {pid for pid, _ in self._slots.values()}
        self._clean = reaper.clear(keep.__contains__, _CLEARING_PATIENCE)

    def _bury(self, number: int) -> None:
        """Strike a dead slot off. One that will not die is left for `_clear` to try again."""
        pid, pidfd = self._slots.pop(number)
        self._poller.unregister(pidfd)
        os.close(pidfd)
        reaper.reap(pid)

    def _fork(self, number: int) -> None:
        if number in self._slots:
            reaper.send(self._slots[number][0], signal.SIGKILL)
            self._await([self._slots[number][1]], _CLEARING_PATIENCE)
            self._bury(number)
            self._clear()
        try:
            pid, sock = self._spawn(number)
        except OSError as error:
            # A slot without a handle is no slot: it is cleared away like anything else.
            self._clean = False
            self._control.send(REPLY.pack(number, 0, error.errno or errno.EAGAIN))
            return
        with sock:
            socket.send_fds(self._control, [REPLY.pack(number, pid, 0)], [sock.fileno()])

    def _spawn(self, number: int) -> tuple[int, socket.socket]:
        """The pid of a new slot, and the gateway's end of its socket."""
        runner = os.getpid()
        ours, theirs = socket.socketpair()
        with ours:
            try:
                pid = os.fork()
                if pid == 0:
                    theirs.close()
                    self._become_slot(ours, runner)
                pidfd = os.pidfd_open(pid)
            except OSError:
                theirs.close()
                raise
        self._slots[number] = pid, pidfd
        self._poller.register(pidfd, select.POLLIN)
        return pid, theirs

    def _become_slot(self, sock: socket.socket, runner: int) -> None:
        status = 1
        try:
            self._control.close()
            os.close(self._held)
            for _, pidfd in self._slots.values():
                os.close(pidfd)
            slot.serve(sock, self._lifeline, self._cells)
            if os.getppid() == runner:
                # A runner that somebody stopped would outlive its gateway, and hold the lock.
                reaper.send(runner, signal.SIGCONT)
            status = 0
        finally:
            if status:
                sys.excepthook(*sys.exc_info())
            os._exit(status)

    def _await(self, pidfds: list[int], seconds: float) -> None:
        """Until all of these have ended, or the time is up."""
        give_up = time.monotonic() + seconds
        poller = select.poll()
        for pidfd in pidfds:
            poller.register(pidfd, select.POLLIN)
        left = len(pidfds)
        while left and (remaining := give_up - time.monotonic()) > 0:
            for pidfd, _ in poller.poll(remaining * 1000):
                poller.unregister(pidfd)
                left -= 1


def _settle_signals() -> None:
    """Deaf to what a terminal or a service manager sends to all, by handlers that do
    nothing: what is ignored outright would be ignored in plugins too."""
    for number in signal.valid_signals():
        kept = number in (signal.SIGPIPE, signal.SIGXFSZ)
        if signal.getsignal(number) == signal.SIG_IGN and not kept:
            signal.signal(number, signal.SIG_DFL)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _do_nothing)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _do_nothing(*_: object) -> None:
    """Also keeps a signal from interrupting a call: Python goes on with it."""


def main(control: int, started_log: int, lock: int) -> None:
    """Serve the gateway at the first of these descriptors, have slots write to the second, and hold
    the third to the end."""
    _settle_signals()
    for fd in (control, started_log, lock):
        if fd >= 0:
            os.set_inheritable(fd, False)
    # A pipe that got the number of a standard stream could not be handed to a plugin.
    while (fd := os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)) <= 2:
        pass
    os.close(fd)
    reaper.become_subreaper()
    runner = Runner(
        socket.socket(fileno=control), mapped(started_log) if started_log >= 0 else None
    )
    # What the collector does not walk over stays shared with the slots.
    gc.freeze()
    runner.serve()
