"""Checks of the gateway process: running, answering, of the installed version, up to date."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from shlex import quote
from typing import Any, NamedTuple

import ductile
from ductile.clock import from_text, to_text
from ductile.engine.config.restart_required import RESTART_COMMAND
from ductile.engine.instance_lock import LockHolder, find_holder
from ductile.engine.observability.parts import LEDGER, MONITOR
from ductile.errors import DuctileError
from ductile.operations.config.fixes import correct_one, open_in_editor
from ductile.operations.doctor.context import DoctorContext
from ductile.operations.doctor.finding import Finding, error, warning
from ductile.operations.doctor.ledger import advise_on_ledger
from ductile.operations.doctor.locks import (
    find_free_port,
    find_listener,
    holders,
    is_port_taken,
    locked_directories,
)
from ductile.store import nodes
from ductile.store.engines.api import Ledger

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
    for other in _find_others(context, directory):
        return error(
            "gateway",
            f"no gateway is running in {directory}, and one is running in {other.directory}",
            "it loaded these files: a start would run a second one, with another ledger; "
            "state.path decides where the state is, and is not changed by a reload",
            context.command(f"config set state.path {quote(str(other.path))}"),
        )
    why = "schedules do not fire, and queued jobs are not run"
    ledger = None if settings is None else settings.state.path
    if ledger is not None and _is_missing(ledger):
        why += f"; a start begins with an empty ledger, as there is no {ledger}"
    return warning("gateway", "no gateway is running", why, context.command("system start"))


class OtherGateway(NamedTuple):
    """A gateway that runs with the files of this configuration and another state directory."""

    directory: Path
    pid: int | None
    path: Path
    """Of its ledger."""


def _find_others(context: DoctorContext, own: Path) -> Iterator[OtherGateway]:
    if context.ask_at is None or context.config_dir is None:
        return
    for directory in sorted(locked_directories()):
        holder = find_holder(directory)
        if directory.resolve() == own.resolve() or holder is None or not holder.is_alive:
            continue
        try:
            running = context.ask_at(directory)("/config/view")["config"]
            path, config_dir = running["state"]["path"], Path(running["config_dir"])
        except (DuctileError, LookupError, TypeError):
            continue  # Any program may listen there.
        # Without a path it is a node, which shares its ledger with others.
        if path is not None and config_dir.resolve() == context.config_dir.resolve():
            yield OtherGateway(directory, holder.pid, Path(path))


def second(context: DoctorContext) -> Iterator[Finding]:
    """Other gateways of the same configuration, while its own is running."""
    if context.state_dir is None or context.ask is None:
        return
    for other in _find_others(context, context.state_dir):
        yield error(
            "gateway",
            f"two gateways run with these files: pid {context.pid} in {context.state_dir}, and pid "
            f"{other.pid} in {other.directory}",
            "each fires all schedules, with a ledger of its own; commands find only the first",
            f"kill {other.pid}",
        )


def ports(context: DoctorContext) -> Iterator[Finding]:
    """Ports of listeners that another process has, while no gateway of its own is running."""
    settings = context.settings
    if settings is None or context.is_locked or context.state_dir is None:
        return
    if any(_find_others(context, context.state_dir)):
        return  # Those are its ports.
    listeners = [("api.listen", settings.api.address)] if settings.api.enabled else []
    if settings.webhooks_enabled:
        listeners.append(("webhooks.listen", settings.webhooks.address))
    for key, (host, port) in listeners:
        if is_port_taken(host, port):
            yield error(
                "gateway",
                f"{find_listener(port) or 'another process'} listens on {host}:{port} ({key})",
                "a start is refused as long as it does",
                context.command(f"config set {key} {host}:{find_free_port(host, port, settings)}"),
            )


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
    return context.add_options(RESTART_COMMAND)


def _check_parts(
    context: DoctorContext, health: Mapping[str, Any], restart: str
) -> Iterator[Finding]:
    """One finding per failing part of the gateway."""
    parts = health.get("failing", ())
    of_ledger = [
        advise_on_ledger(context, part["error"], part["code"])
        for part in parts
        if part["part"] == LEDGER
    ]
    # Without its ledger, the other parts fail as well, and a restart does not help them.
    repair = next(filter(None, of_ledger), restart)
    if health["status"] != "ok" and not any(part["critical"] for part in parts):
        why = "it does not know whether a commit took effect; a restart finds out"
        yield error("gateway", "the gateway reports an error", health.get("error", why), restart)
    for part in parts:
        judge, effect = (
            (error, "jobs cannot be accepted or settled")
            if part["critical"]
            else (warning, "its own work is delayed")
        )
        run = advise_on_ledger(context, part["error"], part["code"]) or repair
        if part["part"] == MONITOR and (place := _find_monitor(context)) is not None:
            effect = f"the monitor may report a dead gateway ({place[0]}:{place[1]})"
            run = context.add_options(f"{open_in_editor(*place)} && ductile system reload")
        yield judge(
            "gateway",
            f"the gateway reports that its {part['part']} fails; {effect}",
            part["error"],
            run,
        )


def _find_monitor(context: DoctorContext) -> tuple[str, int] | None:
    """The place of the URL of the outside monitor."""
    if context.loaded is None or context.loaded.settings.dead_man is None:
        return None
    file, line, _ = context.loaded.locate(("dead_man", "url"))
    return file, line


def configuration(context: DoctorContext) -> Iterator[Finding]:
    """Whether the running gateway uses the configuration that is on disk."""
    if context.ask is None or context.loaded is None or context.problems:
        return
    view = context.ask("/config/view")
    if view["config_hash"] == context.loaded.config_hash:
        return
    try:
        context.ask("/system/reload")
    except DuctileError as refusal:
        yield warning(
            "config",
            "the files differ from the running configuration, and a reload of them is refused",
            refusal.message,
            correct_one(refusal, lambda _, line: context.add_options(line))
            or context.command("config check"),
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
    if context.ledger.engine != "sqlite":
        yield from _compare_with_database(context, context.ledger)
        return
    row = context.ledger.read(lambda tx: tx.one("newest_boot"))
    if row is not None and from_text(row[0]) > context.now + SET_BACK:
        yield error(
            "clock",
            f"the last gateway started at {row[0]}, which is in the future",
            "the clock was set back since then",
            "timedatectl status",
        )


def _compare_with_database(context: DoctorContext, ledger: Ledger) -> Iterator[Finding]:
    """Nodes are compared with the clock of the database, since that of any other may be wrong."""
    row = next(iter(ledger.read(nodes.list_nodes)), None)
    if row is None:
        return
    database = from_text(row["seen_at"]) + timedelta(seconds=row["seconds_since_seen"])
    if abs(context.now - database) > SET_BACK:
        yield error(
            "clock",
            f"the clock shows {to_text(context.now)}, and that of the database {to_text(database)}",
            "schedules of this node fire at the wrong time",
            "timedatectl status",
        )
