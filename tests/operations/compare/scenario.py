"""The plugin and the pipeline of these tests."""

from __future__ import annotations

from typing import Any

import orjson

from ductile.engine.gateway import Gateway
from tests.engine.site import PYTHON

SECRET = "canary-of-the-configuration-1"
WORKER = (
    PYTHON
    + r"""
request = json.load(sys.stdin)
payload = request.get("payload") or request.get("event", {}).get("payload") or {}
secret, n = request["config"]["api_key"], request["state"].get("n", 0)
print("working with", secret, file=sys.stderr)
print(os.environ.get("A_TOKEN"), file=sys.stderr)
if payload.get("bad"):
    print(json.dumps({"status": "error", "error": "refused by " + secret, "retry": False}))
    raise SystemExit
files = []
if "workspace_dir" in request:
    files = sorted(os.listdir(request["workspace_dir"]))
    for name, text in (("note.txt", "has " + secret), (secret + ".txt", "x"), ("plain.txt", "p")):
        with open(os.path.join(request["workspace_dir"], name), "w") as file:
            file.write(text)
result = {"n": n, "files": len(files), "seen": secret, "size": payload.get("size")}
print(json.dumps({
    "status": "ok", "result": result, "logs": [{"level": "info", "message": "used " + secret}],
    "events": [{"type": "worked", "payload": {"n": n, "size": payload.get("size")}}],
    "state_updates": {"n": n + 1, "last": secret, "session_token": "canary-of-the-state"},
}))
"""
)
PIPELINE: dict[str, Any] = {
    "name": "main",
    "on": "begin",
    "steps": [
        {
            "id": "first",
            "uses": "worker",
            "baggage": {"from_payload": "payload.carried"},
            "with": {"size": "{payload.size}"},
        },
        {
            "id": "second",
            "uses": "worker",
            "if": {"path": "payload.size", "op": "gt", "value": 1},
        },
    ],
}


def dump_ledger(gateway: Gateway) -> dict[str, list[Any]]:
    """Every row that a job, an event or a schedule could leave behind."""
    if gateway.ledger.engine == "sqlite":
        names = "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name"
    else:
        names = (
            "SELECT table_name FROM information_schema.tables "
            "WHERE table_schema = current_schema() ORDER BY table_name"
        )

    def read(tx: Any) -> dict[str, list[Any]]:
        def select(query: str) -> list[Any]:
            return list(tx._connection.execute(query).fetchall())

        tables = [row[0] for row in select(names)]
        # Those hold the heartbeat of the node.
        kept = [name for name in tables if name not in ("nodes", "boots")]
        return {name: sorted(map(repr, select(f"SELECT * FROM {name}"))) for name in kept}

    return gateway.ledger.read(read)


def text_of(document: Any) -> str:
    return orjson.dumps(document).decode()
