"""A new plugin out of templates: it works as it is made, and its own test passes."""

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


def contents(name: str, language: str) -> Mapping[str, str]:
    """The files of a new plugin by name; `UsageError` for a name that no plugin can have."""
    if not is_plugin_name(name):
        raise UsageError(f"{name!r} is no plugin name; it must match {NAME_PATTERN}, not core.*")
    folder = files("ductile") / "scaffold" / language
    # `true` and `1e3` are names as well, but YAML would take them for something else.
    scalar = name if yaml.safe_load(name) == name else f'"{name}"'
    return {
        entry.name.removesuffix(_TEMPLATE): entry.read_text(encoding="utf-8")
        .replace(f"name: {_NAME}", f"name: {scalar}")
        .replace(_NAME, name)
        for entry in sorted(folder.iterdir(), key=lambda entry: entry.name)
        if entry.name.endswith(_TEMPLATE)
    }


def create(root: Path, name: str, language: str) -> list[Path]:
    """Make a plugin in `root`, whole or not at all; the paths of its files.

    Nothing is ever overwritten.
    """
    texts = contents(name, language)
    target = root / name
    refuse_to_overwrite(target)
    try:
        directory.create(root)
        # Hidden until it is complete: a gateway that looks meanwhile passes it over.
        draft = Path(mkdtemp(prefix=f".{name}.", dir=root))
        try:
            for file, text in texts.items():
                runs = text.startswith("#!")
                directory.write_new(draft / file, text.encode(), executable=runs)
            draft.rename(target)
        except BaseException:
            shutil.rmtree(draft, ignore_errors=True)
            raise
    except OSError as error:
        raise Refused(f"cannot write {error.filename or target}: {error.strerror}") from error
    return [target / file for file in texts]


def refuse_to_overwrite(target: Path) -> None:
    if os.path.lexists(target):
        raise Refused(f"{target} exists; nothing was written", path=str(target))
