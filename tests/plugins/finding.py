"""Discovery in the words of the tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ductile.plugins.registry import InstanceSpec, Plugin, Registry, discover

MakePlugin = Callable[..., Path]


def found(*roots: Path, allow_symlinks: bool = False, **instances: InstanceSpec) -> Registry:
    return discover(roots, instances, allow_symlinks=allow_symlinks)


def loaded(registry: Registry, name: str = "echo") -> Plugin:
    assert registry.refused == ()
    return registry.plugins[name]


def reason(registry: Registry, name: str = "echo") -> str:
    assert name not in registry.plugins
    [refusal] = registry.refused
    assert refusal.name == name
    return refusal.reason
