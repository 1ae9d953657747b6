"""Checks of the gateway process: running, answering, of the installed version, up to date."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from shlex import quote
from typing import Any

import ductile
from ductile.clock import from_text
from ductile.config.models.service import DEFAULT_STATE
from ductile.engine.config.restart_required import RESTART
from ductile.engine.instance_lock import LockHolder, find_holder
from ductile.errors import DuctileError
from ductile.operations.doctor.context import DoctorContext
from ductile.operations.doctor.finding import Finding, error, warning
from ductile.operations.doctor.ledger import advise_on_ledger
from ductile.operations.doctor.locks import holders

EARLIEST = datetime(2026, 1, 1, tzinfo=UTC)
"""A clock that shows an earlier time was never set."""
SET_BACK = timedelta(minutes=1)


def gateway(context: DoctorContext) -> Iterator[Finding]:
    directory, holder = context.state_dir, context.holder
    if directory is None:
        return
    if holder is None or (context.ask is None and holder.is_gateway is False):
        yield _check_absent(context, directory)
    elif context.ask is not None:
        yield from _check_living(context)
    elif not holder.is_alive:
        yield from _check_dead(context, holder, directory)
    elif holder.is_gateway is None:
        yield error(
            "gateway",
            f"process {holder.pid} holds the lock and does not answer on its socket",
            "it is starting or stopping, or it is not a gateway",
            f"ps -o pid,lstart,cmd -p {holder.pid}",
        )
    else:
        yield error(
            "gateway",
            f"the gateway (pid {holder.pid}) does not answer on its socket",
            "it is starting or stopping, or it hangs",
            context.command("system stop"),
        )


def _check_dead(context: DoctorContext, holder: LockHolder, directory: Path) -> Iterator[Finding]:
    left = sorted(holders(directory / "ductile.lock"))
    pids = " ".join(map(str, left))
    who = "its gateway" if holder.pid is None else f"its gateway (pid {holder.pid})"
    yield error(
        "gateway",
        f"the lock is held, but {who} is dead or not visible here",
        f"processes that hold it: {pids}" if left else "no process that holds it is visible",
        f"kill -9 {pids}" if left else context.command("system start"),
    )


def _check_absent(context: DoctorContext, directory: Path) -> Finding:
    settings = context.settings
    usual = directory if settings is None else (settings.config_dir / DEFAULT_STATE).parent
    if usual.resolve() != directory.resolve() and find_holder(usual) is not None:
        return error(
            "gateway",
            f"no gateway is running in {directory}, and one is running in {usual}",
            "if it is the gateway of these files, a start would run a second one, with another "
            "ledger: state.path decides where the ledger is, and is not changed by a reload",
            context.command(f"config set state.path {quote(DEFAULT_STATE)}"),
        )
    why = "schedules do not fire, and queued jobs are not run"
    ledger = None if settings is None else settings.state.path
    if ledger is not None and _is_missing(ledger):
        why += f"; a start begins with an empty ledger, as there is no {ledger}"
    return warning("gateway", "no gateway is running", why, context.command("system start"))


def _is_missing(path: Path) -> bool:
    """False also for a file that this user may not see."""
    try:
        path.stat()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return False


def _check_living(context: DoctorContext) -> Iterator[Finding]:
    assert context.ask is not None
    restart = _restart_command(context)
    try:
        health = context.health()
    except DuctileError as failure:
        yield error("gateway", "the gateway does not answer", failure.message, restart)
        return
    yield from _check_parts(context, health, restart)
    if health["version"] != ductile.__version__:
        yield warning(
            "gateway",
            f"the gateway runs version {health['version']}, but {ductile.__version__} is installed",
            "it was not restarted after the upgrade",
            restart,
        )


def _restart_command(context: DoctorContext) -> str:
    return f"{context.command('system stop')} && {context.command('system start')}"


def _check_parts(
    context: DoctorContext, health: Mapping[str, Any], restart: str
) -> Iterator[Finding]:
    """One finding per failing part of the gateway."""
    parts = health.get("failing", ())
    if health["status"] != "ok" and not any(part["critical"] for part in parts):
        why = "it does not know whether a commit took effect; a restart finds out"
        yield error("gateway", "the gateway reports an error", health.get("error", why), restart)
    for part in parts:
        judge, effect = (
            (error, "jobs cannot be accepted or settled")
            if part["critical"]
            else (warning, "its own work is delayed")
        )
        yield judge(
            "gateway",
            f"the gateway reports that its {part['part']} fails; {effect}",
            part["error"],
            advise_on_ledger(context, part["error"], part["code"]) or restart,
        )


def configuration(context: DoctorContext) -> Iterator[Finding]:
    """Whether the running gateway uses the configuration that is on disk."""
    if context.ask is None or context.loaded is None or context.problems:
        return
    view = context.ask("/config/view")
    if view["config_hash"] == context.loaded.config_hash:
        return
    restart = _restart_command(context)
    try:
        context.ask("/system/reload")
    except DuctileError as refusal:
        yield warning(
            "config",
            "the files differ from the running configuration, and a reload of them is refused",
            refusal.message,
            restart if RESTART in refusal.message else context.command("config check"),
        )
    else:
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
