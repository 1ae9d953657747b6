"""`system stop`: ends the gateway of a state directory and waits until it has ended."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from ductile.engine.instance_lock import LockHolder, find_holder
from ductile.errors import NotRunning, Refused
from ductile.files import user_name

POLL_SECONDS = 0.05


def find_gateway(state_dir: Path, *, answers: bool) -> int:
    """The pid of the gateway, from its lock; `answers` is whether its socket is served.

    Raises `NotRunning` without one, `Refused` if it cannot be distinguished from another process.
    """
    holder = find_holder(state_dir)
    if holder is None:
        raise NotRunning(f"no gateway is running in {state_dir}")
    if holder.pid is None:
        raise Refused(
            f"the gateway of {state_dir} is not visible here; stop it on its own machine or in its "
            "own container"
        )
    if not holder.is_alive:
        raise Refused(
            f"the gateway (pid {holder.pid}) is dead, but processes that it started hold its lock; "
            "`ductile system doctor` lists them"
        )
    if not _is_gateway(holder, answers=answers):
        raise Refused(f"process {holder.pid} holds the lock of {state_dir}, and is not a gateway")
    return holder.pid


def _is_gateway(holder: LockHolder, *, answers: bool) -> bool:
    return holder.is_gateway is True or (holder.is_gateway is None and answers)


def stop_gateway(
    state_dir: Path,
    pid: int,
    *,
    timeout: float,
    watch: Callable[[float], None] = lambda _seconds: None,
) -> float:
    """Send SIGTERM and wait until the lock is free; returns the seconds that it took.

    `watch` receives the seconds so far. `Refused` if the gateway has not ended by the timeout; it
    then continues to stop.
    """
    _send_sigterm(state_dir, pid)
    started = time.monotonic()
    while True:
        holder, passed = find_holder(state_dir), time.monotonic() - started
        if holder is None or (holder.pid != pid and holder.is_alive):
            return passed
        if passed >= timeout:
            raise Refused(
                f"the gateway (pid {pid}) has not ended after {timeout:.0f} s; it waits for "
                "running jobs up to service.shutdown_grace",
                pid=pid,
            )
        watch(passed)
        time.sleep(POLL_SECONDS)


def _send_sigterm(state_dir: Path, pid: int) -> None:
    """Signal the process only if it still holds the lock: a descriptor cannot be reused."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        holder = find_holder(state_dir)
        if holder is not None and holder.pid == pid:
            signal.pidfd_send_signal(descriptor, signal.SIGTERM)
    except ProcessLookupError:
        return
    except PermissionError as error:
        owner = user_name(_read_uid(pid))
        text = f"the gateway (pid {pid}) belongs to {owner}; stop it as that user"
        raise Refused(text) from error
    finally:
        os.close(descriptor)


def _read_uid(pid: int) -> int:
    """The user of a process. The owner of its files in `/proc` may be root instead."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Uid:"))
