"""The gateway itself: whether it runs, answers, and runs what is installed and configured."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import ductile
from ductile.clock import from_text
from ductile.engine.instance_lock import command_runs, is_alive
from ductile.errors import DuctileError
from ductile.operations.doctor.context import Patient
from ductile.operations.doctor.finding import Finding, error, warning
from ductile.operations.doctor.locks import holders

WRITTEN = datetime(2026, 1, 1, tzinfo=UTC)
"""A clock that shows less was never set."""
SET_BACK = timedelta(minutes=1)


def gateway(patient: Patient) -> Iterator[Finding]:
    directory = patient.state_dir
    if directory is None:
        return
    if not patient.is_locked or (patient.ask is None and command_runs(directory)):
        yield warning(
            "gateway",
            "no gateway is running",
            "nothing is scheduled, and what is queued waits",
            patient.command("system start"),
        )
    elif patient.pid is not None and not is_alive(patient.pid):
        yield from _of_the_dead(patient, directory)
    elif patient.ask is None:
        yield error(
            "gateway",
            f"the gateway (pid {patient.pid}) does not answer on its socket",
            "it starts or stops right now, or it hangs",
            f"kill {patient.pid}",
        )
    else:
        yield from _of_the_living(patient)


def _of_the_dead(patient: Patient, directory: Path) -> Iterator[Finding]:
    left = sorted(holders(directory / "ductile.lock"))
    pids = " ".join(map(str, left))
    yield error(
        "gateway",
        f"the lock is held, but its gateway (pid {patient.pid}) is dead",
        f"processes of it are left: {pids}" if left else "processes of it are left",
        f"kill -9 {pids}" if left else patient.command("system start"),
    )


def _of_the_living(patient: Patient) -> Iterator[Finding]:
    assert patient.ask is not None
    try:
        health = patient.health()
    except DuctileError as failure:
        yield error(
            "gateway", "the gateway does not answer", failure.message, f"kill {patient.pid}"
        )
        return
    if health["status"] != "ok":
        yield error(
            "gateway",
            "the gateway says that it is not well",
            health.get("error", "the fate of a commit is unknown to it; a start finds out"),
            patient.command("system start"),
        )
    if health["version"] != ductile.__version__:
        yield warning(
            "gateway",
            f"the gateway runs version {health['version']}; installed is {ductile.__version__}",
            "it was not started again after the upgrade",
            f"kill {patient.pid} && {patient.command('system start')}",
        )


def configuration(patient: Patient) -> Iterator[Finding]:
    """Whether the running gateway has adopted what stands on the disk."""
    if patient.ask is None or patient.loaded is None or patient.problems:
        return
    view = patient.ask("/config/view")
    if view["config_hash"] != patient.loaded.config_hash:
        yield warning(
            "config",
            "the running gateway has another configuration than the files",
            "they were changed after it had read them, or differ by the environment",
            patient.command("system reload"),
        )


def clock(patient: Patient) -> Iterator[Finding]:
    if patient.now < WRITTEN:
        yield error(
            "clock",
            f"the clock shows {patient.now:%Y-%m-%d}",
            "it was never set: schedules, retention and tokens go by it",
            "timedatectl set-ntp true",
        )
    if patient.ledger is None:
        return
    row = patient.ledger.read(lambda tx: tx.one("newest_boot"))
    if row is not None and from_text(row[0]) > patient.now + SET_BACK:
        yield error(
            "clock",
            f"the last gateway started at {row[0]}, which is yet to come",
            "the clock was set back since",
            "timedatectl status",
        )
