"""The gateway's side of the runner: starts it, deals out its slots, replaces the dead."""

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
from collections.abc import Callable
from contextlib import suppress
from struct import Struct

import ductile
from ductile.runner import process_scan, reaper, supervisor
from ductile.runner.client import Link, Slot

__all__ = ["RunnerPool", "Slot"]

_REPLY_PATIENCE = 10
_END_PATIENCE = 5.0
_SLOT_PATIENCE = 1.0
_CLEAR_PATIENCE = 5.0
_PAUSE = 0.001
_PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "__main__.py")


class RunnerPool:
    """One runner and its slots.

    `lock_fd` is held by the runner and the slots until the last of them has ended; no
    plugin gets it, nor `started_log_fd`, where slots note what they begin. `on_event` hears of
    `runner.started`, `runner.lost`, `slot.lost` and `slot.replaced`, on the thread that found
    out. Plugins may hold as many descriptors as this process may when the pool is made, whatever
    it allows itself later.
    """

    def __init__(
        self,
        slots: int,
        *,
        lock_fd: int | None = None,
        started_log_fd: int | None = None,
        on_event: Callable[[str, dict[str, object]], None] | None = None,
    ) -> None:
        self._slots = [Slot(index, self._renew) for index in range(slots)]
        self._lock_fd, self._started_log_fd = lock_fd, started_log_fd
        self._on_event = on_event
        self._lock = threading.Lock()
        self._runner: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._stopped = True
        self._mourned = ""
        self._descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._news: list[tuple[str, dict[str, object]]] = []

    @property
    def pid(self) -> int:
        """The runner's; 0 while there is none."""
        process = self._runner
        return process.pid if process else 0

    def slot(self, index: int) -> Slot:
        return self._slots[index]

    def launch(self) -> None:
        """Execute the runner ahead of `start`, which then finds it under way.

        OSError where that cannot be done. Makes this process a subreaper, so that what a
        killed runner leaves comes here.
        """
        with self._lock:
            if self._stopped and self._runner is None:
                reaper.become_subreaper()
                self._execute()

    def start(self) -> None:
        """Take over the slots of the runner. OSError where that cannot be done."""
        self.launch()
        with self._lock:
            if not self._stopped:
                return
            self._take_slots()
            self._stopped = False
        self._publish()

    def stop(self) -> None:
        """End slots and runner with all that they run, and wait until they are gone."""
        with self._lock:
            if self._stopped and self._runner is None:
                return
            self._stopped = True
            self._bury(_END_PATIENCE)

    def _execute(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setsockopt(
            socket.SOL_SOCKET, socket.SO_RCVTIMEO, Struct("@ll").pack(_REPLY_PATIENCE, 0)
        )
        with theirs:
            wanted = theirs.fileno(), self._started_log_fd, self._lock_fd
            inherited = [fd for fd in wanted if fd is not None]
            arguments = [ductile.__version__, *(str(-1 if fd is None else fd) for fd in wanted)]
            try:
                self._runner = subprocess.Popen(
                    [sys.executable, "-I", "-S", _PROGRAM, *arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    pass_fds=inherited,
                    # It is no process of a dead gateway, even where we were one.
                    env={
                        name: os.environ[name] for name in os.environ if name != process_scan.MARK
                    },
                    start_new_session=True,
                )
            except OSError:
                ours.close()
                raise
        # Before it forks: it does when it is asked to. Where it is gone, it will be missed soon.
        with suppress(OSError):
            resource.prlimit(self._runner.pid, resource.RLIMIT_NOFILE, self._descriptors)
        self._control = ours

    def _take_slots(self) -> None:
        assert self._runner is not None
        try:
            for slot in self._slots:
                slot.retire(self._ask(slot.index))
        except OSError:
            self._bury(0.0)
            raise
        self._news.append(("runner.started", {"pid": self._runner.pid, "slots": len(self._slots)}))

    def _ask(self, index: int) -> Link:
        """A fresh process for a slot, what was left of the old one being cleared away.

        ConnectionError or TimeoutError where the runner is at fault, else OSError.
        """
        if self._control is None:
            raise ConnectionError("there is no runner")
        try:
            self._control.send(supervisor.ASK.pack(index))
            message, fds, _, _ = socket.recv_fds(
                self._control, supervisor.REPLY.size, 1, socket.MSG_CMSG_CLOEXEC
            )
        except BlockingIOError:
            raise TimeoutError("does not answer") from None
        if not message:
            raise ConnectionError("died")
        _, pid, code = supervisor.REPLY.unpack(message)
        if not (fds or code):
            code = errno.EMFILE
        if code:
            raise OSError(code, os.strerror(code))
        return Link(pid, fds[0])

    def _renew(self, slot: Slot, broken: Link | None, why: str) -> str:
        with self._lock:
            reason = self._replace(slot, broken, why)
        self._publish()
        return reason

    def _replace(self, slot: Slot, broken: Link | None, why: str) -> str:
        if self._stopped:
            return "the runner was stopped"
        if slot.link is not broken:
            return self._mourned or why
        self._news.append(("slot.lost", {"slot": slot.index, "reason": why}))
        try:
            link = self._ask(slot.index)
        except (ConnectionError, TimeoutError) as error:
            return self._restart(error)
        except OSError as error:
            slot.retire(None)
            return f"{why}, and cannot be replaced: {error.strerror}"
        slot.retire(link)
        self._news.append(("slot.replaced", {"slot": slot.index, "pid": link.pid}))
        return why

    def _restart(self, error: OSError) -> str:
        """A runner that is dead or as good as dead takes its slots with it."""
        how = "does not answer" if isinstance(error, TimeoutError) else "died"
        if self._runner is not None:
            self._mourned = f"the runner (pid {self._runner.pid}) {how}"
            self._news.append(("runner.lost", {"pid": self._runner.pid, "reason": how}))
        self._bury(0.0)
        try:
            self._execute()
            self._take_slots()
        except ConnectionError:
            again = "the new one died as well, and has said why on stderr"
        except OSError as failure:
            again = str(failure)
        else:
            return self._mourned
        return f"{self._mourned}, and cannot be started again: {again}"

    def _publish(self) -> None:
        """Outside the lock: a listener may call us."""
        with self._lock:
            news, self._news = self._news, []
        if self._on_event is not None:
            for name, details in news:
                self._on_event(name, details)

    def _bury(self, patience: float) -> None:
        """Let go of the runner and its slots, and see all that was below them to its end."""
        slots = [slot.pid for slot in self._slots if slot.pid]
        for slot in self._slots:
            slot.retire(None)
        if self._control is not None:
            self._control.close()
            self._control = None
        process, self._runner = self._runner, None
        if process is None:
            return
        if not _ended(process.pid, patience):
            process.kill()
        process.wait()
        # They came to us when the runner died, and are about to clear away their jobs.
        _await_children(slots, _SLOT_PATIENCE)
        self._clear(process.pid)

    def _clear(self, session: int) -> None:
        """Kill what a dead runner left to us, and nothing that others here have started."""
        reaper.clear(lambda pid: not self._is_orphan(pid, session), _CLEAR_PATIENCE)

    def _is_orphan(self, pid: int, session: int) -> bool:
        try:
            if os.getsid(pid) == session:
                return True
        except ProcessLookupError:
            return False
        boots = {slot.boot for slot in self._slots if slot.boot}
        return any(
            process_scan.carries(pid, os.fsencode(f"{process_scan.MARK}={boot}\0"))
            for boot in boots
        )


def _ended(pid: int, seconds: float) -> bool:
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


def _await_children(pids: list[int], seconds: float) -> None:
    """Until those of these that are our children are gone, or the time is up."""
    give_up = time.monotonic() + seconds
    while pids := [pid for pid in pids if not reaper.reap(pid)]:
        if time.monotonic() > give_up:
            return
        time.sleep(_PAUSE)
