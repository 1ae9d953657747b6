"""The example of two nodes in the deployment page runs, from one configuration directory."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.ports import find_free_port
from tests.postgres import Server
from tests.waiting import WAIT_LIMIT, until

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/how-to/deployment.md").read_text(encoding="utf-8")
COMPOSE = (ROOT / "deploy/compose.yaml").read_text(encoding="utf-8")
DUCTILE = [sys.executable, "-m", "ductile"]


def find_example() -> str:
    [found] = [
        block for block in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL) if "_NODE}" in block
    ]
    return str(found)


@pytest.fixture
def environ(tmp_path: Path, postgres: Server) -> dict[str, str]:
    """A configuration directory with the example, and the environment to use it."""
    text = find_example()
    for old, new in (
        ("postgresql://ductile:${DB_PASSWORD}@db.internal/ductile", postgres.database()),
        ("/var/lib/ductile", str(tmp_path / "state")),
        ("/mnt/shared/ductile", str(tmp_path / "shared")),
    ):
        assert old in text
        text = text.replace(old, new)
    (tmp_path / "config.yaml").write_text(text)
    (tmp_path / "config.yaml").chmod(0o600)
    (tmp_path / "plugins").mkdir(mode=0o755)
    paths = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "TZ": "UTC"}
    return {**paths, "DUCTILE_TOKEN": "0123456789abcdef0123456789abcdef"}


@pytest.fixture
def nodes(environ: dict[str, str], tmp_path: Path) -> Iterator[None]:
    """Nodes `a` and `b` run."""
    started = [
        subprocess.Popen(
            [*DUCTILE, "system", "start", "--node", name, "--config", str(tmp_path)],
            env={**environ, "DUCTILE_LISTEN": f"127.0.0.1:{find_free_port()}"},
            stdout=subprocess.DEVNULL,
        )
        for name in "ab"
    ]
    yield
    for process in started:
        process.send_signal(signal.SIGTERM)
    for process in started:
        assert process.wait(WAIT_LIMIT) == 0


def list_nodes(environ: dict[str, str], folder: Path) -> dict[str, Any]:
    done = subprocess.run(
        [*DUCTILE, "node", "list", "--json", "--config", str(folder)],
        env={**environ, "DUCTILE_NODE": "a"},
        capture_output=True,
        text=True,
        check=False,
    )
    found = json.loads(done.stdout)
    return {row["name"]: row for row in found.get("nodes", [])}


@pytest.mark.usefixtures("nodes")
def test_two_nodes_run_from_one_configuration(environ: dict[str, str], tmp_path: Path) -> None:
    def both_run() -> dict[str, Any] | None:
        found = list_nodes(environ, tmp_path)
        return found if [row["state"] for row in found.values()] == ["running"] * 2 else None

    found = until(both_run)
    assert found is not None
    assert sorted(found) == ["a", "b"]
    assert found["a"]["config_hash"] == found["b"]["config_hash"]
    assert found["a"]["workspaces"] == found["b"]["workspaces"] is not None
    assert {path.name for path in (tmp_path / "state").iterdir()} == {"a", "b"}


def test_compose_file_starts_the_nodes_of_the_example() -> None:
    services = yaml.safe_load(COMPOSE)["services"]
    example = find_example()
    for name in ("a", "b"):
        node = services[f"node-{name}"]
        assert node["environment"]["DUCTILE_NODE"] == name
        assert set(node["environment"]) == set(re.findall(r"\$\{(\w+)", example))
        mounted = {volume.split(":")[1] for volume in node["volumes"]}
        assert {"/var/lib/ductile", "/mnt/shared/ductile"} <= mounted
    assert "db.internal" in services["db"]["networks"]["default"]["aliases"]
