"""Checks of files and directories: permissions, owners, free space."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from shlex import quote

from ductile.config.checksums import is_high_security
from ductile.config.models.service import StateSettings
from ductile.core.jobs.judge import NO_WORKSPACE
from ductile.files import user_name
from ductile.operations.backup import DIRECTORY, SIBLINGS
from ductile.operations.doctor.context import DoctorContext, exists
from ductile.operations.doctor.finding import Finding, error, warning

LEAST_BYTES = 100 * 1024 * 1024
FEW_BYTES = 1024 * 1024 * 1024
LEAST_INODES = 1000
MOST = 1000


def secrets(context: DoctorContext) -> Iterator[Finding]:
    """Configuration files that other users can read or change."""
    loaded = context.loaded
    if loaded is None:
        return
    seal = loaded.path.parent / ".checksums"
    for path in (*loaded.files, *([seal] if seal.exists() else ())):
        mode = _mode(path)
        if mode is None:
            continue
        if mode & stat.S_IWOTH:
            yield error(
                "files",
                f"{path} can be changed by every user",
                f"its mode is {mode:04o}",
                f"chmod o-w {quote(str(path))}",
            )
        if mode & stat.S_IROTH and _holds_secret(path, loaded.secrets):
            yield error(
                "files",
                f"{path} holds secrets and can be read by every user",
                f"its mode is {mode:04o}",
                f"chmod o-rwx {quote(str(path))}",
            )
    for directory in sorted({path.parent for path in loaded.files}):
        mode = _mode(directory)
        if mode is not None and mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            yield error(
                "files",
                f"{directory} can be changed by every user",
                f"its mode is {mode:04o}: every user can replace the configuration in it",
                f"chmod o-w {quote(str(directory))}",
            )


def _holds_secret(path: Path, known: frozenset[str]) -> bool:
    if is_high_security(path) or path.name == ".env" or path.suffix == ".env":
        return True
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return any(secret in text for secret in known)


def _mode(path: Path) -> int | None:
    try:
        return stat.S_IMODE(path.stat().st_mode)
    except OSError:
        return None


def state(context: DoctorContext) -> Iterator[Finding]:
    """The state directory and its files."""
    directory = context.state_dir
    if context.state is None or directory is None:
        return
    if not exists(directory):
        yield from _check_visible(context, directory)
        return
    owner = directory.stat().st_uid
    if owner != os.geteuid():
        yield warning(
            "files",
            f"{directory} belongs to {user_name(owner)}, and the doctor runs as "
            f"{user_name(os.geteuid())}",
            "file permissions differ for the two users, so findings about files may be wrong",
            f"sudo -u '#{owner}' {context.command('system doctor')}",
        )
    if is_read_only(directory):
        place = quote(str(find_mount(directory)))
        yield error(
            "files",
            f"{directory} is on a file system that is mounted read-only",
            "the lock, the socket and the ledger are there; after an error of the disk the kernel "
            "mounts it so (dmesg)",
            f"sudo mount -o remount,rw {place}",
        )
        return
    if not os.access(directory, os.R_OK | os.W_OK | os.X_OK):
        if owner == os.geteuid():
            yield error(
                "files",
                f"{directory} cannot be written",
                "the lock, the socket and the ledger are there",
                f"chmod 700 {quote(str(directory))}",
            )
        return
    yield from _check_owners(directory)
    yield from _check_modes(context.state, directory)


def is_read_only(directory: Path) -> bool:
    """Whether its file system is mounted without the right to write."""
    try:
        return bool(os.statvfs(directory).f_flag & os.ST_RDONLY)
    except OSError:
        return False  # This user may not see it.


def find_mount(path: Path) -> Path:
    """The directory where the file system of this path is mounted."""
    path = path.resolve()
    return next(one for one in (path, *path.parents) if one.is_mount())


def _check_visible(context: DoctorContext, directory: Path) -> Iterator[Finding]:
    """A directory that does not exist yet is fine; one that this user may not see is not."""
    try:
        directory.stat()
    except FileNotFoundError:
        return
    except OSError as problem:
        yield error(
            "files",
            f"{directory} cannot be read by {user_name(os.geteuid())}",
            f"{problem.strerror}; its lock, socket and ledger cannot be checked",
            f"sudo {context.command('system doctor')}",
        )


def _check_owners(directory: Path) -> Iterator[Finding]:
    """Files that belong to another user than their directory, often made by root."""
    wanted = directory.stat().st_uid
    found = [path for path in _own_files(directory) if _owner(path) not in (wanted, None)]
    if found:
        one, more = found[0], f" and {len(found) - 1} more" if len(found) > 1 else ""
        place = quote(str(directory))
        yield error(
            "files",
            f"{one}{more} belongs to {user_name(one.lstat().st_uid)}, but {directory} to "
            f"{user_name(wanted)}",
            "a gateway of the directory's owner cannot use it",
            f"chown -R --reference={place} {place}",
        )


def _own_files(directory: Path) -> list[Path]:
    """The files of the state directory and of `backups/`, without workspaces."""
    return [*sorted(directory.iterdir()), *sorted((directory / DIRECTORY).glob("*"))]


def _owner(path: Path) -> int | None:
    try:
        return path.lstat().st_uid
    except OSError:
        return None


def _check_modes(settings: StateSettings, directory: Path) -> Iterator[Finding]:
    own = [directory / "fingerprint.key", directory / "ductile.lock", directory / DIRECTORY]
    if settings.path is not None:
        own += [settings.path.with_name(settings.path.name + end) for end in ("", *SIBLINGS)]
    own += (directory / DIRECTORY).glob("*")
    for path in (directory, *own):
        mode = _mode(path)
        if mode is not None and mode & (stat.S_IROTH | stat.S_IWOTH):
            yield error(
                "files",
                f"{path} is accessible to every user",
                f"its mode is {mode:04o}; it holds payloads and webhook secrets",
                f"chmod o-rwx {quote(str(path))}",
            )


def space(context: DoctorContext) -> Iterator[Finding]:
    """Free space for the ledger, its WAL, and workspaces."""
    directory = context.state_dir
    if directory is None:
        return
    while not exists(directory):
        directory = directory.parent
    room = os.statvfs(directory)
    free = room.f_bavail * room.f_frsize
    if free < FEW_BYTES:
        judge = error if free < LEAST_BYTES else warning
        yield judge(
            "disk",
            f"{free // (1024 * 1024)} MiB are free on the disk of {directory}",
            "without free space no job can be enqueued or settled",
            f"du -xsh {quote(str(directory))}/*",
        )
    if room.f_files and room.f_favail < LEAST_INODES:
        yield error(
            "disk",
            f"{room.f_favail} inodes are free on the disk of {directory}",
            "no file can be created, although there are free bytes",
            f"df -i {quote(str(directory))}",
        )


def workspaces(context: DoctorContext) -> Iterator[Finding]:
    """Jobs that wait for free space for their workspace."""
    if context.rows is None:
        return
    waiting = context.rows.read(
        lambda tx: tx.all("waiting_after_error", cause=NO_WORKSPACE, limit=MOST)
    )
    if waiting:
        id, why = waiting[0]
        yield error(
            "disk",
            f"jobs that wait for disk space for their workspace: {len(waiting)}, one of them {id}",
            f"{why}; they are retried until there is enough space",
            f"du -xsh {quote(str(context.state_dir))}/*",
        )
