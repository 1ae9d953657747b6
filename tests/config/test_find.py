"""The search for config.yaml."""

from __future__ import annotations

from pathlib import Path

import pytest

from ductile.config import find
from ductile.errors import ConfigError


def make(directory: Path) -> Path:
    directory.mkdir(parents=True)
    (directory / "config.yaml").write_text("{}")
    return directory / "config.yaml"


def test_file_is_used_as_given(tmp_path: Path) -> None:
    assert find(tmp_path / "my.yaml", {}) == tmp_path / "my.yaml"


def test_directory_means_its_config_yaml(tmp_path: Path) -> None:
    assert find(tmp_path, {}) == tmp_path / "config.yaml"


def test_explicit_path_precedes_the_variable(tmp_path: Path) -> None:
    given, other = make(tmp_path / "a"), make(tmp_path / "b")
    assert find(given, {"DUCTILE_CONFIG_DIR": str(other.parent)}) == given


def test_variable_precedes_home(tmp_path: Path) -> None:
    named = make(tmp_path / "a")
    make(tmp_path / ".config" / "ductile")
    assert find(None, {"DUCTILE_CONFIG_DIR": str(named.parent), "HOME": str(tmp_path)}) == named


def test_home_is_searched(tmp_path: Path) -> None:
    config = make(tmp_path / ".config" / "ductile")
    assert find(None, {"HOME": str(tmp_path)}) == config


def test_error_names_every_searched_directory(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="/etc/ductile") as caught:
        find(None, {"HOME": str(tmp_path)})
    assert str(tmp_path) in caught.value.message
    assert caught.value.exit_code == 78
