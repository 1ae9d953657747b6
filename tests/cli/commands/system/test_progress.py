"""Long commands show their progress on a terminal, and can be interrupted without harm."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

from ductile.cli.errors import Terminated
from ductile.operations import backup, go_import, restore
from tests.cli.runner import COMMAND, CliRunner, stop
from tests.waiting import WAIT_LIMIT, until

GO_LEDGER = Path(__file__).parents[3] / "compat/ledger.sql"


def run_on_terminal(cli: CliRunner, *line: str) -> tuple[int, str]:
    """Run a command whose stderr is a terminal; return its exit code and what it showed there."""
    ours, theirs = os.openpty()
    process = subprocess.Popen(
        [*COMMAND, *line, "--config", str(cli.root)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=theirs,
    )
    os.close(theirs)
    shown = b""
    try:
        while part := os.read(ours, 65536):
            shown += part
    except OSError:
        pass  # The other end of a terminal was closed.
    finally:
        os.close(ours)
    return process.wait(WAIT_LIMIT), shown.decode()


def ledger_of_go(cli: CliRunner) -> Path:
    path = cli.root / "go.db"
    connection = apsw.Connection(str(path))
    connection.execute(GO_LEDGER.read_text())
    connection.close()
    return path


def test_each_long_command_shows_its_progress(cli: CliRunner) -> None:
    assert cli("plugin", "run", "hello").code == 0
    copy = str(cli.root / "copy.db")
    lines = {
        ("system", "backup", copy): ("copying 100%", "checking job_queue"),
        ("system", "verify"): ("checking pages", "checking job_queue 1"),
        ("system", "restore", copy): ("copying 100%", "checking job_queue"),
        ("system", "import", str(ledger_of_go(cli))): ("reading", "importing"),
    }
    for line, wanted in lines.items():
        code, shown = run_on_terminal(cli, *line)
        assert code == 0, (line, shown)
        assert [text for text in wanted if text not in shown] == [], (line, shown)
        assert shown.endswith("\r\x1b[K")


def test_progress_is_not_shown_without_a_terminal(cli: CliRunner) -> None:
    assert cli("plugin", "run", "hello").code == 0
    assert cli("system", "verify").err == ""


# Interrupts


def raise_in(monkeypatch: pytest.MonkeyPatch, module: Any, name: str, error: BaseException) -> None:
    """Have a function of a module raise, as an interrupt does."""

    def interrupted(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(module, name, interrupted)


def files_of(cli: CliRunner) -> dict[str, bytes]:
    """The content of the state directory, except the lock, whose holder is written to it."""
    found = (path for path in sorted(cli.state.rglob("*")) if path.is_file())
    return {path.name: path.read_bytes() for path in found if path.name != "ductile.lock"}


@pytest.mark.parametrize(("error", "code"), [(KeyboardInterrupt(), 130), (Terminated(), 143)])
@pytest.mark.parametrize(
    ("line", "module", "name", "note"),
    [
        (("backup",), backup, "check_copy", "nothing was written"),
        (("backup",), backup, "sync", "nothing was written"),
        (("restore", "{copy}"), restore, "_migrate_draft", "nothing was changed"),
        (("restore", "{copy}"), restore, "check_copy", "nothing was changed"),
        (("import", "{go}"), go_import, "_into", "repeat it"),
    ],
)
def test_interrupted_command_changes_nothing(
    cli: CliRunner,
    monkeypatch: pytest.MonkeyPatch,
    line: tuple[str, ...],
    module: Any,
    name: str,
    note: str,
    error: BaseException,
    code: int,
) -> None:
    assert cli("plugin", "run", "hello").code == 0
    copy, go = cli.root / "copy.db", ledger_of_go(cli)
    assert cli("system", "backup", str(copy)).code == 0
    (cli.state / "backups").mkdir(mode=0o700, exist_ok=True)
    before = files_of(cli)
    raise_in(monkeypatch, module, name, error)
    done = cli("system", *(word.format(copy=copy, go=go) for word in line))
    assert done.code == code
    assert note in done.err
    assert "Traceback" not in done.err
    assert files_of(cli) == before
    monkeypatch.undo()
    assert cli("plugin", "run", "hello").code == 0


def test_interrupt_during_the_replacement_comes_too_late(
    cli: CliRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cli("plugin", "run", "hello").code == 0
    copy = cli.root / "copy.db"
    assert cli("system", "backup", str(copy)).code == 0
    assert cli("plugin", "run", "hello").code == 0
    link = restore._link_old

    def interrupted_link(*given: Any) -> Path:
        kept = link(*given)
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGTERM)
        return kept

    monkeypatch.setattr(restore, "_link_old", interrupted_link)
    before = signal.getsignal(signal.SIGINT)
    done = cli("system", "restore", str(copy))
    assert (done.code, done.out.startswith("restored")) == (0, True)
    assert signal.getsignal(signal.SIGINT) is before
    assert len(cli("job", "list", "--json").json["jobs"]) == 1


def test_interrupted_backup_of_a_gateway_is_continued_by_it(
    cli: CliRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    with cli.gateway():
        raise_in(
            monkeypatch,
            sys.modules["ductile.cli.commands.system.backup"],
            "show_progress",
            KeyboardInterrupt(),
        )
        done = cli("system", "backup")
        assert done.code == 130
        assert "the gateway continues the backup" in done.err
        state: Callable[[], str] = lambda: cli("api", "/system/backup").json["state"]  # noqa: E731
        until(lambda: state() == "done")


# A status that waits for a plugin


SLOW = """\
case $request in *'"command":"health"'*) sleep 3;; esac
echo '{"status":"ok","result":"fine"}'
"""


@pytest.mark.parametrize("running", [True, False])
def test_status_names_what_it_waits_for(cli: CliRunner, running: bool) -> None:
    cli.plugin("slow", SLOW, commands="poll, health")
    gateway = cli.start("system", "start") if running else None
    try:
        if running:
            until((cli.state / "ductile.sock").exists)
        code, shown = run_on_terminal(cli, "status")
        assert code == 0
        assert "checking the health of plugins, 1 s" in shown
        assert shown.endswith("\r\x1b[K")
        assert cli.process("status").err == "checking the health of plugins\n"
        assert cli.process("status", "--json").err == ""
    finally:
        if gateway is not None:
            stop(gateway)


def test_fast_status_does_not_mention_waiting(cli: CliRunner) -> None:
    assert cli.process("status").err == ""


def test_request_that_a_stop_ends_gets_json(cli: CliRunner) -> None:
    started = cli.root / "started"
    cli.plugin("slow", f"touch {started}; sleep 8; echo '{{}}'", commands="poll, health")
    with cli.gateway() as gateway:
        waiting = cli.start("status", "--json")
        until(started.exists)
        gateway.send_signal(signal.SIGTERM)
        out, err = waiting.communicate(timeout=WAIT_LIMIT)
        assert '"code": "stopping"' in out, out + err
        assert "the gateway is stopping" in out
        assert gateway.wait(WAIT_LIMIT) == 0
