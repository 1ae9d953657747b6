"""Warm jobs in a sandbox: refused what cold ones are refused, and nothing of the plugin runs
outside of it."""

from __future__ import annotations

import json
import os
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from ductile.model import Ending, Outcome
from ductile.runner.warm.zygote_pool import ZygotePool
from tests.runner.test_sandbox import make_policy, needs_kernel
from tests.runner.warm.conftest import Zygotes

pytestmark = needs_kernel

HOSTILE = """
import ctypes, errno, json, os, signal, socket, sys
where = json.load(sys.stdin)
found = {}
def attempt(name, action, *arguments):
    try:
        action(*arguments)
    except OSError as error:
        found[name] = errno.errorcode[error.errno]
    else:
        found[name] = "ok"
libc = ctypes.CDLL(None, use_errno=True)
def call(*numbers):
    if libc.syscall(*map(ctypes.c_long, numbers)) < 0:
        raise OSError(ctypes.get_errno(), "")
def open_write(path):
    os.close(os.open(path, os.O_WRONLY))
gateway = f"/proc/{where['gateway']}"
attempt("ledger", open, where["ledger"])
attempt("ledger_write", open_write, where["ledger"])
attempt("ledger_by_dots", open, os.environ["TMPDIR"] + "/../../ledger")
os.symlink(where["ledger"], os.environ["TMPDIR"] + "/link")
attempt("ledger_by_link", open, os.environ["TMPDIR"] + "/link")
attempt("truncate", os.truncate, where["ledger"], 0)
attempt("workspace", open, where["workspace"])
attempt("environ", open, gateway + "/environ")
attempt("mem", open, gateway + "/mem")
attempt("root", os.listdir, "/proc/self/root")
attempt("parent", open, f"/proc/{os.getppid()}/environ")
attempt("abstract", lambda: socket.socket(socket.AF_UNIX).connect(chr(0) + where["abstract"]))
for name, family, kind in (("tcp", 2, 1), ("udp", 2, 2), ("unix", 1, 1), ("netlink", 16, 2)):
    attempt(name, socket.socket, family, kind)
attempt("io_uring", call, 425, 8, 0)
# PTRACE_SEIZE, which does not stop a process where it succeeds.
attempt("ptrace", call, where["ptrace"], 0x4206, where["gateway"], 0, 0)
attempt("signal", os.kill, where["gateway"], 0)
attempt("signal_parent", os.kill, os.getppid(), 0)
attempt("group", os.killpg, os.getpgid(os.getppid()), 0)
attempt("own", open, where["own"])
attempt("temporary", open, os.environ["TMPDIR"] + "/note", "w")
attempt("pair", socket.socketpair)
numbers = sorted(int(name) for name in os.listdir("/proc/self/fd"))
links = [(n, f"/proc/self/fd/{n}") for n in numbers]
found["descriptors"] = [
    n for n, link in links if os.path.exists(link) and "libffi" not in os.readlink(link)]
found["privileges"] = [line.split()[1] for line in open("/proc/self/status")
                       if line.startswith(("NoNewPrivs", "Seccomp:"))]
print(json.dumps(found))
"""
REFUSED = {"EACCES", "EPERM", "ENOSYS"}


class Confined:
    """Runs one program cold and warm, in the same sandbox."""

    def __init__(self, zygotes: Zygotes, tmp_path: Path) -> None:
        self._zygotes, self._path = zygotes, tmp_path
        self.own = tmp_path / "own"
        self.own.mkdir()
        self.zygote: ZygotePool | None = None

    def write(self, text: str) -> str:
        return self._zygotes.script(text, "own/plugin.py")

    def start(self, path: str, *preload: str) -> None:
        warm = replace(self._zygotes.warm(path, *preload), is_confined=True)
        self.zygote = ZygotePool(self._zygotes.pool, warm)
        self._zygotes.started.append(self.zygote)
        self.zygote.start()

    def run(self, path: str, request: bytes = b"{}", **policy: object) -> tuple[Outcome, Outcome]:
        encoded = make_policy(self._path, **policy).encode()
        launch = replace(self._zygotes.launch(path, request=request), sandbox=encoded)
        assert self.zygote is not None
        slot = self.zygote.fork_slot()
        assert slot is not None
        return self._zygotes.pool.slot(0).run(launch), slot.run(launch)


