"""Scopes: whether the scopes of a token allow a request."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Set

from ductile.core.values.suggest import did_you_mean

ALL = "*"
ANY = "any"
"""Allowed for every valid token."""
PLUGIN = "plugin"
"""Scope of a request for a plugin's command; the type of the command decides."""
NOUNS = frozenset({"plugin", "jobs", "events", "system", "agents", "approvals"})
ALIASES = {"read:jobs": "jobs:ro", "read:events": "events:ro"}


def normalize(scopes: Collection[str]) -> frozenset[str]:
    """`scopes` with aliases resolved and with the `ro` that each `rw` implies."""
    named = {ALIASES.get(scope, scope) for scope in scopes}
    return frozenset(named | {f"{scope[:-3]}:ro" for scope in named if scope.endswith(":rw")})


def allows(granted: frozenset[str], wanted: str) -> bool:
    """Whether `granted`, which must be normalized, includes `wanted`."""
    return wanted == ANY or ALL in granted or wanted in granted


def allows_command(granted: frozenset[str], plugin: str, *, reads: bool) -> bool:
    """Whether a command of this plugin may be run, by `plugin` scopes or by the plugin's own.

    A plugin with the name of a noun has no scopes of its own: `jobs:rw` refers to jobs.
    """
    level = "ro" if reads else "rw"
    if allows(granted, f"{PLUGIN}:{level}"):
        return True
    return plugin not in NOUNS and f"{plugin}:{level}" in granted


def scope_of_command(plugin: str, *, reads: bool) -> str:
    """The narrowest scope that allows a command of this plugin."""
    level = "ro" if reads else "rw"
    own = f"{plugin}:{level}"
    return own if plugin not in NOUNS and is_scope(own) else f"{PLUGIN}:{level}"


def get_plugin(scope: str) -> str | None:
    """The plugin that a scope refers to; None if it refers to a noun or to everything."""
    noun, _, _ = scope.rpartition(":")
    return None if scope in (ALL, *ALIASES) or noun in NOUNS else noun


def find_unused(scopes: Collection[str], plugins: Set[str]) -> Iterator[str]:
    """A message for each scope that grants nothing, because there is no such plugin."""
    for scope in scopes:
        plugin = get_plugin(scope)
        if plugin is not None and plugin not in plugins:
            hint = did_you_mean(plugin, plugins | NOUNS)
            yield f"{scope} grants nothing: there is no plugin {plugin!r}{hint}"


def is_scope(text: str) -> bool:
    """Whether `text` is a scope: `*`, or a noun or plugin with `:ro` or `:rw`."""
    noun, _, level = text.rpartition(":")
    plain = noun and not any(c.isspace() or c == ":" or not c.isprintable() for c in noun)
    return text in (ALL, *ALIASES) or (level in ("ro", "rw") and bool(plain))
