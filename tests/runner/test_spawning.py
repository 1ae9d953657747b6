from __future__ import annotations

import errno
import os
import re
import resource
import signal
import struct
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import ductile
from ductile.model import Ending, Launch
from ductile.runner import exec_errors
from ductile.runner.pool import RunnerPool
from ductile.runner.protocol import encode_stat
from tests.waiting import WAIT_LIMIT


def facts(text):
    return dict(line.split("=", 1) for line in text.decode().splitlines())


def test_a_plugin_gets_exactly_the_environment_of_its_launch(pool, plugins):
    env = {"PATH": "/usr/bin:/bin", "EMPTY": "", "WITH": "a=b c\nd", "NÄME": "wert", **plugins.env}
    outcome = pool.slot(0).run(Launch(("/usr/bin/env", "-0"), env, b"", 10.0))
    assert facts(outcome.stdout.replace(b"\n", b"\\n").replace(b"\0", b"\n")) == {
        name: value.replace("\n", "\\n") for name, value in env.items()
    }


def test_an_empty_environment_is_empty(pool):
    assert pool.slot(0).run(Launch(("/usr/bin/env",), {}, b"", 10.0)).stdout == b""


def test_each_run_has_its_own_environment(pool):
    for value in ("a", "b", "a"):
        outcome = pool.slot(0).run(Launch(("/usr/bin/env",), {"V": value}, b"", 10.0))
        assert outcome.stdout == f"V={value}\n".encode()


def test_a_plugin_gets_the_descriptor_limit_of_the_pool_creation(plugins):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    plugin = plugins.python("import resource; print(resource.getrlimit(resource.RLIMIT_NOFILE))")
    pool = RunnerPool(1)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft - 1, hard))
        pool.start()
        outcome = pool.slot(0).run(plugins.launch(plugin))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        pool.stop()
    assert outcome.stdout == f"({soft}, {hard})\n".encode()


def test_a_plugin_inherits_only_the_standard_streams(plugins, tmp_path):
    plugin = plugins.python("""
for fd in sorted(map(int, os.listdir("/proc/self/fd")))[:-1]:
    print(fd, os.readlink(f"/proc/self/fd/{fd}").partition(":")[0])
""")
    with open(tmp_path / "lock", "w") as lock:
        os.set_inheritable(lock.fileno(), True)
        pool = RunnerPool(2, lock_fd=lock.fileno())
        pool.start()
        try:
            for _ in range(2):
                outcome = pool.slot(1).run(plugins.launch(plugin, request=bytes(100_000)))
                assert outcome.stdout == b"0 pipe\n1 pipe\n2 pipe\n"
        finally:
            pool.stop()


def test_a_plugin_leads_a_process_group_of_its_own(run, plugins):
    outcome = run(plugins.python("print(os.getpid() == os.getpgrp(), os.getpgid(os.getppid()))"))
    alone, slot_group = outcome.stdout.split()
    assert alone == b"True"
    assert int(slot_group) != os.getpgrp()


def test_a_plugin_starts_with_default_signal_handling(plugins):
    """Whatever the gateway ignored or blocked when it started the runner."""
    ignored = signal.SIGUSR1, signal.SIGCHLD, signal.SIGTERM
    before = {number: signal.signal(number, signal.SIG_IGN) for number in ignored}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2, signal.SIGHUP})
    pool = RunnerPool(1)
    try:
        pool.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for number, handler in before.items():
            signal.signal(number, handler)
    outcome = pool.slot(0).run(plugins.launch("/bin/cat", "/proc/self/status"))
    pool.stop()
    masks = {
        name: int(value, 16)
        for name, value in re.findall(r"^Sig(Blk|Ign|Cgt):\s+(\w+)", outcome.stdout.decode(), re.M)
    }
    # The C library reserves 32 and 33, and programs cannot set them.
    masks["Ign"] &= ~(3 << 31)
    assert masks == {"Blk": 0, "Ign": 0, "Cgt": 0}


