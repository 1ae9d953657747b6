"""sd_notify: reports the state of the gateway to the service manager, and feeds its watchdog.

A message is a datagram of `NAME=value` lines to the socket in `NOTIFY_SOCKET`. Without that
variable nothing is sent.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

from ductile.engine.observability.liveness import Liveness
from ductile.log import logger

STOP_MARGIN = 30.0
"""Seconds that a stop may take beyond the grace of running jobs."""
SEND_TIMEOUT = 0.5


class Notifier:
    def __init__(self, address: str | None = None, watchdog: float | None = None) -> None:
        """`watchdog` is the watchdog timeout of the service manager in seconds."""
        self._address = None if address is None else _parse_address(address)
        self.watchdog = watchdog

    @classmethod
    def from_environment(cls, environ: Mapping[str, str], pid: int) -> Notifier:
        """The notifier for the environment that this process was started with."""
        address = environ.get("NOTIFY_SOCKET") or None
        is_for_us = environ.get("WATCHDOG_PID") in (None, "", str(pid))
        usec = environ.get("WATCHDOG_USEC", "")
        enabled = is_for_us and usec.isascii() and usec.isdecimal() and int(usec) > 0
        return cls(address, int(usec) / 1e6 if enabled and address else None)

    def send(self, *lines: str) -> None:
        """Best effort: errors are ignored, because the gateway works without a service manager."""
        if self._address is None:
            return
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.settimeout(SEND_TIMEOUT)
            sender.sendto("\n".join(lines).encode(), self._address)

    def send_ready(self, status: str) -> None:
        self.send("READY=1", f"STATUS={_one_line(status)}")

    def send_alive(self, status: str) -> None:
        self.send("WATCHDOG=1", f"STATUS={_one_line(status)}")

    def send_stopping(self, grace: float) -> None:
        usec = int((grace + STOP_MARGIN) * 1e6)
        self.send("STOPPING=1", f"EXTEND_TIMEOUT_USEC={usec}", "STATUS=Stopping")

    @contextmanager
    def reloading(self) -> Iterator[None]:
        """Report a reload; afterwards the gateway is ready again, whether it succeeded or not."""
        usec = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        self.send("RELOADING=1", f"MONOTONIC_USEC={usec}", "STATUS=Reloading")
        outcome = "Reload refused; the previous configuration stays in force"
        try:
            yield
            outcome = "Reloaded"
        finally:
            self.send_ready(outcome)


def _parse_address(address: str) -> str:
    """A path, or an abstract socket, which starts with @."""
    return "\0" + address[1:] if address.startswith("@") else address


def _one_line(text: str) -> str:
    return " ".join(text.split())


class Watchdog:
    """Pings the watchdog of the service manager twice per timeout, while the gateway is alive."""

    def __init__(self, notifier: Notifier, liveness: Liveness) -> None:
        assert notifier.watchdog is not None
        self._notifier, self._liveness = notifier, liveness
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
        last_problem: str | None = None
        while not self._stopping.is_set():
            problem = self._liveness.check(self._stopping, self._interval)
            if problem is None:
                self._notifier.send_alive(self._liveness.describe())
                if last_problem:
                    log.info("liveness check passed again")
                self._stopping.wait(self._interval)
            elif problem != last_problem:
                log.error("liveness check failed; expecting a restart", reason=problem)
            last_problem = problem


@contextmanager
def report_ready(notifier: Notifier, liveness: Liveness) -> Iterator[None]:
    """Report that the gateway is ready, and feed the watchdog, if any, until the end."""
    notifier.send_ready(liveness.describe())
    watchdog = Watchdog(notifier, liveness) if notifier.watchdog is not None else None
    if watchdog is not None:
        watchdog.start()
    try:
        yield
    finally:
        if watchdog is not None:
            watchdog.stop()
