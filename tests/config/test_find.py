"""Which configuration is meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from ductile.config import find
from ductile.errors import ConfigError


def make(directory: Path) -> Path:
    directory.mkdir(parents=True)
    (directory / "config.yaml").write_text("{}")
    return directory / "config.yaml"


def test_a_file_is_meant_as_it_is(tmp_path: Path) -> None:
    assert find(tmp_path / "my.yaml", {}) == tmp_path / "my.yaml"


def test_a_directory_means_its_config_yaml(tmp_path: Path) -> None:
    assert find(tmp_path, {}) == tmp_path / "config.yaml"


def test_the_flag_comes_before_the_variable(tmp_path: Path) -> None:
    given, other = make(tmp_path / "a"), make(tmp_path / "b")
    assert find(given, {"DUCTILE_CONFIG_DIR": str(other.parent)}) == given


def test_the_variable_comes_before_home(tmp_path: Path) -> None:
    named = make(tmp_path / "a")
    make(tmp_path / ".config" / "ductile")
    assert find(None, {"DUCTILE_CONFIG_DIR": str(named.parent), "HOME": str(tmp_path)}) == named


def test_home_is_looked_in(tmp_path: Path) -> None:
    config = make(tmp_path / ".config" / "ductile")
    assert find(None, {"HOME": str(tmp_path)}) == config


def test_where_nothing_is_found_all_places_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="/etc/ductile") as caught:
        find(None, {"HOME": str(tmp_path)})
    assert str(tmp_path) in caught.value.message
    assert caught.value.exit_code == 78
