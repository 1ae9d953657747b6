"""System calls that no sandbox permits, and the programs that must work without them."""

from __future__ import annotations

import errno
import os
import re
import shutil
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ductile.model import Ending
from ductile.runner.sandbox import policy as sandbox
from ductile.runner.sandbox import seccomp
from tests.runner.test_sandbox import SYSTEM, Box, needs_kernel

NEW_USER, NEW_TIME = 0x10000000, 0x80
NAMESPACES = (NEW_USER, NEW_TIME, 0x20000, *(1 << bit for bit in range(25, 31) if bit != 28))
SHARE_FILES = 0x400
SIGCHLD = 17
PIPES = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}


@pytest.fixture
def box(pool, plugins, tmp_path) -> Box:
    return Box(pool, plugins, tmp_path)


CALL = """
libc = ctypes.CDLL(None, use_errno=True)
def call(*numbers):
    result = libc.syscall(*map(ctypes.c_long, numbers))
    if result == 0 and numbers[0] in (56, 220):
        os._exit(0)
    if result < 0:
        raise OSError(ctypes.get_errno(), "")
    return result
"""


@needs_kernel
def test_a_shell_plugin_cannot_enter_new_namespaces(box):
    unshare = shutil.which("unshare")
    if unshare is None:
        pytest.skip("needs the program unshare")
    text = "\n".join(f"{unshare} {option} true; echo $?" for option in ("-U", "-Ur", "-n", "-m"))
    outcome = box.shell(text)
    assert outcome.stdout == b"1\n" * 4
    assert outcome.stderr.count(b"Operation not permitted") == 4


@needs_kernel
def test_flags_for_namespaces_are_refused_and_others_are_not(box):
    unshare, clone, setns = {"x86_64": (272, 56, 308), "aarch64": (97, 220, 268)}[
        os.uname().machine
    ]
    text = CALL + (
        f"for flag in {NAMESPACES}: attempt(call, {unshare}, flag)\n"
        f"for flag in {NAMESPACES}: attempt(call, {clone}, flag | {SIGCHLD}, 0, 0, 0, 0)\n"
        # Together with permitted flags, and where the kernel ignores the upper half.
        f"attempt(call, {unshare}, {NEW_USER | SHARE_FILES})\n"
        f"attempt(call, {clone}, {NEW_USER | SIGCHLD} | 1 << 40, 0, 0, 0, 0)\n"
        f"attempt(call, 435, 0, 88)\n"
        f"attempt(lambda: call({setns}, os.pidfd_open(os.getpid()), {NEW_USER}))\n"
        f"attempt(call, {unshare}, {SHARE_FILES})\n"
        f"attempt(lambda: os.waitpid(call({clone}, {SIGCHLD}, 0, 0, 0, 0), 0))\n"
    )
    both = ["EPERM"] * (2 * len(NAMESPACES) + 2)
    assert box.python(text) == [*both, "ENOSYS", "EPERM", "ok", "ok"]


STATIC = r"""
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
static void attempt(const char *name, long result) {
    printf("%s %s\n", name, result < 0 ? strerrorname_np(errno) : "ok");
}
int main(void) {
    char attributes[128] = {0};
    int queue[2] = {0};
    attempt("unshare", syscall(SYS_unshare, 0x10000000));
    long pid = syscall(SYS_clone, 0x10000000 | 17, 0, 0, 0, 0);
    if (pid == 0) _exit(0);
    attempt("clone", pid);
    attempt("clone3", syscall(SYS_clone3, attributes, 88));
    attempt("add_key", syscall(SYS_add_key, "user", "name", "x", 1L, -4));
    attempt("keyctl", syscall(SYS_keyctl, 0, -4, 1));
    attempt("request_key", syscall(SYS_request_key, "user", "name", 0, -4));
    attempt("shmget", syscall(SYS_shmget, 0, 4096L, 01600));
    attempt("shmat", syscall(SYS_shmat, 0, 0, 0));
    attempt("semget", syscall(SYS_semget, 0, 1, 01600));
    attempt("semctl", syscall(SYS_semctl, 0, 0, 19, attributes));
    attempt("semtimedop", syscall(SYS_semtimedop, 0, 0, 0, 0));
    attempt("msgget", syscall(SYS_msgget, 0, 01600));
    attempt("msgsnd", syscall(SYS_msgsnd, 0, attributes, 0L, 0));
    attempt("mq_open", syscall(SYS_mq_open, "name", 0102, 0600, 0));
    attempt("mq_unlink", syscall(SYS_mq_unlink, "name"));
    attempt("bpf", syscall(SYS_bpf, 0, attributes, 48));
    attempt("perf_event_open", syscall(SYS_perf_event_open, attributes, 0, -1, -1, 0L));
    attempt("userfaultfd", syscall(SYS_userfaultfd, 1));
    attempt("kcmp", syscall(SYS_kcmp, getpid(), getpid(), 0, 0L, 1L));
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


@needs_kernel
@pytest.mark.parametrize("network", [sandbox.NETWORK_NONE, sandbox.NETWORK_ALL])
def test_a_static_program_is_refused_system_calls_of_no_use_to_plugins(
    box, static_program, network
):
    outcome = box.run(
        str(static_program), read=(*SYSTEM, str(static_program.parent)), network=network
    )
    assert (outcome.ending, outcome.exit_code) == (Ending.EXITED, 0), outcome
    found = dict(line.split() for line in outcome.stdout.decode().splitlines())
    assert found.pop("clone3") == "ENOSYS"
    assert len(found) == 18
    assert set(found.values()) == {"EPERM"}


@pytest.fixture
def other_process() -> Iterator[int]:
    """A process that its user may change: of root's only those without capabilities."""
    powerless = ["setpriv", "--bounding-set=-all"] if os.geteuid() == 0 else []
    process = subprocess.Popen([*powerless, "sh", "-c", "echo; exec cat"], **PIPES)
    process.stdout.readline()
    yield process.pid
    process.communicate()


