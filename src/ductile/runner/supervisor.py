"""The runner process: forks slots, cleans up after dead ones, and ends after all of them.

It has one socket to the gateway that keeps messages apart: the number of a slot comes in, its pid
and socket go back. A slot that is requested again is killed first. When the gateway has ended, the
slots have a second to end by themselves.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import _socket
import errno
import gc
import os
import select
import sys
import time
from struct import Struct

from ductile.runner import isolation, reaper, slot
from ductile.runner.plugin_process import Spawner
from ductile.runner.started_flags import StartedFlags, map_flags

SLOT_REQUEST = Struct("<I")
"""A slot's number."""
SLOT_REPLY = Struct("<IiI")
"""The number, the pid of its new process, and 0 or the errno that says why there is none."""

_DESCRIPTOR = Struct("@i")
_END_PATIENCE = 1.0
_KILL_PATIENCE = 1.0


class SlotStarted(BaseException):
    """Raised in a process that was forked for a slot: it leaves the runner's code."""

    def __init__(self, sock: _socket.socket, lifeline: int) -> None:
        super().__init__()
        self.sock, self.lifeline = sock, lifeline


class Supervisor:
    def __init__(self, control: _socket.socket, *, slots_outlive: bool = False) -> None:
        """With `slots_outlive`, slots run their jobs to the end if this process dies."""
        self._control = control
        self._slots_outlive = slots_outlive
        self._slots: dict[int, tuple[int, int]] = {}
        """The pid and the pidfd of each slot's process, by the slot's number."""
        self._lifeline, self._lifeline_end = os.pipe2(os.O_CLOEXEC)
        self._poller = select.poll()
        self._poller.register(control, select.POLLIN)
        self._is_clean = True
        """Whether every process below us is a slot or belongs to one."""

    def serve(self) -> None:
        """Serve the gateway until it has ended. Raises SlotStarted in the processes of slots."""
        try:
            self._serve_gateway()
        except ConnectionError:
            pass
        self._wait_for([pidfd for _, pidfd in self._slots.values()], _END_PATIENCE)
        reaper.kill_children()

    def _serve_gateway(self) -> None:
        """Return when the gateway has ended."""
        while True:
            ready = dict(self._poller.poll(None if self._is_clean else 1000))
            for number, (_, pidfd) in list(self._slots.items()):
                if pidfd in ready:
                    self._forget(number)
            self._kill_orphans()
            if self._control.fileno() in ready:
                message = self._control.recv(SLOT_REQUEST.size)
                if not message:
                    return
                self._replace(*SLOT_REQUEST.unpack(message))

    def _kill_orphans(self) -> None:
        """Kill what dead slots have left behind: our children that are not slots."""
        keep = {pid for pid, _ in self._slots.values()}
        self._is_clean = reaper.kill_children(keep.__contains__, _KILL_PATIENCE)

    def _forget(self, number: int) -> None:
        """Remove a dead slot. One that does not die is left for `_kill_orphans` to try again."""
        pid, pidfd = self._slots.pop(number)
        self._poller.unregister(pidfd)
        os.close(pidfd)
        reaper.reap(pid)

    def _replace(self, number: int) -> None:
        if number in self._slots:
            reaper.send_signal(self._slots[number][0], _signal.SIGKILL)
            self._wait_for([self._slots[number][1]], _KILL_PATIENCE)
            self._forget(number)
            self._kill_orphans()
        try:
            pid, sock = self._fork_slot(number)
        except OSError as error:
            # A slot whose pidfd could not be opened is killed like an orphan.
            self._is_clean = False
            self._control.send(SLOT_REPLY.pack(number, 0, error.errno or errno.EAGAIN))
            return
        passed = _socket.SOL_SOCKET, _socket.SCM_RIGHTS, _DESCRIPTOR.pack(sock.fileno())
        self._control.sendmsg([SLOT_REPLY.pack(number, pid, 0)], [passed])
        sock.close()

    def _fork_slot(self, number: int) -> tuple[int, _socket.socket]:
        """The pid of a new slot, and the gateway's end of its socket."""
        ours, theirs = _socket.socketpair()
        try:
            pid = os.fork()
            if pid == 0:
                theirs.close()
                self._become_slot(ours)
            pidfd = os.pidfd_open(pid)
        except OSError:
            theirs.close()
            raise
        finally:
            ours.close()
        self._slots[number] = pid, pidfd
        self._poller.register(pidfd, select.POLLIN)
        return pid, theirs

    def _become_slot(self, sock: _socket.socket) -> None:
        """In the process of a slot: close what belongs to the runner, and leave its code."""
        self._control.close()
        os.close(self._lifeline_end)
        for _, pidfd in self._slots.values():
            os.close(pidfd)
        lifeline = self._lifeline
        if self._slots_outlive:
            os.close(lifeline)
            lifeline = -1
            # The gateway adopts them, and kills the group of one that has died.
            os.setpgid(0, 0)
        raise SlotStarted(_socket.socket(fileno=sock.detach()), lifeline)

    def _wait_for(self, pidfds: list[int], seconds: float) -> None:
        """Wait until all of these processes have ended, or the time is up."""
        give_up = time.monotonic() + seconds
        poller = select.poll()
        for pidfd in pidfds:
            poller.register(pidfd, select.POLLIN)
        left = len(pidfds)
        while left and (remaining := give_up - time.monotonic()) > 0:
            for pidfd, _ in poller.poll(remaining * 1000):
                poller.unregister(pidfd)
                left -= 1


