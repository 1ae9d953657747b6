"""A directory to write a configuration into, and what is said about it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from ductile.config import Loaded, load, measure
from ductile.errors import ConfigError, Problem

patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""For property tests: a busy machine is no failure."""

MOMENT = datetime(2026, 2, 8, 10, 0, tzinfo=UTC)


class Home:
    """A configuration directory; texts are written as they stand."""

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

    def refused(
        self, files: Mapping[str, str] | str = {}, *, seal: bool = True, **env: str
    ) -> list[Problem]:
        with pytest.raises(ConfigError) as caught:
            self.load(files, seal=seal, **env)
        return list(caught.value.problems)

    def lock(self) -> Path:
        seal = measure(self.path)
        seal.write(MOMENT)
        return seal.path


@pytest.fixture
def home(tmp_path: Path) -> Home:
    path = tmp_path / "ductile"
    path.mkdir()
    return Home(path)


def only(problems: list[Problem]) -> Problem:
    """The one problem there must be."""
    assert len(problems) == 1, "\n".join(map(str, problems))
    return problems[0]


def place(problem: Problem) -> tuple[str, int | None, int | None]:
    return Path(problem.file or "").name, problem.line, problem.column
