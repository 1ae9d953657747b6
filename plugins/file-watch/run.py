#!/usr/bin/env python3
"""Tells when named files appear, change or go."""

from __future__ import annotations

import os
import sys
import time

sys.path.insert(0, __file__.rpartition("/")[0] + "/../lib")
from changes import Changing, Look, content_hash, mark_of, shown
from protocol import Answer, Failure, Misconfigured, Request, serve
from quantities import flag, seconds, size, texts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from changes import Mark

MAX_FILES = 200
ABSENT = "absent"
"""Remembered of a file that was not there: when it comes, that is news."""


class Watch:
    """What the config says, checked."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.files = [_absolute(path) for path in texts(config, "files", most=MAX_FILES)]
        if not self.files:
            raise Misconfigured("files must name at least one file")
        self.settle = seconds(config, "settle", 2.0, least=0, most=86_400)
        self.hashes = flag(config, "content_hash")
        self.largest = size(config, "max_hash_size", 64 << 20, least=1, most=1 << 30)
        self.follows = flag(config, "follow_symlinks")
        self.reports_existing = flag(config, "report_existing")

    def look(self, path: str) -> Mark | None:
        """The file's mark; None where there is no such file. Raises `Failure`."""
        try:
            return mark_of(os.stat(path, follow_symlinks=self.follows))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise Failure(f"{path} cannot be looked at: {error.strerror}") from None

    def hash(self, path: str) -> str | None:
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            descriptor = os.open(path, flags | (0 if self.follows else os.O_NOFOLLOW))
        except OSError as error:
            raise Failure(f"{path} cannot be read: {error.strerror}") from None
        try:
            return content_hash(descriptor, self.largest)
        finally:
            os.close(descriptor)


def _absolute(path: str) -> str:
    found = os.path.expanduser(path)
    if not os.path.isabs(found) or "\0" in found:
        raise Misconfigured(f"{path!r} must be an absolute path, or begin with ~/")
    return os.path.normpath(found)


def poll(request: Request) -> Answer:
    watch = Watch(request.config)
    remembered = request.state.get("files")
    remembered = remembered if isinstance(remembered, dict) else {}
    held = request.state.get("held")
    seen = {path: mark for path in watch.files if (mark := watch.look(path)) is not None}
    known = {
        path: mark
        for path, mark in remembered.items()
        if path in watch.files and isinstance(mark, list)
    }
    look = Look(
        known,
        held if isinstance(held, dict) else {},
        now=time.time(),
        settle=watch.settle,
        most=MAX_FILES,
    )
    if not watch.reports_existing:
        for path in seen.keys() - remembered.keys():
            look.known[path] = _baseline(watch, path, seen[path])
    look.compare(seen, hashed=watch.hash if watch.hashes else None)
    return _told(watch, look)


def _baseline(watch: Watch, path: str, mark: Mark) -> Mark:
    """A file that is new to us, not to the world."""
    try:
        content = watch.hash(path) if watch.hashes else None
    except Changing:
        content = None
    return mark if content is None else [*mark, content]


def _told(watch: Watch, look: Look) -> Answer:
    state = {path: look.known.get(path, ABSENT) for path in watch.files}
    count = len(look.changes)
    answer = Answer(
        f"{count} of {len(watch.files)} files changed", state={"files": state, "held": look.held}
    )
    for change in look.changes:
        name = shown(os.path.basename(change.path))["path"]
        answer.emit(f"file.{change.kind}", change.payload(name, shown))
    return answer


def health(request: Request) -> Answer:
    watch = Watch(request.config)
    for path in watch.files:
        if not os.access(os.path.dirname(path), os.R_OK | os.X_OK):
            raise Failure(f"the folder of {path} is not there, or cannot be read")
    return Answer(f"{len(watch.files)} files")


if __name__ == "__main__":
    serve({"poll": poll, "health": health})
