"""Remove the invalid parts of a configuration, so that the others can be checked as well.

A part is an entry of a list or of `plugins`, a key of another section, or a section. An entry is
replaced by a valid one with the same name, so that references to it are resolved. What depends on
a part that cannot be replaced is not reported.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any

from ductile.config.loader import normalize
from ductile.config.models.fields import RawScalar
from ductile.errors import Path, Problem

_SECRET = "-" * 32
_ENTRIES: Mapping[Path, Mapping[str, Any]] = {
    ("pipelines",): {"on": "-", "steps": [{"wait": "1s"}]},
    ("routes",): {"from": "-", "event_type": "-", "to": "-"},
    ("alerts",): {"on": "job.dead", "to": "-"},
    ("instances",): {"base_url": "https://localhost", "ingress_path": "/", "secret": _SECRET},
    ("tokens",): {"key": _SECRET},
    ("webhooks", "endpoints"): {"path": "/-", "secret": _SECRET},
    ("remote_ingress", "peers"): {"secret": _SECRET},
    ("api", "auth", "tokens"): {"token": _SECRET},
}
"""What an invalid entry of a list is replaced by, besides its name."""
_UNNAMED = frozenset({"routes", "api"})
_NAMING_KEYS = frozenset({"name", "path", "pipeline", "uses"})
"""The keys of an entry that other parts depend on."""
_STEPS = frozenset({"steps", "on_failure", "on_success", "always"})
"""The keys of a pipeline that depend on none of its other keys."""
_NEUTRAL: Mapping[tuple[str, str], str | int | bool] = {
    ("service", "max_hops"): 1000,
    ("service", "allow_symlinks"): True,
    ("api", "listen"): "127.0.0.1:0",
    ("webhooks", "listen"): "127.0.0.1:0",
}
"""Values with which no other part has a problem, where the default could cause one."""
_OF_PLUGINS = frozenset(
    {"from", "from_plugin", "on_events", "only", "plugin", "plugins", "to", "uses"}
)
_REFERRING_KEYS: Mapping[Path, Set[str]] = {
    ("plugins",): _OF_PLUGINS,
    ("plugin_roots",): _OF_PLUGINS,
    ("state",): {"plugins"},  # It has the environments of plugins.
    ("pipelines",): {"call", "on_events", "only", "pipeline", "to"},
    ("instances",): {"relay"},
    ("tokens",): {"enabled", "secret_ref"},
    ("api", "auth"): {"enabled"},
    ("webhooks", "endpoints"): {"debounce", "from", "from_plugin"},
    ("remote_ingress", "peers"): {"from", "from_plugin"},
    ("gateway",): {"dead_man"},
}
"""The keys whose problems may come from names or values of a part that are not known."""
_ALIASES = {"plugins_dir": "plugin_roots", "database": "state"}
_OF_FILES = frozenset({normalize.INCLUDE, normalize.ENVIRONMENT})


class Salvage:
    """`data` without its invalid parts, and which problems result only from their absence."""

    def __init__(self, data: Mapping[str, Any], broken: Set[Path]) -> None:
        self.data: dict[str, Any] = dict(data)
        self._broken = broken
        self._removed: set[Path] = set()
        self._unknown: set[Path] = set()
        """Removed parts that were not replaced; `()` if a file could not be read."""
        self._kept: set[Path] = set()
        """The valid steps of pipelines that were replaced."""

    def remove(self, errors: Sequence[Problem]) -> bool:
        """Remove the parts with `errors`; false if all of them were removed before."""
        before = len(self._removed)
        if not before:
            self.data = _copy(self.data)
        for problem in errors:
            if is_of_files(problem):
                self._removed.add(())
                self._unknown.add(())
                for section in {owner for owner, _ in _NEUTRAL}:
                    self._set_neutral(section)
            if entry := _find_entry(problem.path):
                self._replace(entry, errors)
                if problem.nearest in _NAMING_KEYS and len(problem.path) == len(entry) + 1:
                    self._unknown.add(entry)
            elif problem.path:
                self._cut(problem.path)
                if problem.nearest is not None:
                    # Perhaps a misspelt key.
                    self._cut((*problem.path[:-1], *problem.nearest.split(".")))
        return len(self._removed) > before

    def drop_follow_ups(self, problems: Iterable[Problem]) -> list[Problem]:
        """The `problems` that do not result from the removal of a part."""
        return [problem for problem in problems if not self._is_follow_up(problem.path)]

    def is_unknown(self, section: str) -> bool:
        """Whether values of a section may be missing."""
        return any(_overlap(path, (section,)) for path in self._unknown)

    def _is_follow_up(self, path: Path) -> bool:
        is_removed = any(part and _overlap(part, path) for part in self._removed)
        return (is_removed and path[:3] not in self._kept) or any(
            _overlap(part, origin) and not keys.isdisjoint(path)
            for part in self._unknown
            for origin, keys in _REFERRING_KEYS.items()
        )

    def _cut(self, path: Path) -> None:
        """Remove a section, or a key of one."""
        section = _ALIASES.get(str(path[0]), str(path[0]))
        table = self.data.get(section)
        if len(path) == 1 or not isinstance(table, dict):
            part: Path = (section,)
            self.data.pop(section, None)
            self._set_neutral(section)
        else:
            key = str(path[1])
            part = (section, key)
            table.pop(key, None)
            if (section, key) in _NEUTRAL:
                table[key] = _NEUTRAL[section, key]
            # A key that is not valid may be a misspelt one.
            self._unknown |= {
                origin
                for origin in _REFERRING_KEYS
                if origin[0] == section and origin[-1] not in {section, *table}
            }
        self._removed.add(part)
        if part not in _NEUTRAL:
            self._unknown.add(part)

    def _set_neutral(self, section: str) -> None:
        """Set the values of a section that are not known to neutral ones."""
        for (owner, key), value in _NEUTRAL.items():
            table = self.data.setdefault(section, {}) if owner == section else None
            if isinstance(table, dict):
                table.setdefault(key, value)

    def _replace(self, at: Path, errors: Sequence[Problem]) -> None:
        """Replace an entry by a valid one with the same name."""
        if at in self._removed:
            return
        self._removed.add(at)
        group: Any = self.data
        for key in at[:-1]:
            group = group.get(key) if isinstance(group, dict) else None
        key = at[-1]
        if isinstance(group, dict):
            group[key] = self._make_plugin(group.get(key), at)
        elif isinstance(group, list) and isinstance(key, int) and key < len(group):
            old = group[key]
            group[key] = self._make_entry(old, at)
            if at[0] == "pipelines" and isinstance(old, dict):
                group[key] |= self._keep_steps(old, at, errors)

    def _keep_steps(
        self, old: Mapping[str, Any], at: Path, errors: Sequence[Problem]
    ) -> dict[str, Any]:
        wrong = {problem.path[2:3] for problem in errors if problem.path[:2] == at}
        kept = {key: old[key] for key in _STEPS & old.keys() if wrong.isdisjoint({(), (key,)})}
        self._kept |= {(*at, key) for key in kept}
        return kept

    def _make_plugin(self, old: Any, at: Path) -> dict[str, Any]:
        own = self._read_names(old, at)
        new: dict[str, Any] = {"schedules": _keep_schedules(old)}
        if "uses" in own:
            new["uses"] = own["uses"]
        enabled = old.get("enabled") if isinstance(old, dict) else None
        if isinstance(enabled, RawScalar) and isinstance(enabled.value, bool):
            new["enabled"] = enabled
        return new

    def _make_entry(self, old: Any, at: Path) -> dict[str, Any]:
        new = dict(_ENTRIES[at[:-1]])
        if at[0] in _UNNAMED:
            return new
        names = self._read_names(old, at)
        if at[0] == "pipelines":
            new["schedules"] = _keep_schedules(old)
        if at[0] == "webhooks":
            pipeline, path = names.get("pipeline"), names.get("path")
            new |= {"plugin": "-"} if pipeline is None else {"pipeline": pipeline}
            if path is not None:
                names.setdefault("name", path.rstrip("/").rpartition("/")[2] or "root")
        if "name" not in names:
            self._unknown.add(at)
        return {**new, "name": names.get("name", f"entry {at[-1]}")}

    def _read_names(self, entry: Any, at: Path) -> dict[str, str]:
        """The values of an entry that other parts depend on; if one is not known, so is `at`."""
        if not isinstance(entry, dict):
            self._unknown.add(at)
            return {}
        names: dict[str, str] = {}
        for key in _NAMING_KEYS & entry.keys():
            value = entry[key]
            if isinstance(value, RawScalar) and value.text and (*at, key) not in self._broken:
                names[key] = value.text
            elif value is not None:
                self._unknown.add(at)
        return names


def is_of_files(problem: Problem) -> bool:
    """Whether a file may be missing from the configuration, so that any value may be unknown."""
    return not problem.path or problem.path[0] in _OF_FILES or problem.nearest in _OF_FILES


def _find_entry(path: Path) -> Path | None:
    """The path of the replaceable entry that contains `path`."""
    if path[:1] == ("plugins",):
        return path[:2] if len(path) > 1 else None
    for group in _ENTRIES:
        size = len(group)
        if path[:size] == group and len(path) > size and isinstance(path[size], int):
            return path[: size + 1]
    return None


def _keep_schedules(entry: Any) -> list[dict[str, Any]]:
    """The ids of an entry's schedules, to which alerts refer."""
    old = entry.get("schedules") if isinstance(entry, dict) else None
    kept: list[dict[str, Any]] = []
    for schedule in old if isinstance(old, list) else ():
        name = schedule.get("id") if isinstance(schedule, dict) else None
        is_text = isinstance(name, RawScalar) and name.text
        kept.append({"every": "1h", "id": name} if is_text else {"every": "1h"})
    return kept


def _overlap(one: Path, other: Path) -> bool:
    """Whether one path contains the other."""
    return all(mine == theirs for mine, theirs in zip(one, other, strict=False))


def _copy(value: Any) -> Any:
    """A copy of the containers; scalars are immutable."""
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in value.items()}
    return [_copy(item) for item in value] if isinstance(value, list) else value
