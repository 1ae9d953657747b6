"""What may be run: the rules that a plugin's files keep, or `Untrusted`.

Nothing here can hold between the check and the later `exec`, which goes by path: whoever
may write to a plugin's directory can swap a file in between. That is why a directory that
everybody may write to is refused, all the way up to its root; the owner and the group are
trusted, as the gateway's own user is. What is read is opened without following a link, and
judged and hashed by the same descriptor, so that mode, type and bytes are of one file.
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

from ductile.plugins.document import MAX_BYTES
from ductile.record import dataclass

MAX_ENTRYPOINT = 1024**3
_CHUNK = 1024 * 1024


class Untrusted(Exception):
    """A rule is broken; the text says which one, and what to do."""


@dataclass(frozen=True, slots=True)
class Sealed:
    """The plugins as `config lock` found them."""

    fingerprints: Mapping[str, str] = field(default_factory=dict)
    """By name. A seal without any, as the Go program writes it, says nothing of plugins."""
    strict: bool = False
    """Whether a plugin that differs is refused; else that is only worth a warning."""

    def flaw(self, name: str, fingerprint: str) -> str | None:
        """How a plugin differs from its seal, if it does."""
        if not self.fingerprints or self.fingerprints.get(name) == fingerprint:
            return None
        why = "has changed since it was sealed" if name in self.fingerprints else "is not sealed"
        return f"it {why}; if that is your doing, run: ductile config lock"


def locate_root(root: Path, *, allow_symlinks: bool) -> tuple[Path, str | None]:
    """The root's real path, and a warning where that is another one.

    Raises FileNotFoundError where there is none, since a missing root is no breach.
    """
    path = Path(os.path.abspath(root))  # noqa: PTH100 - `resolve` would follow the links
    real = _resolved(path)
    if not real.is_dir():
        raise Untrusted(f"{path} is not a directory; a plugin root holds one directory a plugin")
    if real != path and not allow_symlinks:
        raise Untrusted(
            f"{path} leads through a symlink to {real}; name that path, "
            "or set service.allow_symlinks: true"
        )
    refuse_world_writable(real)
    return real, None if real == path else f"the plugin root {path} is a symlink to {real}"


def locate(path: Path, *, root: Path, allow_symlinks: bool) -> tuple[Path, str | None]:
    """The real path of something below `root`, and a warning where that is another one.

    `root` is a real path. Every directory on the way up to it is checked as well.
    """
    try:
        real = _resolved(path)
    except FileNotFoundError:
        raise Untrusted(f"{path} does not exist; put it there, or mend what names it") from None
    if real != path:
        if root not in real.parents:
            raise Untrusted(f"{path} is a symlink to {real}, which is outside the root {root}")
        if not allow_symlinks:
            raise Untrusted(
                f"{path} is a symlink; put what it points to in its place, "
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
    """The bytes of a manifest at a real path."""
    with _opened(path) as file:
        data = os.read(file, MAX_BYTES + 1)
        while len(data) <= MAX_BYTES and (more := os.read(file, MAX_BYTES + 1 - len(data))):
            data += more
        return data


def hash_executable(path: Path) -> bytes:
    """The BLAKE3 hash of an entrypoint at a real path."""
    with _opened(path) as file:
        if os.fstat(file).st_size > MAX_ENTRYPOINT:
            raise Untrusted(f"{path} is larger than {MAX_ENTRYPOINT // 1024**2} MiB")
        if not os.access(path, os.X_OK):
            raise Untrusted(f"{path} is not executable; run: chmod +x {quote(str(path))}")
        digest = blake3()
        while chunk := os.read(file, _CHUNK):
            digest.update(chunk)
        return digest.digest()


def _resolved(path: Path) -> Path:
    try:
        real = path.resolve(strict=True)
    except FileNotFoundError:
        raise
    except (OSError, RuntimeError) as error:
        raise Untrusted(f"{path} cannot be followed to its end: {error}") from None
    if not str(real).isprintable():
        raise Untrusted(f"{str(real)!a} holds characters that cannot be shown; rename it")
    return real


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    """A regular file that not everybody may write to. O_NONBLOCK, lest a FIFO hold us up."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        file = os.open(path, flags)
    except OSError as error:
        raise Untrusted(f"{path} cannot be read: {error.strerror}") from None
    try:
        mode = os.fstat(file).st_mode
        if not stat.S_ISREG(mode):
            raise Untrusted(f"{path} is not a regular file; put one in its place")
        _refuse_world_writable(path, mode)
        yield file
    except OSError as error:
        raise Untrusted(f"{path} cannot be read: {error.strerror}") from None
    finally:
        os.close(file)
