"""What is observed of programs in sh, Python and C, across forks and execs."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from ductile.model import Ending
from ductile.runner.observe.observer_pool import observe
from ductile.runner.observe.record import Record, decode_record, write_record
from tests.runner.observe.support import can_observe

pytestmark = pytest.mark.skipif(not can_observe(), reason="needs seccomp notifications")

TOUCHING = f"""#!{sys.executable} -IS
import os, socket, subprocess, sys, threading
here = sys.argv[1]
os.chdir(here)
folder = os.open("data", os.O_RDONLY)
os.close(os.open("../data/read", os.O_RDONLY, dir_fd=folder))
open("link").read()
with open("new/part", "wb") as file:
    file.write(b"x" * 3_000_000)
os.rename("new/part", "new/whole")
os.truncate("data/cut", 1)
open("missing/file") if os.path.exists("missing") else None
os.mkfifo("pipe", 0o755)
try:
    os.posix_spawn(here + "/pipe", ["pipe"], {{}})
except PermissionError:
    pass
for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
    tcp = socket.socket(family)
    tcp.connect_ex((host, int(sys.argv[2])))
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.sendto(b"x", ("127.0.0.1", 9))
socket.socket(socket.AF_UNIX).connect_ex(here + "/absent.sock")
wait = threading.Event()
threads = [threading.Thread(target=wait.wait) for _ in range(3)]
for thread in threads:
    thread.start()
block = bytearray(64 << 20)
wait.set()
for thread in threads:
    thread.join()
subprocess.run([here + "/inner.sh"], check=True)
print("done")
"""


def test_files_ports_and_resources_of_all_processes_are_observed(tmp_path: Path, plugins) -> None:
    here = tmp_path.resolve()
    for name in ("data", "new", "elsewhere"):
        (here / name).mkdir()
    for name in ("data/read", "data/cut", "elsewhere/target", "elsewhere/inner", "elsewhere/both"):
        (here / name).write_text("text")
    (here / "link").symlink_to(here / "elsewhere" / "target")
    inner = here / "inner.sh"
    inner.write_text(
        f"#!/bin/sh\ncd {here}/elsewhere && cat inner > /dev/null; echo x >> both; cat both\n"
    )
    inner.chmod(0o755)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        launch = plugins.launch(plugins.script(TOUCHING), str(here), str(port))
        outcome, record = observe(launch)
    assert (outcome.ending, outcome.exit_code) == (Ending.EXITED, 0), outcome
    assert outcome.stdout.endswith(b"done\n")
    own = {
        (how, path.removeprefix(f"{here}/"))
        for how, path in record.paths
        if path.startswith(f"{here}/")
    }
    assert own >= {
        ("list", "data"),
        ("read", "data/read"),
        ("read", "elsewhere/target"),
        ("change", "new"),
        ("write", "data/cut"),
        ("read", "inner.sh"),
        ("read", "elsewhere/inner"),
        ("write", "elsewhere/both"),
        ("read", "elsewhere/both"),
    }
    assert not any("missing" in path or path == "link" for _, path in own)
    assert ("read", os.path.realpath("/bin/sh")) in record.paths
    assert (record.tcp, record.udp) == ({port}, {9})
    assert record.unix == {f"{here}/absent.sock"}
    assert record.needs_all == set()
    assert 64 << 20 < record.memory < 512 << 20
    assert record.file_size == 3_000_000
    assert record.tasks >= 4
    assert record.cpu_time > 0
    assert (record.missed, record.problem) == (0, "")


STATIC = """
#include <fcntl.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
int main(int count, char **words) {
    struct sockaddr_in here = {.sin_family = AF_INET};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    return open(words[1], O_RDONLY) < 0 || bind(fd, (void *)&here, sizeof here);
}
"""


def test_a_static_program_is_observed_and_its_children_are_ended(tmp_path: Path, plugins) -> None:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    (tmp_path / "program.c").write_text(STATIC)
    command = [compiler, "-static", "-w", "-o", "program", "program.c"]
    if subprocess.run(command, cwd=tmp_path, capture_output=True, check=False).returncode:
        pytest.skip("the C compiler cannot link a static program")
    (tmp_path / "read").write_text("text")
    path = plugins.shell(f"(trap '' TERM; setsid sleep 1000) & {tmp_path}/program {tmp_path}/read")
    outcome, record = observe(plugins.launch(path))
    assert outcome.exit_code == 0, outcome
    assert ("read", str((tmp_path / "read").resolve())) in record.paths
    assert "accepts TCP connections" in " ".join(record.needs_all)
    assert plugins.alive() == []


def test_a_program_that_cannot_be_started_is_an_outcome(plugins, tmp_path: Path) -> None:
    outcome, _ = observe(plugins.launch(plugins.script("#!/nonexistent\n")))
    assert outcome.ending is Ending.NOT_SPAWNED


# Where a service or a container refuses it

REFUSING = """
import ctypes, errno, os, sys
from pathlib import Path
from ductile.runner.observe.observer_pool import CannotObserve, observe
from ductile.runner.sandbox.seccomp import ALLOWED, ANY_BIT, LOAD, FilterProgram, apply_filter
from ductile.runner.sandbox.seccomp import assemble, fail
from ductile.runner.sandbox.system_calls import PR_SET_NO_NEW_PRIVS, libc, prctl
from tests.runner.processes import Plugins