def test_a_plugin_starts_in_the_working_directory_of_the_gateway(run):
    assert run("/bin/pwd").stdout.decode().strip() == os.getcwd()


def test_relative_entrypoint_is_found_from_the_working_directory(run, plugins):
    plugin = plugins.shell("echo here")
    assert run(os.path.relpath(plugin)).stdout == b"here\n"


def not_spawned(outcome, code, *words):
    assert (outcome.ending, outcome.errno) == (Ending.NOT_SPAWNED, code)
    assert outcome.exit_code is None
    for word in words:
        assert word in outcome.reason
    return outcome.reason


def test_a_missing_entrypoint_is_named(run, tmp_path):
    missing = str(tmp_path / "nowhere")
    not_spawned(run(missing), errno.ENOENT, missing, "does not exist")


def test_a_missing_interpreter_is_named(run, plugins):
    plugin = plugins.script("#! /no/such/python3 -u\nprint()\n")
    not_spawned(run(plugin), errno.ENOENT, plugin, "'/no/such/python3'", "does not exist")


def test_the_missing_interpreter_of_an_interpreter_is_named(run, plugins):
    middle = plugins.script("#!/no/such/thing\n", "middle")
    plugin = plugins.script(f"#!{middle}\n")
    not_spawned(run(plugin), errno.ENOENT, "'/no/such/thing'")


def test_an_interpreter_that_is_not_executable_is_named(run, plugins, tmp_path):
    interpreter = tmp_path / "interpreter"
    interpreter.write_text("")
    plugin = plugins.script(f"#!{interpreter}\n")
    not_spawned(run(plugin), errno.EACCES, plugin, str(interpreter), "not executable")


def test_crlf_line_endings_are_named_as_the_cause(run, plugins):
    plugin = plugins.script("#!/bin/sh\r\necho\r\n")
    not_spawned(run(plugin), errno.ENOENT, plugin, "CRLF", r"/bin/sh\r")


def test_crlf_line_endings_behind_env_are_named_as_the_cause(run, plugins):
    plugin = plugins.script("#!/usr/bin/env sh\r\necho\r\n")
    outcome = run(plugin)
    assert (outcome.ending, outcome.exit_code) == (Ending.EXITED, 127)
    assert "CRLF" in outcome.reason


@pytest.mark.parametrize("line", ["env no-such-uv", "env -S no-such-uv run", "env -Sno-such-uv"])
def test_an_interpreter_that_env_does_not_find_is_named(run, plugins, line):
    plugin = plugins.script(f"#!/usr/bin/{line}\n")
    outcome = run(plugin)
    assert (outcome.ending, outcome.exit_code) == (Ending.EXITED, 127)
    assert outcome.reason.startswith("`no-such-uv` is not installed: ")
    assert plugin in outcome.reason


def test_a_program_that_itself_ends_with_127_is_not_explained(run, plugins):
    outcome = run(plugins.script("#!/usr/bin/env sh\nexit 127\n"))
    assert (outcome.exit_code, outcome.reason) == (127, None)


def test_missing_python_of_an_environment_is_named_with_the_command(pool, plugins):
    plugin = plugins.script("#!/bin/sh\n")
    outcome = pool.slot(0).run(Launch(("/no/envs/x/bin/python", plugin), {}, b"", 10.0))
    assert outcome.ending is Ending.NOT_SPAWNED
    assert outcome.reason.startswith(f"'/no/envs/x/bin/python', the Python of {plugin!r}")
    assert "ductile plugin sync" in outcome.reason


def test_a_changed_entrypoint_behind_an_interpreter_is_not_run(pool, plugins):
    plugin = plugins.script("#!/bin/sh\necho\n")
    launch = Launch(("/bin/sh", plugin), {}, b"", 10.0, stat=encode_stat(os.stat(plugin)))
    assert pool.slot(0).run(launch).ending is Ending.EXITED
    Path(plugin).write_text("#!/bin/sh\necho changed\n")
    outcome = pool.slot(0).run(launch)
    assert outcome.ending is Ending.NOT_SPAWNED
    assert repr(plugin) in outcome.reason


