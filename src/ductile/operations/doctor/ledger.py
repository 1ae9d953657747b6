"""Checks of the ledger: readable, migrated, not blocked, without violations, backed up."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from shlex import quote
from urllib.parse import parse_qsl, urlsplit

import apsw

from ductile.clock import from_text
from ductile.errors import DuctileError, LedgerBusy, LedgerError, LedgerFull, LedgerMoved
from ductile.operations.backup import DAMAGE, DIRECTORY, last_backup
from ductile.operations.doctor.context import DoctorContext, exists
from ductile.operations.doctor.finding import Finding, error, warning
from ductile.operations.doctor.locks import wal_readers
from ductile.operations.verify import verify_ledger
from ductile.store.engines.sqlite import SqliteLedger
from ductile.store.engines.sqlite_errors import is_damage_text
from ductile.store.go_ledger import is_go_ledger
from ductile.store.verify import applied_migrations

LARGEST_WAL = 64 * 1024 * 1024
"""Twice the size that a checkpoint leaves, plus a burst of writes."""
LOOKS, BETWEEN = 6, 0.1
"""A reader that is seen every time holds one transaction; others come and go."""
HELD_FOR = timedelta(minutes=5)
MAX_SHOWN = 5
OLD = timedelta(days=7)
MAX_BACKUPS = 10
"""Maximum number of backups that are checked, newest first."""
BACKUP_CHECK_SECONDS = 2.0


def health(context: DoctorContext) -> Iterator[Finding]:
    state = context.state
    if context.ledger is None and context.no_ledger is not None and state is not None:
        what = "the ledger cannot be read"
        if state.url is not None:
            what = f"the ledger on PostgreSQL at {_address(state.url)} cannot be read"
        yield error("ledger", what, context.no_ledger, _repair_command(context))
    if context.behind > 0:
        yield warning(
            "ledger",
            f"missing migrations: {context.behind}",
            "the next start applies them after a backup; rows are checked only after that",
            context.command("system start"),
        )


def _address(url: str) -> str:
    """Host and port; the directory of a local socket is given as a parameter of the URL."""
    server = urlsplit(url)
    given = dict(parse_qsl(server.query))
    host = server.hostname or given.get("host", "localhost")
    return f"{host}:{server.port or given.get('port', 5432)}"


def _repair_command(context: DoctorContext) -> str:
    """The command that may make the ledger readable again."""
    state = context.state
    assert state is not None
    if state.url is not None:
        return _check_server(state.url)
    assert state.path is not None
    if not exists(state.path):
        return f"ls -l {quote(str(state.path))}*"
    if not os.access(state.path, os.R_OK):
        directory = quote(str(state.path.parent))
        return f"chown -R --reference={directory} {directory}"
    if is_go_ledger(state.path):
        return context.command("system import")
    return restore_command(context)


def _check_server(url: str) -> str:
    host, _, port = _address(url).rpartition(":")
    return f"pg_isready -h {quote(host)} -p {quote(port)}"


def advise_on_ledger(context: DoctorContext, problem: str, code: str) -> str | None:
    """The command for a problem that the gateway reports; None if a restart may help."""
    state, directory = context.state, context.state_dir
    if state is None or directory is None:
        return None
    if code == LedgerFull.code:
        return f"df -h {quote(str(directory))}"
    if state.url is not None:
        return _check_server(state.url) if code in (LedgerBusy.code, LedgerError.code) else None
    if code == LedgerMoved.code:
        return f"ls -l {quote(str(state.path))}*"
    return restore_command(context) if is_damage_text(problem) else None


def restore_command(context: DoctorContext) -> str:
    """Restore the newest good backup, by name; without one, save what can be read."""
    state = context.state
    assert state is not None
    stop = f"{context.command('system stop')} && " if context.is_locked else ""
    found = newest_good_backup(context)
    if found is not None:
        return f"{stop}{context.command(f'system restore {quote(str(found))}')}"
    path = quote(str(state.path))
    return f"{stop}sqlite3 {path} .recover | sqlite3 {quote(f'{state.path}.recovered')}"


def newest_good_backup(context: DoctorContext) -> Path | None:
    """The newest file in `backups/`, or the last backup elsewhere, that is not damaged."""
    assert context.state_dir is not None
    last = last_backup(context.state_dir)
    found = {Path(last["path"])} if last is not None else set()
    try:
        found |= set((context.state_dir / DIRECTORY).glob("*.db"))
        ordered = sorted(
            (path for path in found if path.is_file()),
            key=lambda path: path.stat().st_mtime,
            reverse=True,
        )
    except OSError:
        return None
    return next((path for path in ordered[:MAX_BACKUPS] if _is_good(path)), None)


def _is_good(path: Path) -> bool:
    """Whether the file is a ledger without damaged pages, as far as a quick check finds them."""
    try:
        copy = SqliteLedger(path, read_only=True)
        try:
            copy.read(applied_migrations)
            findings, _ = copy.check_integrity(BACKUP_CHECK_SECONDS, lambda: None)
        finally:
            copy.close()
    except (DuctileError, apsw.Error, OSError):
        return False
    return not findings


def readers(context: DoctorContext) -> Iterator[Finding]:
    """Processes that keep the WAL from being reset, or PostgreSQL from removing old rows."""
    state = context.state
    if state is None or context.ledger is None:
        return
    if state.url is not None:
        yield from _old_transactions(context)
        return
    path = state.path
    assert path is not None
    size = wal_size(context)
    stuck = wal_readers(path) - {os.getpid()}
    for _ in range(LOOKS if stuck else 0):
        time.sleep(BETWEEN)
        stuck &= wal_readers(path)
    strangers = sorted(stuck - {context.pid})
    large = size > LARGEST_WAL
    for pid in strangers:
        judge = error if large else warning
        yield judge(
            "ledger",
            f"process {pid} holds a read transaction on the ledger",
            f"the WAL ({size // (1024 * 1024)} MiB) cannot be reset until the transaction ends",
            f"ps -o pid,lstart,cmd -p {pid}",
        )
    if large and not strangers:
        by = (
            "a backup or a verification reads it"
            if context.pid in stuck
            else "no process holds it now"
        )
        yield warning(
            "ledger",
            f"the WAL has grown to {size // (1024 * 1024)} MiB",
            f"it should stay below {LARGEST_WAL // (1024 * 1024)} MiB; {by}",
            context.command("system doctor"),
        )


def wal_size(context: DoctorContext) -> int:
    path = context.state.path if context.state else None
    try:
        return 0 if path is None else path.with_name(f"{path.name}-wal").stat().st_size
    except OSError:
        return 0


def _old_transactions(context: DoctorContext) -> Iterator[Finding]:
    assert context.ledger is not None
    seconds = HELD_FOR.total_seconds()
    for row in context.ledger.read(lambda tx: tx.dicts("old_transactions", seconds=seconds)):
        yield warning(
            "ledger",
            f"session {row['pid']} of {row['who']} has a transaction open since {row['since']}",
            "the server cannot remove rows that were deleted since, and event readers wait",
            f"psql -c 'SELECT pg_terminate_backend({row['pid']})'",
        )


def invariants(context: DoctorContext) -> Iterator[Finding]:
    """The quick form of `system verify`."""
    if context.ledger is None or context.state_dir is None:
        return
    report = verify_ledger(context.ledger, context.state_dir, quick=True)
    for violation in report.violations[:MAX_SHOWN]:
        is_damage = violation.invariant in DAMAGE
        run = restore_command(context) if is_damage else context.command("system verify")
        why = "the file is damaged" if is_damage else "the ledger violates an invariant"
        yield error("ledger", str(violation), why, run)
    left = len(report.violations) - MAX_SHOWN + report.more
    if left > 0:
        run = context.command("system verify")
        yield error("ledger", f"{left} more violations", "as above", run)


def backups(context: DoctorContext) -> Iterator[Finding]:
    """Whether a SQLite ledger is backed up; a database server has its own backups."""
    if context.ledger is None or context.ledger.engine != "sqlite" or context.state_dir is None:
        return
    last = last_backup(context.state_dir)
    oldest = context.ledger.read(lambda tx: tx.one("oldest_boot"))
    if last is not None and from_text(last["made_at"]) > context.now - OLD:
        return
    if last is None and (oldest is None or from_text(oldest[0]) > context.now - OLD):
        return
    yield warning(
        "backups",
        f"the last backup is of {last['made_at']}" if last else "there is no backup",
        "a failed disk would lose all jobs and state",
        context.command("system backup"),
    )
