"""The bundled plugins in a configuration, a wheel and an installed package."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from ductile.config import bundled
from ductile.config.schema import json_schema
from ductile.engine.config.compiled import build
from ductile.errors import ConfigError
from ductile.plugins.discover import discover
from ductile.plugins.registry import InstanceSpec
from tests.bundled.bundled_site import NAMES, PLUGINS
from tests.config.conftest import ConfigDir
from tests.engine.site import Site
from tests.waiting import WAIT_LIMIT

ROOT = PLUGINS.parent
EXPECTED = (
    "ductile/store/migrations/0001_spine.sql",
    "ductile/store/sql/claim.sql",
    "ductile/demo/config.yaml",
    "ductile/demo/plugins/weather/run.py",
    "ductile/bundled/lib/protocol.py",
    "ductile/py.typed",
)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = (sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory")
    subprocess.run([*command, str(folder)], cwd=ROOT, check=True, capture_output=True)
    [built] = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the installed wheel only."""
    target = tmp_path_factory.mktemp("target")
    options = ("--no-deps", "--no-index", "--no-compile", "--quiet", "--disable-pip-version-check")
    command = (sys.executable, "-m", "pip", "install", *options, "--target", str(target))
    subprocess.run([*command, str(wheel)], check=True, capture_output=True)
    return target


# `bundled:` in plugin_roots


@pytest.fixture
def config_dir(tmp_path: Path) -> ConfigDir:
    return ConfigDir(tmp_path)


@pytest.mark.parametrize("text", ['plugin_roots: [p, "bundled:"]', 'plugin_roots: ["bundled:", p]'])
def test_bundled_root_is_resolved(config_dir: ConfigDir, text: str) -> None:
    roots = config_dir.load(text).settings.plugin_roots
    assert set(roots) == {config_dir.path / "p", PLUGINS}
    assert (roots[0] == PLUGINS) is text.endswith("p]")


def test_bundled_root_may_be_the_only_one(config_dir: ConfigDir) -> None:
    assert config_dir.load('plugins_dir: "bundled:"').settings.plugin_roots == (PLUGINS,)


def test_directory_named_bundled_is_a_directory(config_dir: ConfigDir) -> None:
    assert config_dir.load("plugin_roots: [./bundled]").settings.plugin_roots == (
        config_dir.path / "bundled",
    )


def test_unquoted_bundled_root_is_rejected_with_advice(config_dir: ConfigDir) -> None:
    with pytest.raises(ConfigError) as caught:
        config_dir.load("plugin_roots:\n  - bundled:\n")
    assert '"bundled:" in quotes' in str(caught.value)


def test_schema_mentions_the_bundled_root() -> None:
    roots = json_schema("config")["properties"]["plugin_roots"]
    assert "bundled:" in json.dumps(roots["examples"])
    assert "bundled:" in roots["description"]


def test_bundled_directory_of_a_checkout() -> None:
    assert bundled.directory() == PLUGINS


# Loading


def test_bundled_plugins_are_loaded_only_if_configured() -> None:
    instances = {
        "echo": InstanceSpec(),
        "mail": InstanceSpec(uses="notify", config={"channels": []}),
        "switch": InstanceSpec(enabled=False),
    }
    registry = discover([PLUGINS], instances, allow_symlinks=False, offers=[PLUGINS])
    assert set(registry.plugins) == {"echo", "mail"}
    assert registry.refused == ()
    assert set(registry.offered) == set(NAMES) - {"echo", "switch"}


def test_own_plugin_shadows_a_bundled_one(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.plugin("echo", "echo '{}'")
    registry = discover([site.plugins, PLUGINS], {}, allow_symlinks=False, offers=[PLUGINS])
    assert registry.plugins["echo"].root == site.plugins
    assert [shadowed.name for shadowed in registry.shadowed] == ["echo"]
    assert "echo" not in registry.offered


def test_route_to_an_unconfigured_bundled_plugin_is_reported_with_advice(
    config_dir: ConfigDir,
) -> None:
    text = 'plugins_dir: "bundled:"\nroutes: [{from: echo, event_type: x, to: echo}]'
    with pytest.raises(ConfigError) as caught:
        build(config_dir.load(text), boot_marker="b", environ={})
    assert "`echo: {}` under plugins" in str(caught.value)
    build(config_dir.load(f"{text}\nplugins: {{echo: {{}}}}"), boot_marker="b", environ={})


# Package


def test_wheel_has_exactly_the_needed_files(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert set(EXPECTED) - names == set()
    for name in NAMES:
        assert f"ductile/bundled/{name}/manifest.yaml" in names
        assert f"ductile/bundled/{name}/README.md" in names
    top = {name.partition("/")[0] for name in names}
    assert {name for name in top if not name.endswith(".dist-info")} == {"ductile"}
    assert [name for name in names if "__pycache__" in name] == []


def test_installed_plugin_is_executable_and_not_world_writable(installed: Path) -> None:
    folder = installed / "ductile" / "bundled"
    for name in NAMES:
        mode = (folder / name / "run.py").stat().st_mode
        assert mode & stat.S_IXUSR
        assert not mode & stat.S_IWOTH


def ductile(installed: Path, *line: str) -> subprocess.CompletedProcess[str]:
    environ: Mapping[str, str] = {**os.environ, "PYTHONPATH": str(installed)}
    return subprocess.run(
        [sys.executable, "-P", "-m", "ductile", *line],
        env=environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=WAIT_LIMIT,
    )


def test_installed_package_runs_its_bundled_plugins(installed: Path, tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text('plugins_dir: "bundled:"\nplugins: {echo: {config: {message: there}}}\n')
    listed = ductile(installed, "plugin", "list", "--json", "--config", str(tmp_path))
    rows = {row["name"]: row for row in json.loads(listed.stdout)["plugins"]}
    assert set(rows) == set(NAMES)
    assert rows["echo"]["state"] == "ready"
    assert rows["echo"]["path"] == str(installed / "ductile" / "bundled" / "echo")
    assert {row["state"] for name, row in rows.items() if name != "echo"} == {"available"}
    done = ductile(installed, "plugin", "run", "echo", "--json", "--config", str(tmp_path))
    assert json.loads(done.stdout)["result"]["result"] == "there"
