"""`system watch` in a real terminal: it shows, it follows, and it gives the terminal back."""

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
from ductile.cli.commands.system.terminal import ENTER, LEAVE
from ductile.cli.commands.system.watch_frame import cells, frame, paint
from tests.cli.running import COMMAND, House
from tests.waiting import WAIT_LIMIT, until

IN_FRONT = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0);"
    "os.execv(sys.argv[1], sys.argv[1:])"
)
"""Makes the terminal the one that controls the program, so that its keys send signals."""
_CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """A terminal with a program in it; keeps all that the program has written."""

    def __init__(self, house: House, width: int = 100, height: int = 30) -> None:
        self._master, slave = pty.openpty()
        self._slave = slave
        self.resize(width, height)
        self.before = termios.tcgetattr(slave)
        self.process = subprocess.Popen(
            [sys.executable, "-c", IN_FRONT, *COMMAND, "system", "watch", "--config", house.root],
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
        """Whether something was written in this time."""
        if not select.select([self._master], [], [], seconds)[0]:
            return False
        try:
            self.written += os.read(self._master, 65536).decode(errors="replace")
        except OSError:
            return False
        return True

    def until(self, text: str) -> str:
        """All that is written from now on, up to what shows `text`."""
        begin = len(self.written)
        while text not in plain(self.written[begin:]):
            assert self.read(WAIT_LIMIT), plain(self.written)
        return self.written[begin:]

    def ended(self) -> int:
        """Its exit code; all that it wrote to its end is read."""

        def has_ended() -> bool:
            self.read_all()
            return self.process.poll() is not None

        until(has_ended)
        self.read_all()
        return self.process.returncode

    def read_all(self) -> None:
        while self.read(0.0):
            pass

    def is_given_back(self) -> bool:
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
def terminal(house: House, **more: int) -> Iterator[Terminal]:
    found = Terminal(house, **more)
    try:
        yield found
    finally:
        found.close()


def test_it_shows_a_gateway_at_work_and_follows_it(house: House) -> None:
    with house.gateway(), terminal(house) as shown:
        assert ENTER in shown.until("0 running, 0 queued, 0 to be retried")
        house("run", "bad")
        shown.until("no luck")
        assert "RECENT FAILURES" in plain(shown.written)
        shown.until("1 to be retried")
        shown.type("q")
        assert shown.ended() == 0
        assert shown.is_given_back()


def test_what_runs_is_shown_while_it_runs(house: House) -> None:
    os.mkfifo(house.root / "gate")
    house.plugin("slow", f"read _ < {house.root}/gate")
    with house.gateway(), terminal(house) as shown:
        shown.until("0 running")
        job = house("api", "/plugin/slow/poll", "-X", "POST").json["job_id"]
        shown.until(job)
        assert "slow poll" in plain(shown.written)
        gate = os.open(house.root / "gate", os.O_RDWR)
        os.write(gate, b"\n")
        shown.until("0 running")
        os.close(gate)


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["int", "term"]
)
def test_a_signal_ends_it_and_the_terminal_is_given_back(
    house: House, number: signal.Signals, code: int
) -> None:
    with house.gateway(), terminal(house) as shown:
        shown.until("0 running")
        shown.process.send_signal(number)
        assert shown.ended() == code
        assert shown.is_given_back()


def test_ctrl_c_ends_it_and_ctrl_z_does_not_leave_its_screen_behind(house: House) -> None:
    with house.gateway(), terminal(house) as shown:
        shown.until("0 running")
        shown.type("\x1a")
        house("run", "hello")
        shown.until("up ")
        assert shown.process.poll() is None
        shown.type("\x03")
        assert shown.ended() == 130
        assert shown.is_given_back()


def test_an_error_gives_the_terminal_back_as_well(house: House) -> None:
    house.write("config.yaml", "nonsense: 1\n")
    with terminal(house) as shown:
        assert shown.ended() == 78
        assert shown.is_given_back()


