from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine.conftest import site  # noqa: F401 - a fixture
from tests.plugins.discovery import MakePlugin

MANIFEST = """\
manifest_spec: ductile.plugin
manifest_version: 1
name: {name}
version: 1.0.0
protocol: 2
entrypoint: run.py
commands: {{poll: {{type: read}}, handle: }}
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / "plugins"
    path.mkdir(mode=0o755)
    return path


@pytest.fixture
def make_plugin(root: Path) -> MakePlugin:
    """Writes a valid plugin, which a test can then make invalid."""

    def make(
        name: str = "echo",
        *,
        within: Path = root,
        manifest: str = MANIFEST,
        extra: str = "",
        entrypoint: str | None = "run.py",
    ) -> Path:
        directory = within / name
        directory.mkdir(mode=0o755, parents=True)
        path = directory / "manifest.yaml"
        path.write_text(manifest.format(name=name) + extra)
        path.chmod(0o644)
        if entrypoint is not None:
            (directory / entrypoint).write_text("#!/bin/sh\n")
            (directory / entrypoint).chmod(0o755)
        return directory

    return make
