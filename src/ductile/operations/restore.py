"""Restore: a verified copy replaces the ledger, which is kept under another name.

After a power failure at any point the path holds the old ledger or the new one, complete.
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import apsw

from ductile import files
from ductile._fast_dataclass import dataclass
from ductile.config import Settings
from ductile.engine.control import ignore_interrupts
from ductile.engine.instance_lock import InstanceLock
from ductile.errors import DuctileError, LedgerError, Locked, NotFound, Refused
from ductile.failpoint import failpoint
from ductile.operations.backup import (
    REPLACED,
    SIBLINGS,
    check_copy,
    check_room,
    discard,
    stamp,
    sync,
)
from ductile.operations.verify import living_boots
from ductile.store.backup import copy as backup
from ductile.store.backup.copy import Progress
from ductile.store.engines.api import Tx
from ductile.store.engines.migrate import HISTORY, Migration, migrate
from ductile.store.engines.open import open_ledger
from ductile.store.engines.sqlite import SqliteLedger
from ductile.store.engines.sqlite_connection import connect
from ductile.store.engines.sqlite_schema import SqliteSchema
from ductile.store.verify import VerifyProgress, applied_migrations

DRAFT = ".ductile-restore-"
MAGIC = b"SQLite format 3\0"


@dataclass(frozen=True, slots=True)
class Restored:
    """The restored ledger, and where the replaced one is."""

    path: str
    rows: dict[str, int]
    migrated: list[int]
    """Migrations that were applied to the copy."""
    notes: list[str]
    kept: str | None
    """Where the replaced ledger is now; None if there was none."""


def restore(
    settings: Settings,
    source: Path,
    *,
    now: datetime,
    allow_violations: bool = False,
    dry: bool = False,
    watch: Progress = lambda _done, _total: None,
    on_check: VerifyProgress = lambda _table, _rows: None,
) -> Restored:
    """Raises `Locked` while a gateway runs, `Refused` if the copy has violations or another
    process has the ledger open.

    With `dry` the copy is verified and nothing is changed. `watch` receives the progress of the
    copy, `on_check` that of the verification. An interrupt changes nothing, or comes too late to
    prevent the restore.
    """
    lock = InstanceLock(settings.state_dir)
    lock.acquire()
    try:
        if settings.state.url is not None:
            _check_no_living_node(settings.state.url)
        with _draft(settings, source, watch) as draft:
            migrated = _migrate_draft(draft)
            report = check_copy(draft, on_check)
            if report.violations and not allow_violations:
                found = [str(violation) for violation in report.violations]
                raise Refused(
                    f"the copy has {len(found) + report.more} violations, first: {found[0]}; "
                    "--allow-violations restores it anyway",
                    breaches=found,
                )
            kept = None
            if not dry:
                put = _into_database if settings.state.url is not None else _into_file
                kept = put(settings, draft, stamp(now), watch)
        return Restored(str(source), report.rows, migrated, report.notes, kept)
    finally:
        lock.release()


@contextmanager
def _draft(settings: Settings, source: Path, watch: Progress) -> Iterator[Path]:
    """A copy of the source in the state directory: the verified file is the one restored."""
    ledger = settings.state.path
    if not source.is_file():
        raise NotFound(f"there is no file {source}")
    if ledger is not None and ledger.exists() and source.samefile(ledger):
        raise Refused(f"{source} is the ledger itself")
    check_room(settings.state_dir, source.stat().st_size)
    for left in settings.state_dir.glob(f"{DRAFT}*"):
        # This process holds the lock, so the process that made it is dead.
        left.unlink(missing_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=DRAFT, suffix=".db", dir=settings.state_dir)
    draft = Path(name)
    _give_to_owner(draft, descriptor, ledger)
    os.close(descriptor)
    try:
        with _reading(source):
            origin = connect(source, read_only=True)
            try:
                backup.copy_ledger(origin, draft, watch)
            finally:
                origin.close()
            copy = SqliteLedger(draft, read_only=True)
            try:
                copy.read(applied_migrations)
            finally:
                copy.close()
        yield draft
    finally:
        discard(draft)


def _give_to_owner(draft: Path, descriptor: int, ledger: Path | None) -> None:
    """As root, give the new ledger to the owner of the one that it replaces."""
    if os.geteuid() == 0 and ledger is not None and ledger.exists():
        owner = ledger.stat()
        os.fchown(descriptor, owner.st_uid, owner.st_gid)
    else:
        files.give_to_owner(draft, descriptor)


@contextmanager
def _reading(source: Path) -> Iterator[None]:
    try:
        yield
    except (apsw.Error, LedgerError) as error:
        text = error.message if isinstance(error, DuctileError) else str(error)
        raise Refused(f"{source} is not a backup that can be read: {text}") from error


class _DraftSchema(SqliteSchema):
    """Migrates without a backup first: a draft can be made again."""

    def before(self, migration: Migration) -> None: ...


def _migrate_draft(draft: Path) -> list[int]:
    """Apply missing migrations; `LedgerError` if the copy is of a newer version."""
    connection = connect(draft)
    try:
        applied = migrate(_DraftSchema(connection, draft))
    finally:
        connection.close()
    backup.fold_wal(draft)
    return [migration.number for migration in applied]


def _into_file(settings: Settings, draft: Path, when: str, _watch: Progress) -> str | None:
    ledger = settings.state.path
    assert ledger is not None
    sync(draft)
    failpoint("restore.synced")
    with ignore_interrupts():
        return _replace_file(ledger, draft, when)


def _replace_file(ledger: Path, draft: Path, when: str) -> str | None:
    # A WAL without its database is kept too: it has the newest commits.
    is_there = any(_sibling(ledger, end).exists() for end in ("", *SIBLINGS))
    kept = _link_old(ledger, when) if is_there else None
    for end in SIBLINGS:
        # They belong to the old file; SQLite must not apply them to the new one.
        ledger.with_name(ledger.name + end).unlink(missing_ok=True)
    sync(ledger.parent)
    failpoint("restore.kept")
    draft.replace(ledger)
    failpoint("restore.replaced")
    sync(ledger.parent)
    return None if kept is None else str(kept)


def _link_old(ledger: Path, when: str) -> Path:
    """Give the ledger a second name, as one file; the first name stays until it is replaced."""
    kept = ledger.with_name(f"{ledger.name}{REPLACED}{when}")
    if ledger.exists() and _is_sqlite(ledger):
        _checkpoint(ledger)
    for end in ("", *SIBLINGS):
        if _sibling(ledger, end).exists():
            _link(_sibling(ledger, end), _sibling(kept, end))
    sync(ledger.parent)
    return kept


def _checkpoint(ledger: Path) -> None:
    """Also detects another process that has the ledger open and would keep using the old file."""
    try:
        backup.fold_wal(ledger)
    except (apsw.CorruptError, apsw.NotADBError):
        # Too damaged for a checkpoint: its WAL is kept with it.
        pass
    except apsw.BusyError as error:
        raise Refused(
            f"another process has the ledger {ledger} open; end it (fuser shows its pid) "
            "and try again; nothing was changed"
        ) from error


def _is_sqlite(ledger: Path) -> bool:
    """Check the first bytes: SQLite discards the WAL of a file that it cannot read."""
    with ledger.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def _sibling(path: Path, end: str) -> Path:
    return path.with_name(path.name + end)


def _link(old: Path, new: Path) -> None:
    try:
        new.hardlink_to(old)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS):
            raise
        shutil.copy2(old, new)
        files.give_to_owner(new)
        sync(new)


def _check_no_living_node(url: str) -> None:
    """The instance lock covers this machine only; other nodes hold boot locks in the database."""
    ledger = open_ledger(path=None, url=url, read_only=True)
    try:
        nodes = living_boots(ledger, Path()) if ledger.read(is_ledger) else None
    finally:
        ledger.close()
    if nodes is not None:
        raise Locked("a gateway on another machine uses this database; stop it first")


def is_ledger(tx: Tx) -> bool:
    """Whether a gateway has ever started on this database."""
    return any(row[:2] == ("table", HISTORY) for row in tx.all("schema_objects"))


def _into_database(settings: Settings, draft: Path, when: str, watch: Progress) -> str | None:
    import psycopg

    from ductile.store.backup import pg_transfer

    assert settings.state.url is not None
    replaced_schema = f"ductile_replaced_{when.lower().replace('.', '_')}"
    with psycopg.connect(settings.state.url) as connection:
        was = pg_transfer.replace_ledger(connection, draft, replaced_schema, watch)
        failpoint("restore.loaded")
    return f"schema {replaced_schema}" if was else None
