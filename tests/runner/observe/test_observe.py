"""What is observed of programs in sh, Python and C, across forks and execs."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from ductile.model import Ending
from ductile.runner.observe.observer_pool import observe
from ductile.runner.observe.spawner import can_observe

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
