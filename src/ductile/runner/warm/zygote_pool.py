"""The gateway's client to one zygote: starts it, and has it fork slots."""

from __future__ import annotations

import os
import socket
import subprocess
from contextlib import suppress
from struct import Struct

from ductile.model import WarmStart
from ductile.runner.client import SlotClient
from ductile.runner.connection import SlotConnection
from ductile.runner.pool import RunnerPool
from ductile.runner.warm.preload import IMPORT_SECONDS, ColdOnly
from ductile.runner.warm.zygote import COLD, IMPORTING, READY

_PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "program.py")
_REPLY_SECONDS = 3.0
_MESSAGE_BYTES = 4096


class ZygotePool(RunnerPool):
    """One zygote and its slots.

    It is never restarted. Once it `is_broken`, or files have changed and its slots start nothing
    more (`refusal`), the slots finish what they run.
    """

    def __init__(self, runner: RunnerPool, warm: WarmStart) -> None:
        """The zygote gets the lock, limits and control group of the runner.

        It does not own all children: it ends while the gateway works, and may run programs. Only
        where it has died, a job of it may have killed it to leave a process behind.
        """
        super().__init__(
            0,
            lock_fd=runner.lock_fd,
            started_log_fd=runner.started_log_fd,
            on_event=runner.on_event,
            owns_children_after_loss=runner.owns_all_children,
        )
        self._shared_cgroup = runner.warm_cgroup
        self.descriptor_limits = runner.descriptor_limits
        self.bystanders = runner.bystanders
        self.warm = warm
        self.memory = 0
        """In KiB, measured after the imports."""
        self.is_broken = False
        self.refusal = ""

    def start(self) -> None:
        """Start the zygote and wait for its imports. Raises `ColdOnly` and OSError."""
        with self._lock:
            self._execute_runner()
            self._stopped = False
            try:
                self._expect(IMPORTING, "its interpreter does not start")
                self._set_patience(IMPORT_SECONDS)
                late = f"its imports take more than {IMPORT_SECONDS:.0f} s"
                self.memory = int(self._expect(READY, late))
                self._set_patience(_REPLY_SECONDS)
            except BaseException:
                self._stopped = True
                self._end_runner(0.0)
                raise
            started = {"plugin": self.warm.plugin, "pid": self.pid, "memory_kib": self.memory}
            self._events.append(("zygote.started", started))
        self._report_events()

    def abort(self) -> None:
        """Have a `start` in another thread end with `ColdOnly`."""
        if self._runner is not None:
            self._runner.kill()

    def _expect(self, kind: bytes, late: str) -> bytes:
        assert self._control is not None
        try:
            message = self._control.recv(_MESSAGE_BYTES)
        except BlockingIOError:
            raise ColdOnly(late) from None
        except ConnectionError:
            message = b""
        if message.startswith(COLD):
            raise ColdOnly(message[1:].decode("utf-8", "replace"))
        if not message.startswith(kind):
            assert self._runner is not None
            self._runner.kill()
            code = self._runner.wait()
            raise ColdOnly(f"its interpreter ended while it was prepared, with exit code {code}")
        return message[1:]

    def _set_patience(self, seconds: float) -> None:
        assert self._control is not None
        patience = Struct("@ll").pack(int(seconds), 0)
        self._control.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, patience)

    def _popen(self, arguments: list[str], inherited: list[int]) -> subprocess.Popen[bytes]:
        warm = self.warm
        arguments = [
            *arguments,
            warm.entrypoint,
            warm.first_line,
            "confined" if warm.is_confined else "free",
            *warm.preload,
        ]
        process = subprocess.Popen(
            [*warm.command, _PROGRAM, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=inherited,
            # Exactly that of its jobs, which inherit it.
            env=dict(warm.env),
            start_new_session=True,
        )
        # Before it forks, which it does on request.
        with suppress(OSError):
            if self._shared_cgroup is not None:
                self._shared_cgroup.add(process.pid)
        return process

    @property
    def is_alive(self) -> bool:
        process = self._runner
        return process is not None and process.poll() is None

    def processes(self) -> list[int]:
        """The pids of the zygote and of its slots; 0 for one that there is not."""
        return [self.pid, *(slot.pid for slot in list(self._slots))]

    def fork_slot(self) -> SlotClient | None:
        """A slot with a new process; None where the zygote does not provide one."""
        with self._lock:
            if self._stopped or self.is_broken or self.refusal:
                return None
            slot = next((one for one in self._slots if one.connection is None), None)
            if slot is None:
                slot = SlotClient(len(self._slots), self._renew)
                self._slots.append(slot)
            self._connect(slot)
        self._report_events()
        return slot if slot.connection is not None else None

    def _connect(self, slot: SlotClient) -> None:
        """Give a slot a new process, or none."""
        try:
            slot.set_connection(self._request_process(slot.index))
        except (ConnectionError, TimeoutError) as error:
            slot.set_connection(None)
            self._break(error)
        except OSError:
            slot.set_connection(None)

    def _replace(self, slot: SlotClient, broken: SlotConnection | None, why: str) -> str:
        if self._stopped:
            return "the zygote was stopped"
        if slot.connection is not broken:
            return self._last_loss or why
        if broken is not None and broken.refusal:
            self.refusal = broken.refusal
            slot.set_connection(None)
            return why
        self._events.append(("slot.lost", {"plugin": self.warm.plugin, "reason": why}))
        if self.is_broken:
            slot.set_connection(None)
            self._clear_up()
        else:
            self._connect(slot)
        return f"{why}; {self._last_loss}" if self._last_loss else why

    def _break(self, error: OSError) -> None:
        """Give up a zygote that died or does not answer; its other slots finish what they run."""
        how = "does not answer" if isinstance(error, TimeoutError) else "died"
        self._last_loss = f"the zygote (pid {self.pid}) {how}"
        lost = {"plugin": self.warm.plugin, "pid": self.pid, "reason": how}
        self._events.append(("zygote.lost", lost))
        self.is_broken = True
        assert self._runner is not None
        self._runner.kill()
        self._runner.wait()
        self._clear_up()

    def _clear_up(self) -> None:
        """Kill what dead slots have left to us, because the zygote is dead."""
        assert self._runner is not None
        for slot in self._slots:
            # A thread that waits for its answer returns.
            if slot.pid and not _is_living_child(slot.pid):
                slot.set_connection(None)
        self._kill_orphans(self._runner.pid, {slot.pid for slot in self._slots if slot.pid})


def _is_living_child(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == 0
    except ChildProcessError:
        return False
