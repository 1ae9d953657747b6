"""The directory of the plugins that are part of the package."""

from __future__ import annotations

from pathlib import Path

ROOT = "bundled:"
"""The name of that directory in `plugin_roots`."""


def directory() -> Path:
    """`bundled/` of an installed package, or `plugins/` of a checkout."""
    package = Path(__file__).resolve().parents[1]
    shipped = package / "bundled"
    return shipped if shipped.is_dir() else package.parents[1] / "plugins"


def has_plugin(name: str) -> bool:
    """Whether a bundled plugin has this name."""
    return (
        name.isprintable() and "/" not in name and (directory() / name / "manifest.yaml").is_file()
    )
