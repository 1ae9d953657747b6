"""The fixture `cli`: a small configuration with plugins in sh."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.runner import CliRunner

CONFIG = """\
service: {shutdown_grace: 0s}
state: {path: ./data/state.db}
plugin_roots: [./plugins]
plugins:
  hello: {retry: {max_attempts: 2, backoff_base: 1h}}
  bad: {retry: {max_attempts: 2, backoff_base: 1h}}
"""
HELLO = """\
case $request in *'"command":"health"'*) echo '{"status":"ok","result":"fine"}'; exit;; esac
printf '{"status":"ok","result":{"greeting":"hi"},"logs":[{"level":"info","message":"said hi"}]}'
"""
BAD = """\
echo "it broke" >&2
echo '{"status":"error","error":"no luck"}'
"""


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Iterator[CliRunner]:
    """`hello` succeeds; `bad` fails and is retried after an hour."""
    # The path of a socket is limited to 107 bytes, which pytest's directories exceed.
    root = Path(tempfile.mkdtemp(prefix="ductile-")).resolve()
    cli = CliRunner(root, capsys)
    cli.write("config.yaml", CONFIG)
    cli.plugin("hello", HELLO, commands="poll, handle, health")
    cli.plugin("bad", BAD, protocol=2)
    yield cli
    shutil.rmtree(root)
