"""The files below a folder, by descriptors all the way: no symlink leads out of it."""

from __future__ import annotations

import os
import re

from changes import mark_of
from protocol import Failure, Misconfigured

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from changes import Mark

MAX_DEPTH = 40
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Patterns:
    """Globs over paths relative to the folder.

    `*` and `?` stay inside a name, `**` crosses folders; a pattern without `/` is meant for
    names at any depth.
    """

    def __init__(self, patterns: Iterable[str]) -> None:
        self._patterns = [_compiled(pattern) for pattern in patterns]

    def __bool__(self) -> bool:
        return bool(self._patterns)

    def match(self, path: str) -> bool:
        return any(pattern.fullmatch(path) for pattern in self._patterns)


def _compiled(pattern: str) -> re.Pattern[str]:
    if pattern.startswith("/") or ".." in pattern.split("/"):
        raise Misconfigured(f"the pattern {pattern!r} must be relative to the folder")
    whole = pattern.rstrip("/")
    if "/" not in whole:
        whole = f"**/{whole}"
    parts = re.split(r"(\*\*/|\*\*|\*|\?|\[!?[^\]/]+\])", whole)
    known = {"**/": r"(?:[^/]+/)*", "**": r".*", "*": r"[^/]*", "?": r"[^/]"}
    text = "".join(known.get(part) or _class(part) for part in parts)
    try:
        return re.compile(text, re.DOTALL)
    except re.error:
        raise Misconfigured(f"the pattern {pattern!r} cannot be read") from None


def _class(part: str) -> str:
    if not (part.startswith("[") and part.endswith("]") and len(part) > 2):
        return re.escape(part)
    negated = part[1] == "!"
    inner = re.sub(r"([\\\[^&~|])", r"\\\1", part[2 if negated else 1 : -1])
    return f"[^/{inner}]" if negated else f"[{inner}]"


class Walk:
    """One look at a tree."""

    def __init__(
        self,
        *,
        include: Patterns,
        exclude: Patterns,
        recursive: bool,
        hidden: bool,
        most: int,
        remaining: Callable[[], float],
    ) -> None:
        self._include, self._exclude = include, exclude
        self._recursive, self._hidden = recursive, hidden
        self._most, self._remaining = most, remaining
        self.files: dict[str, Mark] = {}
        self.unread: list[str] = []
        """Folders that could not be read; nothing is said of what is in them."""
        self._entries = 0

    def run(self, root: int) -> None:
        """Look at everything below the open folder `root`."""
        self._folder(root, "", 0)

    def missed(self, path: str) -> bool:
        return any(path.startswith(f"{folder}/") for folder in self.unread)

    def _folder(self, descriptor: int, prefix: str, depth: int) -> None:
        below = []
        with os.scandir(descriptor) as entries:
            for entry in entries:
                self._count()
                path = f"{prefix}{entry.name}"
                if (entry.name.startswith(".") and not self._hidden) or self._exclude.match(path):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    below.append((entry.name, path))
                    continue
                try:
                    mark = mark_of(entry.stat(follow_symlinks=False))
                except FileNotFoundError:
                    continue
                if mark is not None and (not self._include or self._include.match(path)):
                    self.files[path] = mark
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
            self._folder(descriptor, f"{path}/", depth)
        except OSError:
            self.unread.append(path)
        finally:
            os.close(descriptor)

    def _count(self) -> None:
        self._entries += 1
        if self._entries > self._most:
            raise Failure(
                f"the folder holds more than {self._most} entries; "
                "exclude some, watch a part of it, or raise max_entries",
                retry=False,
            )
        if self._entries % 512 == 0 and self._remaining() < 5:
            raise Failure("the folder could not be looked through in time")


def open_folder(path: str) -> int:
    """A descriptor of the folder itself. Raises `Failure`."""
    try:
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise Failure(f"{path} cannot be read: {error.strerror}") from None


def open_below(root: int, path: str) -> int:
    """A file below the folder, for reading, with no symlink on the way."""
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
