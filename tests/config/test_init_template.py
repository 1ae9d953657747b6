"""`config init`."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
import yaml

from ductile.config import load
from ductile.config.init_template import CONFIG, PIPELINES, init
from ductile.errors import Refused
from tests.config.conftest import ConfigDir


def test_template_is_a_valid_configuration(tmp_path: Path) -> None:
    init(tmp_path / "new")
    assert load(tmp_path / "new", environ={}).warnings == ()


def test_files_are_readable_by_the_owner_alone(tmp_path: Path) -> None:
    for path in init(tmp_path / "new"):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600)


def test_created_parents_are_readable_by_the_owner_alone(tmp_path: Path) -> None:
    init(tmp_path / "a" / "b")
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o700


@pytest.mark.parametrize("name", ["config.yaml", "pipelines.yaml"])
def test_existing_files_are_not_overwritten(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("mine")
    with pytest.raises(Refused, match=name):
        init(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == "mine"


def test_existing_directory_keeps_its_mode(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    assert tmp_path not in init(tmp_path)
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755


def test_write_error_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Refused, match="cannot write"):
        init(tmp_path / "file" / "new")


def uncomment(text: str) -> str:
    """The template with its examples uncommented."""
    lines = [
        line
        for line in text.splitlines()
        if line not in ("plugins: {}", "pipelines: []", "routes: []")
    ]
    body = "\n".join(lines)
    for key in ("plugins", "pipelines", "routes"):
        if (
            f"{key}: " in text
            and (
                first := {
                    "plugins": "#   echo:",
                    "pipelines": "#   - name: greet",
                    "routes": "#   - from: echo",
                }[key]
            )
            in body
        ):
            body = body.replace(first, f"{key}:\n{first}")
    kept = []
    for line in body.splitlines():
        plain = line.removeprefix("# ") if line.startswith("# ") else line
        if line.startswith("# ") and not plain.startswith(" ") and not plain.rstrip().endswith(":"):
            continue
        kept.append(plain)
    return "\n".join(kept)


def test_commented_examples_are_valid(config_dir: ConfigDir) -> None:
    config = uncomment(CONFIG)
    assert set(yaml.safe_load(config)) >= {"plugins", "api", "webhooks"}
    files = {"config.yaml": config, "pipelines.yaml": uncomment(PIPELINES)}
    settings = config_dir.load(
        files, DUCTILE_API_TOKEN="t0ken-value", GITHUB_WEBHOOK_SECRET="s"
    ).settings
    assert settings.plugins["echo"].schedules[0].window == "08:00-22:00"
    assert (len(settings.pipelines), len(settings.routes)) == (1, 1)
    assert settings.webhooks.endpoints[0].provider == "github"
