"""Read what a Python plugin declares and locks, from its files."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from ductile._fast_dataclass import dataclass
from ductile.plugins.environments.lock import MAX_LOCK, SUFFIX
from ductile.plugins.environments.requirements import (
    MAX_SCRIPT,
    REQUIREMENTS_NAME,
    InvalidRequirements,
    PythonRequirements,
    named_interpreter,
    read_requirements,
    starts_python,
)
from ductile.plugins.trust import read_beginning

Locate = Callable[[Path], Path]
"""Returns the real path of a plugin's file, or raises `Untrusted`."""


class UnusableRequirementsFile(InvalidRequirements):
    """`plugin sync` cannot install a `requirements.txt` that was never locked."""


@dataclass(frozen=True, slots=True)
class PythonPlugin:
    """A plugin in Python that declares what it needs, loaded or not."""

    name: str
    entrypoint: Path
    requirements: PythonRequirements
    lock: bytes | None
    """The bytes of its lock file; None if there is none."""

    @property
    def needs_environment(self) -> bool:
        """Whether only `plugin sync` makes it start.

        A `requirements.txt` that was never locked may describe packages that are installed
        otherwise: the plugin starts as its first line says, as it did before it could be locked.
        """
        return self.lock is not None or self.requirements.source != REQUIREMENTS_NAME

    @property
    def lock_path(self) -> Path:
        return lock_path(self.entrypoint)


def read_python_plugin(
    name: str, directory: Path, entrypoint: Path, locate: Locate
) -> PythonPlugin | None:
    """What a plugin needs; None if it is in another language, declares nothing, or names the
    Python of its own virtual environment. Raises `InvalidRequirements` and `Untrusted`;
    `UnusableRequirementsFile` if the plugin can be started nevertheless."""
    program = read_beginning(entrypoint, MAX_SCRIPT)
    if not starts_python(program) or _has_own_environment(program):
        return None
    listed = _read_optional(directory / REQUIREMENTS_NAME, locate, MAX_SCRIPT)
    lock = _read_optional(lock_path(entrypoint), locate, MAX_LOCK + 1)
    requirements = read_requirements(entrypoint.name, program, None)
    if requirements is None and listed is not None:
        try:
            requirements = read_requirements(entrypoint.name, program, listed)
        except InvalidRequirements as error:
            raise (error if lock is not None else UnusableRequirementsFile(str(error))) from None
    return None if requirements is None else PythonPlugin(name, entrypoint, requirements, lock)


def lock_path(entrypoint: Path) -> Path:
    return entrypoint.with_name(entrypoint.name + SUFFIX)


def _read_optional(path: Path, locate: Locate, size: int) -> bytes | None:
    return read_beginning(locate(path), size) if os.path.lexists(path) else None


def _has_own_environment(program: bytes) -> bool:
    """Whether the first line of an entrypoint names the Python of a virtual environment."""
    named = named_interpreter(program)
    return named is not None and (Path(named).parent.parent / "pyvenv.cfg").exists()
