"""An unreachable database server: the error names the cause, and passwords are not shown."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ductile.errors import LedgerError
from ductile.store.engines import postgres as postgres_engine
from ductile.store.engines.open import open_ledger
from ductile.store.engines.pg import connection
from ductile.store.engines.pg.connection import Session
from tests.postgres import Server
from tests.waiting import WAIT_LIMIT

PASSWORD = "quite-a-secret"
START = """
import sys
from ductile.cli import main
from ductile.store.engines import postgres
postgres.OPEN_TIMEOUT = 1.0
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture
def dead_address() -> Iterator[str]:
    """An address without a listener, reserved for the test."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        yield f"postgresql://me:{PASSWORD}@127.0.0.1:{port}/db"


@pytest.mark.parametrize("read_only", [False, True])
def test_unreachable_server_error_names_address_and_cause(
    dead_address: str, monkeypatch: pytest.MonkeyPatch, read_only: bool
) -> None:
    monkeypatch.setattr(postgres_engine, "OPEN_TIMEOUT", 0.1)
    with pytest.raises(LedgerError) as refused:
        open_ledger(path=None, url=dead_address, read_only=read_only)
    message = refused.value.message
    assert message.startswith("the database cannot be reached: ")
    assert "Connection refused" in message
    assert dead_address.rpartition(":")[2].partition("/")[0] in message
    assert "\n" not in message
    assert PASSWORD not in message


def test_error_names_why_no_session_can_be_prepared(
    postgres: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As behind a pooler in statement mode, which accepts sessions and refuses transactions."""

    def refuse(session: Session) -> None:
        session.execute("SELECT nextval('no_transactions_here')")

    monkeypatch.setattr(postgres_engine, "OPEN_TIMEOUT", 0.1)
    for module in (postgres_engine, connection):
        monkeypatch.setattr(module, "configure_session", refuse)
    with pytest.raises(LedgerError, match=r'cannot be reached: .*"no_transactions_here"'):
        open_ledger(path=None, url=postgres.database(empty=True))


@pytest.mark.parametrize(("line", "lines"), [(("system", "start"), 1), (("system", "doctor"), 0)])
def test_driver_messages_appear_in_the_gateway_log_only(
    dead_address: str, tmp_path: Path, line: tuple[str, ...], lines: int
) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(f"state: {{url: '{dead_address}', dir: {tmp_path}/d}}\nplugin_roots: []\n")
    config.chmod(0o600)
    done = subprocess.run(
        [sys.executable, "-c", START, *line, "--config", str(config)],
        capture_output=True,
        text=True,
        timeout=WAIT_LIMIT,
        check=False,
    )
    assert done.returncode == 1
    assert "error connecting" not in done.stderr
    assert PASSWORD not in done.stdout + done.stderr
    message = [text for text in done.stdout.splitlines() if "error connecting" in text]
    assert len(message) == lines
    for text in message:
        record = json.loads(text)
        assert (record["level"], record["component"]) == ("warn", "ledger")
