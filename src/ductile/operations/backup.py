"""Backups: a complete, verified and durable copy of the ledger, or no file at all."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, field
from datetime import datetime
from io import BytesIO
from pathlib import Path
from shlex import quote
from typing import Any

import orjson
from blake3 import blake3

from ductile import files
from ductile._fast_dataclass import dataclass
from ductile.clock import Clock, to_text
from ductile.config import Loaded
from ductile.config.loader.files import replace as replace_file
from ductile.errors import DuctileError, Refused
from ductile.log import logger
from ductile.store.backup.copy import Progress
from ductile.store.engines.api import Ledger
from ductile.store.engines.sqlite import SqliteLedger
from ductile.store.verify import VerifyProgress, VerifyReport, verify

DIRECTORY = "backups"
LAST = "last-backup.json"
DRAFT = ".ductile-backup-"
LEFT_FREE = 64 * 1024 * 1024
CHECK_PAUSE = 0.01
"""Seconds of pause between checks of a copy, in which the gateway's own work runs."""
ABANDONED = 24 * 3600.0
"""Seconds after which a draft counts as left by a process that died."""
SIBLINGS = ("-journal", "-wal", "-shm")
"""Suffixes of the files that SQLite keeps next to its database."""
REPLACED = ".replaced-"
"""In the name of a ledger that a restore has replaced and kept."""
DAMAGE = frozenset({"pages", "schema"})
"""Violations that make a copy useless; any other violation is in the ledger itself."""


class Stopped(DuctileError):
    """A backup that was stopped before it was complete."""

    code = "stopped"
    http_status = 503


@dataclass(frozen=True, slots=True)
class CompletedBackup:
    """A backup that is on disk."""

    path: str
    bytes: int
    seconds: float
    made_at: str
    """The time whose state the backup holds."""
    rows: dict[str, int]
    notes: list[str]


def stamp(now: datetime) -> str:
    """A time for use in a file name; later times sort after earlier ones."""
    return f"{now:%Y%m%dT%H%M%S}.{now.microsecond // 1000:03}Z"


def default_target(state_dir: Path, now: datetime) -> Path:
    return state_dir / DIRECTORY / f"ledger-{stamp(now)}.db"


def target_for(path: Path | None, state_dir: Path, ledger: Path | None, now: datetime) -> Path:
    """The file of a backup: `path`, a new file in that directory, or one in the default place."""
    if path is None:
        return default_target(state_dir, now)
    target = path / default_target(state_dir, now).name if path.is_dir() else path
    own = [state_dir / "ductile.lock", state_dir / "ductile.sock"]
    if ledger is not None:
        own += [ledger.with_name(ledger.name + end) for end in ("", *SIBLINGS)]
    for used in own:
        if target.resolve() == used.resolve():
            raise Refused(f"{target} is a file that the gateway uses; choose another path")
    return target


def check_target(target: Path, *, replace: bool) -> None:
    """Raise `Refused`, before anything is copied, if the backup could not be stored there."""
    usual = target.parent.name == DIRECTORY and target.parent.parent.is_dir()
    if not target.parent.is_dir() and not usual:
        raise Refused(
            f"there is no directory {target.parent}", run=f"mkdir -p {quote(str(target.parent))}"
        )
    if target.is_dir() or (target.exists() and not replace):
        raise Refused(f"{target} exists; choose another name or use --replace")


def back_up(
    ledger: Ledger,
    target: Path,
    *,
    state_dir: Path,
    clock: Clock,
    replace: bool = False,
    watch: Progress = lambda _done, _total: None,
    on_check: VerifyProgress = lambda _table, _rows: None,
) -> CompletedBackup:
    """Copy, verify, sync, and only then give the copy its name.

    `watch` receives the progress of the copy, `on_check` that of the verification; either stops the
    backup by raising.
    """
    check_target(target, replace=replace)
    files.create(target.parent)
    _clear_abandoned(target.parent)
    if isinstance(ledger, SqliteLedger):
        check_room(target.parent, ledger.path.stat().st_size)
    began, now = clock.monotonic(), clock.now()
    descriptor, name = tempfile.mkstemp(prefix=DRAFT, suffix=".db", dir=target.parent)
    draft = Path(name)
    files.give_to_owner(draft, descriptor)
    os.close(descriptor)
    try:
        ledger.backup(draft, watch)
        report = check_copy(draft, on_check)
        sync(draft)
        _publish(draft, target, replace=replace)
    finally:
        discard(draft)
    made = CompletedBackup(
        path=str(target),
        bytes=target.stat().st_size,
        seconds=round(clock.monotonic() - began, 3),
        made_at=to_text(now),
        rows=report.rows,
        notes=[*report.notes, *_describe_violations(report)],
    )
    try:
        replace_file(state_dir / LAST, orjson.dumps({"made_at": made.made_at, "path": made.path}))
    except OSError as error:
        # The backup is complete, and needed most where the disk of the ledger is full.
        made.notes.append(f"its time is not recorded in {state_dir}: {error.strerror}")
    return made


def check_copy(path: Path, on_check: VerifyProgress = lambda _table, _rows: None) -> VerifyReport:
    """Verify the whole copy; `Refused` if it is damaged."""
    copy = SqliteLedger(path, read_only=True)
    try:
        report = verify(copy, progress=on_check)
    finally:
        copy.close()
    damage = [str(found) for found in report.violations if found.invariant in DAMAGE]
    if damage:
        raise Refused(f"the copy is damaged: {damage[0]}", damage=damage)
    return report


def _describe_violations(report: VerifyReport) -> list[str]:
    found = len(report.violations) + report.more
    hint = f"the ledger itself has {found} violations: run `ductile system verify`"
    return [hint] if found else []


