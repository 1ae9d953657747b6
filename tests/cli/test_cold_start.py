"""A start imports no unused modules, and runs without garbage collection."""

from __future__ import annotations

import gc
import json
from typing import Any

from tests.cli.runner import CliRunner, run_process

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
    # It responds shortly before the start has ended.
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
    "ductile.cli.commands.system.backup",
    "ductile.cli.commands.system.watch",
    "ductile.cli.commands.plugin.authoring",
    "ductile.cli.in_process",
    "ductile.config.schema",
    "ductile.config.init_template",
    "ductile.http.models.authoring_bodies",
    "ductile.http.models.bodies",
    "ductile.http.models.queries",
    "ductile.http.models.responses",
    "ductile.http.openapi",
    "ductile.http.routes.webhooks",
    "ductile.operations.doctor",
    "ductile.plugins.validate",
    "ductile.operations.plugins.install",
    "ductile.operations.plugins.installers",
    "ductile.operations.restore",
    "ductile.operations.dry_run.plugin",
    "ductile.store.backup.pg_transfer",
    "ductile.store.engines.postgres",
    "h11",
    "psycopg",
    "psycopg_pool",
    "rich",
    "sqlite3",
    "tomllib",
    "uvloop",
    "websockets",
}


def test_start_imports_no_unused_modules_and_enables_garbage_collection(cli: CliRunner) -> None:
    socket = cli.state / "ductile.sock"
    line = (str(socket), "system", "start", "--config", str(cli.root))
    done = run_process(*line, command=("-c", SCRIPT))
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stderr)
    assert NOT_NEEDED & set(found["modules"]) == set()
    assert found["collects"]
    assert found["frozen"] > 0


def test_garbage_collection_is_enabled_after_a_refused_start(cli: CliRunner) -> None:
    cli.write("config.yaml", "plugins: [")
    assert cli("system", "start").code == 78
    assert gc.isenabled()
