"""A slot's channel to the gateway: launches, and requests to cancel or to give back."""

from __future__ import annotations

import _socket
import select

from ductile.runner import protocol


class GatewayGone(Exception):
    """The gateway or the runner has ended: the slot ends, too."""


class SlotChannel:
    """The gateway's socket, and a pipe that hangs up when the runner dies.

    Without a pipe (-1), a slot outlives its runner until the gateway closes the socket.
    """

    __slots__ = ("_buffered", "_poller", "_reader", "lifeline", "sock")

    def __init__(self, sock: _socket.socket, lifeline: int) -> None:
        self.sock = sock
        self.lifeline = lifeline
        self._buffered: list[protocol.Buffer] = []
        """RUN frames that wait until the present run has ended."""
        self._reader = protocol.FrameReader(sock)
        self._poller = select.poll()
        self.register(self._poller)

    def register(self, poller: select.poll) -> None:
        poller.register(self.sock, select.POLLIN)
        if self.lifeline >= 0:
            poller.register(self.lifeline, select.POLLIN)

    def receive_next(self) -> None:
        """Wait for data. As a rule it is there: the gateway sends the next launch ahead."""
        try:
            self.receive(_socket.MSG_DONTWAIT)
        except BlockingIOError:
            self.wait()

    def wait(self, seconds: float | None = None) -> None:
        """Wait for data, at most for the given time."""
        events = dict(self._poller.poll(None if seconds is None else seconds * 1000))
        if self.lifeline in events:
            raise GatewayGone
        if events:
            self.receive()

    def receive(self, flags: int = 0) -> None:
        try:
            is_open = self._reader.receive(flags)
        except ConnectionError:
            is_open = False
        if not is_open:
            raise GatewayGone

    def handle_frames(self, seq: int) -> float | None:
        """Handle what was received during run `seq`, and return the grace if it is cancelled."""
        grace = None
        while (frame := self._reader.take()) is not None:
            if protocol.frame_kind(frame) == protocol.RUN:
                self._buffered.append(frame)
            elif protocol.frame_kind(frame) == protocol.RECALL:
                self._give_back(protocol.frame_seq(frame))
            elif protocol.frame_seq(frame) == seq:
                grace = protocol.cancel_grace(frame)
        return grace

    def _give_back(self, seq: int) -> None:
        frame = next((one for one in self._buffered if protocol.frame_seq(one) == seq), None)
        if frame is not None:
            self._buffered.remove(frame)
            protocol.send_answer(self.sock, seq, protocol.RECALLED, None, 0, 0, 0.0, b"", b"")

    def take(self) -> protocol.Buffer | None:
        """The next frame, if there is one."""
        return self._buffered.pop(0) if self._buffered else self._reader.take()
