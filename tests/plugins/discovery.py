"""Shorthand for plugin discovery."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ductile.plugins.discover import discover
from ductile.plugins.registry import InstanceSpec, Plugin, Registry

MakePlugin = Callable[..., Path]


def find(*roots: Path, allow_symlinks: bool = False, **instances: InstanceSpec) -> Registry:
    return discover(roots, instances, allow_symlinks=allow_symlinks)


def get_loaded(registry: Registry, name: str = "echo") -> Plugin:
    assert registry.refused == ()
    return registry.plugins[name]


def get_reason(registry: Registry, name: str = "echo") -> str:
    assert name not in registry.plugins
    [refused] = registry.refused
    assert refused.name == name
    return refused.reason
