from __future__ import annotations

import os

import pytest

from ductile.model import Ending
from ductile.runner import plugin_process, protocol
from ductile.runner.started_flags import NO_ENTRY
from tests.runner.processes import BY_THEN

IGNORES_SIGTERM = """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("deaf", flush=True)
time.sleep(3600)
"""


def test_the_protocol_has_every_ending_of_the_model():
    assert set(protocol.ENDINGS) | {"lost"} == {ending.value for ending in Ending}


def test_the_outcome_has_output_and_exit_code(run, plugins):
    outcome = run(plugins.shell("cat; echo oops >&2; exit 3"), request=b'{"a": 1}')
    assert (outcome.ending, outcome.exit_code) == (Ending.EXITED, 3)
    assert (outcome.stdout, outcome.stderr) == (b'{"a": 1}', b"oops\n")
    assert (outcome.errno, outcome.reason) == (None, None)
    assert not outcome.stdout_overflowed
    assert not outcome.stderr_truncated
    assert outcome.duration > 0


def test_arguments_reach_the_plugin_unchanged(run, plugins):
    plugin = plugins.shell('printf "%s|" "$@"')
    assert run(plugin, "a b", "", "ü", "\n").stdout == "a b||ü|\n|".encode()


def test_death_by_a_foreign_signal_is_a_negative_exit_code(run, plugins):
    outcome = run(plugins.shell("kill -SEGV $$"))
    assert (outcome.ending, outcome.exit_code) == (Ending.EXITED, -11)


def test_plugin_that_ends_on_sigterm_is_timed_out_within_the_grace(run, plugins):
    outcome = run(plugins.shell("echo so far; sleep 3600"), timeout=BY_THEN, grace=3600.0)
    assert (outcome.ending, outcome.exit_code) == (Ending.TIMED_OUT, None)
    assert outcome.stdout == b"so far\n"


def test_a_plugin_that_ignores_sigterm_is_killed_after_the_grace(run, plugins):
    outcome = run(plugins.python(IGNORES_SIGTERM), timeout=BY_THEN, grace=0.3)
    assert (outcome.ending, outcome.exit_code) == (Ending.TIMED_OUT, None)
    assert outcome.stdout == b"deaf\n"


def test_output_after_sigterm_is_dropped(run, plugins):
    plugin = plugins.python("""
def late(*_):
    print("late", flush=True)
    print("late", file=sys.stderr, flush=True)
    os._exit(0)
signal.signal(signal.SIGTERM, late)
print("early", flush=True)
print("early", file=sys.stderr, flush=True)
time.sleep(3600)
""")
    outcome = run(plugin, timeout=BY_THEN)
    assert (outcome.ending, outcome.exit_code) == (Ending.TIMED_OUT, None)
    assert (outcome.stdout, outcome.stderr) == (b"early\n", b"early\n")


def test_sigterm_reaches_the_whole_group(run, plugins, fifo):
    # The leader waits for its child's line: when the leader ends, the whole group is killed.
    child = f"(trap 'echo child > {fifo.path}' TERM; sleep 3600 & wait)"
    run(plugins.shell(f"trap : TERM; {child} & wait; wait"), timeout=BY_THEN, grace=3600.0)
    assert fifo.line() == "child"


def test_a_timeout_of_zero_gives_an_outcome(run, plugins):
    assert run(plugins.shell("sleep 3600"), timeout=0.0).ending is Ending.TIMED_OUT


@pytest.mark.parametrize("timeout", [1e9, float("inf")])
def test_a_very_long_timeout_is_accepted(run, plugins, timeout):
    assert run(plugins.shell("echo"), timeout=timeout).ending is Ending.EXITED


def test_plugin_that_exits_soon_after_closing_stdout_keeps_its_exit_code(run, plugins):
    outcome = run(plugins.shell("echo done; exec >&-; sleep 0.3; exit 4"))
    assert (outcome.ending, outcome.exit_code, outcome.stdout) == (Ending.EXITED, 4, b"done\n")


def test_plugin_that_does_not_exit_after_closing_stdout_is_lingering(run, plugins):
    outcome = run(plugins.shell("trap '' TERM; echo done; exec >&-; sleep 3600"))
    assert (outcome.ending, outcome.exit_code) == (Ending.LINGERED, None)
    assert outcome.stdout == b"done\n"


def test_a_timeout_while_lingering_keeps_the_output(run, plugins):
    outcome = run(plugins.shell("echo done; exec >&-; sleep 3600"), timeout=BY_THEN)
    assert (outcome.ending, outcome.exit_code) == (Ending.LINGERED, None)
    assert outcome.stdout == b"done\n"


def test_a_leader_that_left_its_group_is_timed_out(run, plugins):
    plugin = plugins.python("os.setpgid(0, os.getpgid(os.getppid()))\ntime.sleep(3600)")
    outcome = run(plugin, timeout=BY_THEN, grace=0.3)
    assert outcome.ending is Ending.TIMED_OUT


def test_a_stopped_plugin_is_killed_after_the_grace(run, plugins):
    outcome = run(plugins.shell("kill -STOP $$"), timeout=0.3, grace=0.2)
    assert outcome.ending is Ending.TIMED_OUT


def test_a_leader_ends_with_its_last_thread(run, plugins):
    plugin = plugins.python("""
import _thread, ctypes
def last():
    time.sleep(0.3)
    os.write(1, b"last")
    os._exit(7)
_thread.start_new_thread(last, ())
ctypes.CDLL(None).syscall(60, 0)
""")
    outcome = run(plugin)
    assert (outcome.ending, outcome.exit_code, outcome.stdout) == (Ending.EXITED, 7, b"last")


def test_an_orphan_that_ends_first_is_not_taken_for_the_leader(run, plugins):
    script = plugins.shell("(true &); (true &); sleep 0.05; echo done; exit 3")
    outcome = run(script)
    assert (outcome.ending, outcome.exit_code, outcome.stdout) == (Ending.EXITED, 3, b"done\n")


def test_a_leader_that_was_stopped_and_continued_has_not_ended(run, plugins):
    script = plugins.shell("(kill -STOP $$; kill -CONT $$) & wait; echo done; exit 3")
    outcome = run(script)
    assert (outcome.ending, outcome.exit_code, outcome.stdout) == (Ending.EXITED, 3, b"done\n")


def test_a_pending_signal_of_an_earlier_process_is_not_an_end(monkeypatch):
    """The earlier process had the same pid. A running process must not be taken for ended."""
    request = protocol.RunRequest(
        protocol.EncodedLaunch(
            ("/bin/sleep", "3600"), b"", b"", (60.0, 5.0, 1024, 1024, 1024, NO_ENTRY)
        ).frame(1)
    )
    process = plugin_process.PluginProcess(request, {}, None, plugin_process.Spawner())
    signals = iter([object(), None])
    monkeypatch.setattr(plugin_process._signal, "sigtimedwait", lambda *_: next(signals))
    try:
        assert not process.ends_within(10.0)
    finally:
        process.kill()
        # Not `reap`: it would kill every child of ours, a database of other tests among them.
        os.waitpid(process.pid, 0)
        process.close()
