"""Who may do what: granted scopes against the one that a route asks for."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Set

from ductile.core.values.suggest import did_you_mean

ALL = "*"
ANY = "any"
"""What every good token has."""
PLUGIN = "plugin"
"""Of a route that names a plugin and a command: the command's type decides."""
NOUNS = frozenset({"plugin", "jobs", "events", "system", "agents"})
ALIASES = {"read:jobs": "jobs:ro", "read:events": "events:ro"}


def normalized(scopes: Collection[str]) -> frozenset[str]:
    """By their one name, and with what `rw` implies."""
    named = {ALIASES.get(scope, scope) for scope in scopes}
    return frozenset(named | {f"{scope[:-3]}:ro" for scope in named if scope.endswith(":rw")})


def allows(granted: frozenset[str], wanted: str) -> bool:
    """Whether `granted`, which is normalized, is enough for a route that wants `wanted`."""
    return wanted == ANY or ALL in granted or wanted in granted


def allows_command(granted: frozenset[str], plugin: str, *, reads: bool) -> bool:
    """Whether a command of this plugin may be run: by `plugin` scopes, or by the plugin's own.

    A plugin that is named like a noun has none of its own: `jobs:rw` is about jobs.
    """
    level = "ro" if reads else "rw"
    if allows(granted, f"{PLUGIN}:{level}"):
        return True
    return plugin not in NOUNS and f"{plugin}:{level}" in granted


def plugin_of(scope: str) -> str | None:
    """The plugin that a scope is about; None where it is about a noun, or all."""
    noun, _, _ = scope.rpartition(":")
    return None if scope in (ALL, *ALIASES) or noun in NOUNS else noun


def idle(scopes: Collection[str], plugins: Set[str]) -> Iterator[str]:
    """Of those that open nothing, for none of `plugins` bears the name."""
    for scope in scopes:
        plugin = plugin_of(scope)
        if plugin is not None and plugin not in plugins:
            hint = did_you_mean(plugin, plugins | NOUNS)
            yield f"{scope} opens nothing: there is no plugin {plugin!r}{hint}"


def is_scope(text: str) -> bool:
    """Whether `text` can be granted: `*`, or a noun or plugin with `:ro` or `:rw`."""
    noun, _, level = text.rpartition(":")
    plain = noun and not any(c.isspace() or c == ":" or not c.isprintable() for c in noun)
    return text in (ALL, *ALIASES) or (level in ("ro", "rw") and bool(plain))
