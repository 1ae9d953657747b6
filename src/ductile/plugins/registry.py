"""Discovery: plugin roots and configured instances in, one frozen `Registry` out."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field
from itertools import islice
from pathlib import Path
from types import MappingProxyType

import orjson
from blake3 import blake3

from ductile.core.values.suggest import did_you_mean
from ductile.model import Json
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
    Sealed,
    Untrusted,
    hash_executable,
    locate,
    locate_root,
    read_file,
    refuse_world_writable,
)
from ductile.record import dataclass

MAX_ENTRIES = 10_000
UNSEALED = Sealed()


@dataclass(frozen=True, slots=True)
class InstanceSpec:
    """What the configuration says of one plugin name, as far as loading it is concerned."""

    enabled: bool = True
    uses: str | None = None
    """The plugin, or the instance of one, that this name is an alias of."""
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
    """Absolute, and free of symlinks."""
    config: Mapping[str, Json] = field(repr=False)
    config_json: bytes = field(repr=False)
    """`config`, encoded once for every request."""
    fingerprint: str
    """Hex BLAKE3 over manifest, entrypoint and version: what would run."""
    init_key: str
    """Hex BLAKE3 over version and config: what `init` has to succeed for."""

    def command(self, name: str) -> Command | None:
        return self.manifest.command(name)

    def fact_output(self, command: str) -> FactOutput | None:
        return self.manifest.fact_output(command)


@dataclass(frozen=True, slots=True)
class Refusal:
    """A plugin, an instance or a whole root that was not loaded."""

    name: str
    path: Path | None
    reason: str


@dataclass(frozen=True, slots=True)
class Shadowed:
    """A plugin whose name an earlier one has."""

    name: str
    path: Path
    by: Path


@dataclass(frozen=True, slots=True)
class Registry:
    plugins: Mapping[str, Plugin]
    refused: tuple[Refusal, ...]
    shadowed: tuple[Shadowed, ...]
    disabled: frozenset[str]
    warnings: tuple[str, ...]
    offered: Mapping[str, Manifest] = field(default_factory=lambda: MappingProxyType({}))
    """Good plugins that wait to be named in the configuration."""
    missing: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Names that are disabled, with the plugin that each means and no root has."""

    def refusal(self, name: str) -> Refusal | None:
        """Why a name is not loaded though it is there; None where it is, or is disabled.

        A refused plugin does not hold its name against a good one in a later root.
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
    sealed: Sealed = UNSEALED,
) -> Registry:
    """Load what the roots hold and the configuration wants; refuse the rest, saying why.

    Roots are scanned in order, directories by name; the first good plugin of a name wins. A
    plugin without a configured instance is loaded with an empty config, unless its root is
    among `offers`: then it is only offered. What is loaded is held against what was `sealed`.
    Nothing is raised for what is found on disk.
    """
    survey = _Survey(allow_symlinks)
    for root in roots:
        survey.scan(root)
    return _bind(survey, instances, offers, sealed)


@dataclass(frozen=True, slots=True)
class _Found:
    manifest: Manifest
    root: Path
    directory: Path
    entrypoint: Path
    fingerprint: str


class _Survey:
    """What stands in the roots, before the configuration is looked at."""

    def __init__(self, allow_symlinks: bool) -> None:
        self.allow_symlinks = allow_symlinks
        self.found: dict[str, _Found] = {}
        self.refused: list[Refusal] = []
        self.shadowed: list[Shadowed] = []
        self.warnings: list[str] = []
        self._roots: set[Path] = set()

    def scan(self, root: Path) -> None:
        try:
            real, warning = locate_root(root, allow_symlinks=self.allow_symlinks)
            names = [] if real in self._roots else _names(real)
        except FileNotFoundError:
            self.warnings.append(f"the plugin root {root} does not exist")
            return
        except (Untrusted, OSError) as error:
            self.refused.append(Refusal(str(root), root, str(error)))
            return
        if warning:
            self.warnings.append(warning)
        self._roots.add(real)
        for name in names:
            if not name.isprintable():
                self.warnings.append(f"{real} holds a name that cannot be shown: {name!a}")
            elif _may_be_plugin(real / name):
                self._add(real / name, real)

    def _add(self, directory: Path, root: Path) -> None:
        name = directory.name
        try:
            real = self._located(directory, root)
            refuse_world_writable(real)
            data = read_file(self._located(real / MANIFEST_NAME, root))
            manifest, warnings = read_manifest(data)
            name = manifest.name
            entrypoint = self._located(real / manifest.entrypoint, root)
            digest = hash_executable(entrypoint)
        except (Untrusted, ManifestError, OSError) as error:
            self.refused.append(Refusal(name, directory, str(error)))
            return
        self.warnings.extend(f"{directory}: {warning}" for warning in warnings)
        if name in self.found:
            self.shadowed.append(Shadowed(name, directory, self.found[name].directory))
            return
        if name != directory.name:
            self.warnings.append(f"{directory} holds a plugin of another name, {name}")
        fingerprint = _hashed(data, manifest.version.encode(), digest)
        self.found[name] = _Found(manifest, root, real, entrypoint, fingerprint)

    def _located(self, path: Path, root: Path) -> Path:
        real, warning = locate(path, root=root, allow_symlinks=self.allow_symlinks)
        if warning:
            self.warnings.append(warning)
        return real


def _names(root: Path) -> list[str]:
    """What stands in a root and is not hidden, sorted."""
    with os.scandir(root) as entries:
        names = [entry.name for entry in islice(entries, MAX_ENTRIES + 1)]
    if len(names) > MAX_ENTRIES:
        raise Untrusted(
            f"{root} holds more than {MAX_ENTRIES:,} entries; "
            "name a directory that holds plugins and little else"
        )
    return sorted(name for name in names if not name.startswith("."))


def _may_be_plugin(directory: Path) -> bool:
    """Whether it has a manifest, or does not let us look: that is refused, not passed over."""
    try:
        (directory / MANIFEST_NAME).lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


def _bind(
    survey: _Survey,
    instances: Mapping[str, InstanceSpec],
    offers: Collection[Path],
    sealed: Sealed,
) -> Registry:
    plugins: dict[str, Plugin] = {}
    refused = list(survey.refused)
    warnings = list(survey.warnings)
    disabled = frozenset(name for name, spec in instances.items() if not spec.enabled)
    offered = {
        name: found.manifest
        for name, found in survey.found.items()
        if found.root in offers and name not in instances
    }
    for name in sorted({*survey.found, *instances} - disabled - offered.keys()):
        spec = instances.get(name, InstanceSpec())
        if spec.uses is not None and name in survey.found:
            path = survey.found[name].directory
            warnings.append(f"{name} uses {spec.uses}, so the plugin in {path} is not reached")
        bound = _bound(name, spec, survey, instances)
        if isinstance(bound, Plugin):
            flaw = sealed.flaw(name, bound.fingerprint)
            if flaw is not None and sealed.strict:
                refused.append(Refusal(name, bound.directory, flaw))
                continue
            if flaw is not None:
                warnings.append(f"plugin {name}: {flaw}")
            plugins[name] = bound
        elif bound is not None:
            refused.append(bound)
    return Registry(
        plugins=MappingProxyType(plugins),
        refused=tuple(refused),
        shadowed=tuple(survey.shadowed),
        disabled=disabled,
        warnings=tuple(warnings),
        offered=MappingProxyType(offered),
        missing=MappingProxyType(_missing(disabled, survey, instances)),
    )


def _missing(
    names: Collection[str], survey: _Survey, instances: Mapping[str, InstanceSpec]
) -> dict[str, str]:
    """Of `names`, with the plugin that each leads to, those that stand in no root."""
    standing = survey.found.keys() | {refusal.name for refusal in survey.refused}
    targets = {name: _target(name, instances) for name in names}
    return {name: target for name, target in targets.items() if target and target not in standing}


def _bound(
    name: str, spec: InstanceSpec, survey: _Survey, instances: Mapping[str, InstanceSpec]
) -> Plugin | Refusal | None:
    """An instance of what was found; None where its own plugin was refused already."""
    if not is_plugin_name(name):
        return Refusal(name, None, f"the name must match {NAME_PATTERN}, and not be core.*")
    target = _target(name, instances)
    if target is None:
        return Refusal(name, None, f"its `uses: {spec.uses}` goes round in a circle; name a plugin")
    found = survey.found.get(target)
    if found is None:
        earlier = next((refusal for refusal in survey.refused if refusal.name == target), None)
        if earlier is None:
            hint = did_you_mean(target, survey.found)
            return Refusal(name, None, f"no plugin root has a plugin named {target}{hint}")
        if target == name:
            return None
        return Refusal(name, None, f"it uses {target}, which was refused: {earlier.reason}")
    missing = [key for key in found.manifest.config_keys.required if spec.config.get(key) is None]
    if missing:
        keys = ", ".join(missing)
        reason = f"required config is missing: {keys}; set it under plugins.{name}.config"
        return Refusal(name, found.directory, reason)
    try:
        config_json = _canonical(spec.config)
    except TypeError as error:
        return Refusal(name, found.directory, f"its config cannot be sent as JSON: {error}")
    return Plugin(
        name=name,
        manifest=found.manifest,
        root=found.root,
        directory=found.directory,
        entrypoint=found.entrypoint,
        config=spec.config,
        config_json=config_json,
        fingerprint=found.fingerprint,
        init_key=_hashed(found.manifest.version.encode(), config_json),
    )


def _target(name: str, instances: Mapping[str, InstanceSpec]) -> str | None:
    """The plugin at the end of a chain of aliases; None where the chain is a circle."""
    seen = set()
    while (spec := instances.get(name)) is not None and spec.uses is not None:
        if name in seen:
            return None
        seen.add(name)
        name = spec.uses
    return name


def _canonical(config: Mapping[str, Json]) -> bytes:
    return orjson.dumps(
        dict(config), default=dict, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS
    )


def _hashed(*parts: bytes) -> str:
    """One hash over several parts, each with its length, so that no two splits are alike."""
    digest = blake3()
    for part in parts:
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return digest.hexdigest()
