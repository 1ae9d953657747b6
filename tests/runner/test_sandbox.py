"""Hostile plugins in sh, Python and C, at the Landlock version of this machine and older ones."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ductile.model import Ending
from ductile.runner.sandbox import policy as sandbox
from ductile.runner.sandbox.policy import FILES, NETWORK, PROCESSES, SIGNALS, Policy, Support
from ductile.runner.sandbox.restrict import probe

OWN = probe()
SYSTEM = ("/usr", "/lib", "/lib64", "/bin", "/etc/ld.so.cache", "/etc/ld.so.preload")
PYTHON_FILES = (sys.base_prefix, sys.prefix)

needs_kernel = pytest.mark.skipif(
    OWN.abi < 6 or not OWN.seccomp, reason="needs Landlock ABI 6 and seccomp filters"
)


def make_policy(tmp_path: Path, **changes: object) -> Policy:
    plugin = tmp_path / "own"
    plugin.mkdir(exist_ok=True)
    whole = Policy(
        abi=OWN.abi,
        seccomp=OWN.seccomp,
        network=sandbox.NETWORK_NONE,
        ports=(),
        memory=0,
        processes=0,
        cpu_time=0,
        file_size=0,
        temporary=str(tmp_path / "tmp"),
        read=(*SYSTEM, *PYTHON_FILES, str(plugin)),
        write=(),
    )
    return whole._replace(**changes)  # type: ignore[arg-type]


class Box:
    """Runs hostile programs, which are in a folder that they may read, in a slot."""

    def __init__(self, pool, plugins, tmp_path: Path) -> None:
        self._pool, self._plugins, self.path = pool, plugins, tmp_path
        self.own = tmp_path / "own"

    def run(self, program: str, *words: str, **changes: object):
        encoded = make_policy(self.path, **changes).encode()
        launch = replace(self._plugins.launch(program, *words), sandbox=encoded)
        return self._pool.slot(0).run(launch)

    def _write(self, text: str, name: str) -> str:
        self.own.mkdir(exist_ok=True)
        path = self.own / name
        path.write_text(text)
        path.chmod(0o755)
        return str(path)

    def shell(self, text: str, **changes: object):
        return self.run(self._write(f"#!/bin/sh\n{text}\n", "hostile.sh"), **changes)

    def python(self, text: str, *words: str, **changes: object) -> list[str]:
        """What a Python plugin prints: one word per attempt, `ok` or the name of the error."""
        head = f"#!{sys.executable} -IS\nimport ctypes, errno, os, signal, socket, sys\n"
        tail = (
            "def attempt(action, *arguments):\n"
            "    try:\n"
            "        action(*arguments)\n"
            "    except OSError as error:\n"
            "        print(errno.errorcode[error.errno])\n"
            "    else:\n"
            "        print('ok')\n"
        )
        outcome = self.run(self._write(head + tail + text, "hostile.py"), *words, **changes)
        assert (outcome.ending, outcome.exit_code) == (Ending.EXITED, 0), outcome
        return outcome.stdout.decode().split()


@pytest.fixture
def box(pool, plugins, tmp_path) -> Box:
    return Box(pool, plugins, tmp_path)


# The policy


def test_a_policy_survives_its_encoding(tmp_path):
    whole = make_policy(
        tmp_path, network="ports", ports=(443, 8443), memory=1, write=("/a b", "/ü")
    )
    assert sandbox.decode(whole.encode()) == whole
    longer = sandbox.decode(whole.encode() + b"\0\0/workspace")
    assert (longer.write, longer.own) == (("/a b", "/ü"), ("/workspace",))
    alone = sandbox.decode(make_policy(tmp_path).encode() + b"\0\0/workspace")
    assert (alone.write, alone.own) == ((), ("/workspace",))


@pytest.mark.parametrize(
    ("abi", "network", "missing"),
    [
        (0, "none", {FILES, PROCESSES, SIGNALS}),
        (0, "ports", {FILES, NETWORK, PROCESSES, SIGNALS}),
        (3, "ports", {NETWORK, SIGNALS}),
        (4, "ports", {SIGNALS}),
        (6, "ports", set()),
        (6, "none", set()),
    ],
)
def test_gaps_of_a_kernel_are_reported(abi, network, missing):
    assert sandbox.find_gaps(Support(abi, True), network, 0).keys() == missing


def test_without_seccomp_sockets_and_processes_are_not_enforced():
    gaps = sandbox.find_gaps(Support(7, False), "none", 0)
    assert gaps.keys() == {NETWORK, sandbox.SOCKETS, PROCESSES, sandbox.SYSTEM_CALLS}


def test_the_processes_of_root_are_not_limited():
    assert sandbox.PROCESS_LIMIT in sandbox.find_gaps(Support(7, True, is_root=True), "none", 64)


# Files


@needs_kernel
def test_a_shell_plugin_reaches_only_its_own_files(box, tmp_path):
    for name in ("state", "config", "workspaces"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text("secret")
    workspace = tmp_path / "workspaces" / "own"
    workspace.mkdir()
    outcome = box.shell(
        f"cat {tmp_path}/state/file {tmp_path}/config/file {tmp_path}/workspaces/file\n"
        f"echo x > {tmp_path}/state/file; rm {tmp_path}/config/file; ls {tmp_path}\n"
        f"mv {tmp_path}/state/file {workspace}/file; ln {tmp_path}/state/file {workspace}/link\n"
        f"echo kept > {workspace}/result; echo hi > $TMPDIR/note; cat $TMPDIR/note {workspace}/*",
        write=(str(workspace),),
    )
    assert outcome.stdout == b"hi\nkept\n"
    assert b"secret" not in outcome.stdout + outcome.stderr
    assert {path.name for path in tmp_path.rglob("file")} == {"file"}
    assert (tmp_path / "state" / "file").read_text() == "secret"
    assert [path.name for path in workspace.iterdir()] == ["result"]


@needs_kernel
def test_the_temporary_directory_is_removed_with_its_content(box, tmp_path):
    # Deeper than Python recurses.
    deep = "/d" * 1200
    text = f"mkdir -p $TMPDIR/a/b $TMPDIR/c{deep}; echo x > $TMPDIR/a/b/c; ln -s / $TMPDIR/a/root"
    text += "; chmod 0 $TMPDIR/a"
    assert box.shell(f"{text}; echo $TMPDIR").stdout.startswith(os.fsencode(tmp_path / "tmp"))
    assert list((tmp_path / "tmp").iterdir()) == []


@needs_kernel
def test_a_link_in_the_place_of_a_granted_path_grants_nothing(box, tmp_path):
    for name in ("state", "shared", "shared/deep"):
        (tmp_path / name).mkdir()
    (tmp_path / "state" / "ledger").write_text("rows")
    granted = {
        "write": (str(tmp_path / "shared"), str(tmp_path / "shared/deep/inner")),
        "read": (*SYSTEM, *PYTHON_FILES, str(tmp_path / "own"), str(tmp_path / "shared/later")),
    }
    swap = (
        f"ln -s {tmp_path}/state {tmp_path}/shared/later; rmdir {tmp_path}/shared/deep\n"
        f"mkdir {tmp_path}/shared/far; ln -s {tmp_path} {tmp_path}/shared/far/inner\n"
        f"ln -s far {tmp_path}/shared/deep"
    )
    assert box.shell(swap, **granted).stderr == b""
    outcome = box.shell(f"cat {tmp_path}/state/ledger || echo x > {tmp_path}/state/new", **granted)
    assert (outcome.stdout, list((tmp_path / "state").iterdir())) == (
        b"",
        [tmp_path / "state" / "ledger"],
    )


REFUSE_OPENAT2 = """
import errno, os, sys
from ductile.runner.sandbox import landlock, seccomp
from ductile.runner.sandbox.system_calls import PR_SET_NO_NEW_PRIVS, prctl
from tests.runner.test_sandbox import make_policy
from pathlib import Path

