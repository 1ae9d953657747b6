"""How a Python plugin is started warm: with the interpreter that starts it cold."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping, Sequence

from blake3 import blake3

from ductile.model import WarmStart
from ductile.plugins.environments.requirements import starts_python
from ductile.plugins.registry import Plugin
from ductile.runner.exec_errors import first_line

_OPTION = re.compile(r"-[bBdEIOPsSuvR]+")
"""Options of the interpreter that take no value."""


class NoWarmStart(Exception):
    """The plugin cannot be started warm; the message says why."""


def find_warm_start(plugin: Plugin, preload: Sequence[str], env: Mapping[str, str]) -> WarmStart:
    """Raises `NoWarmStart`."""
    entrypoint = str(plugin.entrypoint)
    line = first_line(entrypoint) or b""
    if plugin.python is not None:
        command: tuple[str, ...] = (str(plugin.python.executable),)
    else:
        command = _read_command(line, env.get("PATH", ""))
    texts = (*command, entrypoint, os.fsdecode(line), *preload, *(f"{k}={env[k]}" for k in env))
    return WarmStart(
        plugin=plugin.name,
        key=blake3("\0".join(texts).encode("utf-8", "surrogateescape")).hexdigest(16),
        command=command,
        entrypoint=entrypoint,
        first_line=os.fsdecode(line),
        preload=tuple(preload),
        env=env,
    )


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
