"""A slot as the gateway holds it: hand it a launch, look for the outcome, cancel meanwhile.

While it runs one it can be handed some more, which it begins by itself, one after the other. Until
then they can be recalled."""

from __future__ import annotations

import errno
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial

from ductile.model import STDERR_CAP, Ending, Launch, Outcome
from ductile.runner import exec_errors, process_scan, protocol
from ductile.runner.slot import SPAWN_PATIENCE
from ductile.runner.started_flags import NOWHERE

LINE = 6
"""Launches that may wait in a slot for the one that runs."""
MARGIN = 5.0
"""How long after the last moment that a slot is allowed it is still waited for."""

_TICK = 1.0
"""How often who waits sees whether it is worth waiting on."""
_TRIES = 3
_LARGEST_NEXT = 16 * 1024
"""Goes into a socket whole or not at all, if that is not made very small."""
_ENDINGS = tuple(Ending(name) for name in protocol.ENDINGS)


class Link:
    """One slot process: its pid and the socket to it."""

    def __init__(self, pid: int, fd: int) -> None:
        self.pid = pid
        self.sock = socket.socket(fileno=fd)
        self.sock.setblocking(False)
        self.inbox = protocol.Inbox(self.sock)

    def shut(self) -> None:
        """End the connection under somebody who may be waiting on it."""
        try:
            self.sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    def close(self) -> None:
        self.sock.close()


class Broken(Exception):
    """The slot is gone, or as good as gone, and `mend` is what is left to do.

    Where it had not `taken` the launch, nothing was started.
    """

    def __init__(self, why: str, *, taken: bool) -> None:
        super().__init__(why)
        self.taken = taken


class _Next:
    """A launch that waits in the slot for its turn."""

    __slots__ = ("launch", "recalled", "seq")

    def __init__(self, launch: Launch, seq: int) -> None:
        self.launch, self.seq = launch, seq
        self.recalled = False


