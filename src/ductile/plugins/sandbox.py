"""The sandbox of a plugin on this machine: the paths that its processes need, and the policy."""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ductile.config import bundled
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
    *("/etc/ssl", "/etc/pki", "/etc/ca-certificates", "/etc/crypto-policies"),
    *("/etc/resolv.conf", "/etc/hosts", "/etc/host.conf", "/etc/nsswitch.conf", "/etc/gai.conf"),
    *("/etc/services", "/etc/protocols", "/etc/passwd", "/etc/group", "/etc/mime.types"),
    *("/etc/localtime", "/etc/timezone", "/etc/locale.alias", "/etc/locale.conf"),
    *("/etc/alternatives", "/etc/os-release", "/proc/cpuinfo", "/proc/meminfo", "/proc/stat"),
    *("/proc/filesystems", "/proc/sys/kernel/random", "/sys/devices/system/cpu"),
)
"""What programs need to start, to resolve names, to verify certificates, and to know the time zone
and the language. Paths that do not exist are ignored."""
_MAX_HOPS = 3


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

    `private` are directories of the gateway, which no sandboxed plugin reaches whatever it is
    granted, except for its own directory, environment and workspace in them.
    """
    own = plugin.manifest.sandbox
    author = None if own is None else _resolve(own.to_spec(), plugin.directory, env)
    granted = None if operator is None else _resolve(operator, plugin.directory, env)
    spec = narrow(author, granted, rule)
    if spec.level == OFF:
        return None
    hidden = [os.path.realpath(path) for path in private]
    read = [path for one in (*SYSTEM, *(spec.read or ())) for path in _outside(one, hidden)]
    needed = [str(plugin.directory), *_interpreter_paths(plugin, env)]
    if plugin.root == bundled.directory():
        needed.append(str(plugin.root))
    for path in needed:
        inner = [one for one in hidden if is_inside(one, path) and one != path]
        read += _outside(path, inner)
    write = [path for one in spec.write or () for path in _outside(one, hidden)]
    network = spec.network if isinstance(spec.network, str) else policies.NETWORK_PORTS
    assert network is not None
    gaps = policies.find_gaps(support, network, spec.processes or 0)
    wanted = [policies.FILES, policies.SOCKETS, policies.PROCESSES, policies.SIGNALS]
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
    if any(is_inside(real, one) for one in hidden):
        return
    if not any(is_inside(one, real) for one in hidden):
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
    """The executable, and the directory of a Python that it belongs to."""
    yield str(executable)
    prefix = executable.parent.parent
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
    elif len(prefix.parts) > 1 and any(prefix.glob("lib/python3*")):
        yield str(prefix)
    if executable.is_symlink() and hops:
        yield from _installation(executable.resolve(), hops - 1)
