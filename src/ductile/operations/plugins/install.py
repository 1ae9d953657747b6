"""`plugin install` and `plugin update`: copy a plugin into a plugin root, as a whole.

The files are staged in a hidden directory of the root, which a scan ignores, and put in place by
one rename; an update exchanges the two directories. Nothing of the plugin is executed. All of this
happens with the rights of the owner of the root, also if root asks for it.
"""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from tempfile import mkdtemp

import orjson
from blake3 import blake3

from ductile import files
from ductile._fast_dataclass import dataclass
from ductile.config.loader.files import replace
from ductile.errors import NotFound, Refused, errors_of
from ductile.operations.plugins.fetch import (
    PluginSource,
    fetch_source,
    refuse_outside_links,
    walk_files,
)
from ductile.plugins.environments.lock import SUFFIX
from ductile.plugins.manifest import MANIFEST_NAME, Manifest
from ductile.plugins.validate import Inspection

RECORD = ".ductile-source.json"
_MAX_RECORD = 1024 * 1024
_MAX_DEPTH = 3
_AT_FDCWD = -100
_EXCHANGE = 2


@dataclass(frozen=True, slots=True)
class InstalledSource:
    """Where an installed plugin came from, and its files as they were installed."""

    location: str
    revision: str | None
    is_git: bool
    subdirectory: str
    """The directory of the plugin in the source; empty for the top."""
    commit: str | None
    files: dict[str, str]
    """The BLAKE3 hash of each file, in hex."""

    @property
    def source(self) -> PluginSource:
        return PluginSource(self.location, self.revision, self.is_git)


@dataclass(frozen=True, slots=True)
class StagedPlugin:
    """A checked copy of a plugin that is not in place yet."""

    directory: Path
    manifest: Manifest
    origin: InstalledSource


@contextmanager
def stage_plugin(root: Path, source: PluginSource, subdirectory: str) -> Iterator[StagedPlugin]:
    """Fetch a plugin to a hidden directory of `root` and check it; it is removed at the end.

    To be placed, it has to be staged in its plugin root.
    """
    files.create(root)
    try:
        with files.as_owner(root):
            staging = Path(mkdtemp(prefix=".install-", dir=root))
        try:
            with files.as_owner(root):
                staged = _stage(staging, source, subdirectory)
            yield staged
        finally:
            with files.as_owner(root):
                shutil.rmtree(staging, ignore_errors=True)
    except OSError as error:
        raise Refused(f"cannot copy the plugin: {error}") from error


def _stage(staging: Path, source: PluginSource, subdirectory: str) -> StagedPlugin:
    top = staging / "source"
    commit = fetch_source(source, top)
    chosen = _choose_directory(top, subdirectory)
    # The whole source was checked; the plugin is what remains of it.
    refuse_outside_links(chosen)
    manifest = _check(chosen)
    directory = staging / manifest.name
    chosen.rename(directory)
    place = "" if chosen == top else str(chosen.relative_to(top))
    (directory / RECORD).unlink(missing_ok=True)
    origin = InstalledSource(
        source.location, source.revision, source.is_git, place, commit, hash_files(directory)
    )
    return StagedPlugin(directory, manifest, origin)


def _choose_directory(top: Path, subdirectory: str) -> Path:
    """The directory with the manifest: the top, the named one, or the only one."""
    if subdirectory:
        chosen = Path(os.path.normpath(top / subdirectory))
        is_inside = chosen.is_relative_to(top) and not _has_link(top, chosen)
        if not is_inside or not (chosen / MANIFEST_NAME).is_file():
            raise NotFound(f"the source has no plugin in {subdirectory!r}")
        return chosen
    if (top / MANIFEST_NAME).is_file():
        return top
    found = [
        path.parent
        for path in walk_files(top)
        if path.name == MANIFEST_NAME and len(path.parts) <= _MAX_DEPTH
    ]
    if not found:
        raise NotFound(f"the source has no {MANIFEST_NAME}; it is not a plugin")
    if len(found) > 1:
        names = ", ".join(str(path) for path in found[:20])
        raise Refused(f"the source has several plugins; name one with --path: {names}")
    return top / found[0]


