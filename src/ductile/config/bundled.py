"""Where the plugins are that come with the package."""

from __future__ import annotations

from pathlib import Path

ROOT = "bundled:"
"""How a configuration names that directory among its plugin roots."""


def directory() -> Path:
    """In an installed package its own `bundled/`; in a checkout the repository's `plugins/`."""
    package = Path(__file__).resolve().parents[1]
    shipped = package / "bundled"
    return shipped if shipped.is_dir() else package.parents[1] / "plugins"
