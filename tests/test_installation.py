"""What the targets of the Makefile install."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def planned(tmp_path: Path, target: str) -> str:
    """Return what `make` would run for a target in a clone without a virtual environment."""
    command = ["make", "--dry-run", "--no-print-directory", target, f"VENV={tmp_path / 'venv'}"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def test_run_installs_the_runtime_without_the_development_tools(tmp_path: Path) -> None:
    plan = planned(tmp_path, "run")
    assert "requirements/runtime.txt" in plan
    assert "requirements/dev.txt" not in plan


@pytest.mark.parametrize("target", ["test", "unit", "lint", "types"])
def test_checks_install_the_development_tools(tmp_path: Path, target: str) -> None:
    assert "requirements/dev.txt" in planned(tmp_path, target)


@pytest.mark.parametrize("target", ["run", "test"])
def test_installation_of_packages_shows_its_progress(tmp_path: Path, target: str) -> None:
    plan = planned(tmp_path, target).replace("\\\n", "")
    [packages] = [line for line in plan.splitlines() if "--require-hashes" in line]
    assert "fetching" in packages
    assert "--quiet" not in packages


def test_development_tools_include_the_pins_of_the_runtime() -> None:
    pins = {name: read_pins(ROOT / "requirements" / name) for name in ("runtime.txt", "build.txt")}
    development = read_pins(ROOT / "requirements" / "dev.txt")
    for name, expected in pins.items():
        assert expected
        assert expected - development == set(), name


def read_pins(path: Path) -> set[str]:
    lines = path.read_text(encoding="utf-8").splitlines()
    return {line.split()[0] for line in lines if "==" in line and line[0].isalpha()}


def test_ci_tries_the_wheel_in_a_new_environment() -> None:
    assert "make lint types wheel" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")
