from __future__ import annotations

import os
import random
import re

import pytest

from ductile.model import MIB, STDERR_CAP, STDOUT_CAP, Ending

GROWTH = 32 * MIB


def memory(pid, field):
    with open(f"/proc/{pid}/status") as file:
        return int(re.search(rf"^{field}:\s+(\d+) kB", file.read(), re.M)[1]) * 1024


class Growth:
    """The largest growth of these processes from now on, in bytes."""

    def __init__(self, *pids):
        self.before = {}
        for pid in pids:
            with open(f"/proc/{pid}/clear_refs", "w") as file:
                file.write("5")
            self.before[pid] = memory(pid, "VmRSS")

    def most(self):
        return max(memory(pid, "VmHWM") - before for pid, before in self.before.items())


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_gigabyte_is_consumed_in_bounded_memory(pool, plugins, run, stream):
    redirect = ">&2" if stream == "stderr" else ""
    plugin = plugins.shell(f"head -c 1G /dev/zero {redirect}; echo end {redirect}; exit 6")
    growth = Growth(os.getpid(), pool.slot(0).pid)
    outcome = run(plugin)
    assert (outcome.ending, outcome.exit_code) == (Ending.EXITED, 6)
    assert growth.most() < GROWTH
    flagged = outcome.stdout_overflowed, outcome.stderr_truncated
    assert flagged == (stream == "stdout", stream == "stderr")
    assert len(getattr(outcome, stream)) == STDERR_CAP


def test_output_of_exactly_the_cap_is_whole(run, plugins):
    outcome = run(plugins.shell(f"head -c {STDOUT_CAP} /dev/zero"))
    assert (len(outcome.stdout), outcome.stdout_overflowed) == (STDOUT_CAP, False)


def test_output_beyond_the_cap_keeps_a_prefix_only(run, plugins):
    outcome = run(plugins.shell(f"head -c {STDOUT_CAP + 1} /dev/zero; exit 2"))
    assert (outcome.ending, outcome.exit_code) == (Ending.EXITED, 2)
    assert (len(outcome.stdout), outcome.stdout_overflowed) == (STDERR_CAP, True)


def test_each_launch_has_its_own_output_limits(run, plugins):
    plugin = plugins.shell("echo 0123456789; echo 0123456789 >&2")
    outcome = run(plugin, stdout_cap=4, stderr_cap=6)
    assert (outcome.stdout, outcome.stdout_overflowed) == (b"0123", True)
    assert (outcome.stderr, outcome.stderr_truncated) == (b"012345", True)


def test_stderr_keeps_its_first_bytes(run, plugins):
    outcome = run(plugins.shell(f"echo first >&2; head -c {STDERR_CAP} /dev/zero >&2; echo ok"))
    assert outcome.stderr.startswith(b"first\n\0")
    assert (len(outcome.stderr), outcome.stderr_truncated) == (STDERR_CAP, True)
    assert outcome.stdout == b"ok\n"


def test_output_in_tiny_pieces_is_whole(run, plugins):
    outcome = run(plugins.python("for n in range(20000): os.write(1, b'%d ' % n)"))
    assert outcome.stdout.split() == [b"%d" % n for n in range(20000)]


def test_large_request_and_a_large_answer_are_transferred_whole(run, plugins):
    request = random.Random(7).randbytes(STDOUT_CAP)
    outcome = run(plugins.shell("cat"), request=request)
    assert outcome.ending is Ending.EXITED
    assert outcome.stdout == request


@pytest.mark.parametrize("size", [0, 1, 4096, 4097, 65536, 65537, 300_000])
def test_requests_of_any_size_are_fed_whole(run, plugins, size):
    request = random.Random(size).randbytes(size)
    assert run(plugins.shell("cat"), request=request).stdout == request


def test_a_plugin_that_never_reads_its_stdin_does_not_hang(run, plugins):
    outcome = run(plugins.shell("sleep 0.2; echo ok"), request=bytes(MIB))
    assert (outcome.ending, outcome.stdout) == (Ending.EXITED, b"ok\n")


def test_a_plugin_that_closes_its_stdin_does_not_hang(run, plugins):
    outcome = run(plugins.shell("exec <&-; sleep 0.2; echo ok"), request=bytes(MIB))
    assert (outcome.ending, outcome.stdout) == (Ending.EXITED, b"ok\n")


def test_a_plugin_that_never_reads_and_never_ends_is_timed_out(run, plugins):
    outcome = run(plugins.shell("sleep 3600"), request=bytes(MIB), timeout=0.3, grace=0.0)
    assert outcome.ending is Ending.TIMED_OUT


def test_plugin_that_reads_its_own_stdout_does_not_block_the_slot(run, plugins):
    plugin = plugins.python("""
own = os.open("/proc/self/fd/1", os.O_RDONLY)
while True:
    os.write(1, b"mine")
    os.read(own, 4)
""")
    outcome = run(plugin, timeout=1.0, grace=0.0)
    assert outcome.ending is Ending.TIMED_OUT
