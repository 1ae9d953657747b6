"""The connection to one process of a slot, and the meaning of its answers."""

from __future__ import annotations

import socket

from ductile.model import Ending, Launch, Outcome
from ductile.runner import exec_errors, protocol

_ENDINGS = tuple(Ending(name) for name in protocol.ENDINGS)


class SlotConnection:
    """One process of a slot: its pid, and the socket to it."""

    def __init__(self, pid: int, fd: int) -> None:
        self.pid = pid
        self.sock = socket.socket(fileno=fd)
        self.sock.setblocking(False)
        self.reader = protocol.FrameReader(self.sock)
        self.refusal = ""
        """Why a warm slot starts nothing more; empty if it does."""

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
