"""The sandbox of a plugin on this machine: the paths that its processes need, and the policy."""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from pathlib import Path

from ductile.config import Loaded, bundled
from ductile.config.loader.secret_sources import CREDENTIALS
from ductile.core.jobs.sandbox import (
    OFF,
    WHOLE_NETWORK,
    SandboxPlan,
    SandboxSpec,
    is_inside,
    narrow,
)
from ductile.plugins.registry import Plugin
from ductile.runner.exec_errors import first_line
from ductile.runner.sandbox import policy as policies
from ductile.runner.sandbox.policy import Policy, Support

TEMPORARY = "tmp"
"""In the state directory: the private directories of sandboxed jobs."""
SYSTEM = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/nix/store"),
    *("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/ld.so.preload"),
    *("/etc/ssl/certs", "/etc/ssl/cert.pem", "/etc/ssl/ca-bundle.pem", "/etc/ssl/openssl.cnf"),
    *("/etc/pki/tls/certs", "/etc/pki/tls/cert.pem", "/etc/pki/tls/openssl.cnf"),
    *("/etc/pki/ca-trust", "/var/lib/ca-certificates"),
    *("/etc/ca-certificates", "/etc/crypto-policies"),
    *("/etc/resolv.conf", "/etc/hosts", "/etc/host.conf", "/etc/nsswitch.conf", "/etc/gai.conf"),
    *("/etc/services", "/etc/protocols", "/etc/passwd", "/etc/group", "/etc/mime.types"),
    *("/etc/localtime", "/etc/timezone", "/etc/locale.alias", "/etc/locale.conf"),
    *("/etc/alternatives", "/etc/os-release", "/proc/cpuinfo", "/proc/meminfo", "/proc/stat"),
    *("/proc/filesystems", "/proc/sys/kernel/random", "/sys/devices/system/cpu"),
)
"""What programs need to start, to resolve names, to verify certificates, and to know the time zone
and the language, but no keys, which root could read. Paths that do not exist are ignored."""
_PROCESSES, _DEVICES = "/proc", "/dev"
_NO_DEVICES = frozenset({"shm", "pts", "mqueue"})
"""Directories in `/dev` without devices of the machine."""
_MAX_HOPS = 3


def list_private(loaded: Loaded, environ: Mapping[str, str]) -> tuple[Path, ...]:
    """The files and directories of the gateway, which no sandbox grants."""
    settings = loaded.settings
    folders = [settings.state_dir, settings.config_dir, settings.workspaces_dir]
    if credentials := environ.get(CREDENTIALS):
        folders.append(Path(credentials))
    included = (file for file in loaded.files if not file.is_relative_to(settings.config_dir))
    return (*folders, *included)


def plan_sandbox(
    plugin: Plugin,
    operator: SandboxSpec | None,
    rule: str,
    *,
    private: Sequence[Path],
    state_dir: Path,
    env: Mapping[str, str],
    support: Support,
) -> SandboxPlan | None:
    """The sandbox of a plugin; None if it has none.

    `private` are files and directories of the gateway, which no sandboxed plugin reaches whatever
    it is granted, except for its own directory, environment and workspace in them.
    """
    own = plugin.manifest.sandbox
    author = None if own is None else _resolve(own.to_spec(), plugin.directory, env)
    granted = None if operator is None else _resolve(operator, plugin.directory, env)
    spec = narrow(author, granted, rule)
    if spec.level == OFF:
        return None
    return _plan(plugin, spec, private=private, state_dir=state_dir, env=env, support=support)


def plan_granted(
    plugin: Plugin,
    spec: SandboxSpec,
    *,
    private: Sequence[Path],
    state_dir: Path,
    env: Mapping[str, str],
    support: Support,
) -> SandboxPlan:
    """The plan of exactly this sandbox, whatever manifest and configuration say."""
    whole = narrow(_resolve(spec, plugin.directory, env), None, OFF)
    return _plan(plugin, whole, private=private, state_dir=state_dir, env=env, support=support)


def _plan(
    plugin: Plugin,
    spec: SandboxSpec,
    *,
    private: Sequence[Path],
    state_dir: Path,
    env: Mapping[str, str],
    support: Support,
) -> SandboxPlan:
    hidden = [os.path.realpath(path) for path in private]
    read = [path for one in (*SYSTEM, *(spec.read or ())) for path in _outside(one, hidden)]
    needed = [str(plugin.directory), *_interpreter_paths(plugin, env)]
    if plugin.root == bundled.directory():
        needed.append(str(plugin.root))
    for path in needed:
        inner = [one for one in hidden if is_inside(one, path) and one != path]
        if path == str(plugin.directory):
            # A part of the configuration may be in it. Without the directory as a whole, modules
            # in it would not be found.
            inner = [one for one in inner if os.path.isdir(one)]  # noqa: PTH112
        read += _outside(path, inner)
    write = [path for one in spec.write or () for path in _outside(one, hidden)]
    network = spec.network if isinstance(spec.network, str) else policies.NETWORK_PORTS
    assert network is not None
    gaps = policies.find_gaps(support, network, spec.processes or 0)
    wanted = [policies.FILES, policies.SOCKETS, policies.PROCESSES, policies.SIGNALS]
    wanted.append(policies.SYSTEM_CALLS)
    if network != WHOLE_NETWORK:
        wanted.insert(1, policies.NETWORK)
    policy = Policy(
        abi=support.abi,
        seccomp=support.seccomp,
        network=network,
        ports=spec.network if isinstance(spec.network, tuple) else (),
        memory=spec.memory or 0,
        processes=spec.processes or 0,
        cpu_time=math.ceil(spec.cpu_time or 0),
        file_size=spec.file_size or 0,
        temporary=str(state_dir / TEMPORARY),
        read=tuple(dict.fromkeys(read)),
        write=tuple(dict.fromkeys(write)),
    )
    held = tuple(name for name in wanted if name not in gaps)
    return SandboxPlan(spec, policy.encode(), held, gaps)


