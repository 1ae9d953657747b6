"""Copies of the files of the configurations that were in force, in the state directory.

They are exact, with comments and with the secrets that are written in the files, and therefore only
readable by the user of the gateway, who can read the files themselves. The ledger, which may be
shared and is copied by backups, never holds them.
"""

from __future__ import annotations

import base64
import json
import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from blake3 import blake3

from ductile._fast_dataclass import dataclass
from ductile.config.loader.files import replace
from ductile.errors import NotFound, Refused
from ductile.files import create

DIRECTORY = "config-history"
MAX_COPIES = 20
MAX_BYTES = 32 * 1024 * 1024
"""Of all files of one copy."""
_ID = re.compile(r"[0-9A-Za-z-]{1,64}")


@dataclass(frozen=True, slots=True)
class KeptFile:
    data: bytes
    mode: int
    owner: tuple[int, int]


def keep_copy(state_dir: Path, snapshot_id: str, files: Mapping[Path, str]) -> None:
    """Keep the files, whose hashes are given, under a snapshot's id; deletes the oldest copies.

    Raises `Refused` if a file has changed since it was loaded or the files are too large, and
    `OSError`.
    """
    kept = {path: _read(path, digest) for path, digest in files.items()}
    if sum(len(file.data) for file in kept.values()) > MAX_BYTES:
        raise Refused(f"the files have more than {MAX_BYTES // 1024**2} MiB")
    document = {"version": 1, "files": [_describe(path, file) for path, file in kept.items()]}
    data = json.dumps(document).encode()
    target = _path(state_dir, snapshot_id)
    create(target.parent)
    if not target.exists() or target.read_bytes() != data:
        replace(target, data)
    # The newest copy is that of the configuration in force, also if it returned.
    os.utime(target)
    _delete_oldest(target.parent)


def _read(path: Path, digest: str) -> KeptFile:
    with path.open("rb") as file:
        data, found = file.read(), os.fstat(file.fileno())
    if blake3(data).hexdigest() != digest:
        raise Refused(f"{path} has changed since it was loaded")
    return KeptFile(data, stat.S_IMODE(found.st_mode), (found.st_uid, found.st_gid))


def _describe(path: Path, file: KeptFile) -> dict[str, Any]:
    return {
        "path": str(path),
        "mode": file.mode,
        "owner": list(file.owner),
        "data": base64.b64encode(file.data).decode(),
    }


def _path(state_dir: Path, snapshot_id: str) -> Path:
    if not _ID.fullmatch(snapshot_id):
        raise NotFound(f"there is no snapshot {snapshot_id!r}; ductile config history lists them")
    return state_dir / DIRECTORY / f"{snapshot_id}.json"


def _delete_oldest(directory: Path) -> None:
    for path in _list_files(directory)[MAX_COPIES:]:
        path.unlink(missing_ok=True)


def _list_files(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.json"), key=lambda path: path.stat().st_mtime_ns, reverse=True)


def list_copies(state_dir: Path) -> list[str]:
    """The ids of the snapshots whose files are kept, the one put in force last first."""
    return [path.stem for path in _list_files(state_dir / DIRECTORY)]


def has_copy(state_dir: Path, snapshot_id: str) -> bool:
    return _path(state_dir, snapshot_id).exists()


def read_copy(state_dir: Path, snapshot_id: str) -> dict[Path, KeptFile]:
    """The files of a snapshot; raises `Refused` if this node has no copy of them."""
    path = _path(state_dir, snapshot_id)
    try:
        rows = json.loads(path.read_bytes())["files"]
        return {Path(row["path"]): _parse(row) for row in rows}
    except FileNotFoundError:
        raise Refused(
            f"the files of snapshot {snapshot_id} are not kept on this node; it keeps those of the "
            f"last {MAX_COPIES} configurations that it had in force",
            run="ductile config history",
        ) from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Refused(f"cannot read {path}: {error}") from error


def _parse(row: Mapping[str, Any]) -> KeptFile:
    user, group = row["owner"]
    return KeptFile(base64.b64decode(row["data"]), int(row["mode"]), (int(user), int(group)))
