"""Pipelines for tests: a split with a branch that can be fixed, a chain, and a slow one."""

from __future__ import annotations

import os
from typing import Any

from tests.cli.runner import CliRunner

CONFIG = """\
service: {shutdown_grace: 0s, max_workers: 3, workspaces: true}
state: {path: ./data/state.db}
plugin_roots: [./plugins]
plugins:
  flaky: {retry: {max_attempts: 1}}
  slow: {retry: {max_attempts: 1}}
  mark: {config: {mode: on}}
pipelines:
  - name: fan
    on: fan.go
    steps:
      - id: first
        uses: mark
        baggage: {run.who: payload.who}
      - id: wide
        split:
          - {id: good, uses: mark}
          - {id: weak, uses: flaky}
      - {id: last, uses: mark}
  - name: chain
    on: chain.go
    execution_mode: synchronous
    steps:
      - {id: one, uses: mark, if: {path: payload.go, op: eq, value: true}}
      - {id: two, uses: mark, with: {text: "hello {payload.name}"}}
  - name: slowly
    on: slowly.go
    execution_mode: synchronous
    timeout: 300ms
    steps:
      - {id: wait, uses: slow}
      - {id: after, uses: mark}
  - name: wide
    on: wide.go
    steps:
      - id: both
        split: [{uses: mark}, {uses: mark}]
      - {id: end, uses: mark}
  - name: picky
    on: mark.done
    if: {path: payload.never, op: exists}
    steps: [{uses: mark}]
"""
MARK = """\
step=$(printf %s "$request" | sed -n 's/.*"ductile_step_id":"\\([^"]*\\)".*/\\1/p')
dir=$(printf %s "$request" | sed -n 's/.*"workspace_dir":"\\([^"]*\\)".*/\\1/p')
echo "$step" >> ROOT/ran
[ -n "$dir" ] && echo "$step" >> "$dir/trail"
printf '{"status":"ok","result":"%s","state_updates":{"last":"%s"}}' "$step" "$step"
"""
FLAKY = """\
if [ -e ROOT/fixed ]; then echo weak >> ROOT/ran; echo '{"status":"ok","result":"weak"}'
else echo '{"status":"error","error":"not fixed"}'; fi
"""
SLOW = """\
echo $$ > ROOT/pid
echo up > ROOT/up
exec sleep 60
"""


def add_pipelines(cli: CliRunner) -> CliRunner:
    """Write the pipelines and their plugins."""
    cli.write("config.yaml", CONFIG)
    root = str(cli.root)
    for name, script in (("mark", MARK), ("flaky", FLAKY), ("slow", SLOW)):
        cli.plugin(name, script.replace("ROOT", root), protocol=2, commands="poll, handle")
    os.mkfifo(cli.root / "up")
    return cli


def wait_until_running(cli: CliRunner) -> int:
    """Wait until the slow plugin runs, and return its process id."""
    with (cli.root / "up").open() as pipe:
        assert pipe.read() == "up\n"
    return int((cli.root / "pid").read_text())


def executed_steps(cli: CliRunner) -> list[str]:
    path = cli.root / "ran"
    return path.read_text().split() if path.exists() else []


def graph_by_step(cli: CliRunner, job_id: str) -> dict[str, dict[str, Any]]:
    """Return the jobs in the graph of a job, by step."""
    nodes = cli("job", "inspect", job_id, "--json").json["graph"]
    return {node["step"]: node for node in nodes}


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
