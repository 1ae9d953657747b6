"""The gateway's client to one slot: send a launch, read its outcome, cancel it.

While a slot runs one launch it can buffer some more, which it starts by itself, one after the
other. Until they start they can be recalled.
"""

from __future__ import annotations

import errno
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial

from ductile.model import Ending, Launch, Outcome
from ductile.runner import protocol
from ductile.runner.connection import (
    ANSWER_MARGIN,
    BufferedLaunch,
    LaunchEncoder,
    SlotConnection,
    SlotLost,
    outcome_of,
    seconds_to_answer,
)
from ductile.runner.started_flags import NO_ENTRY

BUFFER_LIMIT = 6
"""Launches that a slot may buffer behind the one that runs."""
_TRIES = 3
_LARGEST_BUFFERED = 16 * 1024
"""Bytes of a frame that a socket takes whole or not at all, unless its buffer is very small."""


class SlotClient:
    """Runs one launch at a time.

    `run` blocks; a second caller waits for the first. A caller with several slots calls `start`
    and, whenever the socket of `connection` is ready or `deadline` has passed, `read_outcome`.
    """

    def __init__(
        self, index: int, renew: Callable[[SlotClient, SlotConnection | None, str], str]
    ) -> None:
        """`renew` replaces a broken connection by `set_connection`, if it can, and returns the
        reason for the loss."""
        self.index = index
        self._renew = renew
        self._run_lock = threading.Lock()
        self._lock = threading.Lock()
        """For what `cancel` and `set_connection` use, in any thread."""
        self._connection: SlotConnection | None = None
        self._active: SlotConnection | None = None
        """The connection that the present launch was sent on."""
        self._seq = self._last_seq = 0
        """The numbers of the present launch and of the last one that was sent."""
        self._is_running = self._is_sent = False
        self._cancel_grace: float | None = None
        self._launch: Launch | None = None
        self._encoded: protocol.EncodedLaunch | None = None
        self._unsent: memoryview | None = None
        self._buffered: deque[BufferedLaunch] = deque()
        self._recalled_during = 0
        """The number of the launch that ran when buffered ones were recalled."""
        self._sent_only_launch = False
        """Whether unread data in the slot's socket can only be the launch."""
        self._tries = 0
        self._started_at = 0.0
        self._encoder = LaunchEncoder()
        self.deadline = 0.0
        """When, on the monotonic clock, the next answer is overdue."""
        self.live_stderr = b""
        """What the present launch has written to stderr so far; empty for a short one."""

    @property
    def connection(self) -> SlotConnection | None:
        return self._connection

    @property
    def pid(self) -> int:
        """The pid of the slot's process; 0 while there is none."""
        connection = self._connection
        return connection.pid if connection else 0

    @property
    def boot_mark(self) -> str | None:
        """The value of `DUCTILE_BOOT` in the environment of the last launch."""
        return self._encoder.boot_mark

    @property
    def launch(self) -> Launch | None:
        """The present launch."""
        return self._launch

    @property
    def buffered(self) -> int:
        """How many launches the slot starts after the present one."""
        return len(self._buffered)

    @property
    def can_buffer(self) -> bool:
        """Whether `buffer` may be called.

        Not while some are recalled, since they come back in order. Not behind a launch from behind
        which others were recalled: it takes long.
        """
        buffered = self._buffered
        if self._unsent is not None or self._recalled_during == self._seq:
            return False
        return not buffered or (len(buffered) < BUFFER_LIMIT and not buffered[-1].recalled)

    @property
    def has_answer(self) -> bool:
        """Whether `read_outcome` has something to return without receiving more."""
        return self._active is not None and self._active.reader.has_frame

    @property
    def is_sending(self) -> bool:
        """Whether a part of the launch waits until the socket can be written to."""
        return self._unsent is not None

    # Running

    def run(self, launch: Launch) -> Outcome:
        """Block until the process and all that it started are gone.

        Never raises for what a plugin, a slot or the runner does: where a process of ours died the
        outcome is LOST, with a reason, and the next run has a new slot.
        """
        with self._run_lock:
            step: Callable[[], Outcome | None] = partial(self.start, launch)
            while True:
                try:
                    outcome = step()
                except SlotLost as lost:
                    outcome = self.replace(lost)
                if outcome is not None:
                    return outcome
                if not self.has_answer:
                    assert self._active is not None
                    self._active.wait(for_writing=self.is_sending)
                step = self.read_outcome

    def start(self, launch: Launch, log_entry: int = NO_ENTRY) -> Outcome | None:
        """Send a launch, without blocking; an outcome only where it cannot be run at all.

        The slot notes the start at `log_entry` of the started log. Raises `SlotLost`.
        """
        self._started_at, self.live_stderr = time.monotonic(), b""
        try:
            self._encoded = self._encoder.encode(launch, log_entry)
        except ValueError as error:
            return Outcome(Ending.NOT_SPAWNED, errno=errno.EINVAL, reason=str(error))
        self._launch, self._tries = launch, _TRIES
        with self._lock:
            self._is_running, self._cancel_grace = True, None
        self._send_launch()
        return None

    def buffer(self, launch: Launch, log_entry: int = NO_ENTRY) -> bool:
        """Send a launch that starts when those before it have ended; whether that was possible.

        When `read_outcome` has returned the outcome of the one before it, call `advance`.
        """
        connection = self._active
        if connection is None or not self.can_buffer:
            return False
        try:
            frame = self._encoder.encode(launch, log_entry).frame(self._last_seq + 1)
        except ValueError:
            return False
        if len(frame) > _LARGEST_BUFFERED:
            return False
        self._sent_only_launch = False
        try:
            sent = connection.sock.send(frame)
        except OSError:
            return False
        if sent < len(frame):
            # A part of a frame cannot be taken back, and makes the rest unreadable.
            connection.shut_down()
            return False
        self._last_seq += 1
        self._buffered.append(BufferedLaunch(launch, self._last_seq))
        return True

    def recall(self) -> None:
        """Ask the slot to give the buffered launches back, the last first.

        `read_outcome` removes those that come back from `buffered`.
        """
        connection = self._active
        if connection is None or not self._buffered:
            return
        self._recalled_during = self._seq
        for waiting in reversed(self._buffered):
            if waiting.recalled:
                continue
            try:
                connection.sock.send(protocol.recall_frame(waiting.seq))
            except OSError:
                return
            waiting.recalled = True

    def read_outcome(self) -> Outcome | None:
        """The outcome, if it has been received, without blocking. Raises `SlotLost`."""
        connection = self._active
        assert connection is not None
        if self._unsent is not None:
            self._send_unsent(connection)
            return None
        if not connection.reader.has_frame:
            self._receive(connection)
        frame = connection.reader.take()
        return None if frame is None else self._handle_answer(connection, frame)

    def advance(self) -> None:
        """Make the first buffered launch, which the slot has started, the present one."""
        following = self._buffered.popleft()
        self._launch, self._encoded = following.launch, None
        self.live_stderr = b""
        self._started_at = time.monotonic()
        with self._lock:
            self._seq, self._cancel_grace = following.seq, None
            self.deadline = self._started_at + seconds_to_answer(following.launch)

    def cancel(self, grace: float) -> None:
        """End what runs now: SIGTERM to its group, `grace` seconds, SIGKILL; 0 kills at once.

        Nothing happens if nothing runs, and a run that starts later is never hit. For any thread.
        """
        with self._lock:
            if not self._is_running:
                return
            if self._cancel_grace is None or grace < self._cancel_grace:
                self._cancel_grace = grace
            if self._is_sent and self._active:
                self._send_cancel(self._active, grace)

    # A lost slot

    def replace(self, lost: SlotLost) -> Outcome | None:
        """Replace the process, which may block; None where the launch was sent to the new one.

        Otherwise the outcome is LOST where the launch may have started, else NOT_SPAWNED.
        """
        self._buffered.clear()
        while True:
            connection = self._active
            self._release(connection)
            reason = self._renew(self, connection, str(lost))
            self._tries -= 1
            if lost.launch_taken or self._connection is None or not self._tries:
                outcome = self._lost_outcome(reason, may_have_started=lost.launch_taken)
                self._end_run(None)
                return outcome
            try:
                self._send_launch()
            except SlotLost as again:
                lost = again
            else:
                return None

    def _lost_outcome(self, reason: str, *, may_have_started: bool) -> Outcome:
        duration = time.monotonic() - self._started_at
        if may_have_started:
            return Outcome(Ending.LOST, reason=reason, duration=duration)
        if self._cancel_grace is not None:
            return Outcome(Ending.CANCELLED, duration=duration)
        return Outcome(Ending.NOT_SPAWNED, errno=errno.EAGAIN, reason=reason, duration=duration)

    def disconnect(self) -> None:
        """Give up what the slot runs and buffers. The next launch has a new process."""
        if self._active is not None:
            self._active.shut_down()

    def set_connection(self, connection: SlotConnection | None) -> None:
        """Use another connection from now on. A thread that waits on the old one returns."""
        with self._lock:
            old, self._connection = self._connection, connection
            if old is None:
                return
            if self._active is old:
                old.shut_down()
            else:
                old.close()

    # Sending

    def _send_launch(self) -> None:
        with self._lock:
            connection = self._active = self._connection
            self._last_seq += 1
            self._seq = self._last_seq
            self._sent_only_launch = True
            self._buffered.clear()
        if connection is None:
            raise SlotLost(f"slot {self.index} has no process", launch_taken=False)
        assert self._encoded is not None
        self._unsent = memoryview(self._encoded.frame(self._seq))
        self.deadline = time.monotonic() + ANSWER_MARGIN
        self._send_unsent(connection)

    def _send_unsent(self, connection: SlotConnection) -> None:
        assert self._unsent is not None
        try:
            rest = self._unsent[connection.sock.send(self._unsent) :]
        except BlockingIOError:
            if time.monotonic() > self.deadline:
                raise self._lost(connection, "does not take a job", launch_taken=False) from None
            return
        except OSError:
            raise self._lost(connection, "died", launch_taken=False) from None
        if rest:
            self._unsent = rest
            return
        self._unsent = None
        assert self._launch is not None
        with self._lock:
            self.deadline = time.monotonic() + seconds_to_answer(self._launch)
            self._is_sent = True
            if self._cancel_grace is not None:
                self._send_cancel(connection, self._cancel_grace)

    def _send_cancel(self, connection: SlotConnection, grace: float) -> None:
        """A slot whose socket is full will not answer in time either, and is replaced then."""
        self.deadline = min(self.deadline, time.monotonic() + max(grace, 0.0) + ANSWER_MARGIN)
        self._sent_only_launch = False
        try:
            connection.sock.send(protocol.cancel_frame(self._seq, grace), socket.MSG_DONTWAIT)
        except OSError:
            pass

    # Receiving

    def _receive(self, connection: SlotConnection) -> None:
        try:
            if not connection.reader.receive():
                raise self._lost(connection, "died", launch_taken=True)
        except BlockingIOError:
            if time.monotonic() > self.deadline:
                self._receive_last(connection)
        except ConnectionResetError:
            # It died with unread data in its socket.
            taken = not self._sent_only_launch
            raise self._lost(connection, "died", launch_taken=taken) from None
        except OSError:
            raise self._lost(connection, "died", launch_taken=True) from None

    def _receive_last(self, connection: SlotConnection) -> None:
        """Shut an overdue slot's connection down. Its next answer cannot be sent, and so nothing
        more starts; one answer may have been sent before."""
        connection.shut_down()
        try:
            received = connection.reader.receive()
        except OSError:
            received = False
        if not received:
            overdue = "did not answer by the deadline and its grace"
            raise self._lost(connection, overdue, launch_taken=True)

    def _handle_answer(self, connection: SlotConnection, frame: protocol.Buffer) -> Outcome | None:
        answer, buffered = protocol.decode_answer(frame), self._buffered
        if buffered and answer[:2] == (buffered[-1].seq, protocol.RECALLED):
            buffered.pop()
            return None
        if answer[0] != self._seq:
            connection.shut_down()
            raise self._lost(connection, "answered for another job", launch_taken=True)
        if answer[1] == protocol.OUTPUT:
            self.live_stderr += answer[-1]
            return None
        if answer[1] == protocol.NOT_WARM:
            # It has ended by itself, and has started neither this launch nor those behind it.
            connection.refusal = answer[-1].decode("utf-8", "replace") or "it refuses to start"
            raise self._lost(connection, connection.refusal, launch_taken=False)
        assert self._launch is not None
        outcome = outcome_of(self._launch, answer)
        if not buffered:
            self._end_run(connection)
        return outcome

    def _end_run(self, connection: SlotConnection | None) -> None:
        self._launch = self._encoded = None
        with self._lock:
            self._is_running = False
        self._release(connection)

    def _release(self, connection: SlotConnection | None) -> None:
        with self._lock:
            self._active, self._is_sent, self._unsent = None, False, None
            if connection is not None and self._connection is not connection:
                connection.close()

    def _lost(self, connection: SlotConnection, what: str, *, launch_taken: bool) -> SlotLost:
        why = f"slot {self.index} (pid {connection.pid}) {what}"
        return SlotLost(why, launch_taken=launch_taken)
