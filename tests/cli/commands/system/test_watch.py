"""`ductile system watch` in a real terminal, and its frames."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from ductile.cli.client import GatewayClient
from ductile.cli.commands.system.terminal import ENTER, HOME, LEAVE
from ductile.cli.commands.system.watch_frame import cells, frame, paint
from tests.cli.runner import COMMAND, CliRunner
from tests.waiting import WAIT_LIMIT, until

IN_FRONT = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0);"
    "os.execv(sys.argv[1], sys.argv[1:])"
)
"""Makes the terminal the one that controls the program, so that its keys send signals."""
_CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """A terminal that runs `system watch` and records its output."""

    def __init__(self, cli: CliRunner, width: int = 100, height: int = 30) -> None:
        self._master, slave = pty.openpty()
        self._slave = slave
        self.resize(width, height)
        self.before = termios.tcgetattr(slave)
        self.process = subprocess.Popen(
            [sys.executable, "-c", IN_FRONT, *COMMAND, "system", "watch", "--config", cli.root],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            env={**os.environ, "TERM": "xterm-256color"},
        )
        self.written = ""

    def resize(self, width: int, height: int) -> None:
        size = struct.pack("HHHH", height, width, 0, 0)
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, size)

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def read(self, seconds: float) -> bool:
        """Return whether there was output within this time."""
        if not select.select([self._master], [], [], seconds)[0]:
            return False
        try:
            self.written += os.read(self._master, 65536).decode(errors="replace")
        except OSError:
            return False
        return True

    def until(self, text: str) -> str:
        """Return the output from now on until it contains `text`."""
        begin = len(self.written)
        while text not in plain(self.written[begin:]):
            assert self.read(WAIT_LIMIT), plain(self.written)
        return self.written[begin:]

    def ended(self) -> int:
        """Read the output to its end and return the exit code."""

        def has_ended() -> bool:
            self.read_all()
            return self.process.poll() is not None

        until(has_ended)
        self.read_all()
        return self.process.returncode

    def read_all(self) -> None:
        while self.read(0.0):
            pass

    def is_restored(self) -> bool:
        after = termios.tcgetattr(self._slave)
        return after == self.before and self.written.count(LEAVE) == self.written.count("?1049h")

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._master)
        os.close(self._slave)


def plain(text: str) -> str:
    return _CODES.sub("", text)


@contextmanager
def terminal(cli: CliRunner, **more: int) -> Iterator[Terminal]:
    found = Terminal(cli, **more)
    try:
        yield found
    finally:
        found.close()


def test_watch_shows_jobs_as_they_end(cli: CliRunner) -> None:
    with cli.gateway(), terminal(cli) as shown:
        assert ENTER in shown.until("0 running, 0 queued, 0 to be retried")
        cli("run", "bad")
        shown.until("no luck")
        assert "RECENT FAILURES" in plain(shown.written)
        shown.until("1 to be retried")
        shown.type("q")
        assert shown.ended() == 0
        assert shown.is_restored()


def test_watch_shows_a_running_job(cli: CliRunner) -> None:
    os.mkfifo(cli.root / "gate")
    cli.plugin("slow", f"read _ < {cli.root}/gate")
    with cli.gateway(), terminal(cli) as shown:
        shown.until("0 running")
        job = cli("api", "/plugin/slow/poll", "-X", "POST").json["job_id"]
        shown.until(job)
        assert "slow poll" in plain(shown.written)
        gate = os.open(cli.root / "gate", os.O_RDWR)
        os.write(gate, b"\n")
        shown.until("0 running")
        os.close(gate)


def test_watch_and_job_list_show_progress(cli: CliRunner) -> None:
    os.mkfifo(cli.root / "gate")
    gate = f"read _ < {cli.root}/gate"
    steps = ("echo ::progress 40 copying >&2", gate, "echo ::progress 80 verifying >&2", gate)
    cli.plugin("slow", "\n".join(steps))
    with cli.gateway(), terminal(cli) as shown:
        shown.until("0 running")
        cli("api", "/plugin/slow/poll", "-X", "POST")
        shown.until("████░░░░░░ 40 % copying, about")
        assert "████░░░░░░ 40 % copying, about" in cli("job", "list").out
        fifo = os.open(cli.root / "gate", os.O_RDWR)
        os.write(fifo, b"\n")
        shown.until("████████░░ 80 % verifying")
        os.write(fifo, b"\n")
        shown.until("0 running")
        os.close(fifo)


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["int", "term"]
)
def test_a_signal_ends_watch_and_restores_the_terminal(
    cli: CliRunner, number: signal.Signals, code: int
) -> None:
    with cli.gateway(), terminal(cli) as shown:
        shown.until("0 running")
        shown.process.send_signal(number)
        assert shown.ended() == code
        assert shown.is_restored()


def test_ctrl_c_ends_watch_and_ctrl_z_is_ignored(cli: CliRunner) -> None:
    with cli.gateway(), terminal(cli) as shown:
        shown.until("0 running")
        shown.type("\x1a")
        cli("run", "hello")
        shown.until("up ")
        assert shown.process.poll() is None
        shown.type("\x03")
        assert shown.ended() == 130
        assert shown.is_restored()


def test_an_error_restores_the_terminal(cli: CliRunner) -> None:
    cli.write("config.yaml", "nonsense: 1\n")
    with terminal(cli) as shown:
        assert shown.ended() == 78
        assert shown.is_restored()


def test_frames_fit_the_terminal_after_a_resize(cli: CliRunner) -> None:
    with cli.gateway(), terminal(cli, width=100, height=30) as shown:
        shown.until("0 to be retried")
        shown.resize(20, 2)
        shown.until("…")
        frames = shown.written.rpartition("\x1b[2J")[2].split(HOME)
        for lines in (plain(frame).splitlines() for frame in frames):
            assert len(lines) <= 2
            assert [line for line in lines if len(line) > 20] == []
        shown.resize(100, 30)
        shown.until("0 to be retried")
        shown.type("q")
        assert shown.ended() == 0


def test_watch_waits_for_a_gateway_and_reconnects(
    cli: CliRunner,
) -> None:
    with terminal(cli) as shown:
        shown.until("no gateway responds; waiting for one")
        with cli.gateway():
            shown.until("up ")
        shown.until("no gateway responds; waiting for one")
        with cli.gateway():
            shown.until("up ")
            shown.type("q")
            assert shown.ended() == 0


def test_watch_sends_no_requests_without_events(cli: CliRunner) -> None:
    with cli.gateway(), terminal(cli) as shown:
        # Once at its start, and once when it has subscribed to the events.
        while (requests := _overview_requests(cli)) < 2:
            shown.read(0.1)
        for _ in range(20):
            shown.read(0.1)
        assert _overview_requests(cli) == requests == 2


def _overview_requests(cli: CliRunner) -> float:
    """Return how often the overview was requested."""
    _, raw = GatewayClient(cli.state / "ductile.sock").request("GET", "/metrics", None)
    counts = re.findall(r"http_requests_total\{.*/system/overview.*\} (\S+)", raw.decode())
    return sum(map(float, counts))


def test_a_pipe_gets_one_frame_without_colours(cli: CliRunner) -> None:
    cli("run", "hello")
    result = cli.process("system", "watch")
    assert result.code == 0
    assert "no gateway is running; showing the state on disk" in result.out
    assert "\x1b" not in result.out
    with cli.gateway():
        once = cli("system", "watch", "--once")
    assert once.out.splitlines()[1] == "0 running, 0 queued, 0 to be retried"


def test_watch_json_is_one_document(cli: CliRunner) -> None:
    cli("run", "bad")
    page = json.loads(cli("system", "watch", "--json").out)
    assert page["running_gateway"] is False
    queue = {"ready": 0, "retrying": 1, "running": 0, "waits": 0, "approvals": 0}
    assert page["queue"] == queue
    assert page["failures"][0]["error"] == "no luck"


# One frame


def page(**more: Any) -> dict[str, Any]:
    empty: dict[str, Any] = {
        "at": "2026-02-08T10:00:00.000000Z",
        "running_gateway": True,
        "name": "ductile",
        "uptime_seconds": 3600,
        "workers": 4,
        "plugins": 1,
        "queue": {"ready": 3, "retrying": 2, "running": 1, "waits": 0, "approvals": 0},
        "held": {},
        **{name: [] for name in ("running", "waiting", "failures", "breakers", "next")},
    }
    return empty | more


def text(shown: list[Any]) -> list[str]:
    return ["".join(part for part, _ in line).rstrip() for line in shown]


RUNNING = {
    "job_id": "a-job",
    "plugin": "echo",
    "command": "poll",
    "attempt": 2,
    "started_at": "2026-02-08T09:59:50.000000Z",
    "pipeline": "p",
    "step": "one",
}
FAILURE = {
    "plugin": "bad",
    "command": "poll",
    "status": "dead",
    "completed_at": "2026-02-08T09:00:00Z",
    "error": "it\nbroke\x1b[2J",
}
BREAKER = {
    "plugin": "bad",
    "command": "poll",
    "state": "open",
    "failure_count": 3,
    "opened_at": "2026-02-08T09:59:00Z",
}
NEXT = {
    "plugin": "echo",
    "schedule": "s",
    "rule": "every 1h",
    "next_run": "2026-02-08T10:00:30Z",
    "state": "active",
}


def test_frame_shows_the_progress_of_a_job_over_time() -> None:
    progress = {"percent": 42.5, "message": "copying", "seconds_left": 20.0}
    job = {**RUNNING, "progress": progress}
    shown = text(frame(page(running=[job]), width=120, height=None, elapsed=3.0))
    assert "attempt 2  ████░░░░░░ 42 % copying, about 17 s left  a-job" in "\n".join(shown)
    job["progress"] = {"percent": 100.0, "message": "", "seconds_left": None}
    shown = text(frame(page(running=[job]), width=120, height=None, elapsed=3.0))
    assert "██████████ 100 %  a-job" in "\n".join(shown)


def test_a_frame_has_all_sections() -> None:
    whole = page(
        running=[RUNNING],
        waiting=[{"plugin": "late", "jobs": 7}],
        held={"late": "its init failed"},
        failures=[FAILURE],
        breakers=[BREAKER],
        next=[NEXT],
    )
    assert text(frame(whole, width=80, height=None, elapsed=5.0)) == [
        "ductile  up 1h 5s, 4 workers, 1 plugin",
        "1 running, 3 queued, 2 to be retried",
        "",
        "RUNNING",
        "15 s  echo poll  p/one  attempt 2  a-job",
        "",
        "QUEUED",
        "7  late  its init failed",
        "",
        "RECENT FAILURES",
        "1h 5s  bad poll  dead  it broke\\x1b[2J",
        "",
        "BREAKERS",
        "1m 5s  bad poll  open  3 failures",
        "",
        "NEXT",
        "in 25 s  echo/s  every 1h",
    ]


def test_a_section_without_rows_is_omitted() -> None:
    assert len(frame(page(), width=80, height=None, elapsed=0.0)) == 2


def test_rows_are_shared_among_the_sections() -> None:
    whole = page(running=[RUNNING] * 9, failures=[FAILURE] * 9)
    shown = text(frame(whole, width=80, height=12, elapsed=0.0))
    assert len(shown) == 12
    assert sum("echo poll" in line for line in shown) == 3
    assert sum("bad poll" in line for line in shown) == 3


def test_a_section_uses_rows_that_others_do_not_need() -> None:
    whole = page(running=[RUNNING], failures=[FAILURE] * 9)
    shown = text(frame(whole, width=80, height=12, elapsed=0.0))
    assert sum("bad poll" in line for line in shown) == 5


@pytest.mark.parametrize("width", [1, 2, 10, 33])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    wide = {**FAILURE, "error": "漢字" * 20 + "e\u0301" * 20}
    for line in text(frame(page(failures=[wide]), width=width, height=None, elapsed=0.0)):
        assert cells(line) <= width


def test_a_frame_without_an_overview_shows_the_note() -> None:
    assert text(frame(None, width=80, height=24, elapsed=0.0, note="waiting")) == ["waiting"]


def test_paint_adds_colours() -> None:
    assert paint([("a", "red"), ("b", None), ("c", "bold")]) == (
        "\x1b[31ma\x1b[0mb\x1b[0m\x1b[1mc\x1b[0m"
    )
