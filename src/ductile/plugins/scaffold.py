"""`plugin new`: create a working plugin with a passing test from templates."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from tempfile import mkdtemp

import yaml

from ductile import files as directory
from ductile.errors import Refused, UsageError
from ductile.plugins.manifest import NAME_PATTERN, is_plugin_name

_TEMPLATE = ".in"
_NAME = "@NAME@"


def render_files(name: str, language: str) -> Mapping[str, str]:
    """The files of a new plugin by name; `UsageError` for an invalid name."""
    if not is_plugin_name(name):
        raise UsageError(f"{name!r} is not a valid plugin name; it must match {NAME_PATTERN}")
    folder = files("ductile") / "scaffold" / language
    # `true` and `1e3` are valid names, but YAML would read them as other types.
    scalar = name if yaml.safe_load(name) == name else f'"{name}"'
    return {
        entry.name.removesuffix(_TEMPLATE): entry.read_text(encoding="utf-8")
        .replace(f"name: {_NAME}", f"name: {scalar}")
        .replace(_NAME, name)
        for entry in sorted(folder.iterdir(), key=lambda entry: entry.name)
        if entry.name.endswith(_TEMPLATE)
    }


def create(root: Path, name: str, language: str) -> list[Path]:
    """Create a plugin in `root` atomically and return the paths of its files.

    Existing files are never overwritten.
    """
    texts = render_files(name, language)
    target = root / name
    refuse_to_overwrite(target)
    try:
        directory.create(root)
        # Hidden until it is complete, so a gateway that scans the root meanwhile ignores it.
        draft = Path(mkdtemp(prefix=f".{name}.", dir=root))
        try:
            for file, text in texts.items():
                is_script = text.startswith("#!")
                directory.write_new(draft / file, text.encode(), executable=is_script)
            draft.rename(target)
        except BaseException:
            shutil.rmtree(draft, ignore_errors=True)
            raise
    except OSError as error:
        raise Refused(f"cannot write {error.filename or target}: {error.strerror}") from error
    return [target / file for file in texts]


def refuse_to_overwrite(target: Path) -> None:
    if os.path.lexists(target):
        raise Refused(f"{target} already exists; nothing was written", path=str(target))
