"""`ductile plugin trace`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ductile.runner.sandbox.restrict import probe
from tests.cli.runner import CliRunner
from tests.runner.observe.support import can_observe

needs_kernel = pytest.mark.skipif(
    probe().abi < 6 or not can_observe(), reason="needs Landlock ABI 6 and seccomp notifications"
)
SPEC = "manifest_spec: ductile.plugin\nmanifest_version: 1\nprotocol: 2\nversion: '1'\n"
RESPONSE = '{"status": "ok", "result": "fine"}'


def draft(cli: CliRunner, script: str, name: str = "draft") -> str:
    text = f"{SPEC}name: {name}\nentrypoint: run.sh\ncommands: [poll]\n"
    (cli.root / "desk").mkdir(mode=0o700, exist_ok=True)
    cli.write(f"desk/{name}/manifest.yaml", text)
    cli.write(f"desk/{name}/run.sh", f"#!/bin/sh\ncat > /dev/null\n{script}\n", 0o700)
    return str(cli.root / "desk" / name)


@needs_kernel
def test_the_proposed_block_is_narrow_and_verified(cli: CliRunner, tmp_path: Path) -> None:
    outside = tmp_path.resolve() / "outside"
    outside.mkdir()
    (outside / "in").write_text("text")
    script = f"read x < {outside}/in; echo $x > {outside}/new; rm {outside}/new\n"
    script += f"echo hi > $TMPDIR/note; echo '{RESPONSE}'"
    done = cli("plugin", "trace", draft(cli, script), "--yes", "--json")
    assert done.code == 0, done.out + done.err
    found = json.loads(done.out)
    assert found["sandbox"]["write"] == [str(outside)]
    assert "read" not in found["sandbox"]
    assert found["sandbox"]["network"] == "none"
    assert found["observed"]["status"] == "succeeded"
    assert found["verified"]["passed"] is True
    assert not (outside / "new").exists()


@needs_kernel
def test_a_run_that_ends_differently_in_its_sandbox_exits_1(cli: CliRunner, tmp_path: Path) -> None:
    flag = tmp_path.resolve() / "flags" / "second"
    flag.parent.mkdir()
    secret = tmp_path.resolve() / "secret"
    secret.write_text("text")
    # The second run needs more than the first one, which a trace cannot know.
    script = f"if [ -e {flag} ]; then cat {secret} > /dev/null || exit 1; fi; mkdir -p {flag}\n"
    directory = draft(cli, f"{script}echo '{RESPONSE}'")
    done = cli("plugin", "trace", directory, "poll", "--yes")
    assert done.code == 1
    assert "verified: it failed in this sandbox" in done.out
    assert "Permission denied" in done.out
    skipped = cli("plugin", "trace", directory, "--yes", "--no-verify", "--json")
    assert (skipped.code, json.loads(skipped.out)["verified"]) == (0, None)


def test_without_a_terminal_it_asks_for_yes(cli: CliRunner) -> None:
    done = cli("plugin", "trace", draft(cli, "exit 0"))
    assert done.code == 2
    assert "--yes" in done.err
