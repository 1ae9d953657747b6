"""Plugin discovery: from plugin roots and configured instances to one frozen `Registry`."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field
from itertools import islice
from pathlib import Path
from types import MappingProxyType

import orjson
from blake3 import blake3

from ductile._fast_dataclass import dataclass
from ductile.config import bundled
from ductile.core.values.suggest import did_you_mean
from ductile.model import Json
from ductile.plugins.environments.locate import (
    EnvironmentMissing,
    PluginPython,
    find_python,
    gateway_python,
)
from ductile.plugins.environments.plugin_files import (
    PythonPlugin,
    UnusableRequirementsFile,
    read_python_plugin,
)
from ductile.plugins.environments.requirements import InvalidRequirements
from ductile.plugins.manifest import (
    MANIFEST_NAME,
    NAME_PATTERN,
    Command,
    FactOutput,
    Manifest,
    ManifestError,
    is_plugin_name,
    read_manifest,
)
from ductile.plugins.trust import (
    PluginSeals,
    Untrusted,
    hash_executable,
    locate,
    locate_root,
    read_file,
    refuse_world_writable,
)

MAX_ENTRIES = 10_000
UNSEALED = PluginSeals()


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


def discover(
    roots: Sequence[Path],
    instances: Mapping[str, InstanceSpec],
    *,
    allow_symlinks: bool,
    offers: Collection[Path] = (),
    seals: PluginSeals = UNSEALED,
    environments: Path | None = None,
) -> Registry:
    """Load the plugins of the roots as configured, and record why others are refused.

    Roots are scanned in order, directories by name; the first valid plugin of a name is used. A
    plugin without a configured instance is loaded with an empty config, unless its root is
    among `offers`: then it is only offered. Loaded plugins are compared with their `seals`.
    `environments` is the directory of the environments of Python plugins.
    Invalid files are recorded as refused plugins and raise nothing.
    """
    scan = _PluginScan(allow_symlinks)
    for root in roots:
        scan.add_root(root)
    return _bind(scan, instances, offers, seals, environments)


@dataclass(frozen=True, slots=True)
class _ScannedPlugin:
    manifest: Manifest
    root: Path
    directory: Path
    entrypoint: Path
    entrypoint_stat: bytes
    fingerprint: str
    python: PythonPlugin | None


class _PluginScan:
    """The plugins in the roots, before the configuration is applied."""

    def __init__(self, allow_symlinks: bool) -> None:
        self.allow_symlinks = allow_symlinks
        self.found: dict[str, _ScannedPlugin] = {}
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
        self.found[name] = _ScannedPlugin(
            manifest, root, real, entrypoint, program.stat, _hash(*parts), python
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


def _bind(
    scan: _PluginScan,
    instances: Mapping[str, InstanceSpec],
    offers: Collection[Path],
    seals: PluginSeals,
    environments: Path | None,
) -> Registry:
    plugins: dict[str, Plugin] = {}
    refused = list(scan.refused)
    warnings = list(scan.warnings)
    disabled = frozenset(name for name, spec in instances.items() if not spec.enabled)
    offered = {
        name: found.manifest
        for name, found in scan.found.items()
        if found.root in offers and name not in instances
    }
    for name in sorted({*scan.found, *instances} - disabled - offered.keys()):
        spec = instances.get(name, InstanceSpec())
        if spec.uses is not None and name in scan.found:
            path = scan.found[name].directory
            warnings.append(f"{name} uses {spec.uses}, so the plugin in {path} is not loaded")
        bound = _bind_instance(name, spec, scan, instances, environments)
        if isinstance(bound, Plugin):
            difference = seals.find_difference(name, bound.fingerprint)
            if difference is not None and seals.strict:
                refused.append(RefusedPlugin(name, bound.directory, difference))
                continue
            if difference is not None:
                warnings.append(f"plugin {name}: {difference}")
            plugins[name] = bound
        elif bound is not None:
            refused.append(bound)
    return Registry(
        plugins=MappingProxyType(plugins),
        refused=tuple(refused),
        shadowed=tuple(scan.shadowed),
        disabled=disabled,
        warnings=tuple(warnings),
        offered=MappingProxyType(offered),
        missing=MappingProxyType(_find_missing(disabled, scan, instances)),
        secret_marks=MappingProxyType(_find_marks(scan, instances)),
        unavailable_roots=MappingProxyType(scan.unavailable_roots),
        python_plugins=MappingProxyType(
            {
                name: found.python
                for name, found in scan.found.items()
                if found.python is not None and name not in offered
            }
        ),
    )


def _find_marks(
    scan: _PluginScan, instances: Mapping[str, InstanceSpec]
) -> dict[str, dict[str, bool]]:
    """The marks of every configured plugin that was found, also of one that is not loaded."""
    targets = {name: _resolve_alias(name, instances) for name in instances}
    return {
        name: scan.found[target].manifest.config_keys.secret_marks()
        for name, target in targets.items()
        if target in scan.found
    }


def _find_missing(
    names: Collection[str], scan: _PluginScan, instances: Mapping[str, InstanceSpec]
) -> dict[str, str]:
    """Those of `names` whose plugin is in no root, with the name of that plugin."""
    present = scan.found.keys() | {refusal.name for refusal in scan.refused}
    targets = {name: _resolve_alias(name, instances) for name in names}
    return {name: target for name, target in targets.items() if target and target not in present}


def _bind_instance(
    name: str,
    spec: InstanceSpec,
    scan: _PluginScan,
    instances: Mapping[str, InstanceSpec],
    environments: Path | None,
) -> Plugin | RefusedPlugin | None:
    """An instance of a scanned plugin; None if that plugin is refused already."""
    found = _find_target(name, spec, scan, instances)
    if not isinstance(found, _ScannedPlugin):
        return found
    required = found.manifest.config_keys.required_names()
    missing = [key for key in required if spec.config.get(key) is None]
    if missing:
        keys = ", ".join(missing)
        reason = f"required settings are missing: {keys}; set them in plugins.{name}.config"
        return RefusedPlugin(name, found.directory, reason)
    try:
        config_json = _encode_config(spec.config)
    except TypeError as error:
        return RefusedPlugin(
            name, found.directory, f"its config cannot be encoded as JSON: {error}"
        )
    try:
        python = _choose_python(found.python, environments)
    except EnvironmentMissing as error:
        command = f"ductile plugin sync {found.manifest.name}"
        return RefusedPlugin(name, found.directory, f"{error}; run: {command}")
    return Plugin(
        name=name,
        manifest=found.manifest,
        root=found.root,
        directory=found.directory,
        entrypoint=found.entrypoint,
        entrypoint_stat=found.entrypoint_stat,
        config=spec.config,
        config_json=config_json,
        fingerprint=found.fingerprint,
        init_key=_hash(found.manifest.version.encode(), config_json),
        python=python,
    )


def _choose_python(plugin: PythonPlugin | None, environments: Path | None) -> PluginPython | None:
    if plugin is None or not plugin.needs_environment:
        return None
    return find_python(plugin.requirements, plugin.lock, environments, gateway_python())


def _find_target(
    name: str, spec: InstanceSpec, scan: _PluginScan, instances: Mapping[str, InstanceSpec]
) -> _ScannedPlugin | RefusedPlugin | None:
    """The scanned plugin of an instance; None if that plugin is refused already."""
    if not is_plugin_name(name):
        return RefusedPlugin(
            name, None, f"the name must match {NAME_PATTERN} and not start with core."
        )
    target = _resolve_alias(name, instances)
    if target is None:
        return RefusedPlugin(
            name, None, f"`uses: {spec.uses}` is a circular alias; set it to a plugin"
        )
    found = scan.found.get(target)
    if found is not None:
        return found
    earlier = next((refusal for refusal in scan.refused if refusal.name == target), None)
    if earlier is None:
        hint = did_you_mean(target, scan.found)
        if bundled.has_plugin(target):
            hint = f'; to load the bundled plugin, add "{bundled.ROOT}" to plugin_roots'
        return RefusedPlugin(name, None, f"no plugin root has a plugin named {target}{hint}")
    if target == name:
        return None
    return RefusedPlugin(name, None, f"it uses {target}, which is refused: {earlier.reason}")


def _resolve_alias(name: str, instances: Mapping[str, InstanceSpec]) -> str | None:
    """The plugin at the end of a chain of aliases; None if the chain is circular."""
    seen = set()
    while (spec := instances.get(name)) is not None and spec.uses is not None:
        if name in seen:
            return None
        seen.add(name)
        name = spec.uses
    return name


def _encode_config(config: Mapping[str, Json]) -> bytes:
    return orjson.dumps(
        dict(config), default=dict, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS
    )


def _hash(*parts: bytes) -> str:
    """One hash of several parts, each with its length, so that no two splits are equal."""
    digest = blake3()
    for part in parts:
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return digest.hexdigest()
