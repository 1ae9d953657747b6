"""No secret of the configuration in any answer, stream, log, snapshot or job log."""

from __future__ import annotations

import http.client
import json

import pytest

from ductile.http.app import ENDPOINTS
from tests.http.doors import CONFIG, PATIENCE, opened
from tests.http.test_webhooks import sign

CANARIES = {
    "TOKEN": "canary-api-token-1234",
    "HOOK": "canary-hook-secret-5678",
    "SHARED": 'canary-shared-"key"-9012',
    "PLUGIN": "canary/plugin+secret=3456",
}
MORE = """\
      - {token: "${TOKEN}", scopes: ["*"], name: canary}
tokens:
  - {name: shared, key: "${SHARED}", scopes: ["jobs:ro"]}
webhooks:
  listen: 127.0.0.1:0
  endpoints: [{path: /hook/a, plugin: leaky, secret: "${HOOK}"}]
plugins:
  leaky: {config: {api_key: "${PLUGIN}"}, retry: {max_attempts: 1}}
pipelines:
  - {name: leak, on: leaked, execution_mode: synchronous, steps: [{uses: leaky}]}
"""
LOG_FILTERS = ("plugin", "command", "status", "job_id", "since", "before", "before_id")
LEAKY = """\
#!/usr/bin/env python3
import json, sys
secrets = json.loads(%r)
json.load(sys.stdin)
text = " and ".join(secrets.values())
print(text, file=sys.stderr)
print(json.dumps({"status": "error", "error": text, "result": secrets,
                  "logs": [{"level": "info", "message": text}],
                  "events": [{"type": "leaked", "payload": secrets}]}))
"""


def test_canaries_are_seen_nowhere(capfd: pytest.CaptureFixture[str]) -> None:
    secrets = dict(CANARIES)
    script = LEAKY % json.dumps(secrets)
    token = CANARIES["TOKEN"]
    with opened(CONFIG + MORE, plugins={"leaky": script}, environ=CANARIES) as house:
        seen: list[tuple[str, bytes]] = []
        stream = http.client.HTTPConnection(*house.address("api"), timeout=PATIENCE)
        stream.request("GET", "/events", headers={"Authorization": f"Bearer {token}"})
        events = stream.getresponse()

        def ask(method: str, path: str, body: str | None = None) -> bytes:
            raw = house.ask(method, path, body, token=token).raw
            seen.append((f"{method} {path}", raw))
            return raw

        body = json.dumps({"payload": secrets, "dedupe_key": CANARIES["PLUGIN"]})
        job_id = json.loads(ask("POST", "/plugin/leaky/poll", body))["job_id"]
        ask("GET", f"/job/{job_id}?wait=20")
        ask("POST", "/plugin/leaky/poll", body)
        ask("POST", "/pipeline/leak", json.dumps({"payload": secrets}))
        hook = json.dumps(secrets).encode()
        signed = {"X-Hub-Signature-256": sign(hook, CANARIES["HOOK"])}
        delivered = house.ask("POST", "/hook/a", hook, token=None, headers=signed, door="webhooks")
        assert delivered.status == 202
        ask("GET", f"/job/{delivered.json['job_id']}?wait=20")
        for endpoint in ENDPOINTS:
            path = endpoint.path.replace("{job_id}", job_id).replace("{plugin}", "leaky")
            path = path.replace("{name}", "leak").replace("{command}", "poll")
            if endpoint.method == "GET" and endpoint.path != "/events":
                ask("GET", path)
        ask("GET", f"/plugin/{CANARIES['PLUGIN'].replace('/', '%2F')}")
        ask("POST", "/system/reload")
        house.server.stop()
        seen.append(("events", events.read()))
        stream.close()
        rows = house.gateway.ledger.read(
            lambda tx: [
                *tx.dicts("job_logs", **dict.fromkeys(LOG_FILTERS), limit=100),
                *tx.dicts("notices_after", after=0, limit=1000),
            ]
        )
        seen.append(("ledger", json.dumps(rows).encode()))
    seen.append(("logs", "".join(capfd.readouterr()).encode()))
    assert b"job.failed" in dict(seen)["events"] or b"job.dead" in dict(seen)["events"]
    for where, raw in seen:
        for canary in CANARIES.values():
            for form in (canary, json.dumps(canary)[1:-1], json.dumps(json.dumps(canary))[3:-3]):
                assert form.encode() not in raw, (where, form, raw[:2000])