program = seccomp.assemble(os.uname().machine, {437: [seccomp.fail(errno.ENOSYS)]})
prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
seccomp.apply_filter(program)
folder = Path(sys.argv[1])
(folder / "granted").mkdir()
(folder / "granted" / "file").write_text("text")
landlock.apply_ruleset(landlock.create_ruleset(make_policy(folder, read=(f"{folder}/granted",))))
print((folder / "granted" / "file").read_text())
"""


@needs_kernel
def test_paths_are_granted_where_a_filter_refuses_openat2(tmp_path):
    # As RestrictSUIDSGID=yes does in the unit of systemd.
    done = subprocess.run(
        [sys.executable, "-c", REFUSE_OPENAT2, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert (done.returncode, done.stdout) == (0, "text\n"), done.stderr


@needs_kernel
def test_files_cannot_be_reached_by_detours(box, tmp_path):
    for name in ("state", "readable", "one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
    renameat2 = {"x86_64": 316, "aarch64": 276}[os.uname().machine]
    text = (
        f"here = {str(tmp_path)!r}\n"
        "ledger, mine = here + '/state/file', here + '/one/file'\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        "def exchange(one, other):\n"
        f"    if libc.syscall({renameat2}, -100, one.encode(), -100, other.encode(), 2):\n"
        "        raise OSError(ctypes.get_errno(), '')\n"
        "attempt(lambda: open(f'/proc/self/fd/{os.open(ledger, os.O_PATH)}'))\n"
        "attempt(open, '/proc/self/root' + ledger)\n"
        "attempt(open, f'/proc/self/task/{os.getpid()}/root{ledger}')\n"
        "os.chdir(here + '/state')\n"
        "attempt(open, 'file')\n"
        "attempt(open, '/proc/self/cwd/file')\n"
        "attempt(lambda: (os.symlink(ledger, here + '/one/link'), open(here + '/one/link')))\n"
        "attempt(exchange, mine, ledger)\n"
        "attempt(os.rename, mine, ledger)\n"
        "attempt(os.rename, here + '/one', here + '/two/one')\n"
        # To a directory with more rights, also from one that may be read.
        "attempt(os.link, ledger, here + '/one/ledger')\n"
        "attempt(os.link, here + '/readable/file', here + '/one/read')\n"
        "attempt(os.link, mine, here + '/two/link')\n"
        "attempt(os.rename, mine, here + '/two/file')\n"
    )
    granted = {
        "read": (*SYSTEM, *PYTHON_FILES, str(tmp_path / "own"), str(tmp_path / "readable")),
        "write": (str(tmp_path / "one"), str(tmp_path / "two")),
    }
    found = box.python(text, **granted)
    assert found == [*["EACCES"] * 9, "EXDEV", "EXDEV", "ok", "ok"]
    assert (tmp_path / "state" / "file").read_text() == "state"
    assert (tmp_path / "state" / "file").stat().st_nlink == 1


@needs_kernel
def test_a_file_cannot_be_truncated_by_its_path(box, tmp_path):
    (tmp_path / "ledger").write_text("rows")
    assert box.python(f"attempt(os.truncate, {str(tmp_path / 'ledger')!r}, 0)") == ["EACCES"]
    assert (tmp_path / "ledger").read_text() == "rows"


@needs_kernel
def test_other_processes_cannot_be_inspected(box):
    here = f"/proc/{os.getpid()}"
    text = f"for name in ('environ', 'mem', 'cmdline', 'fd/0'): attempt(open, f'{here}/{{name}}')"
    assert box.python(text) == ["EACCES"] * 4


# Network, system calls, signals


@needs_kernel
def test_without_network_no_socket_can_be_created(box):
    text = (
        "for family in (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX, socket.AF_NETLINK):\n"
        "    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):\n"
        "        attempt(socket.socket, family, kind)\n"
        "attempt(socket.socketpair)\n"
        # A raw one is one of datagrams.
        "for kind in (socket.SOCK_DGRAM, socket.SOCK_RAW):\n"
        "    attempt(socket.socketpair, socket.AF_UNIX, kind)\n"
    )
    assert box.python(text) == ["EACCES"] * 8 + ["ok", "EACCES", "EACCES"]


@needs_kernel
@pytest.mark.parametrize("network", [sandbox.NETWORK_PORTS, sandbox.NETWORK_ALL])
def test_socket_of_the_gateway_is_out_of_reach_with_network_access(box, tmp_path, network):
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "ductile.sock"))
        listener.listen()
        text = f"attempt(lambda: socket.socket(socket.AF_UNIX).connect({listener.getsockname()!r}))"
        assert box.python(text, network=network) == ["EACCES"]


@needs_kernel
def test_only_the_listed_ports_can_be_connected_to(box):
    with (
        socket.create_server(("127.0.0.1", 0)) as open_,
        socket.create_server(("127.0.0.1", 0)) as shut,
    ):
        ports = open_.getsockname()[1], shut.getsockname()[1]
        text = (
            f"for port in {ports}:\n"
            "    attempt(socket.create_connection, ('127.0.0.1', port))\n"
            "tcp = socket.socket()\n"
            f"attempt(tcp.sendto, b'x', 0x20000000, ('127.0.0.1', {ports[1]}))\n"
            "attempt(socket.socket, socket.AF_INET, socket.SOCK_STREAM, 262)\n"
            # Without a protocol, it is SCTP where the kernel has that.
            "attempt(socket.socket, socket.AF_INET, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)\n"
            "attempt(tcp.bind, ('127.0.0.1', 0))\n"
            "attempt(socket.socket, socket.AF_INET, socket.SOCK_DGRAM)\n"
        )
        found = box.python(text, network=sandbox.NETWORK_PORTS, ports=ports[:1])
        everything = box.python(text, network=sandbox.NETWORK_ALL)
    assert found == ["ok", *["EACCES"] * 5, "ok"]
    assert everything[:2] == ["ok", "ok"]


@needs_kernel
def test_processes_outside_of_the_job_cannot_be_signalled(box):
    tgkill = {"x86_64": 234, "aarch64": 131}[os.uname().machine]
    text = (
        "import resource\n"
        f"gateway = {os.getpid()}\n"
        "def thread():\n"
        "    libc = ctypes.CDLL(None, use_errno=True)\n"
        f"    if libc.syscall(*map(ctypes.c_long, ({tgkill}, gateway, gateway, 0))):\n"
        "        raise OSError(ctypes.get_errno(), '')\n"
        "for pid in (os.getppid(), gateway, 1): attempt(os.kill, pid, 0)\n"
        "attempt(os.killpg, os.getpgid(os.getppid()), 0)\n"
        "attempt(thread)\n"
        "attempt(lambda: signal.pidfd_send_signal(os.pidfd_open(gateway), 0))\n"
        # A limit of processor time kills, too.
        "attempt(resource.prlimit, gateway, resource.RLIMIT_CPU)\n"
        "attempt(resource.prlimit, 0, resource.RLIMIT_CPU)\n"
        "attempt(os.kill, os.getpid(), 0)\n"
    )
    assert box.python(text) == ["EPERM"] * 7 + ["ok"] * 2


@needs_kernel
def test_owner_of_a_descriptor_gets_no_signal_of_the_job(box, other_plugin):
    text = (
        "import fcntl\n"
        "one, other = socket.socketpair()\n"
        f"fcntl.fcntl(one, fcntl.F_SETOWN, {other_plugin})\n"
        "fcntl.fcntl(one, 10, signal.SIGKILL)\n"
        "fcntl.fcntl(one, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)\n"
        "other.send(b'x')\n"
        "print('sent')\n"
    )
    assert box.python(text) == ["sent"]
    assert os.waitid(os.P_PID, other_plugin, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None


@needs_kernel
def test_programs_with_the_rights_of_another_user_give_none(box, pool, plugins):
    assert box.python("print([l for l in open('/proc/self/status') if 'NoNewPrivs' in l])") == [
        "['NoNewPrivs:\\t1\\n']"
    ]
    if os.getuid():
        pytest.skip("only root can create a program of another user")
    box.own.mkdir(exist_ok=True)
    other = shutil.copy(shutil.which("id"), box.own / "id")
    os.chown(other, 65534, 65534)
    other.chmod(0o4755)
    free = pool.slot(0).run(plugins.launch(str(other), "-u"))
    assert free.stdout == b"65534\n"
    assert box.shell(f"{other} -u").stdout == b"0\n"


@needs_kernel
@pytest.mark.skipif(os.getuid() != 0, reason="only root has these capabilities")
def test_job_of_root_keeps_capabilities_over_files_and_users_only(box):
    text = (
        "import stat\n"
        "here = os.environ['TMPDIR']\n"
        "attempt(os.mknod, f'{here}/disk', stat.S_IFBLK | 0o600, os.makedev(7, 0))\n"
        "attempt(os.chroot, here)\n"
        "attempt(socket.sethostname, socket.gethostname())\n"
        "attempt(socket.socket, socket.AF_INET, socket.SOCK_RAW, 6)\n"
        "attempt(os.chown, here, 65534, 65534)\n"
        "attempt(open, f'{here}/file', 'w')\n"
        "attempt(os.setuid, 65534)\n"
    )
    found = box.python(text, network=sandbox.NETWORK_ALL)
    assert found == ["EPERM"] * 4 + ["ok"] * 3


STATIC = r"""
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <fcntl.h>
#include <unistd.h>
static void attempt(const char *name, long result) {
    printf("%s %s\n", name, result < 0 ? strerrorname_np(errno) : "ok");
}
int main(int count, char **words) {
    int pid = atoi(words[2]);
    char params[256] = {0}, path[64];
    attempt("ledger", open(words[1], O_RDWR));
    sprintf(path, "/proc/%d/environ", pid);
    attempt("environ", open(path, O_RDONLY));
    sprintf(path, "/proc/%d/mem", atoi(words[3]));
    attempt("memory", open(path, O_RDWR));
    attempt("tcp", socket(AF_INET, SOCK_STREAM, 0));
    attempt("udp", socket(AF_INET, SOCK_DGRAM, 0));
    attempt("unix", socket(AF_UNIX, SOCK_STREAM, 0));
    attempt("io_uring", syscall(425, 8, params));
    attempt("ptrace", syscall(SYS_ptrace, 16, pid, 0, 0));
    attempt("vm", syscall(SYS_process_vm_readv, pid, 0, 0, 0, 0, 0));
    attempt("signal", kill(pid, 0));
#ifdef __x86_64__
    attempt("x32", syscall(0x40000000 | 39));
    long result;
    __asm__ volatile("int $0x80" : "=a"(result) : "a"(20) : "memory");
    printf("i386 %s\n", result < 0 ? strerrorname_np(-result) : "ok");
#endif
    return 0;
}
"""


@pytest.fixture(scope="module")
def static_program(tmp_path_factory) -> Path:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    folder = tmp_path_factory.mktemp("static")
    (folder / "hostile.c").write_text(STATIC)
    command = [compiler, "-static", "-w", "-D_GNU_SOURCE", "-o", "hostile", "hostile.c"]
    if subprocess.run(command, cwd=folder, capture_output=True, check=False).returncode:
        pytest.skip("the C compiler cannot link a static program")
    return folder / "hostile"


@pytest.fixture
def other_plugin() -> Iterator[int]:
    """The pid of a process with the user and the capabilities of another sandboxed plugin."""
    text = (
        "from ductile.runner.sandbox.capabilities import drop_capabilities\n"
        "drop_capabilities()\n"
        "print(flush=True)\n"
        "input()\n"
    )
    command = [sys.executable, "-c", text]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid
        process.communicate(b"\n")


def attempts(outcome) -> dict[str, str]:
    assert (outcome.ending, outcome.exit_code) == (Ending.EXITED, 0), outcome
    return dict(line.split() for line in outcome.stdout.decode().splitlines())


@needs_kernel
def test_a_static_program_is_refused_everything(box, tmp_path, static_program, other_plugin):
    (tmp_path / "ledger").write_text("rows")
    words = str(tmp_path / "ledger"), str(os.getpid()), str(other_plugin)
    readable = (*SYSTEM, str(static_program.parent))
    found = attempts(box.run(str(static_program), *words, read=readable))
    x86 = {"x32": "ENOSYS", "i386": "ENOSYS"} if "x32" in found else {}
    assert found == {
        "ledger": "EACCES",
        "environ": "EACCES",
        "memory": "EACCES",
        "tcp": "EACCES",
        "udp": "EACCES",
        "unix": "EACCES",
        "io_uring": "ENOSYS",
        "ptrace": "EPERM",
        "vm": "EPERM",
        "signal": "EPERM",
        **x86,
    }
    in_memory = box.python(
        f"program = open({str(static_program)!r}, 'rb').read()\n"
        "memory = os.memfd_create('program')\n"
        "os.write(memory, program)\n"
        f"os.execve(memory, ('program', *{words}), {{}})\n",
        read=(*readable, *PYTHON_FILES, str(box.own)),
    )
    assert dict(zip(in_memory[::2], in_memory[1::2], strict=True)) == found


@needs_kernel
@pytest.mark.parametrize("abi", [0, 3, 4, 6])
def test_older_kernels_enforce_all_but_the_reported_gaps(
    box, tmp_path, static_program, other_plugin, abi
):
    (tmp_path / "ledger").write_text("rows")
    words = str(tmp_path / "ledger"), str(os.getpid()), str(other_plugin)
    readable = (*SYSTEM, str(static_program.parent))
    found = attempts(box.run(str(static_program), *words, read=readable, abi=abi))
    gaps = sandbox.find_gaps(Support(abi, True), sandbox.NETWORK_NONE, 0)
    assert (found["ledger"] == "ok") == (FILES in gaps)
    assert (found["memory"] == "ok") == (PROCESSES in gaps)
    assert (found["signal"] == "ok") == (SIGNALS in gaps)
    assert {found[name] for name in ("tcp", "udp", "unix", "ptrace", "vm", "io_uring")} <= {
        "EACCES",
        "EPERM",
        "ENOSYS",
    }


# Limits and failures


@needs_kernel
def test_limits_of_memory_files_and_processor_time(box):
    text = (
        "import resource\n"
        "for kind in ('DATA', 'FSIZE', 'CPU'):\n"
        "    print(resource.getrlimit(getattr(resource, f'RLIMIT_{kind}'))[0])\n"
        "try:\n"
        "    bytearray(1 << 30)\n"
        "except MemoryError:\n"
        "    print('refused')\n"
    )
    limits = {"memory": 256 << 20, "file_size": 1 << 20, "cpu_time": 60}
    assert box.python(text, **limits) == [str(256 << 20), str(1 << 20), "60", "refused"]


@needs_kernel
def test_the_limit_of_processes_counts_from_what_runs_already(box):
    text = "import resource; print(resource.getrlimit(resource.RLIMIT_NPROC)[0])"
    (limit,) = box.python(text, processes=64)
    assert int(limit) > 64


@needs_kernel
def test_a_program_that_may_not_be_read_is_not_spawned(box, plugins, tmp_path):
    outcome = box.run(plugins.shell("echo started"))
    assert (outcome.ending, outcome.stdout) == (Ending.NOT_SPAWNED, b"")
    assert list((tmp_path / "tmp").iterdir()) == []


@needs_kernel
def test_the_next_job_of_the_slot_is_not_restricted(box, pool, plugins):
    box.shell("true")
    outcome = pool.slot(0).run(plugins.launch(plugins.shell("cat /etc/hostname > /dev/null")))
    assert outcome.exit_code == 0


@needs_kernel
def test_a_sandboxed_job_is_ended_with_all_that_it_started(box, plugins):
    outcome = box.shell("(trap '' TERM; setsid sleep 1000) & echo started")
    assert outcome.stdout == b"started\n"
    assert plugins.alive() == []


@needs_kernel
def test_a_job_without_a_state_directory_has_a_temporary_one_too(box, tmp_path):
    outcome = box.shell(
        "echo hi > $TMPDIR/note; echo $TMPDIR", temporary=str(tmp_path / "no" / "t")
    )
    made = Path(outcome.stdout.decode().strip())
    assert outcome.stderr == b""
    assert not made.exists()
    assert not (tmp_path / "no").exists()
