"""The seal: `.checksums` beside config.yaml, and what it says of the files that were read."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml

from ductile.config.loader.files import Reader, Source
from ductile.config.loader.files import replace as replace_file
from ductile.config.loader.nodes import Listing, Node, Place, Scalar, Table
from ductile.config.loader.yaml import compose, type_of
from ductile.errors import Problem, Refused, Severity
from ductile.record import dataclass

FILE = ".checksums"
VERSION = 2
"""The Go program's number for a seal whose hashes go by absolute path."""

HIGH_SECURITY = ("tokens.yaml", "webhooks.yaml")
SCOPES = "scopes"
_MEND = "run `ductile config lock` if the change is yours"


def is_high_security(path: Path) -> bool:
    """Whether a file decides who may do what, and so must be sealed to be used."""
    scopes = path.parent.name == SCOPES and path.suffix == ".json"
    return path.name in HIGH_SECURITY or scopes


@dataclass(frozen=True, slots=True)
class Seal:
    """What was sealed: a BLAKE3 hash for each file, and the plugins as they were then."""

    path: Path
    hashes: Mapping[str, str] = field(default_factory=dict)
    plugin_fingerprints: tuple[Mapping[str, Any], ...] = ()
    exists: bool = True
    symlinks: Mapping[Path, Place] = field(default_factory=dict)
    """Met on the way to it, for the caller to allow or refuse."""

    @property
    def high_security(self) -> list[Path]:
        """The files that were sealed and must be, wherever they are."""
        return [path for path in map(Path, self.hashes) if is_high_security(path)]

    def trusts(self, source: Source) -> bool:
        """False only for a high-security file that is not as it was sealed."""
        return not is_high_security(source.path) or self._holds(source.path, source.digest)

    def _holds(self, path: Path, digest: str) -> bool:
        return self.hashes.get(str(path)) == digest

    def judge(
        self, files: Mapping[Path, str], scope_files: Iterable[Path], *, strict: bool
    ) -> list[Problem]:
        """What differs from the seal: refusals for high-security files and, where `strict`,
        for all; else warnings. Without a seal only high-security files are missed."""
        guarded = set(scope_files)
        problems = []
        for path, digest in files.items():
            high = is_high_security(path) or path in guarded
            if self._holds(path, digest) or not (high or self.exists):
                continue
            why = "has changed since it was sealed" if str(path) in self.hashes else "is not sealed"
            problems.append(self._problem(path, why, digest, refuse=high or strict))
        for path in map(Path, self.hashes):
            if path not in files and not os.path.lexists(path):
                refuse = strict or is_high_security(path)
                problems.append(self._problem(path, "was sealed and is gone", None, refuse=refuse))
        return problems

    def _problem(self, path: Path, why: str, digest: str | None, *, refuse: bool) -> Problem:
        seal = "" if self.exists else f" (there is no {self.path})"
        sealed = self.hashes.get(str(path))
        return Problem(
            f"the file {why}{seal}; {_MEND}",
            file=str(path),
            line=1 if digest else None,
            column=1 if digest else None,
            found=f"BLAKE3 {digest}" if digest else "nothing",
            allowed=f"BLAKE3 {sealed}" if sealed else f"a file that {FILE} names",
            severity=Severity.ERROR if refuse else Severity.WARNING,
        )

    def write(self, moment: datetime) -> None:
        """Put the seal in its place, whole or not at all, readable by its owner alone."""
        from ductile.clock import to_text

        document = {
            "version": VERSION,
            "generated_at": to_text(moment),
            "hashes": dict(sorted(self.hashes.items())),
            "plugin_fingerprints": [dict(plugin) for plugin in self.plugin_fingerprints],
        }
        text = yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=4096)
        try:
            replace_file(self.path, text.encode())
        except OSError as error:
            raise Refused(f"cannot write {self.path}: {error.strerror}") from error


def read(root: Path) -> tuple[Seal, list[Problem]]:
    """The seal of the configuration in `root`; one that does not exist seals nothing."""
    path = root / FILE
    if not os.path.lexists(path):
        return Seal(path, exists=False), []
    place = Place(str(path), 1, 1)
    reader = Reader(root)
    source = reader.read(path, place)
    if source is None:
        return Seal(path), reader.problems
    text = source.text()
    if isinstance(text, Problem):
        return Seal(path), [text]
    node, problems = compose(text, str(path))
    if problems:
        return Seal(path), problems
    seal, problems = _parse(path, node)
    return replace(seal, symlinks=reader.symlinks), problems


def _parse(path: Path, node: Node | None) -> tuple[Seal, list[Problem]]:
    place = node.place if node else Place(str(path), 1, 1)
    document = _plain(node) if node else None
    if not isinstance(document, dict) or document.get("version") != VERSION:
        allowed = f"a mapping with version: {VERSION}"
        return Seal(path), [place.problem("not a seal that can be read", allowed=allowed)]
    hashes = document.get("hashes") or {}
    plugins = document.get("plugin_fingerprints") or []
    sound = isinstance(hashes, dict) and all(isinstance(h, str) for h in hashes.values())
    if not sound or not isinstance(plugins, list) or not all(isinstance(p, dict) for p in plugins):
        allowed = "hashes: {path: hex}, plugin_fingerprints: [{...}]"
        return Seal(path), [place.problem("a seal of a wrong form", allowed=allowed)]
    return Seal(path, {name: h.lower() for name, h in hashes.items()}, tuple(plugins)), []


def _plain(node: Node) -> Any:
    match node:
        case Scalar():
            # A hash that looks like a number is text all the same.
            if len(node.text) == 64:
                return node.text
            try:
                return type_of(node, node.text)
            except ValueError:
                return node.text
        case Listing():
            return [_plain(item) for item in node.items]
        case Table():
            return {key: _plain(entry.value) for key, entry in node.items.items()}
