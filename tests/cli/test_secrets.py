"""No command prints a secret of the configuration, with or without a running gateway."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.canaries import CONFIG, ENVIRON, FILES, LEAKY, MANIFEST, leaks
from tests.cli.runner import CliRunner, Result, run_process
from tests.cli.test_command_tree import ALL

READS = [path for path, command in ALL if not command.writes]
ENDLESS = {("system", "watch")}
"""Commands that run until a signal."""
ARGUMENTS = {
    ("config", "get"): ["plugins.leaky.config.api_key"],
    ("config", "schema"): ["config"],
    ("events", "follow"): ["--after", "0", "--count", "5"],
    ("api",): ["/config/view"],
    ("job", "rerun"): ["{root}/job.json"],
    ("pipeline", "show"): ["leak"],
    ("pipeline", "visualize"): ["leak"],
    ("pipeline", "dry-run"): ["leak"],
    ("pipeline", "compare"): ["leak"],
    ("plugin", "compare"): ["leaky"],
    ("plugin", "show"): ["leaky"],
    ("plugin", "trace"): ["leaky", "--yes", "--no-verify"],
    ("plugin", "state", "get"): ["leaky"],
    ("plugin", "test"): ["leaky"],
    ("plugin", "validate"): ["leaky"],
    ("schedule", "next"): ["leaky"],
    ("schedule", "explain"): ["leaky"],
    ("system", "breaker"): ["leaky"],
    ("system", "plugin-facts"): ["leaky"],
    ("agent", "show"): ["nobody"],
    ("alert", "show"): ["nothing"],
    ("approval", "show"): ["nothing"],
    ("webhook", "show"): ["1"],
    ("completion",): ["bash"],
}
WITH_JOB_ID = {("job", "inspect"), ("job", "why"), ("job", "show"), ("job", "logs")}
NEEDS_A_GATEWAY = {("events", "follow"), ("api",)}


@pytest.fixture
def leaky(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[CliRunner]:
    root = Path(tempfile.mkdtemp(prefix="ductile-")).resolve()
    cli = CliRunner(root, capsys)
    cli.write("config.yaml", CONFIG)
    for name, text in {**FILES, "plugins/leaky/manifest.yaml": MANIFEST}.items():
        cli.write(name, text)
    cli.write("plugins/leaky/run.sh", LEAKY, 0o700)
    for name, value in ENVIRON.items():
        monkeypatch.setenv(name, value)
    assert cli("config", "lock").code == 0
    yield cli
    shutil.rmtree(root)


def words(path: tuple[str, ...], job_id: str, root: Path) -> list[str]:
    arguments = [argument.replace("{root}", str(root)) for argument in ARGUMENTS.get(path, ())]
    return [*path, *arguments, *([job_id] if path in WITH_JOB_ID else ())]


def printed(where: str, result: Result) -> tuple[str, str]:
    return where, result.out + result.err


def read_everything(leaky: CliRunner, job_id: str, *, running: bool) -> Iterator[tuple[str, str]]:
    for path in READS:
        if path in ENDLESS or (path in NEEDS_A_GATEWAY and not running):
            continue
        for form in ([], ["--json", "-v"]):
            line = [*words(path, job_id, leaky.root), *form]
            result = leaky(*line)
            assert result.code != 2, (line, result.err)
            yield printed(" ".join(line), result)


def test_no_command_prints_a_secret(leaky: CliRunner) -> None:
    seen = []
    payload = json.dumps({"payload": "x"})
    with leaky.gateway():
        for more in ({}, {"ok": True}, {"junk": True}):
            line = ("plugin", "run", "leaky", "--payload", json.dumps(more))
            seen.append(printed("plugin run", leaky(*line)))
            ran = leaky(*line, "--json")
            seen.append(printed("plugin run --json", ran))
        job_id = ran.json["job_id"]
        seen.append(printed("pipeline run", leaky("pipeline", "run", "leak", "--payload", payload)))
        bundle = leaky.root / "job.json"
        seen.append(printed("job bundle", leaky("job", "bundle", job_id, "-o", str(bundle))))
        seen.append(("the bundle", bundle.read_text()))
        seen += read_everything(leaky, job_id, running=True)
    seen += read_everything(leaky, job_id, running=False)
    seen.append(printed("plugin run, alone", leaky("plugin", "run", "leaky")))
    assert any("job_id" in text for _, text in seen)
    assert leaks(seen) == []


def test_no_configuration_problem_prints_a_secret(leaky: CliRunner) -> None:
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
            seen.append(printed(" ".join(line), result))
    assert leaks(seen) == []


def test_a_failed_start_prints_no_secret(leaky: CliRunner) -> None:
    leaky.write("config.yaml", CONFIG + 'unknown_key: "${WORDY_SECRET}"\n')
    result = run_process("system", "start", "--config", str(leaky.root))
    assert result.returncode == 78
    assert leaks([("start", result.stdout + result.stderr)]) == []
