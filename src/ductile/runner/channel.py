"""A slot's line to the gateway: what to run, what to run next, what to cancel or give back."""

from __future__ import annotations

import select
import socket
from collections import deque

from ductile.runner import protocol


class Gone(Exception):
    """The gateway or the runner is no more."""


class Line:
    """What a slot listens to besides its job: the gateway's socket, and a pipe that hangs
    up when the runner dies."""

    __slots__ = ("inbox", "lifeline", "next", "poller", "sock")

    def __init__(self, sock: socket.socket, lifeline: int) -> None:
        self.sock = sock
        self.next: deque[protocol.Buffer] = deque()
        """Launches that wait for the one that runs."""
        self.lifeline = lifeline
        self.inbox = protocol.Inbox(sock)
        self.poller = select.poll()
        self.attach(self.poller)

    def attach(self, poller: select.poll) -> None:
        poller.register(self.sock, select.POLLIN)
        poller.register(self.lifeline, select.POLLIN)

    def next_word(self) -> None:
        """Until something arrives; as a rule it has, for what comes next is told meanwhile."""
        try:
            self.listen(socket.MSG_DONTWAIT)
        except BlockingIOError:
            self.wait()

    def wait(self, seconds: float | None = None) -> None:
        """Until something arrives, or the time is up."""
        events = dict(self.poller.poll(None if seconds is None else seconds * 1000))
        if self.lifeline in events:
            raise Gone
        if events:
            self.listen()

    def listen(self, flags: int = 0) -> None:
        try:
            open_still = self.inbox.fill(flags)
        except ConnectionError:
            open_still = False
        if not open_still:
            raise Gone

    def told(self, seq: int) -> float | None:
        """Take what has come in the midst of a run; the grace, where that run is cancelled."""
        grace = None
        while (frame := self.inbox.take()) is not None:
            if protocol.kind(frame) == protocol.RUN:
                self.next.append(frame)
            elif protocol.kind(frame) == protocol.RECALL:
                self._give_back(protocol.seq(frame))
            elif protocol.seq(frame) == seq:
                grace = protocol.grace(frame)
        return grace

    def _give_back(self, seq: int) -> None:
        frame = next((one for one in self.next if protocol.seq(one) == seq), None)
        if frame is not None:
            self.next.remove(frame)
            protocol.send_answer(self.sock, seq, protocol.RECALLED, None, 0, 0, 0.0, b"", b"")

    def take(self) -> protocol.Buffer | None:
        """The next frame, if there is one."""
        return self.next.popleft() if self.next else self.inbox.take()
