"""The README's own commands, as a newcomer types them."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_five_minutes_run_as_written(tmp_path: Path) -> None:
    [block] = re.findall(r"```console\n(.*?)```", README, re.DOTALL)
    script = re.sub(r"^\$ ", "", block, flags=re.MULTILINE)
    commands, last = script.strip().rsplit("\n", 1)
    bin_dir = Path(sys.executable).parent
    env = {**os.environ, "PATH": f"{bin_dir}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        ["sh", "-e"],
        check=False,
        input=commands,
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "hello" in done.stdout
    gateway = subprocess.Popen(last.split(), cwd=tmp_path, env=env, stdout=subprocess.PIPE)
    assert gateway.stdout is not None
    assert b'"ready"' in gateway.stdout.readline()
    gateway.send_signal(signal.SIGTERM)
    assert gateway.wait(20) == 0
    gateway.stdout.close()


def test_the_two_commands_at_the_top_are_make_targets() -> None:
    [block] = re.findall(r"```\n(make run.*?)```", README, re.DOTALL)
    targets = re.findall(r"^make (\w+)", block, re.MULTILINE)
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert targets == ["run", "test"]
    assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in targets)


def test_ci_calls_the_readmes_test_command() -> None:
    assert "make test" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def test_every_file_that_the_readme_links_to_exists() -> None:
    links = re.findall(r"\]\(([^)#]+)\)", README)
    assert [link for link in links if not (ROOT / link).exists()] == []
