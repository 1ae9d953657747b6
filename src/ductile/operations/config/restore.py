"""The files of an archive of `system backup --with-config`, for `config restore`."""

from __future__ import annotations

import tarfile
from pathlib import Path, PurePosixPath

from ductile.config.checksums import FILE as SEAL
from ductile.config.versions.copies import MAX_BYTES, KeptFile
from ductile.errors import Refused

KEY = "fingerprint.key"
"""The state directory's own file: another key would make all secrets appear changed."""
MAX_MEMBERS = 10_000


def read_archive(archive: Path, config: Path) -> tuple[dict[Path, KeptFile], list[str]]:
    """The files to write, and the names of those that are left out; `config` is its config.yaml.

    The files are placed relative to config.yaml, wherever it was. Left out are the seal, which is
    renewed, and files outside of the directory. Raises `Refused` for anything else.
    """
    try:
        with tarfile.open(archive) as opened:
            found = _read_members(opened)
    except (OSError, tarfile.TarError, EOFError) as error:
        reason = getattr(error, "strerror", None) or str(error).partition(":\n")[0]
        raise Refused(f"cannot read {archive}: {reason}") from error
    roots = [name.parent for name in found if name.name == config.name]
    if not roots:
        raise Refused(f"{archive} has no {config.name}: it is not an archive of a configuration")
    root, owner = min(roots, key=lambda path: len(path.parts)), config.parent.stat()
    wanted: dict[Path, KeptFile] = {}
    left_out: list[str] = []
    for name, (data, mode) in found.items():
        if name.is_relative_to(root) and name.name not in (SEAL, KEY):
            target = config.parent / name.relative_to(root)
            wanted[target] = KeptFile(data, mode, (owner.st_uid, owner.st_gid))
        elif name.name != SEAL:
            left_out.append(f"/{name}")
    return wanted, left_out


def _read_members(opened: tarfile.TarFile) -> dict[PurePosixPath, tuple[bytes, int]]:
    found: dict[PurePosixPath, tuple[bytes, int]] = {}
    size = 0
    for member in opened:
        name = PurePosixPath(member.name)
        file = opened.extractfile(member) if member.isreg() else None
        if file is None or name.is_absolute() or ".." in name.parts:
            raise Refused(f"{member.name!r} is not a file that such an archive can have")
        size += member.size
        if size > MAX_BYTES or len(found) >= MAX_MEMBERS:
            raise Refused(f"the files have more than {MAX_BYTES // 1024**2} MiB, or are too many")
        found[name] = (file.read(member.size), member.mode & 0o777)
    return found
