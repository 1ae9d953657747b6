"""`ductile config apply --watch --auto-revert`, and gateways that are killed meanwhile."""

from __future__ import annotations

import signal

from tests.cli.runner import CliRunner, TextProcess, read_until, stop
from tests.waiting import WAIT_LIMIT

FAILING = """\
case $request in
  *'"fail":true'*) echo '{"status":"error","error":"as configured","retry":false}';;
  *) echo '{"status":"ok"}';;
esac
"""
CONFIG = "# {fail}\nplugin_roots: [./plugins]\nplugins: {{worker: {{config: {{fail: {fail}}}}}}}\n"
KILLED_AS_FILES_ARE_REPLACED = {"DUCTILE_FAILPOINT": "replace.journaled"}


def wait_for_end(process: TextProcess) -> int:
    process.wait(WAIT_LIMIT)
    return stop(process)


def test_watch_survives_kills_of_the_gateway_and_returns(cli: CliRunner) -> None:
    cli.plugin("worker", FAILING)
    good = CONFIG.format(fail="false")
    path = cli.write("config.yaml", good)
    first = cli.start("system", "start")
    read_until(first, '"message":"ready"')
    for _ in range(3):
        assert cli("plugin", "run", "worker").code == 0
    path.write_text(CONFIG.format(fail="true"))
    watching = cli.start("config", "apply", "--yes", "--watch", "1h", "--auto-revert")
    read_until(watching, "in force")
    stop(first, signal.SIGKILL)
    second = cli.start("system", "start", env=KILLED_AS_FILES_ARE_REPLACED)
    read_until(second, '"message":"ready"')
    for _ in range(3):
        # The last ones may meet the gateway that is killed.
        cli("plugin", "run", "worker", "--async")
    assert wait_for_end(second) == -signal.SIGKILL
    with cli.gateway():
        assert wait_for_end(watching) == 1
        assert path.read_text() == good
        assert cli("config", "plan").code == 0
        assert cli("plugin", "run", "worker").code == 0


def test_apply_without_an_answer_says_what_is_known(cli: CliRunner) -> None:
    path = cli.write("config.yaml", "plugin_roots: [./plugins]\n")
    changed = cli.write("other/config.yaml", "plugin_roots: [./plugins]\nservice: {name: other}\n")
    gateway = cli.start("system", "start", env=KILLED_AS_FILES_ARE_REPLACED)
    read_until(gateway, '"message":"ready"')
    done = cli("config", "apply", "--yes", str(changed.parent))
    assert wait_for_end(gateway) == -signal.SIGKILL
    assert done.code == 1
    assert "whether the plan is in force is not known" in done.err
    # Whoever reads the files next completes their replacement.
    assert "other" in cli("config", "get", "service.name").out
    assert path.read_text() == changed.read_text()


def test_files_return_without_a_gateway(cli: CliRunner) -> None:
    cli.plugin("worker", FAILING)
    good = CONFIG.format(fail="false")
    path = cli.write("config.yaml", good)
    with cli.gateway():
        path.write_text(CONFIG.format(fail="true"))
        assert cli("config", "apply", "--yes").code == 0
    in_force = path.read_text()
    # No gateway starts with these, and the edit is kept.
    path.write_text(f"{in_force}nonsense: 1\n")
    shown = cli("config", "revert", "--dry-run", "--json").json
    assert [row["change"] for row in shown["files"]] == ["replaced", "created"]
    assert cli("config", "revert").code == 2
    assert cli("config", "revert", "--yes").code == 0
    assert path.read_text() == in_force
    assert any("nonsense" in each.read_text() for each in cli.root.glob("config.yaml.*"))
    # The next time, to the one before.
    assert "next: ductile system start" in cli("config", "revert", "--yes").out
    assert path.read_text() == good


def test_warning_of_the_plan_is_shown_once(cli: CliRunner) -> None:
    manifest, path = cli.root / "plugins/hello/manifest.yaml", cli.root / "config.yaml"
    manifest.write_text(manifest.read_text() + "concurrency_safe: false\n")
    with cli.gateway():
        for command in ("apply", "revert"):
            if command == "revert":
                path.write_text(path.read_text().replace("parallelism: 2", "parallelism: 3"))
                assert cli("config", "apply", "--yes").code == 0
            else:
                path.write_text(path.read_text().replace("hello: {", "hello: {parallelism: 2, "))
            done = cli("config", command, "--yes")
            assert done.code == 0
            assert done.out.count("2 at once") == 1