def _publish(draft: Path, target: Path, *, replace: bool) -> None:
    if replace:
        draft.replace(target)
    else:
        try:
            # Unlike a rename, a link never replaces a file that was created meanwhile.
            target.hardlink_to(draft)
        except FileExistsError:
            raise Refused(f"{target} exists; choose another name or use --replace") from None
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS):
                raise
            draft.rename(target)
    sync(target.parent)


def sync(path: Path) -> None:
    """Sync a file or directory to disk. Not for a ledger that is open."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def discard(draft: Path) -> None:
    for end in ("", *SIBLINGS):
        draft.with_name(draft.name + end).unlink(missing_ok=True)


def _clear_abandoned(directory: Path) -> None:
    for left in directory.glob(f"{DRAFT}*"):
        if time.time() - left.lstat().st_mtime > ABANDONED:
            left.unlink(missing_ok=True)


def last_backup(state_dir: Path) -> dict[str, str] | None:
    """The time and path of the last backup; None if there was none."""
    try:
        found = orjson.loads((state_dir / LAST).read_bytes())
        return {"made_at": str(found["made_at"]), "path": str(found["path"])}
    except (OSError, ValueError, KeyError, TypeError):
        return None


def check_room(directory: Path, size: int) -> None:
    """Raise `Refused` if the copy would fill the disk, which may hold the ledger too."""
    free = room_at(directory)
    if free < size + LEFT_FREE:
        raise Refused(
            f"the copy needs {size >> 20} MiB, and {free >> 20} MiB are free on the disk of "
            f"{directory}; {LEFT_FREE >> 20} MiB must stay free",
            free=free,
            needed=size + LEFT_FREE,
        )


def room_at(directory: Path) -> int:
    """Free bytes on the disk of this directory."""
    while not directory.exists():
        directory = directory.parent
    return shutil.disk_usage(directory).free


def config_archive(loaded: Loaded, target: Path) -> list[str]:
    """Archive every configuration file next to the backup, with mode 0600: it holds secrets."""
    # Only here: few gateways back up, and all of them load this module.
    import tarfile

    known = loaded.files
    extra = [loaded.path.parent / ".checksums", loaded.settings.state_dir / "fingerprint.key"]
    whole = BytesIO()
    names = []
    with tarfile.open(fileobj=whole, mode="w") as archive:
        for path in (*known, *(path for path in extra if path.is_file() and path not in known)):
            data = path.read_bytes()
            if path in known and blake3(data).hexdigest() != known[path]:
                raise Refused(f"{path} changed while it was copied; try again")
            about = archive.gettarinfo(path, arcname=str(path).lstrip("/"))
            about.size = len(data)
            archive.addfile(about, BytesIO(data))
            names.append(str(path))
    replace_file(target, whole.getvalue())
    return names


UNDER_WAY = frozenset({"copying", "checking"})


@dataclass(slots=True)
class BackupState:
    """The state of the running backup, or of the last one that the gateway made."""

    state: str = "none"
    """none, copying, checking, done, failed"""
    path: str | None = None
    done: int = 0
    total: int = 0
    made: dict[str, Any] | None = None
    error: str | None = None
    code: str | None = None
    details: dict[str, object] = field(default_factory=dict)


class Backups:
    """The backups of a running gateway: one at a time, in a separate thread."""

    def __init__(self, ledger: Callable[[], Ledger], state_dir: Path, clock: Clock) -> None:
        self._ledger, self._state_dir, self._clock = ledger, state_dir, clock
        self._guard = threading.Lock()
        self._state = BackupState()
        self._thread: threading.Thread | None = None
        self._stopping = False

    def start(self, target: Path, *, replace: bool) -> dict[str, Any]:
        """Start a backup; `Refused` while another one runs."""
        check_target(target, replace=replace)
        with self._guard:
            if self._stopping or (self._thread is not None and self._thread.is_alive()):
                raise Refused(f"a backup is already running: {self._state.path}")
            self._state = BackupState("copying", str(target))
            self._thread = threading.Thread(
                target=self._run, args=(target, replace), name="backup", daemon=True
            )
            self._thread.start()
        return self.state()

    def state(self) -> dict[str, Any]:
        with self._guard:
            return asdict(self._state)

    def stop(self) -> None:
        """Stop the running backup; nothing of it remains."""
        with self._guard:
            self._stopping = True
            thread = self._thread
        if thread is not None:
            thread.join()

    def _run(self, target: Path, replace: bool) -> None:
        log = logger("backup")
        try:
            made = back_up(
                self._ledger(),
                target,
                state_dir=self._state_dir,
                clock=self._clock,
                replace=replace,
                watch=self._copying,
                on_check=self._checking,
            )
        except Exception as error:  # noqa: BLE001 - reported in the state, and logged
            known = error if isinstance(error, DuctileError) else None
            text = known.message if known else f"{type(error).__name__}: {error}"
            log.error("backup failed", path=str(target), error=text)
            details = known.details if known else {}
            code = known.code if known else "backup_failed"
            self._set(state="failed", error=text, code=code, details=details)
        else:
            log.info("backup completed", path=made.path, bytes=made.bytes, seconds=made.seconds)
            self._set(state="done", made=asdict(made))

    def _copying(self, done: int, total: int) -> None:
        self._check_stop()
        self._set(done=done, total=total)

    def _checking(self, table: str, _rows: int) -> None:
        self._check_stop()
        self._set(state="checking")
        if table != "pages":
            time.sleep(CHECK_PAUSE)

    def _check_stop(self) -> None:
        if self._stopping:
            raise Stopped("the gateway stopped before the backup was complete")

    def _set(self, **changes: Any) -> None:
        with self._guard:
            for name, value in changes.items():
                setattr(self._state, name, value)
