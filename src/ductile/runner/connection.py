"""The connection to one process of a slot: what is sent, and the meaning of its answers."""

from __future__ import annotations

import select
import socket
from collections.abc import Mapping

from ductile.model import STDERR_CAP, Ending, Launch, Outcome
from ductile.runner import exec_errors, process_scan, protocol
from ductile.runner.slot import SPAWN_PATIENCE

ANSWER_MARGIN = 5.0
"""Seconds for which an answer is waited for after the slot must have sent it."""
_ENDINGS = tuple(Ending(name) for name in protocol.ENDINGS)
_POLL_SECONDS = 1.0


class SlotConnection:
    """One process of a slot: its pid, and the socket to it."""

    def __init__(self, pid: int, fd: int) -> None:
        self.pid = pid
        self.sock = socket.socket(fileno=fd)
        self.sock.setblocking(False)
        self.reader = protocol.FrameReader(self.sock)
        self.refusal = ""
        """Why a warm slot starts nothing more; empty if it does."""

    def wait(self, *, for_writing: bool) -> None:
        """Wait until there is something to receive, or room to write; at most a second, after which
        the slot may be overdue."""
        poller = select.poll()
        poller.register(self.sock, select.POLLOUT if for_writing else select.POLLIN)
        poller.poll(_POLL_SECONDS * 1000)

    def shut_down(self) -> None:
        """End the connection, also while another thread waits on it."""
        try:
            self.sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    def close(self) -> None:
        self.sock.close()


class SlotLost(Exception):
    """The slot's process died or does not answer; `replace` is the only thing left to do."""

    def __init__(self, why: str, *, launch_taken: bool) -> None:
        """Where the launch was not taken, nothing was started."""
        super().__init__(why)
        self.launch_taken = launch_taken


def outcome_of(launch: Launch, answer: protocol.Answer) -> Outcome:
    """The outcome of a launch that a slot has answered for."""
    _, number, flags, exit_code, code, duration, stdout, stderr = answer
    ending = _ENDINGS[number]
    reason = None
    if ending is Ending.NOT_SPAWNED:
        reason = exec_errors.spawn_failure(launch.argv, code)
    elif exit_code in (126, 127) and len(launch.argv) == 1:
        reason = exec_errors.exit_failure(launch.argv[0], launch.env.get("PATH", ""))
    return Outcome(
        ending=ending,
        exit_code=exit_code if flags & protocol.HAS_EXIT_CODE else None,
        stdout=stdout,
        stdout_overflowed=bool(flags & protocol.OVERFLOWED),
        stderr=stderr,
        stderr_truncated=bool(flags & protocol.TRUNCATED),
        errno=code or None,
        reason=reason,
        duration=duration,
    )


class BufferedLaunch:
    """A launch that starts when those before it have ended."""

    __slots__ = ("launch", "recalled", "seq")

    def __init__(self, launch: Launch, seq: int) -> None:
        self.launch, self.seq = launch, seq
        self.recalled = False


class LaunchEncoder:
    """Encodes the launches of one slot, and the environment that they share only once."""

    def __init__(self) -> None:
        self._env: Mapping[str, str] | None = None
        self._encoded_env = b""
        self.boot_mark: str | None = None
        """The value of `DUCTILE_BOOT` in the environment of the last launch."""

    def encode(self, launch: Launch, log_entry: int) -> protocol.EncodedLaunch:
        if launch.env is not self._env:
            self._encoded_env, self._env = protocol.encode_environment(launch.env), launch.env
            self.boot_mark = launch.env.get(process_scan.BOOT_VARIABLE)
        caps = launch.stdout_cap, STDERR_CAP, launch.stderr_cap
        numbers = launch.timeout, launch.grace, *caps, log_entry
        return protocol.EncodedLaunch(
            launch.argv,
            self._encoded_env,
            launch.request,
            numbers,
            launch.stat,
            launch.sandbox,
            launch.traceparent,
        )


def seconds_to_answer(launch: Launch) -> float:
    """Seconds in which a slot that has taken this launch must have answered."""
    return SPAWN_PATIENCE + launch.timeout + max(launch.grace, 0.0) + ANSWER_MARGIN
