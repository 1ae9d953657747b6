"""`plugin sync`: lock the dependencies of Python plugins, and build their environments.

A virtual environment contains its own path, so it is built where it is used. Its completion
record is written last, after everything else is on disk: an environment without it is never used,
and the next run removes and rebuilds it. As root, this happens with the rights of the owner of the
state directory, who can replace the programs there.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson

from ductile import files
from ductile._fast_dataclass import dataclass
from ductile.config.loader.files import replace
from ductile.errors import Refused
from ductile.operations.plugins.installers import Installer, Report, find_uv
from ductile.plugins.environments.locate import (
    COMPLETED,
    EnvironmentMissing,
    PythonBuild,
    environment_path,
    find_python,
    gateway_python,
    is_complete,
)
from ductile.plugins.environments.lock import DependencyLock, InvalidLock, read_lock
from ductile.plugins.environments.plugin_files import PythonPlugin
from ductile.plugins.environments.python_version import is_satisfied

BUILD_LOCK = ".lock"
_MINORS = range(30, 7, -1)
_DESCRIBE = "import sys; print(sys.implementation.cache_tag, *sys.version_info[:3])"
_PROBE_SECONDS = 20


@dataclass(frozen=True, slots=True)
class SyncedPlugin:
    """What `plugin sync` did, or would do, for one plugin."""

    plugin: str
    lock: str | None
    """The path of the lock; None if the plugin has no dependencies."""
    locked: bool
    """Whether the lock was written."""
    packages: int
    environment: str | None
    built: bool
    """Whether the environment was built."""
    python: str | None
    """What starts the plugin; None if that is not known before it is locked."""


def sync_plugin(
    plugin: PythonPlugin,
    environments: Path,
    installer: Installer,
    report: Report,
    *,
    upgrade: bool = False,
) -> SyncedPlugin:
    """Lock a plugin's dependencies if they have changed, and build its environment if it is
    missing. Raises `Refused`."""
    if not upgrade and (done := _describe_built(plugin, environments)) is not None:
        return done
    python = choose_python(plugin)
    if _needs_no_environment(plugin, python):
        return SyncedPlugin(plugin.name, None, False, 0, None, False, str(python.executable))
    lock, is_new = None if upgrade else read_current_lock(plugin), False
    if lock is None:
        report(f"{plugin.name}: locking {plugin.lock_path.name} with {installer.name}")
        files.create(environments)
        # Packages without a wheel are built here, by scripts of their own.
        with files.as_owner(environments):
            packages = installer.resolve(plugin.requirements.dependencies, python)
        lock = DependencyLock(plugin.requirements.digest, tuple(packages))
        data = lock.render().encode()
        is_new = data != plugin.lock
        if is_new:
            write_lock(plugin.lock_path, data)
    else:
        assert plugin.lock is not None
        data = plugin.lock
    environment = environment_path(environments, data, python.tag)
    built = build_environment(environment, lock, python, installer, report)
    return SyncedPlugin(
        plugin=plugin.name,
        lock=str(plugin.lock_path),
        locked=is_new,
        packages=len(lock.packages),
        environment=str(environment),
        built=built,
        python=str(environment / "bin" / "python"),
    )


def plan_sync(plugin: PythonPlugin, environments: Path, *, upgrade: bool = False) -> SyncedPlugin:
    """What `sync_plugin` would do, without doing it and without network."""
    if not upgrade and (done := _describe_built(plugin, environments)) is not None:
        return done
    python = choose_python(plugin)
    if _needs_no_environment(plugin, python):
        return SyncedPlugin(plugin.name, None, False, 0, None, False, str(python.executable))
    lock, path = None if upgrade else read_current_lock(plugin), str(plugin.lock_path)
    if lock is None or plugin.lock is None:
        return SyncedPlugin(plugin.name, path, True, 0, None, True, None)
    environment = environment_path(environments, plugin.lock, python.tag)
    return SyncedPlugin(
        plugin=plugin.name,
        lock=path,
        locked=False,
        packages=len(lock.packages),
        environment=str(environment),
        built=not is_complete(environment),
        python=str(environment / "bin" / "python"),
    )


def _describe_built(plugin: PythonPlugin, environments: Path) -> SyncedPlugin | None:
    """A plugin that has its environment; its Python may be where no search finds it any more."""
    try:
        found = find_python(plugin.requirements, plugin.lock, environments, gateway_python())
    except EnvironmentMissing:
        return None
    if plugin.lock is None or found.environment is None:
        return None
    return SyncedPlugin(
        plugin=plugin.name,
        lock=str(plugin.lock_path),
        locked=False,
        packages=len(read_lock(plugin.lock).packages),
        environment=str(found.environment),
        built=False,
        python=str(found.executable),
    )


def _needs_no_environment(plugin: PythonPlugin, python: PythonBuild) -> bool:
    return not plugin.requirements.dependencies and python == gateway_python()


def read_current_lock(plugin: PythonPlugin) -> DependencyLock | None:
    """The lock of a plugin; None if there is none, or if it is of other requirements.

    A file that another program wrote is not overwritten: `Refused`.
    """
    if plugin.lock is None:
        return None
    try:
        lock = read_lock(plugin.lock)
    except InvalidLock as error:
        raise Refused(
            f"{plugin.lock_path} cannot be used: {error}; to replace it, run: "
            f"ductile plugin sync --upgrade {plugin.name}",
            plugin=plugin.name,
        ) from None
    return lock if lock.requirements == plugin.requirements.digest else None


def choose_python(plugin: PythonPlugin) -> PythonBuild:
    """The gateway's Python or, if that has the wrong version, another one of this machine."""
    own, wanted = gateway_python(), plugin.requirements.requires_python
    if is_satisfied(wanted, own.version):
        return own
    for candidate in _find_candidates(wanted):
        build = _describe_python(candidate)
        if build is not None and is_satisfied(wanted, build.version):
            return build
    raise Refused(
        f"plugin {plugin.name} requires Python {wanted}, and no such version is in PATH "
        f"(the gateway runs with {own.shown_version}); install one, or correct requires-python in "
        f"{plugin.requirements.source}",
        plugin=plugin.name,
    )


