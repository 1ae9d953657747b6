"""`plugin sync --prune`: remove environments that no plugin and no process uses."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Collection, Iterable
from pathlib import Path

from ductile._fast_dataclass import dataclass
from ductile.operations.plugins.installers import Report
from ductile.operations.plugins.sync import lock_environments
from ductile.plugins.environments.locate import EnvironmentMissing, find_python, gateway_python
from ductile.plugins.environments.plugin_files import PythonPlugin

_NAME = re.compile(r"[0-9a-f]{32}")
_REMOVED = ".removed-"


@dataclass(frozen=True, slots=True)
class PrunedEnvironments:
    removed: tuple[str, ...]
    in_use: tuple[str, ...]
    """Kept because a process runs in them, though no plugin needs them any more."""


def find_needed(plugins: Iterable[PythonPlugin], environments: Path) -> set[Path]:
    """The environments of plugins as they are on disk."""
    needed = set()
    for plugin in plugins:
        try:
            found = find_python(plugin.requirements, plugin.lock, environments, gateway_python())
        except EnvironmentMissing:
            continue
        if found.environment is not None:
            needed.add(found.environment)
    return needed


def prune_environments(
    environments: Path, needed: Collection[Path], report: Report, *, dry_run: bool = False
) -> PrunedEnvironments:
    """Remove the environments that are not needed and that no process uses.

    `needed` has to contain those of the running gateway's configuration, so that no job can start
    in a removed one.
    """
    if not environments.is_dir():
        return PrunedEnvironments((), ())
    with lock_environments(environments, report):
        names = sorted(entry.name for entry in os.scandir(environments))
        unneeded = [
            environments / name
            for name in names
            if _NAME.fullmatch(name) and environments / name not in needed
        ]
        running = read_command_lines()
        in_use = [path for path in unneeded if is_used(path, running)]
        removed = [path for path in unneeded if path not in in_use]
        if not dry_run:
            for path in removed:
                # A crash in the middle of a removal must not leave a part that looks complete.
                path.rename(environments / f"{_REMOVED}{path.name}")
            for entry in list(os.scandir(environments)):
                if entry.name.startswith(_REMOVED):
                    shutil.rmtree(entry.path)
    return PrunedEnvironments(tuple(map(str, removed)), tuple(map(str, in_use)))


def is_used(environment: Path, command_lines: Iterable[bytes]) -> bool:
    """Whether a process was started from an environment."""
    prefix = os.fsencode(environment) + b"/"
    return any(word.startswith(prefix) for line in command_lines for word in line.split(b"\0"))


def read_command_lines() -> list[bytes]:
    """The command lines of all processes."""
    lines = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                lines.append((process / "cmdline").read_bytes())
            except OSError:
                continue  # It has ended.
    return lines
