"""The plugins in the plugin roots, before the configuration is applied."""

from __future__ import annotations

import os
from itertools import islice
from pathlib import Path

from blake3 import blake3

from ductile._fast_dataclass import dataclass
from ductile.plugins.environments.plugin_files import (
    PythonPlugin,
    UnusableRequirementsFile,
    read_python_plugin,
)
from ductile.plugins.environments.requirements import InvalidRequirements
from ductile.plugins.manifest import MANIFEST_NAME, Manifest
from ductile.plugins.read_manifest import ManifestError, read_manifest
from ductile.plugins.registry import RefusedPlugin, ShadowedPlugin
from ductile.plugins.trust import (
    Untrusted,
    hash_executable,
    locate,
    locate_root,
    read_file,
    refuse_world_writable,
)

MAX_ENTRIES = 10_000


@dataclass(frozen=True, slots=True)
class ScannedPlugin:
    manifest: Manifest
    root: Path
    directory: Path
    entrypoint: Path
    entrypoint_stat: bytes
    fingerprint: str
    python: PythonPlugin | None


class PluginScan:
    """The plugins in the roots, before the configuration is applied."""

    def __init__(self, allow_symlinks: bool) -> None:
        self.allow_symlinks = allow_symlinks
        self.found: dict[str, ScannedPlugin] = {}
        self.refused: list[RefusedPlugin] = []
        self.shadowed: list[ShadowedPlugin] = []
        self.warnings: list[str] = []
        self.unavailable_roots: dict[Path, str] = {}
        self._roots: set[Path] = set()

    def add_root(self, root: Path) -> None:
        try:
            real, warning = locate_root(root, allow_symlinks=self.allow_symlinks)
            names = [] if real in self._roots else _list_names(real)
        except FileNotFoundError:
            self.unavailable_roots[root] = "does not exist"
            self.warnings.append(
                f"the plugin root {root} does not exist; create it, or correct plugin_roots"
            )
            return
        except (Untrusted, OSError) as error:
            self.unavailable_roots[root] = "cannot be read"
            self.refused.append(RefusedPlugin(str(root), root, str(error)))
            return
        if warning:
            self.warnings.append(warning)
        self._roots.add(real)
        for name in names:
            if not name.isprintable():
                self.warnings.append(
                    f"{real} contains an unprintable file name, which is ignored: {name!a}"
                )
            elif _may_be_plugin(real / name):
                self._add_plugin(real / name, real)

    def _read_python_plugin(
        self, name: str, directory: Path, entrypoint: Path, root: Path
    ) -> PythonPlugin | None:
        try:
            python = read_python_plugin(
                name, directory, entrypoint, lambda path: self._locate(path, root)
            )
        except UnusableRequirementsFile as error:
            self.warnings.append(
                f"{directory}: the plugin runs with the Python of its first line, "
                f"because `plugin sync` cannot install its dependencies: {error}"
            )
            return None
        if python is not None and not python.needs_environment:
            self.warnings.append(
                f"{directory}: the plugin runs with the Python of its first line; "
                f"for an environment with its requirements.txt run: ductile plugin sync {name}"
            )
        return python

    def _add_plugin(self, directory: Path, root: Path) -> None:
        name = directory.name
        try:
            real = self._locate(directory, root)
            refuse_world_writable(real)
            data = read_file(self._locate(real / MANIFEST_NAME, root))
            manifest, warnings = read_manifest(data)
            name = manifest.name
            entrypoint = self._locate(real / manifest.entrypoint, root)
            program = hash_executable(entrypoint)
            python = self._read_python_plugin(name, real, entrypoint, root)
        except (Untrusted, ManifestError, InvalidRequirements, OSError) as error:
            self.refused.append(RefusedPlugin(name, directory, str(error)))
            return
        self.warnings.extend(f"{directory}/{warning}" for warning in warnings)
        if name in self.found:
            self.shadowed.append(ShadowedPlugin(name, directory, self.found[name].directory))
            return
        if name != directory.name:
            self.warnings.append(
                f"{directory} contains a plugin with a different name, {name}; that name is used"
            )
        parts = [data, manifest.version.encode(), program.digest]
        if python is not None:
            parts += [python.requirements.digest.encode(), python.lock or b""]
        self.found[name] = ScannedPlugin(
            manifest, root, real, entrypoint, program.stat, hash_parts(*parts), python
        )

    def _locate(self, path: Path, root: Path) -> Path:
        real, warning = locate(path, root=root, allow_symlinks=self.allow_symlinks)
        if warning:
            self.warnings.append(warning)
        return real


def _list_names(root: Path) -> list[str]:
    """The names of a root that are not hidden, sorted."""
    with os.scandir(root) as entries:
        names = [entry.name for entry in islice(entries, MAX_ENTRIES + 1)]
    if len(names) > MAX_ENTRIES:
        raise Untrusted(
            f"{root} contains more than {MAX_ENTRIES:,} entries; "
            "configure a directory that contains only plugins"
        )
    return sorted(name for name in names if not name.startswith("."))


def _may_be_plugin(directory: Path) -> bool:
    """Whether it has a manifest, or cannot be read: that is refused later, not ignored."""
    try:
        (directory / MANIFEST_NAME).lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


def hash_parts(*parts: bytes) -> str:
    """One hash of several parts, each with its length, so that no two splits are equal."""
    digest = blake3()
    for part in parts:
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return digest.hexdigest()
