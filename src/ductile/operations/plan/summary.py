"""Which plugins, pipelines and settings two configurations have in common, by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ductile.config import Settings
from ductile.config.redact import redact_settings
from ductile.engine.config.compiled import CompiledConfig
from ductile.model import Json

Document = dict[str, Any]


def summarize(running: CompiledConfig, built: CompiledConfig) -> Document:
    """The names that `built` adds, removes and changes, its warnings and its refused plugins."""
    old, new = running.settings, built.settings
    return {
        "warnings": [str(warning) for warning in built.warnings],
        "refused": {refusal.name: refusal.reason for refusal in built.registry.refused},
        "changes": {
            "plugins": _compare_plugins(running, built),
            "pipelines": compare_names(_by_name(old.pipelines), _by_name(new.pipelines)),
            "settings": compare_names(*_differing_settings(old, new)),
        },
    }


def _compare_plugins(running: CompiledConfig, built: CompiledConfig) -> dict[str, list[str]]:
    """Which plugins are configured otherwise, or have other files."""
    found = compare_names(running.settings.plugins, built.settings.plugins)
    old, new = running.registry.plugins, built.registry.plugins
    other = {n for n in old.keys() & new.keys() if old[n].fingerprint != new[n].fingerprint}
    found["changed"] = sorted({*found["changed"], *other})
    return found


def compare_names(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, list[str]]:
    return {
        "added": sorted(new.keys() - old.keys()),
        "removed": sorted(old.keys() - new.keys()),
        "changed": sorted(name for name in old.keys() & new.keys() if old[name] != new[name]),
    }


def compare_settings(old: Settings, new: Settings) -> list[Document]:
    """Every setting outside of plugins and pipelines that differs, redacted; None if absent."""
    before, after = _differing_settings(old, new)
    return [
        {"setting": path, "before": before.get(path), "after": after.get(path)}
        for path in sorted(before.keys() | after.keys())
    ]


def _differing_settings(old: Settings, new: Settings) -> tuple[dict[str, Json], dict[str, Json]]:
    """The other settings of both that are neither equal nor equal relative to their directory.

    So a copy of the files in another directory does not differ.
    """
    before, after = _other_settings(old), _other_settings(new)
    for path in before.keys() & after.keys():
        was, will = before[path], after[path]
        if was == will or make_relative(was, old) == make_relative(will, new):
            del before[path], after[path]
    return before, after


def _other_settings(settings: Settings) -> dict[str, Json]:
    """Every other setting by its path, such as `service.max_workers`; lists as a whole."""
    document = redact_settings(settings)
    found: dict[str, Json] = {}
    rest: list[tuple[str, Any]] = [
        (key, value) for key, value in document.items() if key not in ("plugins", "pipelines")
    ]
    while rest:
        path, value = rest.pop()
        if isinstance(value, dict):
            rest += [(f"{path}.{key}", item) for key, item in value.items()]
        else:
            found[path] = value
    return found


def make_relative(value: Any, settings: Settings) -> Any:
    """`value` with the paths below the configuration's directory relative to it."""
    if isinstance(value, list):
        return [make_relative(item, settings) for item in value]
    if isinstance(value, dict):
        return {key: make_relative(item, settings) for key, item in value.items()}
    directory = str(settings.config_dir)
    if isinstance(value, str) and (value == directory or value.startswith(f"{directory}/")):
        return f".{value[len(directory) :]}"
    return value


def _by_name(pipelines: Iterable[Any]) -> dict[str, Any]:
    return {pipeline.name: pipeline for pipeline in pipelines}