SECCOMP, PREAD, GETFD = {"x86_64": (317, 17, 438), "aarch64": (277, 67, 438)}[os.uname().machine]
KILL, NOTIFY = (0x06, 0, 0, 0x80000000), (0x06, 0, 0, 0x7FC00000)

def when(argument, bits, body):
    return [(LOAD, 0, 0, argument), (ANY_BIT, 0, 1, bits), body, ALLOWED]

# The second argument of `seccomp` are its flags, of which 8 wants a listener. The upper half of the
# fourth one of `pread` is set for addresses in the memory of a process, not for files.
bodies = {
    "nothing": {},
    "listener": {SECCOMP: when(24, 8, fail(errno.EPERM))},
    "killed": {SECCOMP: when(24, 8, KILL)},
    "seccomp": {SECCOMP: [fail(errno.ENOSYS)]},
    "memory": {PREAD: when(44, 0xFFFFFFFF, fail(errno.EPERM))},
    "descriptors": {GETFD: [fail(errno.EPERM)]},
    "observed": {GETFD: [NOTIFY]},
}[sys.argv[1]]
prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
program = assemble(os.uname().machine, bodies)
if sys.argv[1] == "observed":
    filter = FilterProgram(len(program) // 8, program)
    words = map(ctypes.c_long, (SECCOMP, 1, 8))
    assert libc().syscall(*words, ctypes.byref(filter)) >= 0
else:
    apply_filter(program)
plugins = Plugins(Path(sys.argv[2]))
try:
    outcome, record = observe(plugins.launch(sys.argv[3]))
except CannotObserve as error:
    print(error)
else:
    print("done", outcome.exit_code, record.tcp, record.udp, record.missed)
assert plugins.alive() == []
"""
TOUCHING_PORTS = f"""#!{sys.executable} -IS
import socket, sys
open(sys.argv[0] + ".started", "w").close()
socket.socket().connect_ex(("127.0.0.1", 9))
socket.socket(socket.AF_INET, socket.SOCK_DGRAM).connect(("127.0.0.1", 10))
"""


@pytest.mark.parametrize(
    ("refused", "reason"),
    [
        ("nothing", "done 0 {9} {10} 0"),
        # As in containers: TCP and UDP can be distinguished without it.
        ("descriptors", "done 0 {9} {10} 0"),
        ("listener", "no seccomp notifications (Operation not permitted)"),
        ("seccomp", "no seccomp notifications (Function not implemented)"),
        ("killed", "its process ended early"),
        ("observed", "another program"),
        ("memory", "its memory cannot be read"),
    ],
)
def test_what_cannot_be_observed_is_refused_before_the_plugin_runs(
    tmp_path: Path, plugins, refused: str, reason: str
) -> None:
    script = plugins.script(TOUCHING_PORTS)
    done = subprocess.run(
        [sys.executable, "-c", REFUSING, refused, str(tmp_path), script],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[3],
    )
    assert done.returncode == 0, done.stderr
    assert reason in done.stdout
    assert Path(f"{script}.started").exists() == done.stdout.startswith("done")


def test_processes_of_another_pid_namespace_cannot_be_observed(tmp_path: Path, plugins) -> None:
    unshare = ["unshare", "--map-root-user", "--pid", "--fork"]
    if not shutil.which("unshare") or subprocess.run([*unshare, "true"], check=False).returncode:
        pytest.skip("needs user namespaces")
    script = plugins.script(TOUCHING_PORTS)
    done = subprocess.run(
        [*unshare, sys.executable, "-c", REFUSING, "nothing", str(tmp_path), script],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[3],
    )
    assert "/proc belongs to another PID namespace" in done.stdout, done.stderr
    assert not Path(f"{script}.started").exists()


def test_record_of_a_repeated_start_replaces_the_first_one() -> None:
    with tempfile.TemporaryFile() as report:
        for problem in ("its process ended early", ""):
            record = Record()
            record.problem = problem
            write_record(report.fileno(), record)
        report.seek(0)
        assert decode_record(report.read()).problem == ""
