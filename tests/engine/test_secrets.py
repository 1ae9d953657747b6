"""Canaries: a secret that the config knows is nowhere to be read but where it must be."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import quote

import apsw
import pytest

from tests.engine.site import PYTHON, Site

CANARY = 'canary-"xk9f3bqz"\\7a61/é'
STORED_WHOLE = {("job_queue", "payload"), ("plugin_state", "state"), ("plugin_facts", "fact_json")}
"""Payloads, contexts, state and facts (docs/specification.md, "Redaction")."""
TELLTALE = (
    PYTHON + "r = json.load(sys.stdin)\n"
    "s = r['config']['token']\n"
    "print('stderr', s, json.dumps(s), file=sys.stderr)\n"
    "print('stderr', __import__('urllib.parse').parse.quote(s, safe=''), file=sys.stderr)\n"
    "status = r['payload'].get('status', 'ok')\n"
    "if status == 'junk':\n"
    "    print('junk', s, json.dumps(s)); sys.exit(0)\n"
    "print(json.dumps({'status': status, 'error': 'denied ' + s, 'result': {'token': s, 'm': s},\n"
    "    'logs': [{'level': 'info', 'message': 'using ' + s}, {'level': 'warn', 'message': s}],\n"
    "    'state_updates': {'refresh_token': 'plainstate', 'n': 1}}))\n"
)


@pytest.fixture
def leaking_site(site: Site) -> Site:
    site.environ["CANARY"] = CANARY
    site.settings["service"]["log_level"] = "debug"
    site.plugin("leaky", TELLTALE, config={"token": "${CANARY}"}, retry={"max_attempts": 1})
    return site


def list_encodings() -> list[str]:
    # "canary-" alone would do; what follows it is what matters.
    return ["xk9f3bqz", json.dumps(CANARY)[1:-1], quote(CANARY, safe="")]


def columns(path: Path) -> list[tuple[str, str, str]]:
    """Every text of every table: (table, column, value)."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    found = []
    tables = [
        name
        for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
    ]
    for table in tables:
        cursor = connection.cursor()
        for row in cursor.execute(f'SELECT * FROM "{table}"'):
            names = [column[0] for column in cursor.get_description()]
            found += [
                (str(table), name, value)
                for name, value in zip(names, row, strict=True)
                if isinstance(value, str)
            ]
    connection.close()
    return found


@pytest.mark.parametrize("status", ["ok", "error", "junk"])
def test_secret_in_plugin_output_is_not_in_the_ledger(leaking_site: Site, status: str) -> None:
    with leaking_site.running() as running:
        running.run("leaky", payload={"status": status})
    wrong = [
        (table, column, value[:200])
        for table, column, value in columns(leaking_site.state / "state.db")
        if (table, column) not in STORED_WHOLE and any(s in value for s in list_encodings())
    ]
    assert wrong == []


def test_secret_in_plugin_output_is_not_in_the_log(leaking_site: Site, capfdbinary) -> None:
    with leaking_site.running() as running:
        for status in ("ok", "error", "junk"):
            running.run("leaky", payload={"status": status})
    out, err = capfdbinary.readouterr()
    logged = (out + err).decode()
    assert "leaky" in logged
    assert [s for s in list_encodings() if s in logged] == []


def test_secret_keys_of_state_updates_are_redacted(leaking_site: Site) -> None:
    with leaking_site.running() as running:
        job = running.run("leaky")
    assert job["result"]["state_updates"] == {"refresh_token": "[REDACTED]", "n": 1}
    assert "plainstate" not in json.dumps(job)


def test_config_snapshot_contains_no_secret(leaking_site: Site) -> None:
    leaking_site.settings["api"] = {
        "enabled": False,
        "auth": {"tokens": [{"token": "inline-canary-5151", "scopes": ["*"]}]},
    }
    with leaking_site.opened():
        pass
    stored = [v for t, _, v in columns(leaking_site.state / "state.db") if t == "config_snapshots"]
    assert stored
    assert not any("inline-canary-5151" in value or "xk9f3bqz" in value for value in stored)
    assert any("[REDACTED]" in value for value in stored)


def test_changed_secret_makes_another_snapshot(leaking_site: Site) -> None:
    with leaking_site.opened() as running:
        first = running.gateway.compiled.snapshot_id
    with leaking_site.opened() as running:
        assert running.gateway.compiled.snapshot_id == first
    leaking_site.environ["CANARY"] = "another-canary-1"
    with leaking_site.opened() as running:
        assert running.gateway.compiled.snapshot_id != first


def test_payload_is_stored_unredacted(leaking_site: Site) -> None:
    with leaking_site.running() as running:
        job = running.run("leaky", payload={"given": CANARY})
    assert job["payload"] == {"given": CANARY}


def test_old_secret_is_redacted_while_its_job_runs(site: Site) -> None:
    """A reload brings another secret; what runs was given the old one."""
    gate = site.gate()
    script = (
        PYTHON + "s = json.load(sys.stdin)['config']['token']\n"
        f"open({str(gate.reported)!r}, 'w').write('x\\n'); open({str(gate.path)!r}).readline()\n"
        "print(json.dumps({'status': 'ok', 'result': s}))\n"
    )
    site.environ["CANARY"] = "old-canary-1111"
    site.plugin("leaky", script, config={"token": "${CANARY}"})
    with site.running() as running:
        id = running.put("leaky")
        gate.arrived()
        site.environ["CANARY"] = "new-canary-2222"
        running.gateway.reload()
        gate.open()
        job = running.ended(id)
    assert "old-canary" not in json.dumps(job)