def _resolve(spec: SandboxSpec, directory: Path, env: Mapping[str, str]) -> SandboxSpec:
    """The same with real, absolute paths; relative ones are in the plugin's directory."""

    def absolute(path: str) -> str:
        if path == "~" or path.startswith("~/"):
            path = env.get("HOME", "/nonexistent") + path[1:]
        return os.path.realpath(directory / path)

    def every(paths: tuple[str, ...] | None) -> tuple[str, ...] | None:
        return None if paths is None else tuple(map(absolute, paths))

    return replace(spec, read=every(spec.read), write=every(spec.write))


def _outside(path: str, hidden: Sequence[str]) -> Iterator[str]:
    """A path, or those parts of it that exist now and contain nothing hidden.

    Landlock only adds: what is below a granted directory cannot be taken away again.
    """
    real = os.path.realpath(path)
    if any(is_inside(real, one) for one in hidden) or _is_process(real):
        return
    if real == _DEVICES:
        yield from _public_devices(real, hidden)
        return
    if real != _PROCESSES and not any(is_inside(one, real) for one in hidden):
        yield real
        return
    try:
        names = sorted(os.listdir(real))  # noqa: PTH208 - the names are joined as text
    except OSError:
        return
    for name in names:
        inner = os.path.join(real, name)  # noqa: PTH118
        if not os.path.islink(inner):  # noqa: PTH114
            yield from _outside(inner, hidden)


def _public_devices(folder: str, hidden: Sequence[str]) -> Iterator[str]:
    """The devices that every user may read: the ledger can also be read from its disk."""
    try:
        entries = sorted(os.scandir(folder), key=attrgetter("name"))
    except OSError:
        return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            if entry.name in _NO_DEVICES:
                yield from _outside(entry.path, hidden)
            else:
                yield from _public_devices(entry.path, hidden)
        elif not entry.is_symlink():
            # It may be gone.
            with contextlib.suppress(OSError):
                if entry.stat().st_mode & stat.S_IROTH:
                    yield entry.path


def _is_process(path: str) -> bool:
    """Root reads the environment of every process whose files are granted; a job always has its
    own."""
    return path.startswith(f"{_PROCESSES}/") and path[6:7].isdigit()


def _interpreter_paths(plugin: Plugin, env: Mapping[str, str]) -> Iterator[str]:
    """The files of the interpreter that starts a plugin, and of its packages."""
    if plugin.python is not None:
        found: Iterable[str] = (str(plugin.python.executable),)
        if plugin.python.environment is not None:
            yield str(plugin.python.environment)
    else:
        found = _named_interpreters(str(plugin.entrypoint), env.get("PATH", ""))
    for executable in found:
        yield from _installation(Path(executable))


def _named_interpreters(entrypoint: str, search_path: str) -> Iterator[str]:
    words = os.fsdecode((first_line(entrypoint) or b"").removeprefix(b"#!")).split()
    if not (first_line(entrypoint) or b"").startswith(b"#!") or not words:
        return
    yield words[0]
    if words[0].rpartition("/")[2] == "env":
        rest = [word.removeprefix("-S") for word in words[1:]]
        named = [word for word in rest if word and not word.startswith("-") and "=" not in word]
        if named and (program := shutil.which(named[0], path=search_path)) is not None:
            yield program


def _installation(executable: Path, hops: int = _MAX_HOPS) -> Iterator[str]:
    """The executable, and the directory of a Python that it belongs to.

    The files of a plugin name it: nothing is yielded that is not an installation of Python.
    """
    if not os.access(executable, os.X_OK) or executable.is_dir():
        return
    yield str(executable)
    prefix = executable.parent.parent
    if len(prefix.parts) > 1:
        yield from _prefix_of(executable, prefix, hops)
    if executable.is_symlink() and hops:
        yield from _installation(executable.resolve(), hops - 1)


def _prefix_of(executable: Path, prefix: Path, hops: int) -> Iterator[str]:
    settings = prefix / "pyvenv.cfg"
    if settings.is_file():
        yield str(prefix)
        for line in settings.read_text(encoding="utf-8", errors="replace").splitlines():
            key, _, value = line.partition("=")
            if key.strip() == "home" and hops:
                yield from _installation(Path(value.strip()) / executable.name, hops - 1)
    elif executable.parent.name == "shims":
        # Of pyenv and its relatives: a script that looks for the interpreter around it.
        yield str(prefix)
    elif any(prefix.glob("lib/python3*/os.py")):
        yield str(prefix)
