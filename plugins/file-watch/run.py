#!/usr/bin/env python3
"""Reports when given files are created, modified or deleted. See README.md."""

from __future__ import annotations

import os
import sys
import time

sys.path.insert(0, __file__.rpartition("/")[0] + "/../lib")
from changes import ChangeDetector, FileChanging, encode_path, get_fingerprint, hash_content
from protocol import ConfigError, Failure, Request, Response, serve
from settings import read_flag, read_seconds, read_size, read_texts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from changes import Fingerprint

MAX_FILES = 200
ABSENT = "absent"
"""Stored for a file that does not exist, so that its creation is reported."""


class Watch:
    """The validated settings."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.files = [_expand_path(path) for path in read_texts(config, "files", maximum=MAX_FILES)]
        if not self.files:
            raise ConfigError("files must list at least one file")
        self.settle = read_seconds(config, "settle", 2.0, minimum=0, maximum=86_400)
        self.hashes = read_flag(config, "content_hash")
        self.largest = read_size(config, "max_hash_size", 64 << 20, minimum=1, maximum=1 << 30)
        self.follows = read_flag(config, "follow_symlinks")
        self.reports_existing = read_flag(config, "report_existing")

    def get_fingerprint(self, path: str) -> Fingerprint | None:
        """The fingerprint of a file; None if there is no such file. Raises `Failure`."""
        try:
            return get_fingerprint(os.stat(path, follow_symlinks=self.follows))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise Failure(f"{path} cannot be read: {error.strerror}") from None

    def hash(self, path: str) -> str | None:
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            descriptor = os.open(path, flags | (0 if self.follows else os.O_NOFOLLOW))
        except OSError as error:
            raise Failure(f"{path} cannot be read: {error.strerror}") from None
        try:
            return hash_content(descriptor, self.largest)
        finally:
            os.close(descriptor)


def _expand_path(path: str) -> str:
    found = os.path.expanduser(path)
    if not os.path.isabs(found) or "\0" in found:
        raise ConfigError(f"{path!r} must be an absolute path or start with ~/")
    return os.path.normpath(found)


def poll(request: Request) -> Response:
    watch = Watch(request.config)
    remembered = request.state.get("files")
    remembered = remembered if isinstance(remembered, dict) else {}
    held = request.state.get("held")
    seen = {
        path: fingerprint
        for path in watch.files
        if (fingerprint := watch.get_fingerprint(path)) is not None
    }
    known = {
        path: fingerprint
        for path, fingerprint in remembered.items()
        if path in watch.files and isinstance(fingerprint, list)
    }
    detector = ChangeDetector(
        known,
        held if isinstance(held, dict) else {},
        now=time.time(),
        settle=watch.settle,
        max_changes=MAX_FILES,
    )
    if not watch.reports_existing:
        for path in seen.keys() - remembered.keys():
            detector.known[path] = _baseline(watch, path, seen[path])
    detector.compare(seen, hashed=watch.hash if watch.hashes else None)
    return _build_response(watch, detector)


def _baseline(watch: Watch, path: str, fingerprint: Fingerprint) -> Fingerprint:
    """The fingerprint of a file that existed before it was watched."""
    try:
        content = watch.hash(path) if watch.hashes else None
    except FileChanging:
        content = None
    return fingerprint if content is None else [*fingerprint, content]


def _build_response(watch: Watch, detector: ChangeDetector) -> Response:
    state = {path: detector.known.get(path, ABSENT) for path in watch.files}
    count = len(detector.changes)
    response = Response(
        f"{count} of {len(watch.files)} files changed",
        state={"files": state, "held": detector.held},
    )
    for change in detector.changes:
        name = encode_path(os.path.basename(change.path))["path"]
        response.emit(f"file.{change.kind}", change.payload(name, encode_path))
    return response


def health(request: Request) -> Response:
    watch = Watch(request.config)
    for path in watch.files:
        if not os.access(os.path.dirname(path), os.R_OK | os.X_OK):
            raise Failure(f"the directory of {path} does not exist or cannot be read")
    return Response(f"{len(watch.files)} files")


if __name__ == "__main__":
    serve({"poll": poll, "health": health})
