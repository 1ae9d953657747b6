"""The seal: `.checksums` next to config.yaml, with the hash of every file and plugin.

`config lock` creates it; `load` compares the files that it reads with it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from datetime import datetime
from pathlib import Path
from shlex import quote
from typing import Any

import yaml

from ductile._fast_dataclass import dataclass
from ductile.config.loader.files import Reader, Source
from ductile.config.loader.files import replace as replace_file
from ductile.config.loader.nodes import Location, Node, ScalarNode, to_json
from ductile.config.loader.yaml import compose, type_of
from ductile.errors import Problem, Refused, Severity
from ductile.model import Json

FILE = ".checksums"
VERSION = 2
"""The version of the Go program's format whose hashes are keyed by absolute path."""

HIGH_SECURITY = ("tokens.yaml", "webhooks.yaml")
SCOPES = "scopes"
_ADVICE = "if you made this change, run: ductile config lock"
"""Followed by the file, so that no other change is accepted with it."""


def is_high_security(path: Path) -> bool:
    """Whether a file grants permissions by its name, and must therefore be sealed to be used.

    An included file is a high-security file by its content as well.
    """
    scopes = path.parent.name == SCOPES and path.suffix == ".json"
    return path.name in HIGH_SECURITY or scopes


@dataclass(frozen=True, slots=True)
class Seal:
    """A BLAKE3 hash for each sealed file, and the fingerprints of the sealed plugins."""

    path: Path
    hashes: Mapping[str, str] = field(default_factory=dict)
    plugin_fingerprints: tuple[Mapping[str, Any], ...] = ()
    exists: bool = True
    symlinks: Mapping[Path, Location] = field(default_factory=dict)
    """Symlinks on the path to the seal, for the caller to allow or refuse."""

    @property
    def high_security(self) -> list[Path]:
        """The sealed files that must be sealed to be used."""
        return [path for path in map(Path, self.hashes) if is_high_security(path)]

    @property
    def plugin_hashes(self) -> dict[str, str]:
        """The hashes of the manifests and programs of the sealed plugins, by their paths."""
        return {
            str(plugin[f"{part}_path"]): str(plugin[f"{part}_hash"])
            for plugin in self.plugin_fingerprints
            for part in ("manifest", "entrypoint")
            if f"{part}_path" in plugin and f"{part}_hash" in plugin
        }

    def accepts(self, source: Source) -> bool:
        """False only for a high-security file that differs from the seal."""
        return not is_high_security(source.path) or self.matches(source)

    def matches(self, source: Source) -> bool:
        """Whether the seal has the file as it is now."""
        return self._matches(source.path, source.digest)

    def _matches(self, path: Path, digest: str) -> bool:
        return self.hashes.get(str(path)) == digest

    def compare(
        self, files: Mapping[Path, str], granting: Iterable[Path], *, strict: bool
    ) -> list[Problem]:
        """The differences between the files and the seal.

        They are errors for high-security files, which are those with certain names and those in
        `granting`, and, if `strict`, for all files; otherwise warnings. Without a seal, only
        high-security files are reported.
        """
        must_match = set(granting)
        problems = []
        for path, digest in files.items():
            high = is_high_security(path) or path in must_match
            if self._matches(path, digest) or not (high or self.exists):
                continue
            why = "has changed since it was sealed" if str(path) in self.hashes else "is not sealed"
            problems.append(self._problem(path, why, digest, refuse=high or strict))
        for path in map(Path, self.hashes):
            if path not in files and not os.path.lexists(path):
                refuse = strict or is_high_security(path)
                problems.append(self._problem(path, "is sealed but missing", None, refuse=refuse))
        return problems

    def _problem(self, path: Path, why: str, digest: str | None, *, refuse: bool) -> Problem:
        missing = "" if self.exists else f" (there is no {self.path})"
        sealed = self.hashes.get(str(path))
        return Problem(
            f"the file {why}{missing}; {_ADVICE} {quote(str(path))}",
            file=str(path),
            line=1 if digest else None,
            column=1 if digest else None,
            found=f"BLAKE3 {digest}" if digest else "no file",
            allowed=f"BLAKE3 {sealed}" if sealed else f"a file that {FILE} lists",
            severity=Severity.ERROR if refuse else Severity.WARNING,
        )

    def write(self, moment: datetime) -> None:
        """Write the seal atomically, readable by its owner alone."""
        try:
            replace_file(self.path, self.render(moment))
        except OSError as error:
            raise Refused(f"cannot write {self.path}: {error.strerror}") from error

    def render(self, moment: datetime) -> bytes:
        """Return the content of the seal's file."""
        from ductile.clock import to_text

        document = {
            "version": VERSION,
            "generated_at": to_text(moment),
            "hashes": dict(sorted(self.hashes.items())),
            "plugin_fingerprints": [dict(plugin) for plugin in self.plugin_fingerprints],
        }
        text = yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=4096)
        return str(text).encode()


def create_seal(config: Path, *, plugin_fingerprints: Iterable[Mapping[str, Any]] = ()) -> Seal:
    """The seal of a configuration as it is now, not written yet; `config` is its config.yaml.

    It covers every file that is read, and high-security files that are not included. The files
    must be readable YAML, otherwise `ConfigError` is raised; their settings are not validated.
    """
    # Reading the files needs the seal, so that module imports this one.
    from ductile.config.loader.include import gather_readable

    hashes = gather_readable(config).reader.hashes
    return Seal(
        config.parent / FILE,
        {str(path): digest for path, digest in hashes.items()},
        tuple(plugin_fingerprints),
    )


def read(root: Path) -> tuple[Seal, list[Problem]]:
    """The seal of the configuration in `root`, empty if there is none, and its problems."""
    path = root / FILE
    if not os.path.lexists(path):
        return Seal(path, exists=False), []
    location = Location(str(path), 1, 1)
    reader = Reader(root)
    source = reader.read(path, location)
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
    location = node.location if node else Location(str(path), 1, 1)
    document = to_json(node, _read_scalar) if node else None
    if not isinstance(document, dict) or document.get("version") != VERSION:
        allowed = f"a mapping with version: {VERSION}"
        return Seal(path), [
            location.problem(
                "this is not a valid seal; replace it with: ductile config lock", allowed=allowed
            )
        ]
    hashes = document.get("hashes") or {}
    plugins = document.get("plugin_fingerprints") or []
    sound = isinstance(hashes, dict) and all(isinstance(h, str) for h in hashes.values())
    if not sound or not isinstance(plugins, list) or not all(isinstance(p, dict) for p in plugins):
        allowed = "hashes: {path: hex}, plugin_fingerprints: [{...}]"
        return Seal(path), [
            location.problem(
                "this is not a valid seal; replace it with: ductile config lock", allowed=allowed
            )
        ]
    return Seal(path, {name: h.lower() for name, h in hashes.items()}, tuple(plugins)), []


def _read_scalar(scalar: ScalarNode) -> Json:
    # A hash may look like a number.
    if len(scalar.text) == 64:
        return scalar.text
    try:
        return type_of(scalar, scalar.text)
    except ValueError:
        return scalar.text
