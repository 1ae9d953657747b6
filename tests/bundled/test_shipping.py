"""The bundled plugins, from the checkout to an installed package: named, found and run."""

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
from ductile.plugins.registry import InstanceSpec, discover
from tests.bundled.house import NAMES, PLUGINS
from tests.config.conftest import ConfigDir
from tests.engine.site import Site
from tests.waiting import WAIT_LIMIT

ROOT = PLUGINS.parent
HOLDS = (
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
    """Where `pip` put the wheel, and nothing else."""
    target = tmp_path_factory.mktemp("target")
    options = ("--no-deps", "--no-index", "--no-compile", "--quiet", "--disable-pip-version-check")
    command = (sys.executable, "-m", "pip", "install", *options, "--target", str(target))
    subprocess.run([*command, str(wheel)], check=True, capture_output=True)
    return target


# The name


@pytest.fixture
def home(tmp_path: Path) -> ConfigDir:
    return ConfigDir(tmp_path)


@pytest.mark.parametrize("text", ['plugin_roots: [p, "bundled:"]', 'plugin_roots: ["bundled:", p]'])
def test_a_configuration_names_them_among_its_roots(home: ConfigDir, text: str) -> None:
    roots = home.load(text).settings.plugin_roots
    assert set(roots) == {home.path / "p", PLUGINS}
    assert (roots[0] == PLUGINS) is text.endswith("p]")


def test_they_can_be_the_only_root(home: ConfigDir) -> None:
    assert home.load('plugins_dir: "bundled:"').settings.plugin_roots == (PLUGINS,)


def test_a_folder_of_that_name_is_still_a_folder(home: ConfigDir) -> None:
    assert home.load("plugin_roots: [./bundled]").settings.plugin_roots == (home.path / "bundled",)


def test_without_quotes_yaml_reads_something_else(home: ConfigDir) -> None:
    with pytest.raises(ConfigError) as caught:
        home.load("plugin_roots:\n  - bundled:\n")
    assert '"bundled:" in quotes' in str(caught.value)


def test_an_editor_is_told_of_it() -> None:
    roots = json_schema("config")["properties"]["plugin_roots"]
    assert "bundled:" in json.dumps(roots["examples"])
    assert "bundled:" in roots["description"]


def test_in_a_checkout_they_are_the_repositorys_own() -> None:
    assert bundled.directory() == PLUGINS


# What is loaded of them


def test_only_those_are_loaded_that_the_configuration_names() -> None:
    instances = {
        "echo": InstanceSpec(),
        "mail": InstanceSpec(uses="notify", config={"channels": []}),
        "switch": InstanceSpec(enabled=False),
    }
    registry = discover([PLUGINS], instances, allow_symlinks=False, offers=[PLUGINS])
    assert set(registry.plugins) == {"echo", "mail"}
    assert registry.refused == ()
    assert set(registry.offered) == set(NAMES) - {"echo", "switch"}


def test_a_plugin_of_ones_own_goes_before_them(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.plugin("echo", "echo '{}'")
    registry = discover([site.plugins, PLUGINS], {}, allow_symlinks=False, offers=[PLUGINS])
    assert registry.plugins["echo"].root == site.plugins
    assert [shadowed.name for shadowed in registry.shadowed] == ["echo"]
    assert "echo" not in registry.offered


def test_a_route_to_one_that_is_not_named_says_how_to_name_it(home: ConfigDir) -> None:
    text = 'plugins_dir: "bundled:"\nroutes: [{from: echo, event_type: x, to: echo}]'
    with pytest.raises(ConfigError) as caught:
        build(home.load(text), boot_marker="b", environ={})
    assert "`echo: {}` under plugins" in str(caught.value)
    build(home.load(f"{text}\nplugins: {{echo: {{}}}}"), boot_marker="b", environ={})


# The package


def test_the_wheel_holds_all_that_is_needed_and_no_more(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert set(HOLDS) - names == set()
    for name in NAMES:
        assert f"ductile/bundled/{name}/manifest.yaml" in names
        assert f"ductile/bundled/{name}/README.md" in names
    top = {name.partition("/")[0] for name in names}
    assert {name for name in top if not name.endswith(".dist-info")} == {"ductile"}
    assert [name for name in names if "__pycache__" in name] == []


def test_an_installed_plugin_is_executable_and_nobody_elses(installed: Path) -> None:
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


def test_an_installed_package_finds_and_runs_its_own(installed: Path, tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text('plugins_dir: "bundled:"\nplugins: {echo: {config: {message: there}}}\n')
    listed = ductile(installed, "plugin", "list", "--json", "--config", str(tmp_path))
    rows = {row["name"]: row for row in json.loads(listed.stdout)["plugins"]}
    assert set(rows) == set(NAMES)
    assert rows["echo"]["state"] == "ready"
    assert rows["echo"]["path"] == str(installed / "ductile" / "bundled" / "echo")
    assert {row["state"] for name, row in rows.items() if name != "echo"} == {"available"}
    ran = ductile(installed, "plugin", "run", "echo", "--json", "--config", str(tmp_path))
    assert json.loads(ran.stdout)["result"]["result"] == "there"
