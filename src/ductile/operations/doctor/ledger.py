"""The ledger: whether it can be read, how large it is, who holds it, and its last backup."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from datetime import timedelta
from shlex import quote
from urllib.parse import urlsplit

from ductile.clock import from_text
from ductile.operations.backup import last_backup
from ductile.operations.doctor.context import Patient
from ductile.operations.doctor.finding import Finding, error, warning
from ductile.operations.doctor.locks import wal_readers
from ductile.operations.verify import selfcheck
from ductile.store.go_ledger import is_foreign

LARGEST_WAL = 64 * 1024 * 1024
"""Twice what a checkpoint leaves, and what a burst adds."""
LOOKS, BETWEEN = 6, 0.1
"""A reader that is seen at every look holds one transaction; others come and go."""
HELD_FOR = timedelta(minutes=5)
TOLD = 5
OLD = timedelta(days=7)


def health(patient: Patient) -> Iterator[Finding]:
    if patient.ledger is None and patient.no_ledger is not None:
        yield error("ledger", "the ledger cannot be read", patient.no_ledger, _to_read(patient))
    if patient.behind > 0:
        yield warning(
            "ledger",
            f"migrations that the ledger lacks: {patient.behind}",
            "the next start applies them, after a copy; its rows can be judged after that",
            patient.command("system start"),
        )


def _to_read(patient: Patient) -> str:
    """What may make it readable again."""
    state = patient.state
    assert state is not None
    if state.url is not None:
        server = urlsplit(state.url)
        return f"pg_isready -h {server.hostname or 'localhost'} -p {server.port or 5432}"
    if state.path is not None and not os.access(state.path, os.R_OK):
        return f"ls -l {quote(str(state.path))}"
    if state.path is not None and is_foreign(state.path):
        return patient.command("system import")
    return patient.command("system restore PATH_OF_A_BACKUP")


def readers(patient: Patient) -> Iterator[Finding]:
    """Whoever keeps the WAL from being reset, or the server from clearing up."""
    state = patient.state
    if state is None or patient.ledger is None:
        return
    if state.url is not None:
        yield from _old_transactions(patient)
        return
    path = state.path
    assert path is not None
    size = wal_size(patient)
    stuck = wal_readers(path) - {os.getpid()}
    for _ in range(LOOKS if stuck else 0):
        time.sleep(BETWEEN)
        stuck &= wal_readers(path)
    strangers = sorted(stuck - {patient.pid})
    large = size > LARGEST_WAL
    for pid in strangers:
        judge = error if large else warning
        yield judge(
            "ledger",
            f"process {pid} holds a read transaction on the ledger",
            f"the WAL ({size // (1024 * 1024)} MiB) cannot be reset, and grows, until it ends",
            f"ps -o pid,lstart,cmd -p {pid}",
        )
    if large and not strangers:
        by = "a backup or a check reads it" if patient.pid in stuck else "no process holds it now"
        yield warning(
            "ledger",
            f"the WAL has grown to {size // (1024 * 1024)} MiB",
            f"it should stay below {LARGEST_WAL // (1024 * 1024)} MiB; {by}",
            patient.command("system doctor"),
        )


def wal_size(patient: Patient) -> int:
    path = patient.state.path if patient.state else None
    try:
        return 0 if path is None else path.with_name(f"{path.name}-wal").stat().st_size
    except OSError:
        return 0


def _old_transactions(patient: Patient) -> Iterator[Finding]:
    assert patient.ledger is not None
    seconds = HELD_FOR.total_seconds()
    for row in patient.ledger.read(lambda tx: tx.dicts("old_transactions", seconds=seconds)):
        yield warning(
            "ledger",
            f"session {row['pid']} of {row['who']} has a transaction open since {row['since']}",
            "the server cannot clear up what was deleted since, and followers wait",
            f"psql -c 'SELECT pg_terminate_backend({row['pid']})'",
        )


def promises(patient: Patient) -> Iterator[Finding]:
    """The quick selfcheck."""
    if patient.ledger is None or patient.state_dir is None:
        return
    report = selfcheck(patient.ledger, patient.state_dir, quick=True)
    for breach in report.breaches[:TOLD]:
        run = patient.command("system selfcheck")
        yield error("ledger", str(breach), "the ledger breaks a promise", run)
    left = len(report.breaches) - TOLD + report.more
    if left > 0:
        run = patient.command("system selfcheck")
        yield error("ledger", f"{left} more promises are broken", "as above", run)


def backups(patient: Patient) -> Iterator[Finding]:
    """A file that nobody copies; a database server has backups of its own."""
    if patient.ledger is None or patient.ledger.engine != "sqlite" or patient.state_dir is None:
        return
    last = last_backup(patient.state_dir)
    oldest = patient.ledger.read(lambda tx: tx.one("oldest_boot"))
    if last is not None and from_text(last["made_at"]) > patient.now - OLD:
        return
    if last is None and (oldest is None or from_text(oldest[0]) > patient.now - OLD):
        return
    yield warning(
        "backups",
        f"the last backup is of {last['made_at']}" if last else "no backup was ever made",
        "what is lost with the disk is lost",
        patient.command("system backup"),
    )
