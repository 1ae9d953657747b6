"""Canary values in every place that can hold a secret, and a plugin that prints them all."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator
from urllib.parse import quote, quote_plus

INLINE = "canary-inline-token-1122"
"""Written into the file itself."""
DOTENV = "canary-dotenv-secret-7788"
ENVIRON = {
    "ADMIN_TOKEN": "canary-api-token-1234",
    "HOOK_SECRET": "canary-hook-secret-5678",
    "SHARED_KEY": 'canary-shared-"key"-9012',
    "PLUGIN_KEY": "canary/plugin+secret=3456",
    "URL_PASSWORD": "canary-url-password-7890",
    "WORDY_SECRET": "canary in words é 2468",
    "PEER_KEY": "canary-peer-key-1357",
    "CONTROL_SECRET": "canary\ttab\\and-more-8642",
}
FROM_FILE = "canary-from-a-file-9753"
FROM_COMMAND = "canary-of-a-command-8642"
CANARIES = (*ENVIRON.values(), INLINE, DOTENV, FROM_FILE, FROM_COMMAND)
ADMIN = ENVIRON["ADMIN_TOKEN"]
CONFIG = f"""\
service: {{shutdown_grace: 0s, max_workers: 2, log_level: debug}}
environment_vars: {{include: [.env]}}
include: [tokens.yaml, webhooks.yaml]
state: {{path: ./data/state.db}}
plugin_roots: [./plugins]
api:
  enabled: true
  listen: 127.0.0.1:0
  auth:
    tokens:
      - {{token: "${{ADMIN_TOKEN}}", scopes: ["*"], name: admin}}
      - {{token: {INLINE}, scopes: ["jobs:ro"], name: inline}}
remote_ingress:
  listen_path: /ingress
  peers: [{{name: east, secret_ref: peer, accept: ["*"]}}]
instances:
  - {{name: west, base_url: "http://127.0.0.1:9", ingress_path: /in/me, secret_ref: peer}}
plugins:
  leaky:
    retry: {{max_attempts: 1}}
    schedule: {{id: slow, every: 10h}}
    config:
      api_key: "${{PLUGIN_KEY}}"
      url: "https://user:${{URL_PASSWORD}}@example.test/path"
      greeting: "hello ${{WORDY_SECRET}}, ${{DOTENV_SECRET}}"
      nested: {{credentials: ["${{CONTROL_SECRET}}"]}}
      kept: ["${{file:plain.txt}}", "${{command:cat other.txt}}"]
pipelines:
  - name: leak
    on: leaked
    execution_mode: synchronous
    timeout: 5s
    if: {{path: payload.never, op: neq, value: "${{PLUGIN_KEY}}"}}
    steps:
      - {{uses: leaky, with: {{said: "with ${{WORDY_SECRET}}"}}}}
  - {{name: slow, on: never, steps: [{{uses: leaky}}]}}
"""
FILES = {
    ".env": f"DOTENV_SECRET={DOTENV}\n",
    "plain.txt": f"{FROM_FILE}\n",
    "other.txt": f"{FROM_COMMAND}\n",
    "tokens.yaml": (
        "tokens:\n"
        '  - {name: shared, key: "${SHARED_KEY}", scopes: ["jobs:ro"]}\n'
        '  - {name: peer, key: "${PEER_KEY}", scopes: []}\n'
    ),
    "webhooks.yaml": (
        "webhooks:\n"
        "  listen: 127.0.0.1:0\n"
        "  endpoints:\n"
        '    - {path: /hook/a, plugin: leaky, secret: "${HOOK_SECRET}"}\n'
        "    - {path: /hook/b, plugin: leaky, secret_ref: shared}\n"
    ),
}
LEAKY = f"""\
#!/usr/bin/env python3
import base64, json, sys, urllib.parse
secrets = json.loads({json.dumps(json.dumps(CANARIES))})
payload = json.load(sys.stdin).get("payload") or {{}}
text = " and ".join(secrets)
others = [urllib.parse.quote(s) for s in secrets]
others += [urllib.parse.quote_plus(s) for s in secrets]
others += [base64.b64encode(("u:" + s).encode()).decode() for s in secrets]
others += [json.dumps(json.dumps(s)) for s in secrets]
text = text + " or " + " or ".join(others)
if payload.get("cut"):
    # The capture ends in the middle of a secret.
    for stream in (sys.stderr, sys.stdout):
        stream.write("x" * (65536 - 12) + secrets[payload["cut"]] * 2)
    sys.exit(0)
print(text, file=sys.stderr)
if payload.get("junk"):
    print(text)
    sys.exit(0)
ok = bool(payload.get("ok"))
print(json.dumps({{"status": "ok" if ok else "error", "error": text, "result": {{"all": text}},
                  "logs": [{{"level": "info", "message": text}}],
                  "state_updates": {{"last": text, "token": secrets[0]}} if ok else {{}},
                  "events": [{{"type": "leaked", "payload": {{"all": text}}}}]}}))
"""
MANIFEST = """\
name: leaky
version: '1'
protocol: 1
entrypoint: run.sh
commands:
  poll: {type: write}
  peek: {type: read}
  handle: {type: write}
  health: {type: read}
"""


def forms(secret: str) -> Iterator[str]:
    """How a leak of it may look."""
    yield secret
    yield quote(secret, safe="")
    yield quote(secret)
    yield quote_plus(secret)
    yield json.dumps(secret)[1:-1]
    yield json.dumps(secret, ensure_ascii=False)[1:-1]
    yield json.dumps(json.dumps(secret))[3:-3]
    yield base64.b64encode(secret.encode()).decode()[:-4]
    yield base64.b64encode(f"u:{secret}".encode()).decode()[4:-4]


FORMS = {form: secret for secret in CANARIES for form in forms(secret)}


def leaks(seen: Iterable[tuple[str, str]]) -> list[str]:
    """Every place of what was seen that shows a canary."""
    return [
        f"{where}: {form!r} in ...{text[max(text.index(form) - 100, 0) :][:300]}"
        for where, text in seen
        for form in FORMS
        if form in text
    ]


def beginnings(seen: Iterable[tuple[str, str]]) -> list[str]:
    """Every place that shows a canary as far as it was not cut off."""
    return [
        f"{where}: ends with {secret[:n]!r}"
        for where, text in seen
        for secret in CANARIES
        for n in range(8, len(secret))
        if text.endswith(secret[:n])
    ]
