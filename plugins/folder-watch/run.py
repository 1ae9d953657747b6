#!/usr/bin/env python3
"""Reports when files in a folder are created, modified, renamed or deleted. See README.md."""

from __future__ import annotations

import json
import os
import sys
import time

sys.path.insert(0, __file__.rpartition("/")[0] + "/../lib")
from changes import ChangeDetector, FileChanging, encode_path, hash_content
from protocol import ConfigError, Failure, Request, Response, serve
from settings import read_flag, read_integer, read_seconds, read_size, read_texts
from walk import Patterns, Walk, open_below, open_folder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from changes import Change, Fingerprint

MAX_STATE = 900_000
"""Bytes; the gateway stores at most a megabyte per plugin."""
HASH_RESERVE = 10.0
"""Seconds before the deadline at which files are no longer hashed."""


class Watch:
    """The validated settings."""

    def __init__(self, config: dict[str, Any]) -> None:
        folder = config.get("folder")
        path = os.path.expanduser(folder) if isinstance(folder, str) else ""
        if not os.path.isabs(path) or "\0" in path:
            raise ConfigError("folder must be an absolute path or start with ~/")
        self.folder = os.path.normpath(path)
        self.include = read_texts(config, "include")
        self.exclude = read_texts(config, "exclude")
        self.recursive = read_flag(config, "recursive", True)
        self.hidden = read_flag(config, "hidden")
        self.settle = read_seconds(config, "settle", 2.0, minimum=0, maximum=86_400)
        self.hashes = read_flag(config, "content_hash")
        self.largest = read_size(config, "max_hash_size", 64 << 20, minimum=1, maximum=1 << 30)
        self.max_entries = read_integer(config, "max_entries", 10_000, minimum=1, maximum=100_000)
        self.max_events = read_integer(config, "max_events", 500, minimum=1, maximum=5000)
        self.reports_existing = read_flag(config, "report_existing")

    @property
    def scope(self) -> list[Any]:
        """The settings that a stored snapshot is valid for."""
        return [self.folder, self.include, self.exclude, self.recursive, self.hidden]

    def walk(self, root: int, request: Request) -> Walk:
        walk = Walk(
            include=Patterns(self.include),
            exclude=Patterns(self.exclude),
            recursive=self.recursive,
            hidden=self.hidden,
            max_entries=self.max_entries,
            remaining=request.remaining,
        )
        try:
            walk.run(root)
        except OSError as error:
            raise Failure(f"{self.folder} cannot be read: {error.strerror}") from None
        return walk


class Hasher:
    """Hashes files in the folder while there is time."""

    def __init__(self, root: int, watch: Watch, request: Request) -> None:
        self._root, self._largest, self._request = root, watch.largest, request
        self.refused: list[str] = []
        """Files without read permission; they are reported when they can be read."""

    def __call__(self, path: str) -> str | None:
        if self._request.remaining() < HASH_RESERVE:
            return None
        try:
            descriptor = open_below(self._root, path)
        except OSError as error:
            if isinstance(error, PermissionError):
                self.refused.append(path)
            raise FileChanging from None
        try:
            return hash_content(descriptor, self._largest)
        finally:
            os.close(descriptor)


def poll(request: Request) -> Response:
    watch = Watch(request.config)
    root = open_folder(watch.folder)
    try:
        device = os.fstat(root).st_dev
        walk = watch.walk(root, request)
        hasher = Hasher(root, watch, request) if watch.hashes else None
        known, held = unpack_state(request.state, watch)
        if known is None and not watch.reports_existing:
            first = {
                path: make_baseline(path, fingerprint, hasher)
                for path, fingerprint in walk.files.items()
            }
            state = pack_state(watch, first, {}, device)
            return Response(f"{len(first)} files; changes are reported from now on", state=state)
        refuse_unmounted(known, walk, device, request.state)
        detector = ChangeDetector(
            known or {},
            held,
            now=time.time(),
            settle=watch.settle,
            max_changes=watch.max_events,
        )
        detector.compare(walk.files, hashed=hasher, unread=walk.has_missed)
        return build_response(watch, walk, detector, device, hasher.refused if hasher else [])
    finally:
        os.close(root)


def make_baseline(path: str, fingerprint: Fingerprint, hasher: Hasher | None) -> Fingerprint:
    try:
        content = hasher(path) if hasher else None
    except FileChanging:
        content = None
    return fingerprint if content is None else [*fingerprint, content]


def refuse_unmounted(
    known: dict[str, Fingerprint] | None, walk: Walk, device: int, state: dict[str, Any]
) -> None:
    """Fail if the folder is empty and on another device: then its disk is not mounted."""
    if known and not walk.files and state.get("device") not in (None, device):
        raise Failure(
            "the folder is empty and on another device than before; check that it is mounted"
        )


def build_response(
    watch: Watch, walk: Walk, detector: ChangeDetector, device: int, refused: list[str]
) -> Response:
    count = len(detector.changes)
    response = Response(
        f"{count} changes among {len(walk.files)} files",
        state=pack_state(watch, detector.known, detector.held, device),
    )
    for change in detector.changes:
        response.emit(f"file.{change.kind}", payload(watch, change))
    if detector.left:
        response.log("warn", f"{detector.left} more changes are left for the next poll")
    for folder in walk.unread[:10]:
        response.log("warn", f"{encode_path(folder)['path']} cannot be read and is skipped")
    for path in refused[:10]:
        response.log(
            "warn", f"{encode_path(path)['path']} cannot be read; it is reported when it can"
        )
    return response


def payload(watch: Watch, change: Change) -> dict[str, Any]:
    def named(path: str) -> dict[str, str]:
        return {
            **encode_path(os.path.join(watch.folder, path)),
            "relative": encode_path(path)["path"],
        }

    return change.payload(encode_path(os.path.basename(change.path))["path"], named)


def pack_state(
    watch: Watch, known: dict[str, Fingerprint], held: dict[str, Fingerprint], device: int
) -> dict[str, Any]:
    """The state: names and fingerprints, compressed because a folder may have many files."""
    import base64
    import zlib

    document = json.dumps([watch.scope, known, held], separators=(",", ":"))
    text = base64.b64encode(zlib.compress(document.encode(), 6)).decode()
    if len(text) > MAX_STATE:
        raise Failure(
            f"the state of {len(known)} files exceeds the limit; "
            "exclude some, or watch parts of the folder by separate instances",
            retry=False,
        )
    return {"snapshot": text, "files": len(known), "device": device}


def unpack_state(
    state: dict[str, Any], watch: Watch
) -> tuple[dict[str, Fingerprint] | None, dict[str, Fingerprint]]:
    """The known and the unsettled files; None if there is no snapshot for these settings."""
    import base64
    import zlib

    text = state.get("snapshot")
    if not isinstance(text, str):
        return None, {}
    try:
        scope, known, held = json.loads(zlib.decompress(base64.b64decode(text)))
    except (ValueError, zlib.error):
        raise Failure(
            "the stored snapshot is not valid; clear the state of the plugin", retry=False
        ) from None
    return (known, held) if scope == watch.scope else (None, {})


def health(request: Request) -> Response:
    watch = Watch(request.config)
    root = open_folder(watch.folder)
    try:
        Patterns([*watch.include, *watch.exclude])
        return Response(f"{len(os.listdir(root))} entries in the folder")
    finally:
        os.close(root)


if __name__ == "__main__":
    serve({"poll": poll, "health": health})
