"""Every bundled plugin loads, is documented, and starts fast."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ductile.config import load
from ductile.plugins.discover import discover
from ductile.plugins.manifest import Manifest
from ductile.plugins.read_manifest import read_manifest
from ductile.plugins.registry import InstanceSpec
from tests.bundled.bundled_site import NAMES, PLUGINS, find_undeclared, interpreter_path
from tests.waiting import WAIT_LIMIT

LIB = PLUGINS / "lib"
HEAVY = {"ssl", "http.client", "urllib.request", "email", "asyncio", "dataclasses", "inspect"}
CONFIG_KEY = re.compile(r"""\bconfig(?:\.get\(|\[)["'](\w+)["']""")
REQUEST = {"protocol": 2, "job_id": "j", "command": "no-such-command", "config": {}, "state": {}}


def get_manifest(name: str) -> Manifest:
    manifest, warnings = read_manifest((PLUGINS / name / "manifest.yaml").read_bytes())
    assert warnings == ()
    return manifest


def sources(name: str) -> list[Path]:
    return sorted((PLUGINS / name).glob("*.py"))


def list_settings(manifest: Manifest) -> list[str]:
    keys = manifest.config_keys
    return [*keys.required_names(), *(key.name for key in keys.optional)]


def environment() -> dict[str, str]:
    return {"PATH": interpreter_path(os.environ["PATH"]), "LANG": "C.UTF-8"}


def test_plugins_are_found() -> None:
    assert {"withings", "garmin", "google-calendar", "health-analyzer"} <= set(NAMES)


def test_every_plugin_loads_without_warnings() -> None:
    instances = {
        name: InstanceSpec(
            config=dict.fromkeys(get_manifest(name).config_keys.required_names(), "x")
        )
        for name in NAMES
    }
    registry = discover([PLUGINS], instances, allow_symlinks=False)
    assert registry.refused == ()
    assert registry.warnings == ()
    assert set(registry.plugins) == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_manifest_has_descriptions_and_schemas(name: str) -> None:
    manifest = get_manifest(name)
    assert (manifest.name, manifest.protocol) == (name, 2)
    assert manifest.version
    assert manifest.description
    for command in manifest.commands:
        assert command.description, command.name
        for emission in command.values.emit:
            assert emission.values, f"{command.name} emits {emission.event} without fields"


@pytest.mark.parametrize("name", NAMES)
def test_readme_names_every_command_setting_event_and_field(name: str) -> None:
    manifest = get_manifest(name)
    text = (PLUGINS / name / "README.md").read_text()
    emissions = [one for command in manifest.commands for one in command.values.emit]
    wanted = {
        *(command.name for command in manifest.commands),
        *list_settings(manifest),
        *(emission.event for emission in emissions),
        *(field for emission in emissions for field in emission.values),
    }
    missing = [
        word for word in sorted(wanted) if not re.search(rf"`[^`]*{re.escape(word)}[^`]*`", text)
    ]
    assert missing == []
    assert "```yaml" in text


@pytest.mark.parametrize("name", NAMES)
def test_configurations_of_a_readme_are_valid(name: str, tmp_path: Path) -> None:
    text = (PLUGINS / name / "README.md").read_text()
    for index, block in enumerate(re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)):
        path = tmp_path / f"{index}" / "config.yaml"
        path.parent.mkdir()
        path.write_text(block)
        environ = dict.fromkeys(re.findall(r"\$\{(\w+)", block), "some-value")
        loaded = load(path, environ=environ)
        assert name in loaded.settings.plugins, "the example configures another plugin"


@pytest.mark.parametrize("name", NAMES)
def test_every_setting_is_declared(name: str) -> None:
    read = {key for path in sources(name) for key in CONFIG_KEY.findall(path.read_text())}
    assert read <= set(list_settings(get_manifest(name)))


def list_imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(), str(path), feature_version=(3, 11))):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.partition(".")[0]


@pytest.mark.parametrize("name", [*NAMES, "lib"])
def test_plugins_import_only_the_standard_library(name: str) -> None:
    own = {path.stem for path in [*sources(name), *LIB.glob("*.py")]}
    used = {module for path in sources(name) for module in list_imports(path)}
    assert used - own <= sys.stdlib_module_names
    assert not own & sys.stdlib_module_names, "a module hides one of the standard library"


@pytest.mark.parametrize("name", NAMES)
def test_expensive_modules_are_imported_lazily(name: str) -> None:
    done = subprocess.run(
        ["python3", "-X", "importtime", PLUGINS / name / get_manifest(name).entrypoint],
        input=json.dumps(REQUEST).encode(),
        capture_output=True,
        env=environment(),
        timeout=WAIT_LIMIT,
        check=False,
    )
    response = json.loads(done.stdout)
    assert (response["status"], response["retry"]) == ("error", False), "unknown command"
    lines = done.stderr.decode().splitlines()
    modules = {line.rpartition("|")[2].strip() for line in lines if line.startswith("import time:")}
    assert "json" in modules
    assert modules & HEAVY == set()


def test_list_of_plugins_is_complete() -> None:
    text = (PLUGINS / "README.md").read_text()
    assert [name for name in NAMES if f"[{name}]({name}/README.md)" not in text] == []
    listed = {line.split("`")[1] for line in text.splitlines() if line.startswith("| `")}
    assert listed <= {path.name for path in (PLUGINS / "lib").iterdir()}


@pytest.mark.parametrize(
    ("command", "event", "problem"),
    [
        ("poll", {"type": "new_health_data", "payload": {"record": "1", "result": "x"}}, None),
        ("poll", {"type": "surprise", "payload": {}}, "surprise"),
        ("poll", {"type": "new_health_data", "payload": {"colour": "red"}}, "colour"),
        ("refresh", {"type": "new_health_data", "payload": {}}, "refresh"),
    ],
)
def test_undeclared_events_are_detected(
    command: str, event: dict[str, Any], problem: str | None
) -> None:
    found = find_undeclared(get_manifest("withings"), command, event)
    assert (found is None) is (problem is None)
    assert problem is None or problem in (found or "")
