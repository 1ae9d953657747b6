"""The commands that `job why` and `doctor` advise work when they are typed."""

from __future__ import annotations

import shlex

from ductile.cli.main import main
from tests.cli.pipelines import add_pipelines
from tests.cli.runner import CliRunner


def test_advised_commands_work_when_typed(cli: CliRunner) -> None:
    flow = add_pipelines(cli)
    flow.plugin("broken", "echo no key >&2; exit 3")
    config = (flow.root / "config.yaml").read_text()
    flow.write(
        "config.yaml",
        config.replace("plugins:\n", "plugins:\n  broken: {retry: {max_attempts: 1}}\n", 1),
    )
    dead = flow("run", "broken", "--json").json["job_id"]
    assert flow("job", "list", "--json").json["jobs"][0]["last_error"].endswith("stderr: no key")
    assert flow("plugin", "pause", "broken").code == 0
    (flow.root / "config.yaml").chmod(0o666)
    advised = [finding["run"] for finding in flow("system", "doctor", "--json").json["findings"]]
    assert any("job list --status dead" in line for line in advised if line)
    retry = flow("job", "why", dead, "--json").json["run"]
    assert retry == f"ductile job retry {dead}"
    assert flow(*shlex.split(retry)[1:]).code == 0
    resume = flow("job", "why", dead, "--json").json["run"]
    assert resume == "ductile plugin resume broken"
    assert flow(*shlex.split(resume)[1:]).code == 0
    assert flow("job", "why", dead, "--json").json["run"] == "ductile system start"
    for line in filter(None, advised):
        words = shlex.split(line)
        if words[0] == "ductile" and words[1:3] != ["system", "start"]:
            assert main(words[1:]) == 0, line
    fixed = flow("system", "doctor", "--fix", "--json").json["fixed"]
    assert [item["error"] for item in fixed] == [None] * len(fixed)
    assert fixed
    assert flow("system", "doctor", "--fix", "--json").json["fixed"] == []
