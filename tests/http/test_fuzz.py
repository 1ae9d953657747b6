"""Thousands of bad requests, and not one answer of 5xx or with a trace in it."""

from __future__ import annotations

import http.client
import json
import random
from collections.abc import Iterator
from urllib.parse import quote

import pytest

from ductile.http.app import ENDPOINTS
from tests.http.doors import ADMIN, CONFIG, PATIENCE, House, opened

COUNT = 5000
HOOKS = """\
webhooks:
  listen: 127.0.0.1:0
  endpoints: [{path: /hook/a, plugin: echo, secret: a-secret-0123456789}]
"""
TEXTS = [
    "", "x", "echo", "poll", "0", "-1", "1e999", "nan", "null", "true", "%00", "..", "%2F", "é",
    "\U0001f600", "'; DROP TABLE job_queue; --", "x" * 300, "9" * 30, "*", "{}", "a/b", "?", "#",
    "2026-13-45", "succeeded", "%ff%fe", "\x7f",
]  # fmt: skip
BODIES = [
    b"", b"{", b"[]", b"null", b"1", b'"x"', b"\xff", b"\x00", b"{}", b'{"payload":' * 200,
    b'{"payload":' + b"[" * 500 + b"]" * 500 + b"}", b'{"payload": "\\ud800"}',
    b'{"payload": 1e400}', b'{"payload": 123456789012345678901234567890}', b'{"payload": NaN}',
    b'{"payload": "\\u0000"}', b'{"dedupe_key": 1}', b'{"dedupe_key": ""}',
    b'{"dedupe_key": "k", "dedupe_ttl": 1e308}', b'{"dedupe_key": "k", "dedupe_ttl": "x"}',
    b'{"dedupe_key": "k", "dedupe_ttl": -1}', b'{"dedupe_key": "k", "dedupe_ttl": true}',
    b'{"filter": {"plugin": "\\u0000"}}', b'{"filter": {"plugin": "x", "before": "0001-01-01"}}',
    b'{"filter": [], "limit": 1e9}', b'{"name": "\\u0000", "scopes": ["*"]}',
    b'{"name": "n", "scopes": [{}]}', b'{"step": 1}', b'{"step": "\\u0000"}', b"\xef\xbb\xbf{}",
]  # fmt: skip
QUERIES = ["limit", "before", "after", "status", "plugin", "command", "since", "wait", "window",
           "topic", "async", "job_id", "submitted_by", "count", "at", "schedule"]  # fmt: skip
SLOW = ("/events", "/system/reload", "/system/status")
"""What streams, waits, or spawns; each has tests of its own."""
HEADERS = ["Idempotency-Key", "Last-Event-ID", "Content-Type", "Range", "X-Hub-Signature-256"]


@pytest.fixture(scope="module")
def house() -> Iterator[House]:
    with opened(CONFIG + HOOKS, working=False) as house:
        yield house


def quoted(text: str) -> str:
    return text if "%" in text else quote(text, safe="")


def request(chance: random.Random) -> tuple[str, str, bytes | None, dict[str, str]]:
    endpoint = chance.choice(ENDPOINTS)
    parts = [
        quoted(chance.choice(TEXTS)) if part.startswith("{") else part
        for part in endpoint.path.split("/")
    ]
    names = chance.sample(QUERIES, chance.randint(0, 3))
    query = "&".join(f"{name}={quoted(chance.choice(TEXTS))}" for name in names)
    method = endpoint.method if chance.random() < 0.9 else chance.choice(["PUT", "HEAD", "PATCH"])
    body = chance.choice(BODIES) if method == "POST" else None
    headers = {}
    if chance.random() < 0.3:
        value = chance.choice(TEXTS).encode("latin-1", "replace").decode("latin-1")
        headers[chance.choice(HEADERS)] = value.replace("\x7f", "")
    return method, "/".join(parts) + (f"?{query}" if query else ""), body, headers


def test_bad_requests_give_no_5xx(house: House) -> None:
    chance = random.Random(5)
    connection = http.client.HTTPConnection(*house.address("api"), timeout=PATIENCE)
    for _ in range(COUNT):
        method, target, body, headers = request(chance)
        if target.split("?")[0] in SLOW or "wait=" in target:
            continue
        headers["Authorization"] = f"Bearer {ADMIN}"
        connection.request(method, target, body, headers)
        response = connection.getresponse()
        raw = response.read()
        said = (method, target, body, headers, response.status, raw[:500])
        assert response.status < 500, said
        assert b"Traceback" not in raw, said
        if raw and response.status >= 400:
            assert {"error", "code"} <= json.loads(raw).keys(), said
    connection.close()


def test_bad_deliveries_give_no_5xx(house: House) -> None:
    chance = random.Random(6)
    connection = http.client.HTTPConnection(*house.address("webhooks"), timeout=PATIENCE)
    for _ in range(500):
        headers = {"X-Hub-Signature-256": chance.choice(["", "x", "sha256=" + "0" * 64])}
        connection.request("POST", "/hook/a", chance.choice(BODIES), headers)
        response = connection.getresponse()
        assert (response.status, response.read()) == (
            403,
            b'{"error":"forbidden","code":"forbidden"}\n',
        )
    connection.close()
