"""What is left of a configuration when its flawed parts are taken out, so that it can be judged on.

A part is a section, or an entry of `plugins`, which gives way to its defaults: its name is still
known. What relies on a part that is gone goes with it, for it would be blamed for that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ductile.config.loader import normalize
from ductile.config.models.settings import Settings
from ductile.errors import Problem

_PLUGINS = frozenset({"plugins", "plugin_roots"})
_RELIES_ON: Mapping[str, frozenset[str]] = {
    "api": frozenset({"tokens"}),
    "instances": frozenset({"tokens"}),
    "remote_ingress": frozenset({"tokens"}),
    "webhooks": _PLUGINS | {"tokens"},
    "routes": _PLUGINS | {"webhooks", "remote_ingress"},
    "pipelines": _PLUGINS | {"webhooks", "remote_ingress", "instances", "service"},
}


def rest(data: Mapping[str, Any], errors: Iterable[Problem]) -> dict[str, Any] | None:
    """`data` without the parts that have `errors`; None where nobody can say what they touch."""
    lost: set[str] = set()
    plugins: set[str] = set()
    for problem in errors:
        match problem.path:
            case ("plugins", str(name), *_):
                plugins.add(name)
            case (str(section), *_) if section in Settings.model_fields:
                lost.add(section)
            case (str(section),) if section not in normalize.ROOT_ALSO:
                lost |= {section, problem.nearest or section}
            case _:
                return None
    if not lost.isdisjoint(normalize.ROOT_ALSO):
        return None
    while more := {part for part, needs in _RELIES_ON.items() if needs & lost} - lost:
        lost |= more
    kept = {key: value for key, value in data.items() if key not in lost}
    if plugins and "plugins" in kept:
        kept["plugins"] = {**kept["plugins"], **{name: {} for name in plugins}}
    return kept
