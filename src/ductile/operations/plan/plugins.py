"""The plugins that two configurations differ in: program, manifest, settings and secrets."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from ductile.config import Settings
from ductile.config.models.plugin import PluginSettings
from ductile.config.redact import fingerprint_secrets
from ductile.engine.config.compiled import CompiledConfig
from ductile.plugins.registry import Plugin

_KEY = bytes(32)
"""The fingerprints are compared here and never leave this module."""
_ELSEWHERE = ("tokens", "api.auth.tokens", "webhooks.endpoints")
"""Lists whose secrets are compared by the name of the item, not by its place."""


def compare_plugins(old: CompiledConfig, new: CompiledConfig) -> list[dict[str, Any]]:
    """Each plugin that differs, and in what: `program`, `manifest`, a setting, `secret values`."""
    secrets = compare_secrets(old.settings, new.settings)
    found = []
    names = {
        *(*old.registry.plugins, *new.registry.plugins),
        *(*old.settings.plugins, *new.settings.plugins),
        *(refusal.name for config in (old, new) for refusal in config.registry.refused),
    }
    for name in sorted(names):
        before, after = _state(old, name), _state(new, name)
        differs = _differences(old, new, name, secrets)
        if before != after or differs:
            found.append({"plugin": name, "before": before, "after": after, "differs": differs})
    return found


def _state(compiled: CompiledConfig, name: str) -> str:
    registry = compiled.registry
    if name in registry.plugins:
        return "loaded"
    if (refusal := registry.refusal(name)) is not None:
        return f"refused: {refusal.reason}"
    return "disabled" if name in registry.disabled else "absent"


def _differences(
    old: CompiledConfig, new: CompiledConfig, name: str, secrets: Collection[str]
) -> list[str]:
    was, will = old.registry.plugins.get(name), new.registry.plugins.get(name)
    found = _compare_programs(was, will) if was and will else []
    before, after = old.settings.plugins.get(name), new.settings.plugins.get(name)
    for field in PluginSettings.model_fields:
        # Schedules have their own section of the plan.
        if field != "schedules" and _value(before, field) != _value(after, field):
            found.append(field)
    mark = f"plugins.{name}."
    if any(path.startswith(mark) for path in secrets):
        found.append("secret values")
    return found


def _compare_programs(was: Plugin, will: Plugin) -> list[str]:
    found = []
    has_new_manifest = was.manifest != will.manifest
    # The fingerprint covers the manifest too: with another one, only the file shows it.
    has_new_file = not has_new_manifest or was.entrypoint_stat != will.entrypoint_stat
    if was.fingerprint != will.fingerprint and has_new_file:
        found.append("program")
    if has_new_manifest:
        found.append("manifest")
    if was.init_key != will.init_key and will.command("init"):
        found.append("init runs again")
    return found


_DEFAULTS = PluginSettings.model_construct()


def _value(settings: PluginSettings | None, field: str) -> object:
    return getattr(settings or _DEFAULTS, field)


def compare_secrets(old: Settings, new: Settings) -> list[str]:
    """The places of the secrets that were added, removed or changed; never a value."""
    before, after = _fingerprints(old), _fingerprints(new)
    return sorted(
        path
        for path in before.keys() | after.keys()
        if before.get(path) != after.get(path) and not path.startswith(_ELSEWHERE)
    )


def _fingerprints(settings: Settings) -> dict[str, str]:
    prints = fingerprint_secrets(settings, _KEY)
    return {each["purpose"]: each["fingerprint"] for each in prints}
