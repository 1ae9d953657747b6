"""Remove the invalid parts of a configuration, so that the rest can be checked as well.

A part is a section, or an entry of `plugins`, which is replaced by its defaults so that its name
stays known. Sections that depend on a removed one are removed too, to avoid follow-up errors.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ductile.config.loader import normalize
from ductile.config.models.settings import Settings
from ductile.errors import Problem

_PLUGINS = frozenset({"plugins", "plugin_roots"})
_DEPENDS_ON: Mapping[str, frozenset[str]] = {
    "api": frozenset({"tokens"}),
    "instances": frozenset({"tokens"}),
    "remote_ingress": frozenset({"tokens"}),
    "webhooks": _PLUGINS | {"tokens"},
    "routes": _PLUGINS | {"webhooks", "remote_ingress"},
    "pipelines": _PLUGINS | {"webhooks", "remote_ingress", "instances", "service"},
}


def remove_invalid(data: Mapping[str, Any], errors: Iterable[Problem]) -> dict[str, Any] | None:
    """`data` without the parts that have `errors`; None if an error belongs to no section."""
    removed: set[str] = set()
    plugins: set[str] = set()
    for problem in errors:
        match problem.path:
            case ("plugins", str(name), *_):
                plugins.add(name)
            case (str(section), *_) if section in Settings.model_fields:
                removed.add(section)
            case (str(section),) if section not in normalize.ROOT_ALSO:
                removed |= {section, problem.nearest or section}
            case _:
                return None
    if not removed.isdisjoint(normalize.ROOT_ALSO):
        return None
    while more := {part for part, needs in _DEPENDS_ON.items() if needs & removed} - removed:
        removed |= more
    kept = {key: value for key, value in data.items() if key not in removed}
    if plugins and "plugins" in kept:
        kept["plugins"] = {**kept["plugins"], **{name: {} for name in plugins}}
    return kept
