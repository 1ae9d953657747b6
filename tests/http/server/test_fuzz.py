"""Thousands of malformed requests return no 5xx and no traceback.

Some are combined from values that have broken programs before. The others are generated from the
OpenAPI document, and their responses are compared with it.
"""

from __future__ import annotations

import http.client
import json
import random
from collections.abc import Callable, Iterator
from urllib.parse import quote

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import Case, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.failures import FailureGroup
from schemathesis.specs.openapi.checks import (
    AcceptedNegativeData,
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)

from ductile.http.endpoint import Endpoint
from ductile.http.openapi.document import describe_routes
from ductile.http.requests import request_model
from ductile.http.route_table import ENDPOINTS
from tests.http.harness import ADMIN, CONFIG, ApiHarness, error_keys, running_api
from tests.http.routes.test_nodes import config as on_postgres
from tests.postgres import Server
from tests.waiting import WAIT_LIMIT

BY_HAND = 2200
BY_HAND_ON_POSTGRES = 400
GENERATED = 3
"""Requests per route and mode, valid and invalid."""
IN_TORTURE = 10
"""Factor for the torture lane."""
MORE = """\
webhooks:
  listen: 127.0.0.1:0
  endpoints: [{path: /hook/a, plugin: echo, secret: a-secret-0123456789}]
pipelines:
  - {name: slow, on: never, steps: [{uses: echo}]}
"""
TEXTS = [
    "", "x", "echo", "poll", "0", "-1", "1e999", "nan", "null", "true", "%00", "..", "%2F", "é",
    "\U0001f600", "'; DROP TABLE job_queue; --", "x" * 300, "9" * 30, "*", "{}", "a/b", "?", "#",
    "2026-13-45", "succeeded", "%ff%fe", "\x7f", "1_000", " 1 ", "1.5", "١", "9223372036854775808",
    "0001-01-01", "9999-12-31T23:59:59+00:00", "%ed%a0%80", "slow", "9" * 5000,
]  # fmt: skip
BODIES = [
    b"", b"{", b"[]", b"null", b"1", b'"x"', b"\xff", b"\x00", b"{}", b'{"payload":' * 200,
    b'{"payload":' + b"[" * 500 + b"]" * 500 + b"}", b'{"payload": "\\ud800"}',
    b'{"payload": 1e400}', b'{"payload": 123456789012345678901234567890}', b'{"payload": NaN}',
    b'{"payload": "\\u0000"}', b'{"payload": {"\\u0000": 1}}', b'{"dedupe_key": 1}',
    b'{"dedupe_key": ""}', b'{"dedupe_key": "\\u0000"}', b'{"dry_run": "no"}',
    b'{"dedupe_key": "k", "dedupe_ttl": 1e308}', b'{"dedupe_key": "k", "dedupe_ttl": "x"}',
    b'{"dedupe_key": "k", "dedupe_ttl": -1}', b'{"dedupe_key": "k", "dedupe_ttl": true}',
    b'{"filter": {"plugin": "\\u0000"}}', b'{"filter": {"plugin": "x", "before": "0001-01-01"}}',
    b'{"filter": {"status": "\\u0000"}}', b'{"filter": {"before": "9999-12-31T23:59:59-14:00"}}',
    b'{"filter": [], "limit": 1e9}', b'{"name": "\\u0000", "scopes": ["*"]}',
    b'{"name": "n", "scopes": [{}]}', b'{"step": 1}', b'{"step": "\\u0000"}', b"\xef\xbb\xbf{}",
    b'{"name": "t", "scopes": ["jobs:ro"], "expires_in": "99999999999w"}',
    b'{"name": "t", "scopes": ["jobs:ro\\u0000"]}', b'{"payload": ' + b'"x",' * 1000,
]  # fmt: skip
QUERIES = ["limit", "before", "after", "status", "plugin", "command", "since", "window", "topic",
           "async", "job_id", "submitted_by", "count", "at", "schedule", "last", "flat", "seen",
           "name", "webhook_id", "agent_id", "live", "fact_type", "instance"]  # fmt: skip
SLOW = ("/events", "/system/reload", "/system/status", "/system/backup")
"""Routes that stream, wait, spawn or fill the disk; they have tests of their own."""
HEADERS = ["Idempotency-Key", "Last-Event-ID", "Content-Type", "Range", "X-Hub-Signature-256"]


@pytest.fixture(scope="module")
def api() -> Iterator[ApiHarness]:
    with running_api(CONFIG + MORE) as api:
        yield api


@pytest.fixture(scope="module")
def api_on_postgres(postgres: Server) -> Iterator[ApiHarness]:
    text = on_postgres(postgres.database()).replace("name: now,", "name: slow,")
    with running_api(text.replace("execution_mode: synchronous, ", "")) as api:
        yield api


def quoted(text: str) -> str:
    return text if "%" in text else quote(text, safe="")


