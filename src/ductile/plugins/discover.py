"""Plugin discovery: from plugin roots and configured instances to one frozen `Registry`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import orjson

from ductile.config import bundled
from ductile.core.values.suggest import did_you_mean
from ductile.model import Json
from ductile.plugins.environments.locate import (
    EnvironmentMissing,
    PluginPython,
    find_python,
    gateway_python,
)
from ductile.plugins.environments.plugin_files import PythonPlugin
from ductile.plugins.manifest import NAME_PATTERN, is_plugin_name
from ductile.plugins.registry import InstanceSpec, Plugin, RefusedPlugin, Registry
from ductile.plugins.scan_roots import PluginScan, ScannedPlugin, hash_parts
from ductile.plugins.trust import PluginSeals

UNSEALED = PluginSeals()


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
    scan = PluginScan(allow_symlinks)
    for root in roots:
        scan.add_root(root)
    return _bind(scan, instances, offers, seals, environments)


def _bind(
    scan: PluginScan,
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
    scan: PluginScan, instances: Mapping[str, InstanceSpec]
) -> dict[str, dict[str, bool]]:
    """The marks of every configured plugin that was found, also of one that is not loaded."""
    targets = {name: _resolve_alias(name, instances) for name in instances}
    return {
        name: scan.found[target].manifest.config_keys.secret_marks()
        for name, target in targets.items()
        if target in scan.found
    }


def _find_missing(
    names: Collection[str], scan: PluginScan, instances: Mapping[str, InstanceSpec]
) -> dict[str, str]:
    """Those of `names` whose plugin is in no root, with the name of that plugin."""
    present = scan.found.keys() | {refusal.name for refusal in scan.refused}
    targets = {name: _resolve_alias(name, instances) for name in names}
    return {name: target for name, target in targets.items() if target and target not in present}


def _bind_instance(
    name: str,
    spec: InstanceSpec,
    scan: PluginScan,
    instances: Mapping[str, InstanceSpec],
    environments: Path | None,
) -> Plugin | RefusedPlugin | None:
    """An instance of a scanned plugin; None if that plugin is refused already."""
    found = _find_target(name, spec, scan, instances)
    if not isinstance(found, ScannedPlugin):
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
        option = "--upgrade " if error.lock_is_invalid else ""
        command = f"ductile plugin sync {option}{found.manifest.name}"
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
        init_key=hash_parts(found.manifest.version.encode(), config_json),
        python=python,
    )


def _choose_python(plugin: PythonPlugin | None, environments: Path | None) -> PluginPython | None:
    if plugin is None or not plugin.needs_environment:
        return None
    return find_python(plugin.requirements, plugin.lock, environments, gateway_python())


def _find_target(
    name: str, spec: InstanceSpec, scan: PluginScan, instances: Mapping[str, InstanceSpec]
) -> ScannedPlugin | RefusedPlugin | None:
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
