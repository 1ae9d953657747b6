"""No secret of the configuration in what any command prints, with a gateway and without."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.canaries import CONFIG, ENVIRON, FILES, LEAKY, MANIFEST, leaks
from tests.cli.running import House, Result, run
from tests.cli.test_tree import ALL

READS = [path for path, command in ALL if not command.writes]
ENDLESS = {("system", "start"), ("system", "demo"), ("start",), ("system", "watch")}
"""Those that only a signal ends; their lines are the log's, and `watch` draws /overview."""
FIRST = {
    ("config", "get"): ["plugins.leaky.config.api_key"],
    ("config", "schema"): ["config"],
    ("events", "follow"): ["--after", "0", "--count", "5"],
    ("api",): ["/config/view"],
    ("pipeline", "show"): ["leak"],
    ("pipeline", "visualize"): ["leak"],
    ("pipeline", "dry-run"): ["leak"],
    ("plugin", "test"): ["leaky"],
    ("plugin", "validate"): ["leaky"],
    ("schedule", "next"): ["leaky"],
    ("schedule", "explain"): ["leaky"],
    ("system", "breaker"): ["leaky"],
    ("system", "plugin-facts"): ["leaky"],
    ("agent", "show"): ["nobody"],
    ("webhook", "show"): ["1"],
    ("completion",): ["bash"],
}
OF_A_JOB = {("job", "inspect"), ("job", "why"), ("job", "show"), ("job", "logs")}
NEEDS_A_GATEWAY = {("events", "follow"), ("api",)}


@pytest.fixture
def leaky(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[House]:
    root = Path(tempfile.mkdtemp(prefix="ductile-")).resolve()
    house = House(root, capsys)
    house.write("config.yaml", CONFIG)
    for name, text in {**FILES, "plugins/leaky/manifest.yaml": MANIFEST}.items():
        house.write(name, text)
    house.write("plugins/leaky/run.sh", LEAKY, 0o700)
    for name, value in ENVIRON.items():
        monkeypatch.setenv(name, value)
    assert house("config", "lock").code == 0
    yield house
    shutil.rmtree(root)


def words(path: tuple[str, ...], job_id: str) -> list[str]:
    return [*path, *FIRST.get(path, ()), *([job_id] if path in OF_A_JOB else ())]


def told(where: str, result: Result) -> tuple[str, str]:
    return where, result.out + result.err


def read_everything(leaky: House, job_id: str, *, running: bool) -> Iterator[tuple[str, str]]:
    for path in READS:
        if path in ENDLESS or (path in NEEDS_A_GATEWAY and not running):
            continue
        for form in ([], ["--json"], ["-v"]):
            line = [*words(path, job_id), *form]
            result = leaky(*line)
            assert result.code != 2, (line, result.err)
            yield told(" ".join(line), result)


def test_no_command_shows_one(leaky: House) -> None:
    seen = []
    payload = json.dumps({"payload": "x"})
    with leaky.gateway():
        for more in ({}, {"ok": True}, {"junk": True}):
            line = ("plugin", "run", "leaky", "--payload", json.dumps(more))
            seen.append(told("plugin run", leaky(*line)))
            ran = leaky(*line, "--json")
            seen.append(told("plugin run --json", ran))
        job_id = ran.json["job_id"]
        seen.append(told("pipeline run", leaky("pipeline", "run", "leak", "--payload", payload)))
        seen += read_everything(leaky, job_id, running=True)
    seen += read_everything(leaky, job_id, running=False)
    seen.append(told("plugin run, alone", leaky("plugin", "run", "leaky")))
    assert any("job_id" in text for _, text in seen)
    assert leaks(seen) == []


def test_no_problem_of_the_configuration_shows_one(leaky: House) -> None:
    broken = [
        CONFIG.replace("max_workers: 2", 'max_workers: "${PLUGIN_KEY}"'),
        CONFIG.replace("on: leaked", 'on: ["${WORDY_SECRET}"]'),
        CONFIG.replace("uses: leaky,", 'uses: "${PLUGIN_KEY}",'),
        CONFIG.replace("every: 10h", 'every: "${HOOK_SECRET}"'),
        CONFIG.replace("listen: 127.0.0.1:0", 'listen: "${PLUGIN_KEY}"'),
        CONFIG.replace("secret_ref: peer", 'secret_ref: "${PEER_KEY}"'),
        CONFIG.replace("name: inline", "name: [canary-inline-token-1122]"),
        CONFIG + 'unknown_key: "${WORDY_SECRET}"\n',
    ]
    seen = []
    for text in broken:
        leaky.write("config.yaml", text)
        for line in (["config", "check"], ["config", "check", "--json"], ["status"]):
            result = leaky(*line)
            assert result.code == 78, (result, text)
            seen.append(told(" ".join(line), result))
    assert leaks(seen) == []


def test_no_start_that_fails_shows_one(leaky: House) -> None:
    leaky.write("config.yaml", CONFIG + 'unknown_key: "${WORDY_SECRET}"\n')
    result = run("system", "start", "--config", str(leaky.root))
    assert result.returncode == 78
    assert leaks([("start", result.stdout + result.stderr)]) == []