@needs_kernel
def test_priority_and_cores_of_other_processes_cannot_be_changed(box, other_process):
    ioprio_set = {"x86_64": 251, "aarch64": 30}[os.uname().machine]
    text = CALL + (
        f"other = {other_process}\n"
        "for which, number in ((os.PRIO_PROCESS, other), (os.PRIO_USER, 0), (os.PRIO_PGRP, 0)):\n"
        "    attempt(os.setpriority, which, number, 19)\n"
        "for number in (other, 0):\n"
        "    attempt(os.sched_setaffinity, number, os.sched_getaffinity(0))\n"
        "    attempt(os.sched_setscheduler, number, os.SCHED_BATCH, os.sched_param(0))\n"
        f"    attempt(call, {ioprio_set}, 1, number, 2 << 13 | 7)\n"
        "attempt(os.nice, 1)\n"
    )
    assert box.python(text) == ["EPERM"] * 6 + ["ok"] * 4


# What must work without these calls

PYTHON = """
import concurrent.futures, multiprocessing, subprocess, threading
thread = threading.Thread(target=print, args=("thread",))
thread.start()
thread.join()
print(subprocess.run(["/bin/echo", "process"], capture_output=True, text=True).stdout)
print(subprocess.run(["/bin/sh", "-c", "echo prepared"], preexec_fn=os.getpid, text=True,
                     stdout=subprocess.PIPE).stdout)
os.waitpid(os.posix_spawn("/bin/echo", ["echo", "spawned"], {}), 0)
if os.fork() == 0:
    os._exit(3)
print(os.waitstatus_to_exitcode(os.wait()[1]))
for method in ("fork", "spawn"):
    process = multiprocessing.get_context(method).Process(target=len, args=("",))
    process.start()
    process.join()
    print(method, process.exitcode)
"""
WORKED = sorted(["thread", "process", "prepared", "spawned", "3", "fork", "0", "spawn", "0"])


@needs_kernel
def test_threads_and_processes_of_python_work(box):
    found = box.python(f"if __name__ == '__main__':\n{indent(PYTHON)}")
    assert sorted(found) == WORKED


def indent(text: str) -> str:
    return "".join(f"    {line}" for line in text.splitlines(keepends=True))


GO = """package main
import ("fmt"; "os/exec"; "runtime"; "sync")
func main() {
    var all sync.WaitGroup
    for i := 0; i < 20; i++ {
        all.Add(1)
        go func() {
            defer all.Done()
            runtime.LockOSThread()
            if exec.Command("/bin/true").Run() != nil { panic("not started") }
        }()
    }
    all.Wait()
    fmt.Print("done")
}
"""
NODE = """
const { Worker } = require("worker_threads");
const { execFileSync } = require("child_process");
new Worker("", { eval: true }).on("exit", () => {
  process.stdout.write(execFileSync("/bin/echo", ["-n", "done"]));
});
"""
JAVA = """public class Main {
    public static void main(String[] words) throws Exception {
        Thread thread = new Thread(() -> System.out.print("do"));
        thread.start();
        thread.join();
        System.out.print(new ProcessBuilder("/bin/true").start().waitFor() == 0 ? "ne" : "");
    }
}
"""


