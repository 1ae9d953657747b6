"""The plugins of one configuration: loaded, refused, shadowed, offered."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from types import MappingProxyType

from ductile._fast_dataclass import dataclass
from ductile.model import Json
from ductile.plugins.environments.locate import PluginPython
from ductile.plugins.environments.plugin_files import PythonPlugin
from ductile.plugins.manifest import Command, FactOutput, Manifest

_WORD = r"(?:'[^']*'|[\w@%+=:,./-]+)"
_COMMAND = re.compile(
    r"run: ((?:ductile plugin sync(?: --upgrade)?|ductile config lock --plugin|chmod o-w|chmod \+x)"
    rf" {_WORD})\Z",
    re.ASCII,
)


def find_command(reason: str) -> str | None:
    """The command at the end of a text, if it is one of ours: the text can repeat words of a
    plugin."""
    found = _COMMAND.search(reason)
    return None if found is None else found[1]


@dataclass(frozen=True, slots=True)
class InstanceSpec:
    """The settings of one plugin name that matter for loading it."""

    enabled: bool = True
    uses: str | None = None
    """The plugin or instance that this name is an alias of."""
    config: Mapping[str, Json] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class Plugin:
    """One loaded instance of a plugin."""

    name: str
    manifest: Manifest
    root: Path
    """The plugin root under which it was found."""
    directory: Path
    entrypoint: Path
    """Absolute, with symlinks resolved."""
    entrypoint_stat: bytes
    """The stat of the file that the fingerprint was computed from."""
    config: Mapping[str, Json] = field(repr=False)
    config_json: bytes = field(repr=False)
    """`config`, encoded once for every request."""
    fingerprint: str
    """BLAKE3 of manifest, entrypoint, version and locked dependencies, in hex: changes when the
    program does."""
    init_key: str
    """BLAKE3 of version and config, in hex: `init` runs once for each."""
    python: PluginPython | None = None
    """What starts it; None if its entrypoint is executed."""

    @property
    def argv(self) -> tuple[str, ...]:
        """The command line; its last word is the entrypoint."""
        started = () if self.python is None else (str(self.python.executable),)
        return (*started, str(self.entrypoint))

    def command(self, name: str) -> Command | None:
        return self.manifest.command(name)

    def fact_output(self, command: str) -> FactOutput | None:
        return self.manifest.fact_output(command)


@dataclass(frozen=True, slots=True)
class RefusedPlugin:
    """A plugin, an instance or a whole root that was not loaded, and why."""

    name: str
    path: Path | None
    reason: str

    @property
    def command(self) -> str | None:
        """The command at the end of the reason, if there is one."""
        return find_command(self.reason)


@dataclass(frozen=True, slots=True)
class ShadowedPlugin:
    """A plugin that is not loaded because an earlier one has the same name."""

    name: str
    path: Path
    by: Path


@dataclass(frozen=True, slots=True)
class Registry:
    plugins: Mapping[str, Plugin]
    refused: tuple[RefusedPlugin, ...]
    shadowed: tuple[ShadowedPlugin, ...]
    disabled: frozenset[str]
    warnings: tuple[str, ...]
    offered: Mapping[str, Manifest] = field(default_factory=lambda: MappingProxyType({}))
    """Valid bundled plugins that the configuration does not mention."""
    missing: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Disabled names whose plugin no root has, with the name of that plugin."""
    secret_marks: Mapping[str, Mapping[str, bool]] = field(
        default_factory=lambda: MappingProxyType({})
    )
    """By configured name, the keys of `config` that the manifest marks as secret or public."""
    unavailable_roots: Mapping[Path, str] = field(default_factory=lambda: MappingProxyType({}))
    """Plugin roots that do not exist or cannot be read, and why."""
    python_plugins: Mapping[str, PythonPlugin] = field(default_factory=lambda: MappingProxyType({}))
    """By the name in the manifest; without offered plugins."""

    def refusal(self, name: str) -> RefusedPlugin | None:
        """Why a plugin is not loaded; None if it is loaded, disabled or unknown.

        A refused plugin does not block a valid one of the same name in a later root.
        """
        if name in self.plugins or name in self.disabled:
            return None
        return next((refusal for refusal in self.refused if refusal.name == name), None)
