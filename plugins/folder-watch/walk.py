"""Walk a folder by file descriptors, so that no symlink leads out of it."""

from __future__ import annotations

import os
import re

from changes import get_fingerprint
from protocol import ConfigError, Failure

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from changes import Fingerprint

MAX_DEPTH = 40
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Patterns:
    """Glob patterns for paths relative to the folder.

    `*` and `?` match within a name, `**` matches across folders; a pattern without `/` matches
    names at any depth.
    """

    def __init__(self, patterns: Iterable[str]) -> None:
        self._patterns = [_compile(pattern) for pattern in patterns]

    def __bool__(self) -> bool:
        return bool(self._patterns)

    def match(self, path: str) -> bool:
        return any(pattern.fullmatch(path) for pattern in self._patterns)


def _compile(pattern: str) -> re.Pattern[str]:
    if pattern.startswith("/") or ".." in pattern.split("/"):
        raise ConfigError(f"the pattern {pattern!r} must be relative to the folder")
    whole = pattern.rstrip("/")
    if "/" not in whole:
        whole = f"**/{whole}"
    parts = re.split(r"(\*\*/|\*\*|\*|\?|\[!?[^\]/]+\])", whole)
    known = {"**/": r"(?:[^/]+/)*", "**": r".*", "*": r"[^/]*", "?": r"[^/]"}
    text = "".join(known.get(part) or _compile_part(part) for part in parts)
    try:
        return re.compile(text, re.DOTALL)
    except re.error:
        raise ConfigError(f"the pattern {pattern!r} is not valid") from None


def _compile_part(part: str) -> str:
    if not (part.startswith("[") and part.endswith("]") and len(part) > 2):
        return re.escape(part)
    negated = part[1] == "!"
    inner = re.sub(r"([\\\[^&~|])", r"\\\1", part[2 if negated else 1 : -1])
    return f"[^/{inner}]" if negated else f"[{inner}]"


class Walk:
    """The files of a folder and its subfolders."""

    def __init__(
        self,
        *,
        include: Patterns,
        exclude: Patterns,
        recursive: bool,
        hidden: bool,
        max_entries: int,
        remaining: Callable[[], float],
    ) -> None:
        self._include, self._exclude = include, exclude
        self._recursive, self._hidden = recursive, hidden
        self._max_entries, self._remaining = max_entries, remaining
        self.files: dict[str, Fingerprint] = {}
        self.unread: list[str] = []
        """Folders that could not be read; changes in them are unknown."""
        self._entries = 0

    def run(self, root: int) -> None:
        """Collect the files below the open folder `root`."""
        self._scan_folder(root, "", 0)

    def has_missed(self, path: str) -> bool:
        return any(path.startswith(f"{folder}/") for folder in self.unread)

    def _scan_folder(self, descriptor: int, prefix: str, depth: int) -> None:
        below = []
        with os.scandir(descriptor) as entries:
            for entry in entries:
                self._count_entry()
                path = f"{prefix}{entry.name}"
                if (entry.name.startswith(".") and not self._hidden) or self._exclude.match(path):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    below.append((entry.name, path))
                    continue
                try:
                    fingerprint = get_fingerprint(entry.stat(follow_symlinks=False))
                except FileNotFoundError:
                    continue
                if fingerprint is not None and (not self._include or self._include.match(path)):
                    self.files[path] = fingerprint
        for name, path in below if self._recursive else ():
            self._enter(descriptor, name, path, depth + 1)

    def _enter(self, parent: int, name: str, path: str, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise Failure(f"the folder is nested deeper than {MAX_DEPTH} levels", retry=False)
        try:
            descriptor = os.open(name, _DIRECTORY, dir_fd=parent)
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError:
            self.unread.append(path)
            return
        try:
            self._scan_folder(descriptor, f"{path}/", depth)
        except OSError:
            self.unread.append(path)
        finally:
            os.close(descriptor)

    def _count_entry(self) -> None:
        self._entries += 1
        if self._entries > self._max_entries:
            raise Failure(
                f"the folder has more than {self._max_entries} entries; "
                "exclude some, watch a part of it, or increase max_entries",
                retry=False,
            )
        if self._entries % 512 == 0 and self._remaining() < 5:
            raise Failure("there was no time to scan the whole folder")


def open_folder(path: str) -> int:
    """A descriptor of the folder. Raises `Failure`."""
    try:
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise Failure(f"{path} cannot be read: {error.strerror}") from None


def open_below(root: int, path: str) -> int:
    """A descriptor of a file below the folder, opened without following symlinks."""
    *folders, name = path.split("/")
    here = os.dup(root)
    try:
        for folder in folders:
            below = os.open(folder, _DIRECTORY, dir_fd=here)
            os.close(here)
            here = below
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        return os.open(name, flags, dir_fd=here)
    finally:
        os.close(here)
