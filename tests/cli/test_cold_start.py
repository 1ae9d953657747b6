"""A gateway is there soon because it loads and collects nothing that it does not need yet."""

from __future__ import annotations

import gc
import json
from typing import Any

import pytest

from tests.cli.running import House, run

SCRIPT = """
import gc, json, os, signal, socket, sys, threading, time

def look():
    request = b"GET /healthz HTTP/1.1\\r\\nHost: localhost\\r\\nConnection: close\\r\\n\\r\\n"
    while True:
        with socket.socket(socket.AF_UNIX) as line:
            try:
                line.connect(sys.argv[1])
                line.sendall(request)
                if line.recv(4096).startswith(b"HTTP/1.1 200"):
                    break
            except OSError:
                time.sleep(0.005)
    found = {"modules": list(sys.modules)}
    # It answers a moment before its start is over.
    give_up = time.monotonic() + 10
    while not gc.isenabled() and time.monotonic() < give_up:
        time.sleep(0.005)
    found |= {"collects": gc.isenabled(), "frozen": gc.get_freeze_count()}
    print(json.dumps(found), file=sys.stderr)
    os.kill(os.getpid(), signal.SIGTERM)

from ductile.cli import main

threading.Thread(target=look, daemon=True).start()
sys.exit(main(sys.argv[2:]))
"""
NOT_NEEDED = {
    "ductile.cli.commands.plugin_dev",
    "ductile.cli.in_process",
    "ductile.config.schema",
    "ductile.config.init_template",
    "ductile.http.models.bodies",
    "ductile.http.models.queries",
    "ductile.http.models.responses",
    "ductile.http.openapi",
    "ductile.http.routes.webhooks",
    "ductile.operations.doctor",
    "ductile.plugins.validate",
    "ductile.operations.restore",
    "ductile.operations.dry_run.plugin",
    "ductile.store.backup.pg_transfer",
    "ductile.store.engines.postgres",
    "h11",
    "psycopg",
    "psycopg_pool",
    "rich",
    "sqlite3",
    "uvloop",
    "websockets",
}


@pytest.fixture
def ready(house: House) -> dict[str, Any]:
    """What a gateway is like when it first answers."""
    socket = house.state / "ductile.sock"
    line = (str(socket), "system", "start", "--config", str(house.root))
    done = run(*line, command=("-c", SCRIPT))
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stderr)
    return found


def test_a_start_loads_nothing_that_it_does_not_use(ready: dict[str, Any]) -> None:
    assert NOT_NEEDED & set(ready["modules"]) == set()


def test_garbage_is_collected_once_it_is_ready(ready: dict[str, Any]) -> None:
    assert ready["collects"]
    assert ready["frozen"] > 0


def test_garbage_is_collected_after_a_start_that_was_refused(house: House) -> None:
    house.write("config.yaml", "plugins: [")
    assert house("system", "start").code == 78
    assert gc.isenabled()
