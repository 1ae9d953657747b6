"""The files of a workspace in a bundle: read with bounds and without secrets, written with care."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from ductile import files
from ductile.engine.workspaces import walk_tree
from ductile.errors import Refused
from ductile.model import MIB
from ductile.operations.compare.removal import SecretRemover

Document = dict[str, Any]
MAX_FILES, MAX_LEFT_OUT = 500, 100
MAX_FILE_BYTES, MAX_TOTAL_BYTES = MIB, 8 * MIB
MAX_PATH = 1024
_SCANNED = 10_000
"""Maximum number of names of a workspace that are looked at."""


class BundledFile(NamedTuple):
    path: str
    text: str
    executable: bool


def collect_files(root: Path, remover: SecretRemover) -> tuple[list[Document], list[Document]]:
    """The text files below a directory, and what is left out, with the reason."""
    found: list[Document] = []
    left_out: list[Document] = []
    total = 0
    for path, reason in _walk(root):
        name = _shown_name(str(path.relative_to(root)), remover, found)
        data: bytes | str = reason or ""
        if not reason:
            room = min(MAX_FILE_BYTES, MAX_TOTAL_BYTES - total)
            data = _read(path, room) if len(found) < MAX_FILES else "too many files"
        text = _decode(data) if isinstance(data, bytes) else None
        if text is None:
            why = data if isinstance(data, str) else "not text"
            left_out.append({"path": name, "reason": why})
            continue
        total += len(data)
        mode = path.lstat().st_mode
        found.append(
            {"path": name, "text": remover.file(text), "executable": bool(mode & stat.S_IXUSR)}
        )
    return found, left_out


def _walk(root: Path) -> Iterator[tuple[Path, str]]:
    """Every name that is not a directory, and why it cannot be bundled; empty for a file."""
    for entry in islice(walk_tree(root), _SCANNED):
        if entry.is_dir(follow_symlinks=False):
            continue
        path = Path(entry.path)
        if entry.is_file(follow_symlinks=False):
            yield path, ""
        else:
            yield path, "a symbolic link" if entry.is_symlink() else "not a regular file"


def _shown_name(name: str, remover: SecretRemover, found: Sequence[Document]) -> str:
    """The path without secrets; with a number if that is the path of another file."""
    readable = name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    shown = plain = remover.text(readable)
    known = {each["path"] for each in found}
    number = 1
    while shown in known:
        number += 1
        shown = f"{plain}.{number}"
    return shown


def _read(path: Path, most: int) -> bytes | str:
    """The content, or why it is left out."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        return error.strerror or "cannot be read"
    with os.fdopen(descriptor, "rb") as file:
        data = file.read(most + 1)
    return data if len(data) <= most else f"larger than {most} bytes"


def _decode(data: bytes) -> str | None:
    """The text; None for other content, in which secrets cannot be found."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text


def read_files(value: object) -> tuple[BundledFile, ...]:
    """The files of a bundle of unknown origin. Raises `Refused` for one that cannot be written."""
    if not isinstance(value, list) or len(value) > MAX_FILES:
        raise Refused(f"workspace.files must be a list of at most {MAX_FILES} files")
    found: dict[str, BundledFile] = {}
    total = 0
    for place, item in enumerate(value):
        where = f"workspace.files[{place}]"
        if not isinstance(item, dict) or not isinstance(item.get("text"), str):
            raise Refused(f"{where} must be an object with path and text")
        path = item.get("path")
        if not isinstance(path, str) or not _is_safe(path):
            raise Refused(f"{where}.path must be a relative path without `..`")
        if path in found:
            raise Refused(f"{where}.path occurs twice")
        total += len(item["text"].encode("utf-8", "surrogatepass"))
        if total > 2 * MAX_TOTAL_BYTES:
            raise Refused(f"the files of the workspace exceed {2 * MAX_TOTAL_BYTES // MIB} MiB")
        found[path] = BundledFile(path, item["text"], item.get("executable") is True)
    return tuple(found.values())


def _is_safe(path: str) -> bool:
    parts = path.split("/")
    fits = len(path.encode("utf-8", "replace")) <= MAX_PATH
    return fits and "\0" not in path and not any(part in ("", ".", "..") for part in parts)


def write_files(directory: Path, content: Sequence[BundledFile]) -> None:
    """Write the files below a new directory, in which nothing else is, and no link."""
    for each in content:
        path = directory / each.path
        try:
            files.create(path.parent)
            data = each.text.encode("utf-8", "surrogatepass")
            files.write_new(path, data, executable=each.executable)
        except (FileExistsError, NotADirectoryError):
            raise Refused(f"{each.path} of the bundle is a file and a directory") from None
        except OSError as error:
            if error.errno != errno.ENAMETOOLONG:
                raise
            raise Refused(f"a name in {each.path} of the bundle is too long") from None