def _has_link(top: Path, path: Path) -> bool:
    return any(step.is_symlink() for step in (path, *path.parents) if step.is_relative_to(top))


def _check(directory: Path) -> Manifest:
    inspection = Inspection(directory, allow_symlinks=True, check_interpreter=False)
    problems = errors_of(inspection.problems)
    if problems or inspection.manifest is None:
        # The source may be a temporary directory: its path says nothing.
        raise Refused("\n".join(str(problem).removeprefix(f"{directory}/") for problem in problems))
    return inspection.manifest


def hash_files(directory: Path) -> dict[str, str]:
    """The hash of each file of a plugin, without its record."""
    hashes = {}
    for path in walk_files(directory):
        if path.name == RECORD:
            continue
        full = directory / path
        data = os.fsencode(full.readlink()) if full.is_symlink() else full.read_bytes()
        hashes[str(path)] = blake3(data).hexdigest()
    return hashes


def read_record(directory: Path) -> InstalledSource | None:
    """Where an installed plugin came from; None if it was not installed by this program."""
    try:
        with (directory / RECORD).open("rb") as file:
            return InstalledSource(**orjson.loads(file.read(_MAX_RECORD)))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError) as error:
        raise Refused(f"{directory / RECORD} cannot be read: {error}") from None


def find_local_changes(directory: Path, record: InstalledSource) -> dict[str, str]:
    """The files that were changed after the installation, except locks: `plugin sync` writes
    those."""
    changes = compare_files(record.files, hash_files(directory))
    return {name: kind for name, kind in changes.items() if not name.endswith(SUFFIX)}


def compare_files(before: dict[str, str], after: dict[str, str]) -> dict[str, str]:
    """Each file that differs, with `new`, `changed` or `gone`."""
    kinds = dict.fromkeys(before.keys() - after.keys(), "gone")
    for name, digest in after.items():
        if before.get(name) != digest:
            kinds[name] = "changed" if name in before else "new"
    return dict(sorted(kinds.items()))


def place_plugin(staged: StagedPlugin, target: Path) -> None:
    """Put a staged plugin in place, atomically; an existing one is replaced."""
    with files.as_owner(target.parent):
        if target.is_dir():
            _keep_locks(target, staged.directory)
        replace(staged.directory / RECORD, orjson.dumps(asdict(staged.origin)))
        staged.directory.chmod(0o755)
        # The new files have to be on disk before their directory gets its name.
        os.sync()
        if os.path.lexists(target):
            _exchange(staged.directory, target)
        else:
            staged.directory.rename(target)
        os.sync()


def _keep_locks(installed: Path, staged: Path) -> None:
    """Keep the locks that `plugin sync` wrote, where the new version brings none."""
    for lock in installed.glob(f"*{SUFFIX}"):
        if lock.is_file() and not lock.is_symlink() and not os.path.lexists(staged / lock.name):
            shutil.copy2(lock, staged / lock.name)


def _exchange(one: Path, other: Path) -> None:
    """Exchange two directories in one step; in two where the system cannot."""
    libc = ctypes.CDLL(None, use_errno=True)
    if hasattr(libc, "renameat2"):
        paths = (os.fsencode(one), os.fsencode(other))
        if libc.renameat2(_AT_FDCWD, paths[0], _AT_FDCWD, paths[1], _EXCHANGE) == 0:
            return
        code = ctypes.get_errno()
        if code not in (errno.ENOSYS, errno.EINVAL):
            raise OSError(code, os.strerror(code), str(other))
    aside = one.with_name(f"{one.name}.before")
    other.rename(aside)
    one.rename(other)
