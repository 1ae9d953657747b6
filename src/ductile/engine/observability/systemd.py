"""sd_notify: telling the service manager how we are, and proving that we live.

A datagram of `NAME=value` lines to the socket that `NOTIFY_SOCKET` names. Without one,
everything here is silent.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

from ductile.engine.observability.liveness import Liveness
from ductile.log import logger

MORE_THAN_THE_GRACE = 30.0
"""Seconds that a stop may take beyond what running jobs are given."""
PATIENCE = 0.5


class Notifier:
    def __init__(self, address: str | None = None, watchdog: float | None = None) -> None:
        """`watchdog` is how long the manager waits for a sign of life, in seconds."""
        self._address = None if address is None else _socket_name(address)
        self.watchdog = watchdog

    @classmethod
    def of(cls, environ: Mapping[str, str], pid: int) -> Notifier:
        """The one that this process was started with."""
        address = environ.get("NOTIFY_SOCKET") or None
        meant = environ.get("WATCHDOG_PID") in (None, "", str(pid))
        usec = environ.get("WATCHDOG_USEC", "")
        awaited = meant and usec.isascii() and usec.isdecimal() and int(usec) > 0
        return cls(address, int(usec) / 1e6 if awaited and address else None)

    def send(self, *lines: str) -> None:
        """Best effort: a manager that does not listen must not stop the work."""
        if self._address is None:
            return
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.settimeout(PATIENCE)
            sender.sendto("\n".join(lines).encode(), self._address)

    def ready(self, status: str) -> None:
        self.send("READY=1", f"STATUS={_one_line(status)}")

    def alive(self, status: str) -> None:
        self.send("WATCHDOG=1", f"STATUS={_one_line(status)}")

    def stopping(self, grace: float) -> None:
        usec = int((grace + MORE_THAN_THE_GRACE) * 1e6)
        self.send("STOPPING=1", f"EXTEND_TIMEOUT_USEC={usec}", "STATUS=Stopping")

    @contextmanager
    def reloading(self) -> Iterator[None]:
        """Around a reload, whether it is adopted or refused: afterwards we are ready again."""
        usec = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        self.send("RELOADING=1", f"MONOTONIC_USEC={usec}", "STATUS=Reloading")
        outcome = "Reload refused; the configuration before it stays in force"
        try:
            yield
            outcome = "Reloaded"
        finally:
            self.ready(outcome)


def _socket_name(address: str) -> str:
    """A path, or the name of an abstract socket, which is written with an @."""
    return "\0" + address[1:] if address.startswith("@") else address


def _one_line(text: str) -> str:
    return " ".join(text.split())


class Watchdog:
    """A sign of life in every half of the time that the manager waits for one.

    Only while there is a pulse: the next one is sent when everything that must answer has.
    """

    def __init__(self, notifier: Notifier, pulse: Liveness) -> None:
        assert notifier.watchdog is not None
        self._notifier, self._pulse = notifier, pulse
        self._interval = notifier.watchdog / 2
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        log = logger("watchdog")
        missed: str | None = None
        while not self._stopping.is_set():
            trouble = self._pulse.take(self._stopping, self._interval)
            if trouble is None:
                self._notifier.alive(self._pulse.status())
                if missed:
                    log.info("there is a pulse again")
                self._stopping.wait(self._interval)
            elif trouble != missed:
                log.error("no pulse: the service manager will restart us", reason=trouble)
            missed = trouble


@contextmanager
def watched(notifier: Notifier, pulse: Liveness) -> Iterator[None]:
    """Ready at its beginning, and with signs of life to its end, where they are waited for."""
    notifier.ready(pulse.status())
    watchdog = Watchdog(notifier, pulse) if notifier.watchdog is not None else None
    if watchdog is not None:
        watchdog.start()
    try:
        yield
    finally:
        if watchdog is not None:
            watchdog.stop()
