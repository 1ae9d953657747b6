"""A slot as the gateway holds it: hand it a launch, wait for the outcome, cancel meanwhile."""

from __future__ import annotations

import errno
import socket
import threading
import time
from collections.abc import Callable
from struct import Struct

from ductile.model import STDERR_CAP, Ending, Launch, Outcome
from ductile.runner import diagnose, sweep, wire
from ductile.runner.slot import SPAWN_PATIENCE

MARGIN = 5.0
"""How long after the last moment that a slot is allowed it is still waited for."""

_TICK = Struct("@ll").pack(1, 0)
_TRIES = 3
_ENDINGS = tuple(Ending(name) for name in wire.ENDINGS)


class Link:
    """One slot process: its pid and the socket to it."""

    def __init__(self, pid: int, fd: int) -> None:
        self.pid = pid
        self.sock = socket.socket(fileno=fd)
        # A blocked call comes back every second to see whether it is worth waiting on.
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _TICK)
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _TICK)
        self.inbox = wire.Inbox(self.sock)

    def shut(self) -> None:
        """End the connection under a thread that may be blocked on it."""
        try:
            self.sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    def close(self) -> None:
        self.sock.close()


class NotTaken(Exception):
    """The slot was gone before it had the whole launch: nothing was started."""


class Lost(Exception):
    """The slot had the launch, and nothing is known of what became of it."""


class Slot:
    """Runs one launch at a time. A second caller waits for its turn."""

    def __init__(self, index: int, renew: Callable[[Slot, Link | None, str], str]) -> None:
        """`renew` replaces a broken link by `retire` if it can, and says what was lost."""
        self.index = index
        self._renew = renew
        self._turn = threading.Lock()
        self._lock = threading.Lock()
        self._link: Link | None = None
        self._busy: Link | None = None
        self._seq = 0
        self._running = False
        self._sent = False
        self._cancel: float | None = None
        self._answer_by = 0.0
        self.boot: str | None = None
        """The mark in the environment of what ran here last."""

    @property
    def link(self) -> Link | None:
        return self._link

    @property
    def pid(self) -> int:
        """Of the slot's process; 0 while it has none."""
        link = self._link
        return link.pid if link else 0

    def run(self, launch: Launch) -> Outcome:
        """Block until the process and all that it started are gone.

        Never raises for what a plugin, a slot or the runner does: where one of ours died
        the outcome is LOST, with a reason, and the next run has a fresh slot.
        """
        began = time.monotonic()
        try:
            numbers = launch.timeout, launch.grace, launch.stdout_cap, STDERR_CAP, launch.stderr_cap
            work = wire.Launchable(launch.argv, launch.env, launch.request, numbers)
        except ValueError as error:
            return Outcome(Ending.NOT_SPAWNED, errno=errno.EINVAL, reason=str(error))
        with self._turn:
            with self._lock:
                self._running, self._cancel = True, None
            self.boot = launch.env.get(sweep.MARK)
            try:
                outcome = self._run(launch, work)
            finally:
                with self._lock:
                    self._running = False
        if isinstance(outcome, Outcome):
            return outcome
        return Outcome(Ending.LOST, reason=outcome, duration=time.monotonic() - began)

    def cancel(self, grace: float) -> None:
        """End what runs now: SIGTERM to its group, `grace` seconds, SIGKILL; 0 kills at once.

        Nothing happens if nothing runs, and a run that begins later is never hit.
        """
        with self._lock:
            if not self._running:
                return
            if self._cancel is None or grace < self._cancel:
                self._cancel = grace
            if self._sent and self._busy:
                self._send_cancel(self._busy, grace)

    def retire(self, successor: Link | None) -> None:
        """Take another link from now on; whoever is blocked on the old one is let go."""
        with self._lock:
            old, self._link = self._link, successor
            if old is None:
                return
            if self._busy is old:
                old.shut()
            else:
                old.close()

    def _run(self, launch: Launch, work: wire.Launchable) -> Outcome | str:
        """The outcome, or what was lost."""
        reason = f"slot {self.index} has no process"
        for _ in range(_TRIES):
            link = self._link
            try:
                if link is None:
                    raise NotTaken(reason)
                return _outcome(launch, self._exchange(link, launch, work))
            except NotTaken as error:
                reason = self._renew(self, link, str(error))
                if self._link is None:
                    break
            except Lost as error:
                return self._renew(self, link, str(error))
        return reason

    def _exchange(self, link: Link, launch: Launch, work: wire.Launchable) -> wire.Answer:
        with self._lock:
            self._seq += 1
            self._busy = link
        try:
            self._send(link, work.frame(self._seq))
            allowed = SPAWN_PATIENCE + launch.timeout + max(launch.grace, 0.0)
            with self._lock:
                self._answer_by = time.monotonic() + allowed + MARGIN
                self._sent = True
                if self._cancel is not None:
                    self._send_cancel(link, self._cancel)
            return self._receive(link)
        finally:
            with self._lock:
                self._busy, self._sent = None, False
                if self._link is not link:
                    link.close()

    def _send(self, link: Link, frame: bytes) -> None:
        rest = memoryview(frame)
        give_up = time.monotonic() + MARGIN
        while rest:
            try:
                rest = rest[link.sock.send(rest) :]
            except BlockingIOError:
                if time.monotonic() > give_up:
                    raise NotTaken(self._says(link, "takes no job")) from None
            except OSError:
                raise NotTaken(self._says(link, "died")) from None

    def _receive(self, link: Link) -> wire.Answer:
        inbox = link.inbox
        while (frame := inbox.take()) is None:
            try:
                if not inbox.fill():
                    raise Lost(self._says(link, "died"))
            except BlockingIOError:
                if time.monotonic() > self._answer_by:
                    late = "did not answer by the deadline and its grace"
                    raise Lost(self._says(link, late)) from None
            except ConnectionResetError:
                # It died with something unread. Short of a cancel, that is the launch.
                unread = NotTaken if self._cancel is None else Lost
                raise unread(self._says(link, "died")) from None
            except OSError:
                raise Lost(self._says(link, "died")) from None
        answer = wire.answer(frame)
        if answer[0] != self._seq:
            raise Lost(self._says(link, "answered for another job"))
        return answer

    def _send_cancel(self, link: Link, grace: float) -> None:
        """A slot that cannot take this is one that will not answer in time either."""
        self._answer_by = min(self._answer_by, time.monotonic() + max(grace, 0.0) + MARGIN)
        try:
            link.sock.send(wire.cancel_frame(self._seq, grace), socket.MSG_DONTWAIT)
        except OSError:
            pass

    def _says(self, link: Link, what: str) -> str:
        return f"slot {self.index} (pid {link.pid}) {what}"


def _outcome(launch: Launch, answer: wire.Answer) -> Outcome:
    _, number, flags, exit_code, code, duration, stdout, stderr = answer
    ending = _ENDINGS[number]
    reason = None
    if ending is Ending.NOT_SPAWNED:
        reason = diagnose.spawn_failure(launch.argv[0], code)
    elif exit_code in (126, 127) and diagnose.carries_crlf(launch.argv[0]):
        reason = f"{launch.argv[0]!r} has a shebang line that ends in CRLF"
    return Outcome(
        ending=ending,
        exit_code=exit_code if flags & wire.HAS_EXIT_CODE else None,
        stdout=stdout,
        stdout_overflowed=bool(flags & wire.OVERFLOWED),
        stderr=stderr,
        stderr_truncated=bool(flags & wire.TRUNCATED),
        errno=code or None,
        reason=reason,
        duration=duration,
    )