@needs_kernel
@pytest.mark.parametrize("language", ["go", "node", "javac"])
def test_threads_and_processes_of_other_runtimes_work(box, tmp_path, language):
    program = shutil.which(language)
    if program is None:
        pytest.skip(f"needs {language}")
    folder = tmp_path / "program"
    folder.mkdir()
    name, text = {
        "go": ("main.go", GO),
        "node": ("main.js", NODE),
        "javac": ("Main.java", JAVA),
    }[language]
    (folder / name).write_text(text)
    argv = [program, str(folder / name)]
    if language == "go":
        argv = [str(folder / "main")]
        caches = {"GOCACHE": str(tmp_path / "cache"), "HOME": str(tmp_path), "GO111MODULE": "off"}
        built = subprocess.run(
            [program, "build", "-o", argv[0], name],
            cwd=folder,
            env={"PATH": os.environ["PATH"], **caches},
            check=False,
        )
        if built.returncode:
            pytest.skip("cannot build a Go program")
    elif language == "javac":
        if subprocess.run([program, "-d", folder, argv[1]], check=False).returncode:
            pytest.skip("cannot build a Java program")
        argv = [os.path.join(os.path.dirname(program), "java"), "-cp", str(folder), "Main"]
    home = os.path.dirname(os.path.dirname(os.path.realpath(program)))
    system = ("/etc", "/proc", "/sys/devices/system/cpu", "/sys/fs/cgroup")
    outcome = box.run(argv[0], *argv[1:], read=(*SYSTEM, *system, home, str(folder)))
    assert outcome.stdout == b"done", outcome


# Both architectures

NUMBERS = {
    "x86_64": ("/usr/include/x86_64-linux-gnu/asm/unistd_64.h", 0xC000003E),
    # ARM64 has the generic numbers.
    "aarch64": ("/usr/include/asm-generic/unistd.h", 0xC00000B7),
}
REFUSED = (
    *("ptrace", "process_vm_readv", "process_vm_writev", "kcmp", "pidfd_getfd", "setns"),
    *("shmget", "shmat", "shmdt", "shmctl", "semget", "semop", "semctl", "semtimedop"),
    *("msgget", "msgsnd", "msgrcv", "msgctl", "mq_open", "mq_unlink"),
    *("add_key", "request_key", "keyctl", "perf_event_open", "bpf", "userfaultfd"),
)
OF_PROCESS = ("prlimit64", "sched_setaffinity", "sched_setattr", "sched_setparam")
OF_PROCESS += ("sched_setscheduler",)
ABSENT = ("io_uring_setup", "io_uring_enter", "io_uring_register", "clone3")
ALLOW, FAIL = 0x7FFF0000, 0x00050000


def run_filter(program: bytes, arch: int, number: int, *arguments: int) -> int:
    """What the kernel's machine for filters returns for one system call."""
    padded = [*arguments, 0, 0, 0, 0, 0, 0][:6]
    data = struct.pack("<iIQ6Q", number, arch, 0, *padded)
    at, register = 0, 0
    while True:
        code, if_true, if_false, operand = struct.unpack_from("<HBBI", program, at * 8)
        at += 1
        if code == 0x20:
            (register,) = struct.unpack_from("<I", data, operand)
        elif code == 0x54:
            register &= operand
        elif code == 0x06:
            return int(operand)
        else:
            holds = {0x15: register == operand, 0x35: register >= operand}
            holds[0x45] = register & operand != 0
            at += if_true if holds[code] else if_false


@pytest.mark.parametrize("machine", NUMBERS)
def test_filter_of_each_architecture_refuses_the_same_calls(machine):
    header, arch = NUMBERS[machine]
    if not os.path.exists(header):
        pytest.skip("needs the headers of the kernel")
    defined = re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", Path(header).read_text())
    numbers = {name: int(number) for name, number in defined}
    program = seccomp.build_filter(machine, sandbox.NETWORK_NONE)

    def result(name: str, *arguments: int) -> int:
        return run_filter(program, arch, numbers[name], *arguments)

    refused, absent = FAIL | errno.EPERM, FAIL | errno.ENOSYS
    assert {name: result(name) for name in REFUSED} == dict.fromkeys(REFUSED, refused)
    assert {name: result(name) for name in ABSENT} == dict.fromkeys(ABSENT, absent)
    for name in ("clone", "unshare"):
        assert {result(name, flag) for flag in NAMESPACES} == {refused}
        assert result(name, SHARE_FILES) == ALLOW
    for name in OF_PROCESS:
        assert (result(name, os.getpid()), result(name, 0)) == (refused, ALLOW), name
    for name, own_process in (("setpriority", 0), ("ioprio_set", 1)):
        assert result(name, own_process, 0, 19) == ALLOW
        # Another process, and all that the user has.
        assert {result(name, own_process, os.getpid()), result(name, own_process + 2, 0)} == {
            refused
        }
    assert {result(name) for name in ("socket", "socketpair")} == {FAIL | errno.EACCES}
    conditional = {"clone", "unshare", "socket", "socketpair", "setpriority", "ioprio_set"}
    conditional |= {*OF_PROCESS}
    others = numbers.keys() - {*REFUSED, *ABSENT, *conditional}
    assert {name for name in others if result(name) != ALLOW} == set()
    assert run_filter(program, arch, 0x40000000) == absent
    assert run_filter(program, 0x40000003, numbers["unshare"]) == absent