def request(chance: random.Random) -> tuple[str, str, bytes | None, dict[str, str]]:
    endpoint = chance.choice([e for e in ENDPOINTS if e.path not in SLOW])
    parts = [
        quoted(chance.choice(TEXTS)) if part.startswith("{") else part
        for part in endpoint.path.split("/")
    ]
    own = request_model(endpoint.query).model_fields if endpoint.query else {}
    names = chance.sample([*own, *QUERIES], chance.randint(0, 3))
    query = "&".join(f"{name}={quoted(chance.choice(TEXTS))}" for name in names if name != "wait")
    method = endpoint.method if chance.random() < 0.9 else chance.choice(["PUT", "HEAD", "PATCH"])
    body = chance.choice(BODIES) if method == "POST" else None
    headers = {}
    if chance.random() < 0.3:
        value = chance.choice(TEXTS).encode("latin-1", "replace").decode("latin-1")
        headers[chance.choice(HEADERS)] = "".join(c for c in value if c.isprintable())
    return method, "/".join(parts) + (f"?{query}" if query else ""), body, headers


def send_bad_requests(api: ApiHarness, count: int, seed: int) -> None:
    chance = random.Random(seed)
    connection = http.client.HTTPConnection(*api.address("api"), timeout=WAIT_LIMIT)
    try:
        for _ in range(count):
            method, target, body, headers = request(chance)
            headers["Authorization"] = f"Bearer {ADMIN}"
            connection.request(method, target, body, headers)
            response = connection.getresponse()
            raw = response.read()
            said = (method, target, body, headers, response.status, raw[:500])
            assert response.status < 500, said
            assert b"Traceback" not in raw, said
            if raw and response.status >= 400:
                assert error_keys(target) <= json.loads(raw).keys(), said
    finally:
        connection.close()


def test_malformed_requests_return_no_5xx(api: ApiHarness) -> None:
    send_bad_requests(api, BY_HAND, seed=5)


def test_malformed_requests_return_no_5xx_on_postgres(api_on_postgres: ApiHarness) -> None:
    send_bad_requests(api_on_postgres, BY_HAND_ON_POSTGRES, seed=5)


@pytest.mark.torture
@pytest.mark.parametrize("seed", range(5))
def test_many_malformed_requests_return_no_5xx(
    api: ApiHarness, api_on_postgres: ApiHarness, seed: int
) -> None:
    send_bad_requests(api, 2 * BY_HAND, seed)
    send_bad_requests(api_on_postgres, BY_HAND, seed)


def test_malformed_webhooks_return_403(api: ApiHarness) -> None:
    chance = random.Random(6)
    connection = http.client.HTTPConnection(*api.address("webhooks"), timeout=WAIT_LIMIT)
    for _ in range(500):
        headers = {"X-Hub-Signature-256": chance.choice(["", "x", "sha256=" + "0" * 64])}
        connection.request("POST", "/hook/a", chance.choice(BODIES), headers)
        response = connection.getresponse()
        assert (response.status, response.read()) == (
            403,
            b'{"error":"forbidden","code":"forbidden"}\n',
        )
    connection.close()


SCHEMA = schemathesis.openapi.from_dict(describe_routes(ENDPOINTS))
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    negative_data_rejection,
]
ASKED = [endpoint for endpoint in ENDPOINTS if endpoint.path not in SLOW]
each_route = pytest.mark.parametrize("endpoint", ASKED, ids=lambda e: f"{e.method} {e.path}")


def check_conformance(api: ApiHarness, endpoint: Endpoint, examples: int) -> None:
    """Send valid and invalid requests; every response must be documented."""
    host, port = api.address("api")
    operation = SCHEMA[endpoint.path][endpoint.method]
    with requests.Session() as session:
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
            test = _test(lambda case: _call(case, f"http://{host}:{port}", session))
            generated = given(operation.as_strategy(generation_mode=mode))(test)
            try:
                settings(
                    max_examples=examples,
                    deadline=None,
                    database=None,
                    derandomize=True,
                    phases=[Phase.generate],
                    suppress_health_check=list(HealthCheck),
                )(generated)()
            except Unsatisfiable:
                assert mode is GenerationMode.NEGATIVE  # Every request to this route is valid.


def _test(act: Callable[[Case], None]) -> Callable[[Case], None]:
    def test(case: Case) -> None:
        act(case)

    return test


def _call(case: Case, url: str, session: requests.Session) -> None:
    headers = {"Authorization": f"Bearer {ADMIN}"}
    answer = case.call(base_url=url, session=session, headers=headers, timeout=WAIT_LIMIT)
    assert "Traceback" not in answer.text
    try:
        case.validate_response(answer, checks=CHECKS)
    except FailureGroup as group:
        body = answer.request.body
        blank = isinstance(body, str | bytes | None) and not (body or b"").strip()
        wrong = [failure for failure in group.exceptions if not _is_allowed(failure, blank=blank)]
        if wrong:
            raise FailureGroup(wrong) from None


def _is_allowed(failure: BaseException, *, blank: bool) -> bool:
    """Null and an empty body mean the same as an absent value; other values must be refused."""
    ignored = blank or "became null" in str(failure)
    return isinstance(failure, AcceptedNegativeData) and ignored


@each_route
def test_responses_conform_to_openapi(api: ApiHarness, endpoint: Endpoint) -> None:
    check_conformance(api, endpoint, GENERATED)


@pytest.mark.torture
@each_route
def test_many_responses_conform_to_openapi(api: ApiHarness, endpoint: Endpoint) -> None:
    check_conformance(api, endpoint, GENERATED * IN_TORTURE)
