"""The caller's side: runs one launch under observation."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

from ductile.model import Launch, Outcome
from ductile.runner.observe.calls import is_known
from ductile.runner.observe.record import Record, decode_record
from ductile.runner.pool import RunnerPool

_PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "program.py")


class CannotObserve(Exception):
    """This system does not permit observation; the message says why."""


class ObserverPool(RunnerPool):
    """A runner whose only slot writes what it observes to a file."""

    def __init__(self, report_fd: int) -> None:
        super().__init__(1, owns_children_after_loss=True)
        self._report_fd = report_fd

    def _popen(self, arguments: list[str], inherited: list[int]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", _PROGRAM, *arguments, str(self._report_fd)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[*inherited, self._report_fd],
            env={"LANG": os.environ.get("LANG", "C.UTF-8")},
            start_new_session=True,
        )


def observe(launch: Launch) -> tuple[Outcome, Record]:
    """Run a launch once, without a sandbox. Raises `CannotObserve`."""
    machine = os.uname().machine
    if not is_known(machine):
        raise CannotObserve(f"needs x86-64 or ARM64, and this is {machine}")
    if not _owns_proc():
        raise CannotObserve("/proc belongs to another PID namespace")
    with tempfile.TemporaryFile() as report:
        pool = ObserverPool(report.fileno())
        try:
            pool.start()
            outcome = pool.slot(0).run(launch)
        finally:
            pool.stop()
        report.seek(0)
        written = report.read()
    if not written:
        raise CannotObserve("the plugin could not be started under observation")
    record = decode_record(written)
    if record.problem:
        raise CannotObserve(record.problem)
    return outcome, record


def _owns_proc() -> bool:
    """Whether the numbers of processes are the same here and in `/proc`."""
    try:
        return os.readlink("/proc/self") == str(os.getpid())
    except OSError:
        return False
