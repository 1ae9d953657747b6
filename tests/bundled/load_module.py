"""Import a module of a plugin into the test process."""

from __future__ import annotations

import importlib.util
import sys
from functools import cache
from types import ModuleType

from tests.bundled.bundled_site import PLUGINS


@cache
def load_module(plugin: str, module: str) -> ModuleType:
    """The module under a unique name; plugin modules that it imports are not kept."""
    folders = [str(PLUGINS / plugin), str(PLUGINS / "lib")]
    spec = importlib.util.spec_from_file_location(
        f"bundled_{plugin.replace('-', '_')}_{module}", PLUGINS / plugin / f"{module}.py"
    )
    assert spec is not None
    assert spec.loader is not None
    path, before = list(sys.path), set(sys.modules)
    try:
        sys.path[:0] = folders
        loaded = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(loaded)
        return loaded
    finally:
        sys.path[:] = path
        for name in set(sys.modules) - before:
            file = getattr(sys.modules[name], "__file__", None) or ""
            if file.startswith(str(PLUGINS)):
                del sys.modules[name]
