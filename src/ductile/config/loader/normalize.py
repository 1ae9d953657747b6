"""Rewrite alternative keys and forms to the one that the schema knows.

Each file is normalized before files are merged, so that `webhooks: [...]` in one and
`webhooks: {listen: ...}` in another merge as two mappings. Invalid forms are left for the schema
to reject.
"""

from __future__ import annotations

from collections.abc import Mapping

from ductile.config.loader.nodes import MappingEntry, MappingNode, Node, SequenceNode, is_null
from ductile.errors import Path, Problem, Severity, dotted

INCLUDE = "include"
ENVIRONMENT = "environment_vars"

ROOT_ALSO = {
    INCLUDE: "Files or directories (their `*.yaml`), merged in this order after this file.",
    ENVIRONMENT: "`include` lists `.env` files for `${VAR}`; the environment has precedence.",
    "plugins_dir": "Alias of `plugin_roots` with one entry.",
    "database": "Alias of `state`.",
    "log_level": "Alias of `service.log_level`.",
    "tcc_paths": "Ignored; a setting of the Go program on macOS.",
}
PLUGIN_ALSO = {"schedule": "Alias of `schedules` with one entry."}
SCHEDULE_ALSO = {"preferred_window": "Alias of `only_between`, as a mapping of `start` and `end`."}


def normalize(root: MappingNode) -> tuple[MappingNode, list[Problem]]:
    """The tree of one file with every alternative form replaced; `include` is kept."""
    problems: list[Problem] = []
    root = _move_into_list(root, "plugins_dir", "plugin_roots")
    root = _merge_database(root, problems)
    root = _move_log_level(root, problems).without("tcc_paths")
    webhooks = root.items.get("webhooks")
    if webhooks and isinstance(webhooks.value, SequenceNode):
        endpoints = MappingNode({"endpoints": webhooks}, webhooks.value.location)
        root = root.replacing("webhooks", MappingEntry(webhooks.key, endpoints))
    plugins = root.items.get("plugins")
    if plugins and isinstance(plugins.value, MappingNode):
        items = {
            name: MappingEntry(entry.key, _normalize_plugin(entry.value, name, problems))
            for name, entry in plugins.value.items.items()
        }
        root = root.replacing(
            "plugins", MappingEntry(plugins.key, MappingNode(items, plugins.value.location))
        )
    return root, problems


def _move_into_list(
    table: MappingNode, single: str, plural: str, *, last: bool = False
) -> MappingNode:
    """Move the value of the key `single` into the list `plural`, as its first or last item."""
    entry = table.items.get(single)
    more = table.get(plural)
    table = table.without(single)
    if entry is None or is_null(entry.value):
        return table
    if more is None or is_null(more):
        items: tuple[Node, ...] = (entry.value,)
    elif isinstance(more, SequenceNode):
        items = (*more.items, entry.value) if last else (entry.value, *more.items)
    else:
        return table
    return table.replacing(
        plural, MappingEntry(entry.key, SequenceNode(items, entry.value.location))
    )


def _merge_database(root: MappingNode, problems: list[Problem]) -> MappingNode:
    database = root.items.get("database")
    if database is None:
        return root
    state = root.items.get("state")
    if state is None or is_null(state.value):
        state = database
    elif isinstance(state.value, MappingNode) and isinstance(database.value, MappingNode):
        more, own = _non_empty(database.value), _non_empty(state.value)
        problems += [
            _warn_of_alias(entry, ("database", key), ("state", key))
            for key, entry in more.items()
            if key in own
        ]
        both = {**database.value.items, **state.value.items, **more, **own}
        state = MappingEntry(state.key, MappingNode(both, state.value.location))
    elif not is_null(database.value):
        problems.append(_warn_of_alias(database, ("database",), ("state",)))
    return root.without("database").replacing("state", state)


def _non_empty(table: MappingNode) -> Mapping[str, MappingEntry]:
    """The entries that are not empty."""
    return {key: entry for key, entry in table.items.items() if not is_null(entry.value)}


def _warn_of_alias(entry: MappingEntry, path: Path, kept: Path) -> Problem:
    return entry.key.problem(
        f"is an alias of {dotted(kept)}, which is set too and is used; remove one",
        path=path,
        severity=Severity.WARNING,
    )


def _move_log_level(root: MappingNode, problems: list[Problem]) -> MappingNode:
    level = root.items.get("log_level")
    if level is None:
        return root
    root = root.without("log_level")
    service = root.items.get("service")
    if service is None or is_null(service.value):
        service = MappingEntry(level.key, MappingNode({}, level.key))
    if not isinstance(service.value, MappingNode):
        return root
    if "log_level" in _non_empty(service.value):
        if not is_null(level.value):
            problems.append(_warn_of_alias(level, ("log_level",), ("service", "log_level")))
        return root
    table = service.value.replacing("log_level", level)
    return root.replacing("service", MappingEntry(service.key, table))


def _normalize_plugin(plugin: Node, name: str, problems: list[Problem]) -> Node:
    if not isinstance(plugin, MappingNode):
        return plugin
    single, more = plugin.items.get("schedule"), plugin.get("schedules")
    if single and not is_null(single.value) and isinstance(more, SequenceNode) and more.items:
        problems.append(
            single.key.problem(
                "both schedule and schedules are set; all entries are used; move it into schedules",
                path=("plugins", name, "schedule"),
                severity=Severity.WARNING,
            )
        )
    # As the last item, so that the items of the list keep their indexes.
    plugin = _move_into_list(plugin, "schedule", "schedules", last=True)
    schedules = plugin.items.get("schedules")
    if schedules is None or not isinstance(schedules.value, SequenceNode):
        return plugin
    items: list[Node] = []
    for index, item in enumerate(schedules.value.items):
        window = item.items.get("preferred_window") if isinstance(item, MappingNode) else None
        if isinstance(item, MappingNode) and window is not None:
            if "only_between" in item.items:
                problems.append(
                    window.key.problem(
                        "is an alias of only_between, which is set too; remove one",
                        path=("plugins", name, "schedules", index, "preferred_window"),
                    )
                )
            item = item.without("preferred_window").replacing("only_between", window)
        items.append(item)
    return plugin.replacing(
        "schedules",
        MappingEntry(schedules.key, SequenceNode(tuple(items), schedules.value.location)),
    )
