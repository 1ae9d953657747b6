"""Where the environment of a plugin is, and which Python starts the plugin.

The gateway only reads: it resolves and builds nothing. An environment is used if its completion
record, which is written last, is valid for the place that it is in: a virtual environment contains
absolute paths, so a moved one is not used.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from pathlib import Path

import orjson
from blake3 import blake3

from ductile._fast_dataclass import dataclass
from ductile.plugins.environments.lock import InvalidLock, read_lock
from ductile.plugins.environments.python_version import (
    PythonVersion,
    is_satisfied,
    may_satisfy,
)
from ductile.plugins.environments.requirements import PythonRequirements

DIRECTORY = "envs"
"""In the state directory."""
COMPLETED = "ductile-environment.json"
_MAX_RECORD = 64 * 1024
_MINORS = range(30, 7, -1)
"""The versions 3.x that are looked for if the gateway's Python does not satisfy a plugin."""


class EnvironmentMissing(Exception):
    """The plugin cannot be started before `plugin sync` has run; the message says why."""

    def __init__(self, reason: str, *, lock_is_invalid: bool = False) -> None:
        """With an invalid lock, `plugin sync` needs `--upgrade`, which replaces it."""
        super().__init__(reason)
        self.lock_is_invalid = lock_is_invalid


@dataclass(frozen=True, slots=True)
class PythonBuild:
    """An installed Python, outside of virtual environments."""

    executable: Path
    version: PythonVersion
    tag: str
    """Implementation and version, such as `cpython-311`."""

    @property
    def shown_version(self) -> str:
        return ".".join(str(number) for number in self.version)


def gateway_python() -> PythonBuild:
    """The Python that the gateway runs with, without the packages of the gateway."""
    major, minor, patch = sys.version_info[:3]
    named = Path(sys.base_prefix) / "bin" / f"python{major}.{minor}"
    executable = named if named.exists() else Path(sys.executable).resolve()
    tag = sys.implementation.cache_tag or f"{sys.implementation.name}-{major}{minor}"
    return PythonBuild(executable, (major, minor, patch), tag)


@dataclass(frozen=True, slots=True)
class PluginPython:
    """What starts a Python plugin."""

    executable: Path
    environment: Path | None = None
    """None if it needs no packages."""


def environment_path(environments: Path, lock: bytes, tag: str) -> Path:
    """The directory of the environment for a lock, a Python and this platform."""
    key = blake3(b"\0".join((lock, tag.encode(), sysconfig.get_platform().encode())))
    return environments / key.hexdigest(16)


def find_python(
    requirements: PythonRequirements,
    lock: bytes | None,
    environments: Path | None,
    python: PythonBuild,
) -> PluginPython:
    """The Python for a plugin. Raises `EnvironmentMissing`.

    A plugin without dependencies runs with the gateway's Python, if that has the right version.
    """
    is_suitable = is_satisfied(requirements.requires_python, python.version)
    if not requirements.dependencies and is_suitable:
        return PluginPython(python.executable)
    if not is_suitable:
        reason = f"it requires Python {requirements.requires_python}, and no environment has it"
    else:
        reason = "its dependencies are not installed"
    if lock is None or environments is None:
        raise EnvironmentMissing(reason)
    try:
        locked = read_lock(lock)
    except InvalidLock as error:
        reason = f"its lock cannot be used: {error}"
        raise EnvironmentMissing(reason, lock_is_invalid=True) from None
    if locked.requirements != requirements.digest:
        raise EnvironmentMissing(f"{requirements.source} has changed since it was locked")
    tags = [python.tag] if is_suitable else _other_tags(requirements.requires_python)
    for tag in tags:
        environment = environment_path(environments, lock, tag)
        if is_complete(environment):
            return PluginPython(environment / "bin" / "python", environment)
    raise EnvironmentMissing(reason)


def is_complete(environment: Path) -> bool:
    """Whether an environment was built completely, at this path, and still has its Python."""
    try:
        with (environment / COMPLETED).open("rb") as file:
            record = orjson.loads(file.read(_MAX_RECORD))
    except (OSError, ValueError):
        return False
    return (
        isinstance(record, dict)
        and record.get("path") == str(environment)
        and os.access(environment / "bin" / "python", os.X_OK)
    )


def _other_tags(specifier: str) -> list[str]:
    return [f"cpython-3{minor}" for minor in _MINORS if may_satisfy(specifier, 3, minor)]
