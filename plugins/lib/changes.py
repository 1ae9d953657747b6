"""Detect changes of files since the previous poll.

A file is compared by its size, modification time and inode (`Fingerprint`). A change is reported
when the file has settled: its last write is `settle` seconds ago, or it did not change since the
previous poll. Events and state are part of one response, so no change is reported twice or lost.
"""

from __future__ import annotations

import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    Fingerprint = list[Any]
    """`[size, mtime_ns, inode]`, and optionally the SHA-256 of the content."""

CHUNK = 1024 * 1024


class FileChanging(Exception):
    """A file was changed while it was read."""


def get_fingerprint(found: os.stat_result) -> Fingerprint | None:
    """The fingerprint of a regular file; None for other files."""
    if not stat.S_ISREG(found.st_mode):
        return None
    return [found.st_size, found.st_mtime_ns, found.st_ino]


class Change:
    """A change to report."""

    def __init__(
        self, kind: str, path: str, fingerprint: Fingerprint | None, before: str | None = None
    ) -> None:
        self.kind, self.path, self.fingerprint, self.before = kind, path, fingerprint, before

    def payload(self, name: str, encode_path: Callable[[str], dict[str, str]]) -> dict[str, Any]:
        """The payload of the event; `encode_path` returns the fields of a path."""
        payload: dict[str, Any] = {**encode_path(self.path), "name": name}
        if self.fingerprint is not None:
            payload |= {
                "size": self.fingerprint[0],
                "modified_at": format_time(self.fingerprint[1]),
            }
            if len(self.fingerprint) > 3:
                payload["sha256"] = self.fingerprint[3]
        if self.before is not None:
            previous = encode_path(self.before)
            payload |= {f"previous_{key}": value for key, value in previous.items()}
        payload["message"] = f"{self.kind}: {payload['path']}"
        return payload


class ChangeDetector:
    """Compares the files of the previous poll with those of this one."""

    def __init__(
        self,
        known: Mapping[str, Fingerprint],
        held: Mapping[str, Fingerprint],
        *,
        now: float,
        settle: float,
        max_changes: int,
    ) -> None:
        self.known, self._held_before = dict(known), held
        self.held: dict[str, Fingerprint] = {}
        """Files that have not settled yet, with their current fingerprints."""
        self._now, self._settle, self._max_changes = now, settle, max_changes
        self.changes: list[Change] = []
        self.left = 0
        """The number of changes over the limit, which are left for the next poll."""

    def compare(
        self,
        seen: Mapping[str, Fingerprint],
        *,
        hashed: Callable[[str], str | None] | None = None,
        unread: Callable[[str], bool] | None = None,
    ) -> None:
        """Find the changes; `unread` returns whether a path could not be read."""
        gone = {path for path in self.known if path not in seen}
        if unread is not None:
            gone = {path for path in gone if not unread(path)}
        fresh = {path for path in seen if path not in self.known}
        for path, before in self._find_renames(gone, fresh, seen):
            gone.discard(before)
            fresh.discard(path)
            fingerprint = [*seen[path], *self.known[before][3:]]
            if self._add(Change("renamed", path, fingerprint, before)):
                del self.known[before]
                self.known[path] = fingerprint
        for path in sorted(gone):
            if self._add(Change("deleted", path, None)):
                del self.known[path]
        for path in sorted(seen):
            if path in fresh or (path in self.known and self.known[path][:3] != seen[path]):
                self._check_written(path, seen[path], hashed)

    def _find_renames(
        self, gone: set[str], fresh: set[str], seen: Mapping[str, Fingerprint]
    ) -> list[tuple[str, str]]:
        by_fingerprint = {tuple(self.known[path][:3]): path for path in gone}
        pairs = []
        for path in sorted(fresh):
            before = by_fingerprint.pop(tuple(seen[path]), None)
            if before is not None:
                pairs.append((path, before))
        return pairs

    def _check_written(
        self, path: str, fingerprint: Fingerprint, hashed: Callable[[str], str | None] | None
    ) -> None:
        old = self.known.get(path)
        if not self._has_settled(path, fingerprint):
            self.held[path] = fingerprint
            return
        if len(self.changes) >= self._max_changes:
            self.left += 1
            return
        if hashed is not None:
            try:
                content = hashed(path)
            except FileChanging:
                self.held[path] = fingerprint
                return
            fingerprint = fingerprint if content is None else [*fingerprint, content]
            if old is not None and content is not None and old[3:] == [content]:
                self.known[path] = fingerprint
                return
        self._add(Change("modified" if old else "created", path, fingerprint))
        self.known[path] = fingerprint

    def _has_settled(self, path: str, fingerprint: Fingerprint) -> bool:
        age = self._now - fingerprint[1] / 1e9
        return age >= self._settle or self._held_before.get(path) == fingerprint

    def _add(self, change: Change) -> bool:
        if len(self.changes) >= self._max_changes:
            self.left += 1
            return False
        self.changes.append(change)
        return True


def hash_content(descriptor: int, largest: int) -> str | None:
    """SHA-256 of an open regular file; None if it is larger. Raises `FileChanging`."""
    import hashlib

    before = os.fstat(descriptor)
    if get_fingerprint(before) is None or before.st_size > largest:
        return None
    digest, read = hashlib.sha256(), 0
    while read <= largest and (chunk := os.read(descriptor, CHUNK)):
        digest.update(chunk)
        read += len(chunk)
    if get_fingerprint(os.fstat(descriptor)) != get_fingerprint(before):
        raise FileChanging
    return digest.hexdigest()


def format_time(nanoseconds: int) -> str:
    """A file time as text; the latest possible date if it is out of range."""
    from datetime import UTC, datetime, timedelta

    try:
        found = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=nanoseconds // 1000)
    except OverflowError:
        found = datetime.max.replace(tzinfo=UTC)
    return found.isoformat(timespec="microseconds").replace("+00:00", "Z")


def encode_path(path: str) -> dict[str, str]:
    """A path for JSON; if it is not UTF-8, also its exact bytes in base64."""
    try:
        path.encode()
    except UnicodeEncodeError:
        import base64

        raw = os.fsencode(path)
        escaped = raw.decode("utf-8", "backslashreplace")
        return {"path": escaped, "path_base64": base64.b64encode(raw).decode()}
    return {"path": path}