@pytest.fixture
def confined(zygotes: Zygotes, tmp_path: Path) -> Confined:
    return Confined(zygotes, tmp_path)


def test_hostile_warm_job_is_refused_as_a_cold_one_at_every_version(
    confined: Confined, tmp_path: Path
) -> None:
    (tmp_path / "ledger").write_text("rows")
    (tmp_path / "workspace").write_text("files of another job")
    path = confined.write(HOSTILE)
    confined.start(path, "json", "socket", "ctypes")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("\0ductile-" + tmp_path.name)
        listener.listen()
        where = {
            "gateway": os.getpid(),
            "ledger": str(tmp_path / "ledger"),
            "workspace": str(tmp_path / "workspace"),
            "abstract": "ductile-" + tmp_path.name,
            "own": path,
            "ptrace": {"x86_64": 101, "aarch64": 117}[os.uname().machine],
        }
        request = json.dumps(where).encode()
        whole = None
        # The newest first: at version 0 the ledger can be truncated.
        for abi in (make_policy(tmp_path).abi, 6, 4, 3, 0):
            cold, warm = confined.run(path, request, abi=abi)
            assert (cold.ending, cold.exit_code) == (Ending.EXITED, 0), cold
            assert warm.exit_code == 0, warm
            assert json.loads(warm.stdout) == json.loads(cold.stdout)
            assert warm.stderr == b""
            if whole is None:
                whole = json.loads(warm.stdout)
                assert (tmp_path / "ledger").read_text() == "rows"
    assert whole is not None
    assert whole.pop("descriptors") == [0, 1, 2]
    assert whole.pop("privileges") == ["1", "2"]
    allowed = {name for name, found in whole.items() if found not in REFUSED}
    assert allowed == {"own", "temporary", "pair"}
    assert list((tmp_path / "tmp").iterdir()) == []


def test_nothing_of_the_plugin_runs_before_its_job_is_confined(
    confined: Confined, tmp_path: Path
) -> None:
    mark = tmp_path / "mark"
    text = f"import os\nopen({str(mark)!r}, 'a').write('ran outside')\n"
    for name in ("own_module", "restrict", "json", "ductile", "sitecustomize", "traceback"):
        (confined.own / f"{name}.py").write_text(text)
    path = confined.write("import os\nprint(os.environ['TMPDIR'])\nimport own_module\n")
    confined.start(path, "own_module", "json", "own_module.part")
    cold, warm = confined.run(path)
    assert not mark.exists()
    for outcome in (cold, warm):
        assert outcome.exit_code == 1
        assert b"PermissionError" in outcome.stderr
    assert Path(warm.stdout.decode().strip()).parent == tmp_path / "tmp"


def test_limits_hold_in_warm_jobs_and_not_in_the_next_one(confined: Confined) -> None:
    path = confined.write(
        "import resource\n"
        "for kind in ('DATA', 'FSIZE', 'CPU'):\n"
        "    print(resource.getrlimit(getattr(resource, f'RLIMIT_{kind}'))[0])\n"
    )
    confined.start(path)
    limits = {"memory": 256 << 20, "file_size": 1 << 20, "cpu_time": 60}
    cold, warm = confined.run(path, **limits)
    assert warm.stdout == cold.stdout == b"%d\n%d\n60\n" % (256 << 20, 1 << 20)
    cold, warm = confined.run(path)
    assert warm.stdout == cold.stdout == b"-1\n-1\n-1\n"


def test_sandbox_that_cannot_be_applied_ends_the_job_before_the_plugin(
    confined: Confined,
) -> None:
    path = confined.write("print('ran')")
    confined.start(path)
    # No limit can be so large: that is found in the process of the job.
    cold, warm = confined.run(path, memory=1 << 70)
    assert (cold.ending, cold.stdout) == (Ending.NOT_SPAWNED, b"")
    assert (warm.exit_code, warm.stdout) == (127, b"")
    assert b"the sandbox cannot be applied" in warm.stderr


def test_launch_without_a_sandbox_does_not_use_a_confined_zygote(
    confined: Confined, zygotes: Zygotes
) -> None:
    path = confined.write("print(1)")
    confined.start(path)
    assert confined.zygote is not None
    slot = confined.zygote.fork_slot()
    assert slot is not None
    assert slot.run(zygotes.launch(path)).ending is Ending.NOT_SPAWNED
    assert "sandbox" in confined.zygote.refusal