def _find_candidates(wanted: str) -> Iterator[str]:
    for minor in _MINORS:
        found = shutil.which(f"python3.{minor}")
        if found is not None:
            yield found
    uv = find_uv()
    if uv is not None:
        words = [uv, "python", "find", "--system", "--no-project", "--no-python-downloads", wanted]
        done = subprocess.run(
            words, capture_output=True, text=True, timeout=_PROBE_SECONDS, check=False
        )
        if done.returncode == 0:
            yield done.stdout.strip()


def _describe_python(executable: str) -> PythonBuild | None:
    try:
        done = subprocess.run(
            [executable, "-I", "-c", _DESCRIBE],
            capture_output=True,
            text=True,
            timeout=_PROBE_SECONDS,
            check=True,
        )
        tag, major, minor, patch = done.stdout.split()
        return PythonBuild(Path(executable), (int(major), int(minor), int(patch)), tag)
    except (OSError, subprocess.SubprocessError, ValueError):
        return None


def write_lock(path: Path, data: bytes) -> None:
    """Replace a lock atomically. Every user may read it: it contains no secrets, and the gateway
    may run as another user."""
    try:
        with files.as_owner(path.parent):
            replace(path, data)
            path.chmod(0o644)
    except OSError as error:
        raise Refused(f"cannot write {path}: {error.strerror}") from error


def build_environment(
    environment: Path,
    lock: DependencyLock,
    python: PythonBuild,
    installer: Installer,
    report: Report,
) -> bool:
    """Build an environment unless it is complete; whether it was built."""
    files.create(environment.parent)
    with files.as_owner(environment.parent), lock_environments(environment.parent, report):
        if is_complete(environment):
            return False
        _remove(environment)
        report(f"  building {environment} with {installer.name} and Python {python.shown_version}")
        try:
            installer.create(environment, python)
            if lock.packages:
                installer.install(environment, lock.packages)
            _complete(environment, python, installer)
        except BaseException:
            _remove(environment)
            raise
    return True


@contextmanager
def lock_environments(environments: Path, report: Report) -> Iterator[None]:
    """Keep other processes from building or removing environments."""
    files.create(environments)
    descriptor = files.open_or_create(environments / BUILD_LOCK)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report("  waiting for another `plugin sync`")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _complete(environment: Path, python: PythonBuild, installer: Installer) -> None:
    """Write the completion record, after the files of the environment are on disk."""
    os.sync()
    record = {
        "path": str(environment),
        "python": str(python.executable),
        "version": python.shown_version,
        "installer": installer.name,
    }
    replace(environment / COMPLETED, orjson.dumps(record))


def _remove(environment: Path) -> None:
    if os.path.lexists(environment):
        shutil.rmtree(environment)
