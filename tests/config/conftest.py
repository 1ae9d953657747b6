"""A configuration directory for tests, and access to the problems found in it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from ductile.config import Loaded, create_seal, load
from ductile.errors import ConfigError, Problem

no_deadline = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""For property tests: a slow machine is not a failure."""

MOMENT = datetime(2026, 2, 8, 10, 0, tzinfo=UTC)


class ConfigDir:
    """A configuration directory."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, files: Mapping[str, str] | str) -> Path:
        for name, text in ({"config.yaml": files} if isinstance(files, str) else files).items():
            path = self.path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return self.path

    def load(self, files: Mapping[str, str] | str = {}, *, seal: bool = True, **env: str) -> Loaded:
        self.write(files)
        return load(self.path, environ=env, seal=seal)

    def load_errors(
        self, files: Mapping[str, str] | str = {}, *, seal: bool = True, **env: str
    ) -> list[Problem]:
        with pytest.raises(ConfigError) as caught:
            self.load(files, seal=seal, **env)
        return list(caught.value.problems)

    def lock(self) -> Path:
        seal = create_seal(self.path / "config.yaml")
        seal.write(MOMENT)
        return seal.path


@pytest.fixture
def config_dir(tmp_path: Path) -> ConfigDir:
    path = tmp_path / "ductile"
    path.mkdir()
    return ConfigDir(path)


def only(problems: list[Problem]) -> Problem:
    """The single problem; fails if there are others."""
    assert len(problems) == 1, "\n".join(map(str, problems))
    return problems[0]


def location(problem: Problem) -> tuple[str, int | None, int | None]:
    return Path(problem.file or "").name, problem.line, problem.column
