"""The pool of slots in the gateway: starts the runner, and replaces dead slots and runners."""

from __future__ import annotations

import errno
import os
import resource
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from struct import Struct

import ductile
from ductile.runner import cgroup, process_scan, reaper, supervisor
from ductile.runner.client import SlotClient
from ductile.runner.connection import SlotConnection

_REPLY_SECONDS = 10
_END_PATIENCE = 5.0
_SLOT_PATIENCE = 1.0
_KILL_PATIENCE = 5.0
_PAUSE = 0.001
_RUNNER_ENV = frozenset({"LANG", "LC_ALL", "LC_CTYPE", "LD_LIBRARY_PATH"})
"""What the interpreter needs to start, and to read and write the names of files."""
_runners: set[int] = set()
"""The runners of all pools in this process."""
_runners_lock = threading.Lock()
"""Held while a runner is started, and while the children of this process are killed."""
_PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "__main__.py")


class _WrongReply(ConnectionError):
    """A reply to another request: it is unknown to which slots the following ones belong."""


class RunnerPool:
    """One runner and its slots.

    The runner and the slots keep `lock_fd` open until the last of them has ended; plugins do not
    inherit it, nor `started_log_fd`, in which slots note what they start. `on_event` is called for
    `runner.started`, `runner.lost`, `slot.lost` and `slot.replaced`, in the thread that noticed it.
    Plugins may open as many descriptors as this process may when the pool is created, whatever
    limit it sets for itself later. With `cgroup_name`, runner and plugins are in a control group of
    that name, where one can be created; what is left in it is killed first. With
    `owns_all_children`, this process starts nothing but runners: every other child that it gets
    later was started by a plugin, and is killed with the runner. With `owns_children_after_loss`,
    this holds once a runner has died, which a plugin can cause to leave a process behind.
    """

    def __init__(
        self,
        slots: int,
        *,
        lock_fd: int | None = None,
        started_log_fd: int | None = None,
        on_event: Callable[[str, dict[str, object]], None] | None = None,
        cgroup_name: str = "",
        owns_all_children: bool = False,
        owns_children_after_loss: bool = False,
    ) -> None:
        self._slots = [SlotClient(index, self._renew) for index in range(slots)]
        self._wanted = slots
        """How many of them have a process after a restart of the runner."""
        self.lock_fd, self.started_log_fd = lock_fd, started_log_fd
        self.on_event = on_event
        self._cgroup_name = cgroup_name
        self.owns_all_children = owns_all_children
        self.owns_children_after_loss = owns_children_after_loss
        self.cgroup: cgroup.Cgroup | None = None
        self.warm_cgroup: cgroup.Cgroup | None = None
        """Of the zygotes, which live on if this runner dies."""
        """The group that runner and plugins are in, if there is one."""
        self.bystanders: frozenset[int] = frozenset()
        """Children of this process that were there before the runner."""
        self._lock = threading.Lock()
        self._runner: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._stopped = True
        self._last_loss = ""
        """How the last runner was lost."""
        self.descriptor_limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._events: list[tuple[str, dict[str, object]]] = []
        """Not reported yet."""

    @property
    def pid(self) -> int:
        """The pid of the runner; 0 while there is none."""
        process = self._runner
        return process.pid if process else 0

    def slot(self, index: int) -> SlotClient:
        return self._slots[index]

    def provide(self, count: int) -> list[SlotClient]:
        """The first `count` slots, from now on the only ones in use; new ones get a process.

        A slot whose process cannot be started now gets one with its next launch. A runner that died
        or does not answer is replaced, and its jobs are lost. The user of a slot that is left out
        disconnects it when it runs nothing more.
        """
        with self._lock:
            self._wanted = count
            for index in range(len(self._slots), count):
                self._slots.append(SlotClient(index, self._renew))
            slots = self._slots[:count]
            if not self._stopped:
                self._connect_missing(slots)
        self._report_events()
        return slots

    def _connect_missing(self, slots: list[SlotClient]) -> None:
        for slot in slots:
            if slot.connection is None:
                try:
                    slot.set_connection(self._request_process(slot.index))
                except (ConnectionError, TimeoutError) as error:
                    # Its late reply would be taken for that of the next request.
                    self._restart_runner(error)
                    return
                except OSError:
                    continue

    def launch(self) -> None:
        """Execute the runner before `start` needs it, so that it starts alongside other work.

        OSError where that is not possible. Makes this process a subreaper, so that it adopts what a
        killed runner leaves behind.
        """
        with self._lock:
            if self._stopped and self._runner is None:
                reaper.become_subreaper()
                self.bystanders = frozenset(reaper.children(os.getpid()))
                if self._cgroup_name:
                    self.cgroup = cgroup.create(self._cgroup_name)
                    self.warm_cgroup = cgroup.create(f"{self._cgroup_name}{cgroup.OF_ZYGOTES}")
                self._execute_runner()

    def start(self) -> None:
        """Connect to the slots of the runner. OSError where that is not possible."""
        self.launch()
        with self._lock:
            if not self._stopped:
                return
            self._connect_slots()
            self._stopped = False
        self._report_events()

    def stop(self) -> None:
        """End slots and runner with all that they run, and wait for their end."""
        with self._lock:
            if self._stopped and self._runner is None:
                return
            self._stopped = True
            self._end_runner(_END_PATIENCE)
            for group in (self.cgroup, self.warm_cgroup):
                if group is not None:
                    with suppress(OSError):
                        group.kill()
                    group.remove()

    def _execute_runner(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setsockopt(
            socket.SOL_SOCKET, socket.SO_RCVTIMEO, Struct("@ll").pack(_REPLY_SECONDS, 0)
        )
        with theirs:
            wanted = theirs.fileno(), self.started_log_fd, self.lock_fd
            inherited = [fd for fd in wanted if fd is not None]
            arguments = [ductile.__version__, *(str(-1 if fd is None else fd) for fd in wanted)]
            try:
                with _runners_lock:
                    self._runner = self._popen(arguments, inherited)
                    _runners.add(self._runner.pid)
            except OSError:
                ours.close()
                raise
        # Before it forks, which it does on request. Where it has died, the first request shows it.
        with suppress(OSError):
            if self.cgroup is not None:
                self.cgroup.add(self._runner.pid)
        with suppress(OSError):
            resource.prlimit(self._runner.pid, resource.RLIMIT_NOFILE, self.descriptor_limits)
        self._control = ours

    def _popen(self, arguments: list[str], inherited: list[int]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", _PROGRAM, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=inherited,
            # Without our secrets: plugins can read the environment of their parents.
            env={name: os.environ[name] for name in _RUNNER_ENV & os.environ.keys()},
            start_new_session=True,
        )

    def _connect_slots(self) -> None:
        assert self._runner is not None
        try:
            for slot in self._slots[: self._wanted]:
                slot.set_connection(self._request_process(slot.index))
        except OSError:
            self._end_runner(0.0)
            raise
        self._events.append(("runner.started", {"pid": self._runner.pid, "slots": self._wanted}))

    def _request_process(self, index: int) -> SlotConnection:
        """A new process for a slot, after all that was left of the old one is killed.

        ConnectionError or TimeoutError where the runner is lost, else OSError.
        """
        if self._control is None:
            raise ConnectionError("there is no runner")
        try:
            self._control.send(supervisor.SLOT_REQUEST.pack(index))
            message, fds, _, _ = socket.recv_fds(
                self._control, supervisor.SLOT_REPLY.size, 1, socket.MSG_CMSG_CLOEXEC
            )
        except BlockingIOError:
            raise TimeoutError("does not answer") from None
        if not message:
            raise ConnectionError("died")
        number, pid, code = supervisor.SLOT_REPLY.unpack(message)
        if number != index:
            for fd in fds:
                os.close(fd)
            raise _WrongReply(f"answered for slot {number} instead of {index}")
        if not (fds or code):
            code = errno.EMFILE
        if code:
            raise OSError(code, os.strerror(code))
        return SlotConnection(pid, fds[0])

    def _renew(self, slot: SlotClient, broken: SlotConnection | None, why: str) -> str:
        with self._lock:
            reason = self._replace(slot, broken, why)
        self._report_events()
        return reason

    def _replace(self, slot: SlotClient, broken: SlotConnection | None, why: str) -> str:
        """Replace a slot's broken connection, and return the reason for the loss."""
        if self._stopped:
            return "the runner was stopped"
        if slot.connection is not broken:
            return self._last_loss or why
        self._events.append(("slot.lost", {"slot": slot.index, "reason": why}))
        try:
            connection = self._request_process(slot.index)
        except (ConnectionError, TimeoutError) as error:
            return self._restart_runner(error)
        except OSError as error:
            slot.set_connection(None)
            return f"{why}, and cannot be replaced: {error.strerror}"
        slot.set_connection(connection)
        self._events.append(("slot.replaced", {"slot": slot.index, "pid": connection.pid}))
        return why

    def _restart_runner(self, error: OSError) -> str:
        """Replace a runner that died or does not answer, with all its slots."""
        how = "does not answer" if isinstance(error, TimeoutError) else "died"
        if isinstance(error, _WrongReply):
            how = str(error)
        if self._runner is not None:
            self._last_loss = f"the runner (pid {self._runner.pid}) {how}"
            self._events.append(("runner.lost", {"pid": self._runner.pid, "reason": how}))
        self._end_runner(0.0)
        try:
            self._execute_runner()
            self._connect_slots()
        except ConnectionError:
            again = "the new one died, too; its reason is on stderr"
        except OSError as failure:
            again = str(failure)
        else:
            return self._last_loss
        return f"{self._last_loss}, and cannot be started again: {again}"

    def _report_events(self) -> None:
        """Report events outside the lock: `on_event` may call us."""
        with self._lock:
            events, self._events = self._events, []
        if self.on_event is not None:
            for name, details in events:
                self.on_event(name, details)

    def _end_runner(self, patience: float) -> None:
        """Disconnect from the runner and its slots, and wait until all below them is gone."""
        slots = [slot.pid for slot in self._slots if slot.pid]
        for slot in self._slots:
            slot.set_connection(None)
        if self._control is not None:
            self._control.close()
            self._control = None
        process, self._runner = self._runner, None
        if process is None:
            return
        if not _ends_within(process.pid, patience):
            process.kill()
        process.wait()
        # They became our children when the runner died, and are killing their jobs.
        _wait_for_children(slots, _SLOT_PATIENCE)
        if self.cgroup is not None:
            with suppress(OSError):
                self.cgroup.kill()
        self._kill_orphans(process.pid)

    def _kill_orphans(self, session: int, spare: Collection[int] = ()) -> None:
        """Kill what a dead runner left to us, and no other child of this process."""

        def is_spared(pid: int) -> bool:
            return pid in spare or not self._is_orphan(pid, session)

        with _runners_lock:
            if not spare:
                _runners.discard(session)
            reaper.kill_children(is_spared, _KILL_PATIENCE)

    def _is_orphan(self, pid: int, session: int) -> bool:
        try:
            its_session = os.getsid(pid)
        except ProcessLookupError:
            return False
        if its_session == session:
            return True
        if its_session in _runners:
            # Another runner or zygote, or slots of a dead one, which end their jobs.
            return False
        if self.owns_all_children or (self.owns_children_after_loss and self._last_loss):
            return pid not in self.bystanders
        marks = {slot.boot_mark for slot in self._slots if slot.boot_mark}
        return any(
            process_scan.has_variable(pid, os.fsencode(f"{process_scan.BOOT_VARIABLE}={mark}\0"))
            for mark in marks
        )


def _ends_within(pid: int, seconds: float) -> bool:
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        poller = select.poll()
        poller.register(handle, select.POLLIN)
        return bool(poller.poll(seconds * 1000))
    finally:
        os.close(handle)


def _wait_for_children(pids: list[int], seconds: float) -> None:
    """Wait until those of them that are our children are gone, or the time is up."""
    give_up = time.monotonic() + seconds
    while pids := [pid for pid in pids if not reaper.reap(pid)]:
        if time.monotonic() > give_up:
            return
        time.sleep(_PAUSE)
