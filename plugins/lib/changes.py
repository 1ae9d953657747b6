"""What has changed among files since the last look.

A file is known by its size, modification time and inode (`Mark`). A change is told once the
file has settled: its last write lies `settle` seconds back, or it looked the same at the
look before. What is told and what is remembered go into one answer, so that nothing is told
twice and nothing is lost.
"""

from __future__ import annotations

import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    Mark = list[Any]
    """`[size, mtime_ns, inode]`, and the content's SHA-256 where it is wanted."""

CHUNK = 1024 * 1024


class Changing(Exception):
    """A file is being written while it is read."""


def mark_of(found: os.stat_result) -> Mark | None:
    """The mark of a regular file; None for anything else."""
    if not stat.S_ISREG(found.st_mode):
        return None
    return [found.st_size, found.st_mtime_ns, found.st_ino]


class Change:
    """One thing to tell."""

    def __init__(self, kind: str, path: str, mark: Mark | None, before: str | None = None) -> None:
        self.kind, self.path, self.mark, self.before = kind, path, mark, before

    def payload(self, name: str, shown: Callable[[str], dict[str, str]]) -> dict[str, Any]:
        """The event's payload; `shown` names a path in it."""
        told: dict[str, Any] = {**shown(self.path), "name": name}
        if self.mark is not None:
            told |= {"size": self.mark[0], "modified_at": moment(self.mark[1])}
            if len(self.mark) > 3:
                told["sha256"] = self.mark[3]
        if self.before is not None:
            told |= {f"previous_{key}": value for key, value in shown(self.before).items()}
        told["message"] = f"{self.kind}: {told['path']}"
        return told


class Look:
    """What was known, what is seen now, and what follows from the two."""

    def __init__(
        self,
        known: Mapping[str, Mark],
        held: Mapping[str, Mark],
        *,
        now: float,
        settle: float,
        most: int,
    ) -> None:
        self.known, self._held_before = dict(known), held
        self.held: dict[str, Mark] = {}
        """Files that are being written, as they look now."""
        self._now, self._settle, self._most = now, settle, most
        self.changes: list[Change] = []
        self.left = 0
        """Changes that are left for the next look: there were more than may be told at once."""

    def compare(
        self,
        seen: Mapping[str, Mark],
        *,
        hashed: Callable[[str], str | None] | None = None,
        unread: Callable[[str], bool] | None = None,
    ) -> None:
        """Find the changes; `unread` says of a path that it could not be looked at."""
        gone = {path for path in self.known if path not in seen}
        if unread is not None:
            gone = {path for path in gone if not unread(path)}
        fresh = {path for path in seen if path not in self.known}
        for path, before in self._renames(gone, fresh, seen):
            gone.discard(before)
            fresh.discard(path)
            mark = [*seen[path], *self.known[before][3:]]
            if self._tell(Change("renamed", path, mark, before)):
                del self.known[before]
                self.known[path] = mark
        for path in sorted(gone):
            if self._tell(Change("deleted", path, None)):
                del self.known[path]
        for path in sorted(seen):
            if path in fresh or (path in self.known and self.known[path][:3] != seen[path]):
                self._written(path, seen[path], hashed)

    def _renames(
        self, gone: set[str], fresh: set[str], seen: Mapping[str, Mark]
    ) -> list[tuple[str, str]]:
        by_mark = {tuple(self.known[path][:3]): path for path in gone}
        pairs = []
        for path in sorted(fresh):
            before = by_mark.pop(tuple(seen[path]), None)
            if before is not None:
                pairs.append((path, before))
        return pairs

    def _written(self, path: str, mark: Mark, hashed: Callable[[str], str | None] | None) -> None:
        old = self.known.get(path)
        if not self._settled(path, mark):
            self.held[path] = mark
            return
        if len(self.changes) >= self._most:
            self.left += 1
            return
        if hashed is not None:
            try:
                content = hashed(path)
            except Changing:
                self.held[path] = mark
                return
            mark = mark if content is None else [*mark, content]
            if old is not None and content is not None and old[3:] == [content]:
                self.known[path] = mark
                return
        self._tell(Change("modified" if old else "created", path, mark))
        self.known[path] = mark

    def _settled(self, path: str, mark: Mark) -> bool:
        age = self._now - mark[1] / 1e9
        return age >= self._settle or self._held_before.get(path) == mark

    def _tell(self, change: Change) -> bool:
        if len(self.changes) >= self._most:
            self.left += 1
            return False
        self.changes.append(change)
        return True


def content_hash(descriptor: int, largest: int) -> str | None:
    """SHA-256 of an open regular file; None where it is larger. Raises `Changing`."""
    import hashlib

    before = os.fstat(descriptor)
    if mark_of(before) is None or before.st_size > largest:
        return None
    digest, read = hashlib.sha256(), 0
    while read <= largest and (chunk := os.read(descriptor, CHUNK)):
        digest.update(chunk)
        read += len(chunk)
    if mark_of(os.fstat(descriptor)) != mark_of(before):
        raise Changing
    return digest.hexdigest()


def moment(nanoseconds: int) -> str:
    """A file's time as text; the end of the calendar for what lies beyond it."""
    from datetime import UTC, datetime, timedelta

    try:
        found = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=nanoseconds // 1000)
    except OverflowError:
        found = datetime.max.replace(tzinfo=UTC)
    return found.isoformat(timespec="microseconds").replace("+00:00", "Z")


def shown(path: str) -> dict[str, str]:
    """A path as JSON can carry it: where it is no UTF-8, also exactly, in base64."""
    try:
        path.encode()
    except UnicodeEncodeError:
        import base64

        raw = os.fsencode(path)
        escaped = raw.decode("utf-8", "backslashreplace")
        return {"path": escaped, "path_base64": base64.b64encode(raw).decode()}
    return {"path": path}


def readable(name: str) -> str:
    """A file's name for people."""
    return shown(name)["path"]
