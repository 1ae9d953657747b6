from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid

import pytest

from ductile.runner.pool import RunnerPool
from ductile.runner.process_scan import kill_marked_processes
from tests.waiting import WAIT_LIMIT


@pytest.fixture
def marker():
    return uuid.uuid4().hex


def started(mark, *argv, **options):
    env = {"PATH": os.environ["PATH"], **({"DUCTILE_BOOT": mark} if mark else {})}
    return subprocess.Popen(argv, env=env, **options)


def test_only_processes_with_the_mark_are_killed(marker):
    marked = [started(f"{marker}:{n}", "sleep", "60") for n in range(3)]
    others = [
        started(f"{marker}x:1", "sleep", "60"),
        started(f"x{marker}:1", "sleep", "60"),
        started(None, "sh", "-c", "sleep 3600; true", f"DUCTILE_BOOT={marker}:1"),
    ]
    try:
        assert kill_marked_processes(marker) == 3
        assert [process.wait(WAIT_LIMIT) for process in marked] == [-9, -9, -9]
        assert [process.poll() for process in others] == [None] * 3
    finally:
        for process in others:
            process.kill()
            process.wait()


def test_a_marked_process_in_its_own_session_is_killed(marker):
    process = started(
        f"{marker}:1",
        "sh",
        "-c",
        "trap '' TERM HUP; setsid sh -c 'trap \"\" TERM; echo; sleep 3600' & wait",
        stdout=subprocess.PIPE,
    )
    with process:
        process.stdout.readline()
        assert kill_marked_processes(marker) >= 1
        # No process has the pipe open any more.
        assert process.stdout.read() == b""


def test_marked_processes_that_keep_forking_are_killed(marker):
    process = started(
        f"{marker}:1",
        sys.executable,
        "-ISc",
        "import os\nprint(flush=True)\nwhile True:\n if os.fork(): os._exit(0)",
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        with process:
            process.stdout.readline()
            assert kill_marked_processes(marker) >= 1
            assert process.stdout.read() == b""
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def test_a_marked_process_whose_first_thread_has_ended_is_killed(marker):
    process = started(
        f"{marker}:1",
        sys.executable,
        "-ISc",
        "import _thread, ctypes, os, time\n"
        "def last():\n"
        " while ') Z' not in open('/proc/self/stat').read(): pass\n"
        " print(flush=True)\n"
        " time.sleep(3600)\n"
        "_thread.start_new_thread(last, ())\n"
        "ctypes.CDLL(None).syscall(60, 0)",
        stdout=subprocess.PIPE,
    )
    with process:
        process.stdout.readline()
        assert kill_marked_processes(marker) == 1
        assert process.wait(WAIT_LIMIT) == -signal.SIGKILL


def test_the_process_that_scans_is_not_killed(marker):
    code = (
        "import os, sys; from ductile.runner.process_scan import kill_marked_processes;"
        "print(kill_marked_processes(os.environ['DUCTILE_BOOT'].partition(':')[0]))"
    )
    process = started(f"{marker}:1", sys.executable, "-c", code, stdout=subprocess.PIPE)
    assert process.communicate(timeout=WAIT_LIMIT)[0] == b"0\n"


def test_nothing_is_killed_where_no_process_is_marked(marker):
    assert kill_marked_processes(marker) == 0


def test_a_runner_is_not_marked_where_its_gateway_is(marker, monkeypatch):
    monkeypatch.setenv("DUCTILE_BOOT", f"{marker}:1")
    pool = RunnerPool(1)
    pool.launch()
    assert kill_marked_processes(marker) == 0
    pool.start()
    pool.stop()