class Slot:
    """Runs one launch at a time.

    `run` blocks; a second caller waits for its turn. Who has several slots to watch calls
    `begin` and, whenever the socket of `link` is ready or `due` has passed, `look`.
    """

    def __init__(self, index: int, renew: Callable[[Slot, Link | None, str], str]) -> None:
        """`renew` replaces a broken link by `retire` if it can, and says what was lost."""
        self.index = index
        self._renew = renew
        self._turn = threading.Lock()
        self._lock = threading.Lock()
        self._link: Link | None = None
        self._busy: Link | None = None
        self._seq = self._last_seq = 0
        self._running = False
        self._sent = False
        self._cancel: float | None = None
        self._launch: Launch | None = None
        self._work: protocol.Launchable | None = None
        self._unsent: memoryview | None = None
        self._next: deque[_Next] = deque()
        self._recalled_behind = 0
        """The launch that ran when some were recalled."""
        self._alone = False
        """Whether the socket has nothing for the slot to read but the launch."""
        self._tries = 0
        self._began = 0.0
        self._env: Mapping[str, str] | None = None
        self._variables = b""
        self.due = 0.0
        """When, on the monotonic clock, what it is waited for is late."""
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

    @property
    def lined_up(self) -> int:
        """How many launches it has to begin when this one has ended."""
        return len(self._next)

    @property
    def has_room(self) -> bool:
        """Whether it may be handed one more. Not while some are recalled, for they come back in
        order; nor behind what others were recalled from: it takes its time."""
        waiting = self._next
        if self._unsent is not None or self._recalled_behind == self._seq:
            return False
        return not waiting or (len(waiting) < LINE and not waiting[-1].recalled)

    @property
    def heard(self) -> bool:
        """Whether there is more to `look` at without another word from the slot."""
        return self._busy is not None and self._busy.inbox.ready

    @property
    def sending(self) -> bool:
        """Whether a part of the launch waits until the socket can be written to."""
        return self._unsent is not None

    def run(self, launch: Launch) -> Outcome:
        """Block until the process and all that it started are gone.

        Never raises for what a plugin, a slot or the runner does: where one of ours died
        the outcome is LOST, with a reason, and the next run has a fresh slot.
        """
        with self._turn:
            step: Callable[[], Outcome | None] = partial(self.begin, launch)
            while True:
                try:
                    outcome = step()
                except Broken as broken:
                    outcome = self.mend(broken)
                if outcome is not None:
                    return outcome
                self._wait()
                step = self.look

    def begin(self, launch: Launch, place: int = NOWHERE) -> Outcome | None:
        """Hand over a launch, without blocking; an outcome only where it cannot be run at all.

        That it begins is noted at `place`, by the slot. Raises `Broken`.
        """
        self._began = time.monotonic()
        try:
            self._work = self._encoded(launch, place)
        except ValueError as error:
            return Outcome(Ending.NOT_SPAWNED, errno=errno.EINVAL, reason=str(error))
        self._launch, self._tries = launch, _TRIES
        with self._lock:
            self._running, self._cancel = True, None
        self._give()
        return None

    def line_up(self, launch: Launch, place: int = NOWHERE) -> bool:
        """Hand over what to begin when those before it have ended; whether that was possible.

        Once `look` has the outcome of the one before it, `go_on` is due.
        """
        link = self._busy
        if link is None or not self.has_room:
            return False
        try:
            frame = self._encoded(launch, place).frame(self._last_seq + 1)
        except ValueError:
            return False
        if len(frame) > _LARGEST_NEXT:
            return False
        self._alone = False
        try:
            sent = link.sock.send(frame)
        except OSError:
            return False
        if sent < len(frame):
            # A part of it can neither be taken back nor be left there.
            link.shut()
            return False
        self._last_seq += 1
        self._next.append(_Next(launch, self._last_seq))
        return True

    def recall(self) -> None:
        """Ask for what is lined up, the last first: what does not begin soon is no longer."""
        link = self._busy
        if link is None or not self._next:
            return
        self._recalled_behind = self._seq
        for waiting in reversed(self._next):
            if waiting.recalled:
                continue
            try:
                link.sock.send(protocol.recall_frame(waiting.seq))
            except OSError:
                return
            waiting.recalled = True

    def look(self) -> Outcome | None:
        """The outcome, if it has come, without blocking. Raises `Broken`."""
        link = self._busy
        assert link is not None
        if self._unsent is not None:
            self._send(link)
            return None
        if not link.inbox.ready:
            self._receive(link)
        frame = link.inbox.take()
        return None if frame is None else self._answered(link, protocol.answer(frame))

    def _receive(self, link: Link) -> None:
        try:
            if not link.inbox.fill():
                raise Broken(self._says(link, "died"), taken=True)
        except BlockingIOError:
            if time.monotonic() > self.due:
                self._give_up(link)
        except ConnectionResetError:
            # It died with something unread.
            raise Broken(self._says(link, "died"), taken=not self._alone) from None
        except OSError:
            raise Broken(self._says(link, "died"), taken=True) from None

    def _give_up(self, link: Link) -> None:
        """Its next answer cannot be sent, and so nothing begins any more; one may be under way."""
        link.shut()
        try:
            heard = link.inbox.fill()
        except OSError:
            heard = False
        if not heard:
            late = "did not answer by the deadline and its grace"
            raise Broken(self._says(link, late), taken=True)

    def _answered(self, link: Link, answer: protocol.Answer) -> Outcome | None:
        waiting = self._next
        if waiting and answer[:2] == (waiting[-1].seq, protocol.RECALLED):
            waiting.pop()
            return None
        if answer[0] != self._seq:
            link.shut()
            raise Broken(self._says(link, "answered for another job"), taken=True)
        assert self._launch is not None
        outcome = _outcome(self._launch, answer)
        if not waiting:
            self._end(link)
        return outcome

    def go_on(self) -> None:
        """From now on it is about the first that was lined up, which the slot has begun."""
        following = self._next.popleft()
        self._launch, self._work = following.launch, None
        self._began = time.monotonic()
        with self._lock:
            self._seq, self._cancel = following.seq, None
            self.due = self._began + _allowed(following.launch)

    def mend(self, broken: Broken) -> Outcome | None:
        """Replace the process, which may block; None where the launch is on its way to a new one.

        Else it is LOST where it may have begun, and where it has not it cannot be started for now.
        """
        self._next.clear()
        while True:
            link = self._busy
            self._let_go(link)
            reason = self._renew(self, link, str(broken))
            self._tries -= 1
            if broken.taken or self._link is None or not self._tries:
                outcome = self._given_up(reason, begun=broken.taken)
                self._end(None)
                return outcome
            try:
                self._give()
            except Broken as again:
                broken = again
            else:
                return None

    def _given_up(self, reason: str, *, begun: bool) -> Outcome:
        duration = time.monotonic() - self._began
        if begun:
            return Outcome(Ending.LOST, reason=reason, duration=duration)
        if self._cancel is not None:
            return Outcome(Ending.CANCELLED, duration=duration)
        return Outcome(Ending.NOT_SPAWNED, errno=errno.EAGAIN, reason=reason, duration=duration)

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

    def abandon(self) -> None:
        """What it runs and has in line is nobody's any more. The next launch has a new process."""
        if self._busy is not None:
            self._busy.shut()

    def retire(self, successor: Link | None) -> None:
        """Take another link from now on; whoever waits on the old one is let go."""
        with self._lock:
            old, self._link = self._link, successor
            if old is None:
                return
            if self._busy is old:
                old.shut()
            else:
                old.close()

    def _encoded(self, launch: Launch, place: int) -> protocol.Launchable:
        if launch.env is not self._env:
            self._variables, self._env = protocol.variables(launch.env), launch.env
            self.boot = launch.env.get(process_scan.MARK)
        caps = launch.stdout_cap, STDERR_CAP, launch.stderr_cap
        numbers = launch.timeout, launch.grace, *caps, place
        return protocol.Launchable(launch.argv, self._variables, launch.request, numbers)

    def _give(self) -> None:
        with self._lock:
            link = self._busy = self._link
            self._last_seq += 1
            self._seq = self._last_seq
            self._alone = True
            self._next.clear()
        if link is None:
            raise Broken(f"slot {self.index} has no process", taken=False)
        assert self._work is not None
        self._unsent = memoryview(self._work.frame(self._seq))
        self.due = time.monotonic() + MARGIN
        self._send(link)

    def _send(self, link: Link) -> None:
        assert self._unsent is not None
        try:
            rest = self._unsent[link.sock.send(self._unsent) :]
        except BlockingIOError:
            if time.monotonic() > self.due:
                raise Broken(self._says(link, "takes no job"), taken=False) from None
            return
        except OSError:
            raise Broken(self._says(link, "died"), taken=False) from None
        if rest:
            self._unsent = rest
            return
        self._unsent = None
        assert self._launch is not None
        with self._lock:
            self.due = time.monotonic() + _allowed(self._launch)
            self._sent = True
            if self._cancel is not None:
                self._send_cancel(link, self._cancel)

    def _end(self, link: Link | None) -> None:
        self._launch = self._work = None
        with self._lock:
            self._running = False
        self._let_go(link)

    def _let_go(self, link: Link | None) -> None:
        with self._lock:
            self._busy, self._sent, self._unsent = None, False, None
            if link is not None and self._link is not link:
                link.close()

    def _wait(self) -> None:
        """Until there is something to look at, or for a moment."""
        link = self._busy
        assert link is not None
        poller = select.poll()
        poller.register(link.sock, select.POLLOUT if self.sending else select.POLLIN)
        poller.poll(_TICK * 1000)

    def _send_cancel(self, link: Link, grace: float) -> None:
        """A slot that cannot take this is one that will not answer in time either."""
        self.due = min(self.due, time.monotonic() + max(grace, 0.0) + MARGIN)
        self._alone = False
        try:
            link.sock.send(protocol.cancel_frame(self._seq, grace), socket.MSG_DONTWAIT)
        except OSError:
            pass

    def _says(self, link: Link, what: str) -> str:
        return f"slot {self.index} (pid {link.pid}) {what}"


def _allowed(launch: Launch) -> float:
    """Seconds within which a slot that has taken this has answered."""
    return SPAWN_PATIENCE + launch.timeout + max(launch.grace, 0.0) + MARGIN


def _outcome(launch: Launch, answer: protocol.Answer) -> Outcome:
    _, number, flags, exit_code, code, duration, stdout, stderr = answer
    ending = _ENDINGS[number]
    reason = None
    if ending is Ending.NOT_SPAWNED:
        reason = exec_errors.spawn_failure(launch.argv[0], code)
    elif exit_code in (126, 127) and exec_errors.carries_crlf(launch.argv[0]):
        reason = f"{launch.argv[0]!r} has a shebang line that ends in CRLF"
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
