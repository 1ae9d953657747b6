"""How a Python plugin is started warm: with the interpreter that starts it cold."""

from __future__ import annotations

import os
import pwd
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from blake3 import blake3

from ductile.core.jobs.sandbox import is_inside
from ductile.model import WarmStart
from ductile.plugins.environments.requirements import starts_python
from ductile.plugins.registry import Plugin
from ductile.runner.exec_errors import first_line

_OPTION = re.compile(r"-[bBdEIOPsSuvR]+")
"""Options of the interpreter that take no value."""


_MAX_LINKS = 40
"""As many as the kernel follows."""
_HARMLESS = frozenset(
    {
        *("PYTHONDONTWRITEBYTECODE", "PYTHONHASHSEED", "PYTHONIOENCODING", "PYTHONUNBUFFERED"),
        *("PYTHONUTF8", "PYTHONOPTIMIZE", "PYTHONFAULTHANDLER", "PYTHONNOUSERSITE"),
    }
)
"""Variables of Python that name no code."""
_NAME_CODE = ("PYTHON", "LD_", "GCONV_", "OPENSSL_")
"""How variables begin with which an interpreter, its loader or its libraries load other code."""
_RUNS_AT_IMPORT = "__main__"
"""Such modules are programs: that of `unittest` imports files of the working directory."""


class NoWarmStart(Exception):
    """The plugin cannot be started warm; the message says why."""


def find_warm_start(
    plugin: Plugin,
    preload: Sequence[str],
    env: Mapping[str, str],
    written: Sequence[str] | None = None,
) -> WarmStart:
    """Raises `NoWarmStart`. `written` is what a sandboxed plugin may write to; None: no sandbox."""
    entrypoint = str(plugin.entrypoint)
    line = first_line(entrypoint) or b""
    if plugin.python is not None:
        command: tuple[str, ...] = (str(plugin.python.executable),)
    else:
        command = _read_command(line, env.get("PATH", ""))
    if written is not None:
        _check_confined(plugin, command[0], env, written)
        if any(_RUNS_AT_IMPORT in name.split(".") for name in preload):
            raise NoWarmStart(f"it has a sandbox, and {_RUNS_AT_IMPORT} would run outside")
    mode = "confined" if written is not None else "free"
    texts = (
        mode,
        *command,
        entrypoint,
        os.fsdecode(line),
        *preload,
        *(f"{k}={env[k]}" for k in env),
    )
    return WarmStart(
        plugin=plugin.name,
        key=blake3("\0".join(texts).encode("utf-8", "surrogateescape")).hexdigest(16),
        command=command,
        entrypoint=entrypoint,
        first_line=os.fsdecode(line),
        preload=tuple(preload),
        env=env,
        is_confined=written is not None,
    )


def _check_confined(
    plugin: Plugin, python: str, env: Mapping[str, str], written: Sequence[str]
) -> None:
    """Refuse where code of the plugin would run in the zygote, which has no sandbox: an interpreter
    executes what is in its environment before the first job."""
    if plugin.python is not None and plugin.python.environment is not None:
        raise NoWarmStart(
            "it has a sandbox and an environment of its own, whose packages may execute code when "
            "the interpreter starts, before a job is confined"
        )
    for name in env:
        if name.startswith(_NAME_CODE) and name not in _HARMLESS:
            raise NoWarmStart(f"it has a sandbox, and {name} can name code to be executed outside")
    for executable in _follow_links(Path(python).absolute()):
        prefix = str(executable.parent.parent)
        changed = any(is_inside(str(executable), one) or is_inside(one, prefix) for one in written)
        if changed or executable.is_relative_to(plugin.directory):
            raise NoWarmStart("it has a sandbox, and it can change the interpreter that starts it")
    # As Python finds it, also without HOME.
    home = env["HOME"] if "HOME" in env else _home_of_user()
    user = os.path.realpath(f"{home}/.local")
    if any(is_inside(one, user) or is_inside(user, one) for one in written):
        raise NoWarmStart("it has a sandbox, and it can change packages that its interpreter loads")


def _home_of_user() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        return "/nonexistent"


def _follow_links(path: Path) -> Iterator[Path]:
    """A file and what it is a link to, each in its real directory."""
    for _ in range(_MAX_LINKS):
        path = path.parent.resolve() / path.name
        yield path
        if not path.is_symlink():
            return
        path = path.parent / path.readlink()


def _read_command(line: bytes, search_path: str) -> tuple[str, ...]:
    """The interpreter that a shebang line names, and its options."""
    if not starts_python(line + b"\n"):
        raise NoWarmStart("its first line does not name a Python interpreter")
    words = os.fsdecode(line[2:]).split()
    if words[0].rpartition("/")[2] == "env":
        words = [word for word in (word.removeprefix("-S") for word in words[1:]) if word]
    found = words[0] if "/" in words[0] else shutil.which(words[0], path=search_path)
    if found is None or not os.access(found, os.X_OK):
        raise NoWarmStart(f"`{words[0]}` is not installed")
    if not all(_OPTION.fullmatch(word) for word in words[1:]):
        raise NoWarmStart("its first line has options that a zygote does not support")
    return (found, *words[1:])
