"""Checks of the gateway process: running, answering, of the installed version, up to date."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import ductile
from ductile.clock import from_text
from ductile.engine.instance_lock import is_alive, is_held_by_command
from ductile.errors import DuctileError
from ductile.operations.doctor.context import DoctorContext
from ductile.operations.doctor.finding import Finding, error, warning
from ductile.operations.doctor.locks import holders

EARLIEST = datetime(2026, 1, 1, tzinfo=UTC)
"""A clock that shows an earlier time was never set."""
SET_BACK = timedelta(minutes=1)


def gateway(context: DoctorContext) -> Iterator[Finding]:
    directory = context.state_dir
    if directory is None:
        return
    if not context.is_locked or (context.ask is None and is_held_by_command(directory)):
        yield warning(
            "gateway",
            "no gateway is running",
            "schedules do not fire, and queued jobs are not run",
            context.command("system start"),
        )
    elif context.pid is not None and not is_alive(context.pid):
        yield from _check_dead(context, directory)
    elif context.ask is None:
        yield error(
            "gateway",
            f"the gateway (pid {context.pid}) does not answer on its socket",
            "it is starting or stopping, or it hangs",
            f"kill {context.pid}",
        )
    else:
        yield from _check_living(context)


def _check_dead(context: DoctorContext, directory: Path) -> Iterator[Finding]:
    left = sorted(holders(directory / "ductile.lock"))
    pids = " ".join(map(str, left))
    yield error(
        "gateway",
        f"the lock is held, but its gateway (pid {context.pid}) is dead",
        f"its remaining processes: {pids}" if left else "some of its processes remain",
        f"kill -9 {pids}" if left else context.command("system start"),
    )


def _check_living(context: DoctorContext) -> Iterator[Finding]:
    assert context.ask is not None
    try:
        health = context.health()
    except DuctileError as failure:
        yield error(
            "gateway", "the gateway does not answer", failure.message, f"kill {context.pid}"
        )
        return
    if health["status"] != "ok":
        yield error(
            "gateway",
            "the gateway reports an error",
            health.get(
                "error", "it does not know whether a commit took effect; a restart finds out"
            ),
            context.command("system start"),
        )
    if health["version"] != ductile.__version__:
        yield warning(
            "gateway",
            f"the gateway runs version {health['version']}, but {ductile.__version__} is installed",
            "it was not restarted after the upgrade",
            f"kill {context.pid} && {context.command('system start')}",
        )


def configuration(context: DoctorContext) -> Iterator[Finding]:
    """Whether the running gateway uses the configuration that is on disk."""
    if context.ask is None or context.loaded is None or context.problems:
        return
    view = context.ask("/config/view")
    if view["config_hash"] != context.loaded.config_hash:
        yield warning(
            "config",
            "the running gateway uses another configuration than the files",
            "the files changed since they were loaded, or the environment differs",
            context.command("system reload"),
        )


def clock(context: DoctorContext) -> Iterator[Finding]:
    if context.now < EARLIEST:
        yield error(
            "clock",
            f"the clock shows {context.now:%Y-%m-%d}",
            "it was never set; schedules, retention and tokens depend on it",
            "timedatectl set-ntp true",
        )
    if context.ledger is None:
        return
    row = context.ledger.read(lambda tx: tx.one("newest_boot"))
    if row is not None and from_text(row[0]) > context.now + SET_BACK:
        yield error(
            "clock",
            f"the last gateway started at {row[0]}, which is in the future",
            "the clock was set back since then",
            "timedatectl status",
        )
