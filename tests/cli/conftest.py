"""A small configuration with plugins in sh, in a directory with a short name."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.running import House

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
def house(capsys: pytest.CaptureFixture[str]) -> Iterator[House]:
    """`hello` succeeds, `bad` fails and would be retried in an hour."""
    # A socket's path may have no more than 107 bytes, which pytest's own directories use up.
    root = Path(tempfile.mkdtemp(prefix="ductile-")).resolve()
    house = House(root, capsys)
    house.write("config.yaml", CONFIG)
    house.plugin("hello", HELLO, commands="poll, handle, health")
    house.plugin("bad", BAD, protocol=2)
    yield house
    shutil.rmtree(root)