def asks_for(loader):
    """A 64-bit ELF file that contains only the name of its loader."""
    name = loader.encode() + b"\0"
    at = 64 + 56
    head = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    machine = {"x86_64": 62, "aarch64": 183}[os.uname().machine]
    head += struct.pack("<HHIQQQIHHHHHH", 2, machine, 1, 0, 64, 0, 0, 64, 56, 1, 0, 0, 0)
    return head + struct.pack("<IIQQQQQQ", 3, 4, at, 0, 0, len(name), len(name), 1) + name


def test_a_missing_dynamic_loader_is_named(run, tmp_path):
    program = tmp_path / "program"
    program.write_bytes(asks_for("/no/such/loader.so"))
    program.chmod(0o755)
    words = (str(program), "dynamic loader '/no/such/loader.so' does not exist")
    not_spawned(run(str(program)), errno.ENOENT, *words)


@pytest.mark.parametrize("content", [b"#!/usr/bin/env sh\n", b"no program", b"\x7fELF", None])
def test_entrypoint_that_exists_again_did_not_exist_at_the_start(tmp_path, content):
    """The present file does not show why the earlier one could not be started."""
    program = tmp_path / "program"
    program.write_bytes(Path(sys.executable).read_bytes() if content is None else content)
    program.chmod(0o755)
    reason = exec_errors.spawn_failure([str(program)], errno.ENOENT)
    assert reason == f"entrypoint {str(program)!r} did not exist when it was started"


def test_a_missing_shebang_line_is_named(run, plugins):
    plugin = plugins.script("echo\n")
    not_spawned(run(plugin), errno.ENOEXEC, plugin, "no shebang line")


def test_a_byte_order_mark_before_the_shebang_line_is_named(run, plugins):
    plugin = plugins.script("\ufeff#!/bin/sh\necho\n")
    not_spawned(run(plugin), errno.ENOEXEC, plugin, "no shebang line", "byte order mark")


def test_a_shebang_line_without_interpreter_is_named(run, plugins):
    plugin = plugins.script("#! \necho\n")
    not_spawned(run(plugin), errno.ENOEXEC, plugin, "without an interpreter")


def test_an_entrypoint_that_is_not_executable_is_named(run, plugins):
    plugin = plugins.shell("echo")
    os.chmod(plugin, 0o644)
    not_spawned(run(plugin), errno.EACCES, plugin, "not executable")


def test_a_directory_as_entrypoint_is_named(run, tmp_path):
    not_spawned(run(str(tmp_path)), errno.EACCES, str(tmp_path), "is a directory")


def test_other_errors_have_the_text_of_the_system(run, plugins):
    plugin = plugins.shell("echo")
    reason = not_spawned(run(plugin + "/below"), errno.ENOTDIR, plugin)
    assert os.strerror(errno.ENOTDIR) in reason
    not_spawned(run(plugin, "x" * 200_000), errno.E2BIG, plugin)


@pytest.mark.parametrize(
    ("argv", "env"),
    [
        ((), {}),
        (("",), {}),
        (("/bin/true", "a\0b"), {}),
        (("/bin/true",), {"A": "a\0b"}),
        (("/bin/true",), {"A=B": "c"}),
        (("/bin/true",), {"": "c"}),
        (("/bin/true", "\ud800"), {}),
    ],
)
def test_a_launch_that_no_system_call_accepts_is_not_spawned(pool, argv, env):
    outcome = pool.slot(0).run(Launch(argv, env, b"", 10.0))
    assert (outcome.ending, outcome.errno) == (Ending.NOT_SPAWNED, errno.EINVAL)
    assert outcome.reason
    assert pool.slot(0).run(Launch(("/bin/true",), {}, b"", 10.0)).ending is Ending.EXITED


