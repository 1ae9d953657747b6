"""Every test has a time limit: one that never ends fails, and the tests after it run."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import WAIT_LIMIT

ROOT = Path(__file__).parent.parent
MAX_SECONDS = 300
NEVER_ENDING = """\
import threading
import pytest

@pytest.fixture
def stuck():
    yield
    threading.Event().wait()

def test_stuck():
    threading.Event().wait()

def test_failed_with_stuck_cleanup(stuck):
    assert False

def test_passed_with_stuck_cleanup(stuck):
    pass

def test_stuck_with_stuck_cleanup(stuck):
    threading.Event().wait()

def test_after_them():
    pass
"""


def test_stuck_tests_and_cleanups_end_at_the_limit(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(NEVER_ENDING)
    options = ["-c", "pyproject.toml", "-p", "tests.conftest", "-o", "timeout=1", "-n", "0"]
    command = [sys.executable, "-m", "pytest", *options, "-rA", "--tb=no", str(tmp_path)]
    ran = subprocess.run(
        command, check=False, cwd=ROOT, capture_output=True, text=True, timeout=WAIT_LIMIT
    )
    found = re.findall(r"^(PASSED|FAILED|ERROR) \S+::(\w+)", ran.stdout, re.MULTILINE)
    assert sorted(found) == [
        ("ERROR", "test_failed_with_stuck_cleanup"),
        ("ERROR", "test_passed_with_stuck_cleanup"),
        ("ERROR", "test_stuck_with_stuck_cleanup"),
        ("FAILED", "test_failed_with_stuck_cleanup"),
        ("FAILED", "test_stuck"),
        ("FAILED", "test_stuck_with_stuck_cleanup"),
        ("PASSED", "test_after_them"),
        ("PASSED", "test_passed_with_stuck_cleanup"),
    ], ran.stdout + ran.stderr


def test_suite_has_a_limit_and_no_test_lifts_it(request: pytest.FixtureRequest) -> None:
    assert 0 < float(request.config.getini("timeout")) <= MAX_SECONDS
    lifts = re.compile(r"\bmark\.timeout\b")
    paths = [path for path in ROOT.glob("tests/**/*.py") if str(path) != __file__]
    assert len(paths) > 100
    assert [str(path) for path in paths if lifts.search(path.read_text())] == []
