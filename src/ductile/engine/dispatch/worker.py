"""A slot with the job that has it, and the place from where all of them are watched."""

from __future__ import annotations

import contextlib
import os
import select
from collections import deque
from typing import Protocol

from ductile.engine.dispatch.attempt import Attempt
from ductile.model import Launch, Outcome
from ductile.runner.client import Broken, Link

_IN, _OUT = select.EPOLLIN, select.EPOLLOUT


class Slot(Protocol):
    """What `runner.client.Slot` is to a dispatcher."""

    due: float

    @property
    def link(self) -> Link | None: ...

    @property
    def sending(self) -> bool: ...

    @property
    def lined_up(self) -> int: ...

    @property
    def has_room(self) -> bool: ...

    @property
    def heard(self) -> bool: ...

    def begin(self, launch: Launch, place: int) -> Outcome | None: ...

    def line_up(self, launch: Launch, place: int) -> bool: ...

    def recall(self) -> None: ...

    def go_on(self) -> None: ...

    def look(self) -> Outcome | None: ...

    def mend(self, broken: Broken) -> Outcome | None: ...

    def cancel(self, grace: float) -> None: ...

    def abandon(self) -> None: ...


class Worker:
    """A slot, with the attempt that has it, and those that have it next."""

    __slots__ = ("attempt", "events", "fd", "link", "next", "running", "slot")

    def __init__(self, slot: Slot) -> None:
        self.slot = slot
        self.attempt: Attempt | None = None
        self.next: deque[Attempt] = deque()
        self.running = False
        self.link: Link | None = None
        """The one that is watched, at this descriptor, for these events."""
        self.fd = self.events = -1


class SlotWatch:
    """Waits for every seat at once, and for whoever wakes it."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._epoll.register(self._wake, _IN)
        self._watched: dict[int, Worker] = {}

    def wake(self) -> None:
        """From any thread."""
        os.eventfd_write(self._wake, 1)

    def wait(self, seconds: float) -> list[Worker]:
        """The seats whose slot has something to say; -1 waits for ever."""
        spoken = []
        for fd, _ in self._epoll.poll(seconds):
            if fd == self._wake:
                os.eventfd_read(fd)
            else:
                spoken.append(self._watched[fd])
        return spoken

    def watch(self, seat: Worker) -> None:
        """From now on; a seat stays watched, whatever it runs."""
        link = seat.slot.link
        events = _IN | _OUT if seat.slot.sending else _IN
        if seat.link is not link:
            self.forget(seat)
            if link is not None:
                seat.link, seat.fd = link, link.sock.fileno()
                self._watched[seat.fd] = seat
                self._epoll.register(seat.fd, events)
        elif events != seat.events:
            self._epoll.modify(seat.fd, events)
        seat.events = events

    def forget(self, seat: Worker) -> None:
        # A link that was closed left the set by itself, and its number may be another's.
        if self._watched.get(seat.fd) is seat:
            del self._watched[seat.fd]
            with contextlib.suppress(OSError):
                self._epoll.unregister(seat.fd)
        seat.link, seat.fd = None, -1

    def close(self) -> None:
        self._epoll.close()
        os.close(self._wake)
