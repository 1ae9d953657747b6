"""The gateway itself: whether it runs, answers, and runs what is installed and configured."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import ductile
from ductile.clock import from_text
from ductile.engine.instance_lock import command_runs, is_alive
from ductile.errors import DuctileError
from ductile.operations.doctor.context import DoctorContext
from ductile.operations.doctor.finding import Finding, error, warning
from ductile.operations.doctor.locks import holders

WRITTEN = datetime(2026, 1, 1, tzinfo=UTC)
"""A clock that shows less was never set."""
SET_BACK = timedelta(minutes=1)


def gateway(context: DoctorContext) -> Iterator[Finding]:
    directory = context.state_dir
    if directory is None:
        return
    if not context.is_locked or (context.ask is None and command_runs(directory)):
        yield warning(
            "gateway",
            "no gateway is running",
            "nothing is scheduled, and what is queued waits",
            context.command("system start"),
        )
    elif context.pid is not None and not is_alive(context.pid):
        yield from _of_the_dead(context, directory)
    elif context.ask is None:
        yield error(
            "gateway",
            f"the gateway (pid {context.pid}) does not answer on its socket",
            "it starts or stops right now, or it hangs",
            f"kill {context.pid}",
        )
    else:
        yield from _of_the_living(context)


def _of_the_dead(context: DoctorContext, directory: Path) -> Iterator[Finding]:
    left = sorted(holders(directory / "ductile.lock"))
    pids = " ".join(map(str, left))
    yield error(
        "gateway",
        f"the lock is held, but its gateway (pid {context.pid}) is dead",
        f"processes of it are left: {pids}" if left else "processes of it are left",
        f"kill -9 {pids}" if left else context.command("system start"),
    )


def _of_the_living(context: DoctorContext) -> Iterator[Finding]:
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
            "the gateway says that it is not well",
            health.get("error", "the fate of a commit is unknown to it; a start finds out"),
            context.command("system start"),
        )
    if health["version"] != ductile.__version__:
        yield warning(
            "gateway",
            f"the gateway runs version {health['version']}; installed is {ductile.__version__}",
            "it was not started again after the upgrade",
            f"kill {context.pid} && {context.command('system start')}",
        )


def configuration(context: DoctorContext) -> Iterator[Finding]:
    """Whether the running gateway has adopted what stands on the disk."""
    if context.ask is None or context.loaded is None or context.problems:
        return
    view = context.ask("/config/view")
    if view["config_hash"] != context.loaded.config_hash:
        yield warning(
            "config",
            "the running gateway has another configuration than the files",
            "they were changed after it had read them, or differ by the environment",
            context.command("system reload"),
        )


def clock(context: DoctorContext) -> Iterator[Finding]:
    if context.now < WRITTEN:
        yield error(
            "clock",
            f"the clock shows {context.now:%Y-%m-%d}",
            "it was never set: schedules, retention and tokens go by it",
            "timedatectl set-ntp true",
        )
    if context.ledger is None:
        return
    row = context.ledger.read(lambda tx: tx.one("newest_boot"))
    if row is not None and from_text(row[0]) > context.now + SET_BACK:
        yield error(
            "clock",
            f"the last gateway started at {row[0]}, which is yet to come",
            "the clock was set back since",
            "timedatectl status",
        )
