"""Loading a configuration imports only what it needs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import BaseModel

from ductile.config.models.http import AuthSettings
from ductile.config.models.plugin import BreakerSettings, PluginSettings, RetrySettings
from ductile.plugins.manifest import ConfigKeys, Values

SCRIPT = """
import sys, pathlib
from ductile.config import load
load(pathlib.Path(sys.argv[1]), environ={})
print(*sys.modules)
"""
NOT_NEEDED = {
    "asyncio",
    "cronsim",
    "difflib",
    "ductile.clock",
    "ductile.config.schema",
    "ductile.config.init_template",
    "ductile.core.schedules.cron",
    "re2",
    "http.client",
}


def test_small_configuration_loads_without_unused_modules(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("plugins: {p: {schedules: [{every: 5m}]}}")
    command = [sys.executable, "-c", SCRIPT, str(tmp_path)]
    loaded = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert NOT_NEEDED & set(loaded) == set()


@pytest.mark.parametrize(
    "kind", [AuthSettings, BreakerSettings, ConfigKeys, PluginSettings, RetrySettings, Values]
)
def test_unvalidated_defaults_equal_validated_ones(
    kind: type[BaseModel],
) -> None:
    assert kind.model_construct() == kind()
    assert kind.model_construct().model_dump() == kind().model_dump()
