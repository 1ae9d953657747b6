"""Creating, validating and testing plugins of a configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from ductile.clock import Entropy
from ductile.config import Settings, bundled
from ductile.core.values.suggest import did_you_mean
from ductile.engine.config.compiled import CompiledConfig, build
from ductile.errors import NotFound, Refused, UsageError
from ductile.operations.dry_run import plugin as trial
from ductile.plugins import scaffold
from ductile.plugins.registry import Registry
from ductile.plugins.validate import Inspection, plugin_directories
from ductile.store.engines.api import Tx
from ductile.store.flow.pauses import load_pauses


def inspect_plugin(directory: Path, settings: Settings, search_path: str | None) -> Inspection:
    """Inspect a plugin's directory with its settings."""
    own = settings.plugins.get(directory.name)
    # A bundled plugin is in use only if the configuration names it.
    is_unused = own is None and directory.parent == bundled.directory()
    return Inspection(
        directory,
        allow_symlinks=settings.service.allow_symlinks,
        config=None if is_unused else own.config if own else {},
        search_path=search_path,
    )


def find_directory(registry: Registry, settings: Settings, name: str) -> Path:
    """Return the directory of a plugin, loaded or not."""
    if name in registry.plugins:
        return registry.plugins[name].directory
    refusal = registry.refusal(name)
    if refusal is not None and refusal.path is not None:
        return refusal.path
    found = {path.name: path for path in plugin_directories(settings.plugin_roots)}
    if name not in found:
        raise NotFound(f"there is no plugin {name!r}{did_you_mean(name, found)}", plugin=name)
    return found[name]


def find_first_root(settings: Settings) -> Path:
    """Return the first plugin root that is not the bundled one."""
    roots = [root for root in settings.plugin_roots if root != bundled.directory()]
    if not roots:
        raise UsageError("the configuration has no plugin_roots; name a directory with --root")
    return roots[0]


def refuse_loaded(registry: Registry, name: str) -> None:
    found = registry.plugins.get(name)
    if found is not None:
        raise Refused(
            f"there is already a plugin {name}, in {found.directory}",
            run=f"ductile plugin show {name}",
        )


def scaffold_plugin(
    compiled: CompiledConfig, name: str, language: str, *, dry: bool
) -> dict[str, Any]:
    """Create a plugin from a template in the first plugin root."""
    texts = scaffold.render_files(name, language)
    refuse_loaded(compiled.registry, name)
    root = find_first_root(compiled.settings)
    target = root / name
    if dry:
        scaffold.refuse_to_overwrite(target)
    else:
        scaffold.create(root, name, language)
    return {
        "plugin": name,
        "language": language,
        "directory": str(target),
        "files": [str(target / file) for file in texts],
        "dry_run": dry,
    }


def describe_inspection(inspection: Inspection) -> dict[str, Any]:
    return {
        "plugin": inspection.name,
        "directory": str(inspection.directory),
        "ok": inspection.is_valid,
        "problems": [problem.document() for problem in inspection.problems],
    }


def validate_plugin(compiled: CompiledConfig, name: str, search_path: str | None) -> dict[str, Any]:
    """Report every problem of a plugin, whether it is loaded or not."""
    directory = find_directory(compiled.registry, compiled.settings, name)
    return describe_inspection(inspect_plugin(directory, compiled.settings, search_path))


def refuse_paused(tx: Tx, plugin: str, now: datetime) -> None:
    """Raise `Refused`, with the pause's reason, if the plugin or the gateway is paused."""
    pause = load_pauses(tx, now).holding(plugin, None)
    if pause is not None:
        raise Refused(pause.describe())


def test_plugin(
    compiled: CompiledConfig,
    wanted: trial.PluginTest,
    *,
    authorize: Callable[[Registry], None],
    environ: Mapping[str, str],
    now: datetime,
    entropy: Entropy,
) -> dict[str, Any]:
    """Run a plugin of the plugin roots once, as its files are now; nothing is recorded.

    The seal in force holds for it. `authorize` raises unless the caller may run the command as
    the files declare it, which may be another kind of command than the loaded one.
    """
    fresh = build(compiled.loaded, boot_marker="", environ=environ)
    if wanted.plugin not in fresh.registry.plugins:
        refusal = fresh.registry.refusal(wanted.plugin)
        if refusal is not None:
            raise Refused(f"plugin {wanted.plugin} is refused: {refusal.reason}")
        hint = did_you_mean(wanted.plugin, fresh.registry.plugins)
        raise NotFound(f"there is no plugin {wanted.plugin!r}{hint}", plugin=wanted.plugin)
    authorize(fresh.registry)
    return trial.run(fresh, wanted, now, entropy)
