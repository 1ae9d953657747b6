"""Where a file may say one thing in two ways, the one that the schema knows.

Each file is brought into shape before files are merged, so that `webhooks: [...]` in one and
`webhooks: {listen: ...}` in another meet as two tables. What has a wrong form is left for the
schema to refuse.
"""

from __future__ import annotations

from collections.abc import Mapping

from ductile.config.loader.nodes import Entry, Listing, Node, Table, is_null
from ductile.errors import Path, Problem, Severity, dotted

INCLUDE = "include"
ENVIRONMENT = "environment_vars"

ROOT_ALSO = {
    INCLUDE: "Files, or directories whose *.yaml are meant, merged in this order after this file.",
    ENVIRONMENT: "`include` lists .env files for ${VAR}; they never override the environment.",
    "plugins_dir": "The same as `plugin_roots` with one entry.",
    "database": "The same as `state`.",
    "log_level": "The same as `service.log_level`.",
    "tcc_paths": "Known to macOS users of the Go program; ignored.",
}
PLUGIN_ALSO = {"schedule": "The same as `schedules` with one entry."}
SCHEDULE_ALSO = {"preferred_window": "The same as `only_between`, as a mapping of start and end."}


def one_shape(root: Table) -> tuple[Table, list[Problem]]:
    """`root`, of one file, with every synonym replaced; what it includes is left in place."""
    problems: list[Problem] = []
    root = _into(root, "plugins_dir", "plugin_roots")
    root = _database(root, problems)
    root = _log_level(root, problems).without("tcc_paths")
    webhooks = root.items.get("webhooks")
    if webhooks and isinstance(webhooks.value, Listing):
        endpoints = Table({"endpoints": webhooks}, webhooks.value.place)
        root = root.replacing("webhooks", Entry(webhooks.key, endpoints))
    plugins = root.items.get("plugins")
    if plugins and isinstance(plugins.value, Table):
        items = {
            name: Entry(entry.key, _plugin(entry.value, name, problems))
            for name, entry in plugins.value.items.items()
        }
        root = root.replacing("plugins", Entry(plugins.key, Table(items, plugins.value.place)))
    return root, problems


def _into(table: Table, single: str, plural: str, *, last: bool = False) -> Table:
    """What is given alone, moved into the list of its kind: as the first item or the last."""
    entry = table.items.get(single)
    more = table.get(plural)
    table = table.without(single)
    if entry is None or is_null(entry.value):
        return table
    if more is None or is_null(more):
        items: tuple[Node, ...] = (entry.value,)
    elif isinstance(more, Listing):
        items = (*more.items, entry.value) if last else (entry.value, *more.items)
    else:
        return table
    return table.replacing(plural, Entry(entry.key, Listing(items, entry.value.place)))


def _database(root: Table, problems: list[Problem]) -> Table:
    database = root.items.get("database")
    if database is None:
        return root
    state = root.items.get("state")
    if state is None or is_null(state.value):
        state = database
    elif isinstance(state.value, Table) and isinstance(database.value, Table):
        more, own = _given(database.value), _given(state.value)
        problems += [
            _dropped(entry, ("database", key), ("state", key))
            for key, entry in more.items()
            if key in own
        ]
        both = {**database.value.items, **state.value.items, **more, **own}
        state = Entry(state.key, Table(both, state.value.place))
    elif not is_null(database.value):
        problems.append(_dropped(database, ("database",), ("state",)))
    return root.without("database").replacing("state", state)


def _given(table: Table) -> Mapping[str, Entry]:
    """The keys that are not left empty."""
    return {key: entry for key, entry in table.items.items() if not is_null(entry.value)}


def _dropped(entry: Entry, path: Path, kept: Path) -> Problem:
    return entry.key.problem(
        f"{dotted(kept)}, which means the same, is set too, and holds; keep one",
        path=path,
        severity=Severity.WARNING,
    )


def _log_level(root: Table, problems: list[Problem]) -> Table:
    level = root.items.get("log_level")
    if level is None:
        return root
    root = root.without("log_level")
    service = root.items.get("service")
    if service is None or is_null(service.value):
        service = Entry(level.key, Table({}, level.key))
    if not isinstance(service.value, Table):
        return root
    if "log_level" in _given(service.value):
        if not is_null(level.value):
            problems.append(_dropped(level, ("log_level",), ("service", "log_level")))
        return root
    table = service.value.replacing("log_level", level)
    return root.replacing("service", Entry(service.key, table))


def _plugin(plugin: Node, name: str, problems: list[Problem]) -> Node:
    if not isinstance(plugin, Table):
        return plugin
    single, more = plugin.items.get("schedule"), plugin.get("schedules")
    if single and not is_null(single.value) and isinstance(more, Listing) and more.items:
        problems.append(
            single.key.problem(
                "schedule and schedules are both set, and all of them hold; better keep one list",
                path=("plugins", name, "schedule"),
                severity=Severity.WARNING,
            )
        )
    # The last, so that the items of the list keep their numbers.
    plugin = _into(plugin, "schedule", "schedules", last=True)
    schedules = plugin.items.get("schedules")
    if schedules is None or not isinstance(schedules.value, Listing):
        return plugin
    items: list[Node] = []
    for index, item in enumerate(schedules.value.items):
        window = item.items.get("preferred_window") if isinstance(item, Table) else None
        if isinstance(item, Table) and window is not None:
            if "only_between" in item.items:
                problems.append(
                    window.key.problem(
                        "preferred_window and only_between mean the same; keep one",
                        path=("plugins", name, "schedules", index, "preferred_window"),
                    )
                )
            item = item.without("preferred_window").replacing("only_between", window)
        items.append(item)
    return plugin.replacing(
        "schedules", Entry(schedules.key, Listing(tuple(items), schedules.value.place))
    )
