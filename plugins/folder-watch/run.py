#!/usr/bin/env python3
"""Tells when files in a folder appear, change, move or go."""

from __future__ import annotations

import json
import os
import sys
import time

sys.path.insert(0, __file__.rpartition("/")[0] + "/../lib")
from changes import Changing, Look, content_hash, shown
from protocol import Answer, Failure, Misconfigured, Request, serve
from quantities import flag, seconds, size, texts, whole
from tree import Patterns, Walk, open_below, open_folder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from changes import Change, Mark

LARGEST_STATE = 900_000
"""Bytes; the gateway keeps a megabyte for each plugin."""
HASHING = 10.0
"""Seconds before the deadline at which contents are no longer read."""


class Watch:
    """What the config says, checked."""

    def __init__(self, config: dict[str, Any]) -> None:
        folder = config.get("folder")
        path = os.path.expanduser(folder) if isinstance(folder, str) else ""
        if not os.path.isabs(path) or "\0" in path:
            raise Misconfigured("folder must be an absolute path, or begin with ~/")
        self.folder = os.path.normpath(path)
        self.include = texts(config, "include")
        self.exclude = texts(config, "exclude")
        self.recursive = flag(config, "recursive", True)
        self.hidden = flag(config, "hidden")
        self.settle = seconds(config, "settle", 2.0, least=0, most=86_400)
        self.hashes = flag(config, "content_hash")
        self.largest = size(config, "max_hash_size", 64 << 20, least=1, most=1 << 30)
        self.max_entries = whole(config, "max_entries", 10_000, least=1, most=100_000)
        self.max_events = whole(config, "max_events", 500, least=1, most=5000)
        self.reports_existing = flag(config, "report_existing")

    @property
    def scope(self) -> list[Any]:
        """What is looked at; when this changes, what was known says nothing any more."""
        return [self.folder, self.include, self.exclude, self.recursive, self.hidden]

    def walk(self, root: int, request: Request) -> Walk:
        walk = Walk(
            include=Patterns(self.include),
            exclude=Patterns(self.exclude),
            recursive=self.recursive,
            hidden=self.hidden,
            most=self.max_entries,
            remaining=request.remaining,
        )
        try:
            walk.run(root)
        except OSError as error:
            raise Failure(f"{self.folder} cannot be read: {error.strerror}") from None
        return walk


class Hasher:
    """Contents of files below the folder, as long as there is time."""

    def __init__(self, root: int, watch: Watch, request: Request) -> None:
        self._root, self._largest, self._request = root, watch.largest, request
        self.refused: list[str] = []
        """Files that we may not read: they are not told of before we may."""

    def __call__(self, path: str) -> str | None:
        if self._request.remaining() < HASHING:
            return None
        try:
            descriptor = open_below(self._root, path)
        except OSError as error:
            if isinstance(error, PermissionError):
                self.refused.append(path)
            raise Changing from None
        try:
            return content_hash(descriptor, self._largest)
        finally:
            os.close(descriptor)


def poll(request: Request) -> Answer:
    watch = Watch(request.config)
    root = open_folder(watch.folder)
    try:
        device = os.fstat(root).st_dev
        walk = watch.walk(root, request)
        hasher = Hasher(root, watch, request) if watch.hashes else None
        known, held = remembered(request.state, watch)
        if known is None and not watch.reports_existing:
            first = {path: baseline(path, mark, hasher) for path, mark in walk.files.items()}
            state = packed(watch, first, {}, device)
            return Answer(f"{len(first)} files; changes are told from now on", state=state)
        refuse_unmounted(known, walk, device, request.state)
        look = Look(
            known or {},
            held,
            now=time.time(),
            settle=watch.settle,
            most=watch.max_events,
        )
        look.compare(walk.files, hashed=hasher, unread=walk.missed)
        return told(watch, walk, look, device, hasher.refused if hasher else [])
    finally:
        os.close(root)


def baseline(path: str, mark: Mark, hasher: Hasher | None) -> Mark:
    try:
        content = hasher(path) if hasher else None
    except Changing:
        content = None
    return mark if content is None else [*mark, content]


def refuse_unmounted(
    known: dict[str, Mark] | None, walk: Walk, device: int, state: dict[str, Any]
) -> None:
    """An empty folder on another device is a disk that is not mounted, not a clean-up."""
    if known and not walk.files and state.get("device") not in (None, device):
        raise Failure("the folder is empty and on another device than before: is it not mounted?")


def told(watch: Watch, walk: Walk, look: Look, device: int, refused: list[str]) -> Answer:
    count = len(look.changes)
    answer = Answer(
        f"{count} changes among {len(walk.files)} files",
        state=packed(watch, look.known, look.held, device),
    )
    for change in look.changes:
        answer.emit(f"file.{change.kind}", payload(watch, change))
    if look.left:
        answer.log("warn", f"{look.left} more changes are left for the next look")
    for folder in walk.unread[:10]:
        answer.log("warn", f"{shown(folder)['path']} cannot be read and is left out")
    for path in refused[:10]:
        answer.log("warn", f"{shown(path)['path']} may not be read; it is told of once it may")
    return answer


def payload(watch: Watch, change: Change) -> dict[str, Any]:
    def named(path: str) -> dict[str, str]:
        return {**shown(os.path.join(watch.folder, path)), "relative": shown(path)["path"]}

    return change.payload(shown(os.path.basename(change.path))["path"], named)


def packed(
    watch: Watch, known: dict[str, Mark], held: dict[str, Mark], device: int
) -> dict[str, Any]:
    """The state: names and marks, compressed, for a folder holds many."""
    import base64
    import zlib

    document = json.dumps([watch.scope, known, held], separators=(",", ":"))
    text = base64.b64encode(zlib.compress(document.encode(), 6)).decode()
    if len(text) > LARGEST_STATE:
        raise Failure(
            f"{len(known)} files are more than can be remembered; "
            "exclude some, or watch parts of the folder by instances of their own",
            retry=False,
        )
    return {"snapshot": text, "files": len(known), "device": device}


def remembered(
    state: dict[str, Any], watch: Watch
) -> tuple[dict[str, Mark] | None, dict[str, Mark]]:
    """What was known and what was being written; None where nothing was known of this scope."""
    import base64
    import zlib

    text = state.get("snapshot")
    if not isinstance(text, str):
        return None, {}
    try:
        scope, known, held = json.loads(zlib.decompress(base64.b64decode(text)))
    except (ValueError, zlib.error):
        raise Failure(
            "the remembered snapshot cannot be read; clear the plugin's state", retry=False
        ) from None
    return (known, held) if scope == watch.scope else (None, {})


def health(request: Request) -> Answer:
    watch = Watch(request.config)
    root = open_folder(watch.folder)
    try:
        Patterns([*watch.include, *watch.exclude])
        return Answer(f"{len(os.listdir(root))} entries at the top")
    finally:
        os.close(root)


if __name__ == "__main__":
    serve({"poll": poll, "health": health})