def serve(
    supervisor: Supervisor, started_flags: StartedFlags | None, spawner: Spawner
) -> slot.StartedJob:
    """Serve the gateway, and in the processes of slots run its jobs; end the process. Returns only
    in the processes that slots have forked for jobs."""
    runner = os.getpid()
    try:
        try:
            supervisor.serve()
        except SlotStarted as started:
            sock, lifeline = started.sock, started.lifeline
        else:
            # Without exit functions of imported modules: those are for jobs.
            os._exit(0)
        # Jobs inherit nothing of it.
        del supervisor
        job = slot.serve(sock, lifeline, started_flags, spawner)
        if job is not None:
            # Closed with all other descriptors. Python would warn of an open socket, which takes a
            # tenth of a short job, as `close` does.
            sock.detach()
            return job
        if os.getppid() == runner:
            # A stopped runner would outlive its gateway, and keep the instance lock.
            reaper.send_signal(runner, _signal.SIGCONT)
    except BaseException:  # noqa: BLE001 - the fork of a runner must not become another
        sys.excepthook(*sys.exc_info())
        os._exit(1)
    os._exit(0)


def _set_signal_handlers() -> None:
    """Do nothing on the signals that a terminal or a service manager sends to all processes.

    By handlers: signals that are ignored would be ignored in plugins, too.
    """
    for number in _signal.valid_signals():
        kept = number in (_signal.SIGPIPE, _signal.SIGXFSZ)
        if _signal.getsignal(number) == _signal.SIG_IGN and not kept:
            _signal.signal(number, _signal.SIG_DFL)
    for number in (_signal.SIGINT, _signal.SIGTERM, _signal.SIGHUP):
        _signal.signal(number, _do_nothing)
    _signal.pthread_sigmask(_signal.SIG_SETMASK, ())


def _do_nothing(*_: object) -> None:
    """A system call that a signal interrupts is continued by Python."""


def main(control: int, started_log: int, lock: int) -> None:
    """Serve the gateway at the descriptor `control`, with flags in the file `started_log`, and keep
    the descriptor `lock` open to the end."""
    prepare_process(control, started_log, lock)
    flags = map_flags(started_log) if started_log >= 0 else None
    supervisor = Supervisor(_socket.socket(fileno=control))
    # Memory that the collector does not walk over stays shared with the slots.
    gc.freeze()
    serve(supervisor, flags, Spawner())


def prepare_process(control: int, started_log: int, lock: int) -> None:
    """Protect this process, which forks slots, from signals and from plugins."""
    _set_signal_handlers()
    for fd in (control, started_log, lock):
        if fd >= 0:
            os.set_inheritable(fd, False)
    # A pipe with the number of a standard stream could not be passed to a plugin.
    while (fd := os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)) <= 2:
        pass
    os.close(fd)
    reaper.become_subreaper()
    isolation.forbid_inspection()