def test_a_busy_text_file_is_retried_until_it_is_free(pool, plugins, start):
    plugin = plugins.shell("echo free")
    with open(plugin, "r+"):
        future = start(pool.slot(0), plugins.launch(plugin))
        with pytest.raises(TimeoutError):
            future.result(0.3)
    outcome = future.result(WAIT_LIMIT)
    assert (outcome.ending, outcome.stdout) == (Ending.EXITED, b"free\n")


def test_a_text_file_that_stays_busy_is_not_spawned(pool, plugins):
    plugin = plugins.shell("echo")
    with open(plugin, "r+"):
        outcome = pool.slot(0).run(plugins.launch(plugin))
        not_spawned(outcome, errno.ETXTBSY, plugin)


def test_a_spawn_that_waits_can_be_cancelled(pool, plugins, start):
    plugin = plugins.shell("echo")
    with open(plugin, "r+"):
        future = start(pool.slot(0), plugins.launch(plugin))
        with pytest.raises(TimeoutError):
            future.result(0.3)
        pool.slot(0).cancel(3600.0)
        assert future.result(WAIT_LIMIT).ending is Ending.CANCELLED


def test_a_spawn_without_free_descriptors_is_retried(pool, plugins, start):
    slot = pool.slot(0)
    launch = plugins.launch(plugins.shell("echo ok"))
    before = resource.prlimit(slot.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(slot.pid, resource.RLIMIT_NOFILE, (8, before[1]))
    future = start(slot, launch)
    with pytest.raises(TimeoutError):
        future.result(0.3)
    resource.prlimit(slot.pid, resource.RLIMIT_NOFILE, before)
    assert future.result(WAIT_LIMIT).stdout == b"ok\n"


def test_the_runner_is_small():
    pool = RunnerPool(1)
    pool.start()
    sizes = []
    for pid in (pool.pid, pool.slot(0).pid):
        with open(f"/proc/{pid}/smaps_rollup") as file:
            sizes += [int(line.split()[1]) for line in file if line.startswith("Pss:")]
    pool.stop()
    assert len(sizes) == 2
    assert sum(sizes) < 12 * 1024


def test_the_runner_imports_only_light_modules():
    above = os.path.dirname(os.path.dirname(ductile.__file__))
    code = (
        f"import sys; sys.path.insert(0, {above!r})\n"
        "import ductile.runner.supervisor\n"
        "print(*{name.partition('.')[0] for name in sys.modules})"
    )
    loaded = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    heavy = {"asyncio", "dataclasses", "inspect", "logging", "signal", "socket", "subprocess"}
    heavy |= {"selectors", "typing"}
    if sys.version_info < (3, 14):  # where ctypes imports them
        heavy |= {"collections", "enum", "functools", "threading"}
    assert heavy.isdisjoint(loaded)
    assert {name for name in loaded if name not in sys.stdlib_module_names} <= {
        "ductile",
        "__main__",
    }


REPLACEMENTS = {
    "replaced": "echo 'echo swapped' > new; chmod +x new; mv new {file}",
    "written to": "echo 'echo swapped' >> {file}",
    "same size and time": "touch -r {file} r; sed -i s/before/swaped/ {file}; touch -r r {file}",
}


@pytest.mark.parametrize("change", REPLACEMENTS.values(), ids=REPLACEMENTS)
def test_a_program_with_another_stat_does_not_run(pool, plugins, change):
    file = plugins.shell("echo before")
    launch = replace(plugins.launch(file), stat=encode_stat(os.stat(file)))
    assert pool.slot(0).run(launch).stdout == b"before\n"
    subprocess.run(["sh", "-c", change.format(file=file)], cwd=plugins.folder, check=True)
    outcome = pool.slot(0).run(launch)
    assert (outcome.ending, outcome.stdout) == (Ending.NOT_SPAWNED, b"")
    assert "has changed since it was loaded, and strict_mode is set" in outcome.reason


def test_a_program_that_is_gone_is_reported_as_such(pool, plugins):
    file = plugins.shell("echo before")
    launch = replace(plugins.launch(file), stat=encode_stat(os.stat(file)))
    os.unlink(file)
    assert "does not exist" in pool.slot(0).run(launch).reason
