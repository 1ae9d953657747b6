"""The first configuration."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
import yaml

from ductile.config import load
from ductile.config.init_template import CONFIG, PIPELINES, init
from ductile.errors import Refused
from tests.config.conftest import Home


def test_it_loads_as_it_is(tmp_path: Path) -> None:
    init(tmp_path / "new")
    assert load(tmp_path / "new", environ={}).warnings == ()


def test_it_is_its_owners_alone(tmp_path: Path) -> None:
    for path in init(tmp_path / "new"):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600)


def test_what_is_made_above_it_is_too(tmp_path: Path) -> None:
    init(tmp_path / "a" / "b")
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o700


@pytest.mark.parametrize("name", ["config.yaml", "pipelines.yaml"])
def test_nothing_is_overwritten(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("mine")
    with pytest.raises(Refused, match=name):
        init(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == "mine"


def test_an_existing_directory_keeps_its_mode(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    assert tmp_path not in init(tmp_path)
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755


def test_where_nothing_can_be_written_it_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Refused, match="cannot write"):
        init(tmp_path / "file" / "new")


def uncommented(text: str) -> str:
    """The examples taken at their word."""
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


def test_its_commented_examples_are_right(home: Home) -> None:
    config = uncommented(CONFIG)
    assert set(yaml.safe_load(config)) >= {"plugins", "api", "webhooks"}
    files = {"config.yaml": config, "pipelines.yaml": uncommented(PIPELINES)}
    settings = home.load(files, DUCTILE_API_TOKEN="t0ken-value", GITHUB_WEBHOOK_SECRET="s").settings
    assert settings.plugins["echo"].schedules[0].window == "08:00-22:00"
    assert (len(settings.pipelines), len(settings.routes)) == (1, 1)
    assert settings.webhooks.endpoints[0].provider == "github"
