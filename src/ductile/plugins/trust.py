"""The rules that a plugin's files have to satisfy to be run; `Untrusted` if they do not.

The later `exec` goes by path, so a user who may write to a plugin's directory can replace a file
after the check. A world-writable directory is therefore refused, up to the plugin root; the
owner and the group are trusted, as the gateway's own user is. In strict mode, the runner compares
the entrypoint's stat with that of the hashed file before each `exec`. Files are opened without
following symlinks, and checked and hashed through one descriptor, so mode, type and bytes are of
one file.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field
from pathlib import Path
from shlex import quote

from blake3 import blake3

from ductile._fast_dataclass import dataclass
from ductile.plugins.read_manifest import MAX_BYTES
from ductile.runner.protocol import encode_stat

MAX_ENTRYPOINT = 1024**3
_CHUNK = 1024 * 1024


class Untrusted(Exception):
    """A rule is not satisfied; the message says which one and what to do."""


@dataclass(frozen=True, slots=True)
class PluginSeals:
    """The fingerprints of the plugins that `config lock` recorded."""

    fingerprints: Mapping[str, str] = field(default_factory=dict)
    """By plugin name. Empty, as in a seal of the Go program, means that plugins are not sealed."""
    strict: bool = False
    """Whether a plugin that differs is refused; otherwise it causes a warning."""

    def find_difference(self, name: str, fingerprint: str) -> str | None:
        """How a plugin differs from its seal; None if it does not."""
        if not self.fingerprints or self.fingerprints.get(name) == fingerprint:
            return None
        why = "has changed since it was sealed" if name in self.fingerprints else "is not sealed"
        return f"it {why}; if you made this change, run: ductile config lock --plugin {name}"


def locate_root(root: Path, *, allow_symlinks: bool) -> tuple[Path, str | None]:
    """The real path of a plugin root, and a warning if a symlink leads to it.

    Raises FileNotFoundError for a missing root, which is not a violation.
    """
    path = Path(os.path.abspath(root))  # noqa: PTH100 - `resolve` would follow the links
    real = _resolve(path)
    if not real.is_dir():
        raise Untrusted(f"{path} is not a directory; a plugin root has one directory per plugin")
    if real != path and not allow_symlinks:
        raise Untrusted(
            f"{path} leads through a symlink to {real}; configure that path, "
            "or set service.allow_symlinks: true"
        )
    refuse_world_writable(real)
    return real, None if real == path else f"the plugin root {path} is a symlink to {real}"


def locate(path: Path, *, root: Path, allow_symlinks: bool) -> tuple[Path, str | None]:
    """The real path of a file below `root`, and a warning if a symlink leads to it.

    `root` is a real path. Every directory between it and the file is checked as well.
    """
    try:
        real = _resolve(path)
    except FileNotFoundError:
        raise Untrusted(f"{path} does not exist; create it, or correct the name") from None
    if real != path:
        if root not in real.parents:
            raise Untrusted(f"{path} is a symlink to {real}, which is outside the root {root}")
        if not allow_symlinks:
            raise Untrusted(
                f"{path} is a symlink; replace it with its target, "
                "or set service.allow_symlinks: true"
            )
    for directory in real.parents:
        if directory == root:
            break
        refuse_world_writable(directory)
    return real, None if real == path else f"{path} is a symlink to {real}"


def refuse_world_writable(path: Path) -> None:
    _refuse_world_writable(path, path.stat().st_mode)


def _refuse_world_writable(path: Path, mode: int) -> None:
    if mode & stat.S_IWOTH:
        raise Untrusted(f"{path} is world-writable; run: chmod o-w {quote(str(path))}")


def read_file(path: Path) -> bytes:
    """The bytes of a manifest at a real path: one more than allowed of one that is too large."""
    return read_beginning(path, MAX_BYTES + 1)


def read_beginning(path: Path, size: int) -> bytes:
    """At most `size` bytes of a file at a real path."""
    with _open(path) as file:
        data = os.read(file, size)
        while len(data) < size and (more := os.read(file, size - len(data))):
            data += more
        return data


@dataclass(frozen=True, slots=True)
class HashedFile:
    digest: bytes
    """The BLAKE3 hash of the bytes."""
    stat: bytes
    """As the runner compares it before it executes the file."""


def hash_executable(path: Path) -> HashedFile:
    """The hash of an entrypoint at a real path."""
    with _open(path) as file:
        # Before the bytes are read: a change while they are read is noticed, too.
        found = os.fstat(file)
        if found.st_size > MAX_ENTRYPOINT:
            raise Untrusted(f"{path} is larger than the limit of {MAX_ENTRYPOINT // 1024**2} MiB")
        if not os.access(path, os.X_OK):
            raise Untrusted(f"{path} is not executable; run: chmod +x {quote(str(path))}")
        digest = blake3()
        while chunk := os.read(file, _CHUNK):
            digest.update(chunk)
        return HashedFile(digest.digest(), encode_stat(found))


def _resolve(path: Path) -> Path:
    try:
        real = path.resolve(strict=True)
    except FileNotFoundError:
        raise
    except (OSError, RuntimeError) as error:
        raise Untrusted(f"{path} cannot be resolved: {error}") from None
    if not str(real).isprintable():
        raise Untrusted(f"{str(real)!a} contains unprintable characters; rename it")
    return real


@contextmanager
def _open(path: Path) -> Iterator[int]:
    """A regular file that is not world-writable. O_NONBLOCK, because opening a FIFO waits."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        file = os.open(path, flags)
    except OSError as error:
        raise Untrusted(f"{path} cannot be read: {error.strerror}") from None
    try:
        mode = os.fstat(file).st_mode
        if not stat.S_ISREG(mode):
            raise Untrusted(f"{path} is not a regular file; replace it with one")
        _refuse_world_writable(path, mode)
        yield file
    except OSError as error:
        raise Untrusted(f"{path} cannot be read: {error.strerror}") from None
    finally:
        os.close(file)