def test_it_fits_the_terminal_whatever_its_size(house: House) -> None:
    with house.gateway(), terminal(house, width=100, height=30) as shown:
        shown.until("0 to be retried")
        shown.resize(20, 2)
        shown.until("…")
        lines = plain(shown.written.rpartition("\x1b[2J")[2]).splitlines()
        assert len(lines) <= 2
        assert [line for line in lines if len(line) > 20] == []
        shown.resize(100, 30)
        shown.until("0 to be retried")
        shown.type("q")
        assert shown.ended() == 0


def test_it_waits_for_a_gateway_that_is_not_there_and_for_one_that_comes_back(
    house: House,
) -> None:
    with terminal(house) as shown:
        shown.until("no gateway responds; waiting for one")
        with house.gateway():
            shown.until("up ")
        shown.until("no gateway responds; waiting for one")
        with house.gateway():
            shown.until("up ")
            shown.type("q")
            assert shown.ended() == 0


def test_while_nothing_happens_it_asks_for_nothing(house: House) -> None:
    with house.gateway(), terminal(house) as shown:
        # Once at its start, and once when it has begun to follow.
        while (asked := _asked(house)) < 2:
            shown.read(0.1)
        for _ in range(20):
            shown.read(0.1)
        assert _asked(house) == asked == 2


def _asked(house: House) -> float:
    """How often the page was asked for."""
    _, raw = GatewayClient(house.state / "ductile.sock").request("GET", "/metrics", None)
    counts = re.findall(r"http_requests_total\{.*/system/overview.*\} (\S+)", raw.decode())
    return sum(map(float, counts))


def test_a_pipe_gets_one_frame(house: House) -> None:
    house("run", "hello")
    told = house.process("system", "watch")
    assert told.code == 0
    assert "no gateway is running; showing the state on disk" in told.out
    assert "\x1b" not in told.out
    with house.gateway():
        once = house("system", "watch", "--once")
    assert once.out.splitlines()[1] == "0 running, 0 queued, 0 to be retried"


def test_json_is_one_document(house: House) -> None:
    house("run", "bad")
    page = json.loads(house("system", "watch", "--json").out)
    assert page["running_gateway"] is False
    assert page["queue"] == {"ready": 0, "retrying": 1, "running": 0}
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
        "queue": {"ready": 3, "retrying": 2, "running": 1},
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


def test_a_frame_has_what_runs_waits_failed_and_comes() -> None:
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


def test_a_section_without_rows_is_not_shown() -> None:
    assert len(frame(page(), width=80, height=None, elapsed=0.0)) == 2


def test_rooms_are_shared_between_the_sections() -> None:
    whole = page(running=[RUNNING] * 9, failures=[FAILURE] * 9)
    shown = text(frame(whole, width=80, height=12, elapsed=0.0))
    assert len(shown) == 12
    assert sum("echo poll" in line for line in shown) == 3
    assert sum("bad poll" in line for line in shown) == 3


def test_one_section_takes_what_the_other_does_not_need() -> None:
    whole = page(running=[RUNNING], failures=[FAILURE] * 9)
    shown = text(frame(whole, width=80, height=12, elapsed=0.0))
    assert sum("bad poll" in line for line in shown) == 5


@pytest.mark.parametrize("width", [1, 2, 10, 33])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    wide = {**FAILURE, "error": "漢字" * 20 + "e\u0301" * 20}
    for line in text(frame(page(failures=[wide]), width=width, height=None, elapsed=0.0)):
        assert cells(line) <= width


def test_a_page_that_has_not_come_yet() -> None:
    assert text(frame(None, width=80, height=24, elapsed=0.0, note="waiting")) == ["waiting"]


def test_colours_are_for_terminals() -> None:
    assert paint([("a", "red"), ("b", None), ("c", "bold")]) == (
        "\x1b[31ma\x1b[0mb\x1b[0m\x1b[1mc\x1b[0m"
    )
