"""Thousands of bad requests, and not one answer of 5xx or with a trace in it.

Some are made by hand, of what has broken programs before; the others are generated from the
OpenAPI document, which every answer is held against.
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
from tests.http.doors import ADMIN, CONFIG, House, error_keys, opened
from tests.http.routes.test_nodes import config as on_postgres
from tests.postgres import Server
from tests.waiting import WAIT_LIMIT

BY_HAND = 4400
BY_HAND_ON_POSTGRES = 800
GENERATED = 5
"""Of each route, good ones as well as bad ones."""
IN_TORTURE = 10
"""Times as many."""
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
"""What streams, waits, spawns or fills the disk; each has tests of its own."""
HEADERS = ["Idempotency-Key", "Last-Event-ID", "Content-Type", "Range", "X-Hub-Signature-256"]


@pytest.fixture(scope="module")
def house() -> Iterator[House]:
    with opened(CONFIG + MORE) as house:
        yield house


@pytest.fixture(scope="module")
def house_on_postgres(postgres: Server) -> Iterator[House]:
    text = on_postgres(postgres.database()).replace("name: now,", "name: slow,")
    with opened(text.replace("execution_mode: synchronous, ", "")) as house:
        yield house


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


def send_bad_requests(house: House, count: int, seed: int) -> None:
    chance = random.Random(seed)
    connection = http.client.HTTPConnection(*house.address("api"), timeout=WAIT_LIMIT)
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


def test_bad_requests_give_no_5xx(house: House) -> None:
    send_bad_requests(house, BY_HAND, seed=5)


def test_bad_requests_give_no_5xx_on_postgres(house_on_postgres: House) -> None:
    send_bad_requests(house_on_postgres, BY_HAND_ON_POSTGRES, seed=5)


@pytest.mark.torture
@pytest.mark.parametrize("seed", range(5))
def test_many_bad_requests_give_no_5xx(house: House, house_on_postgres: House, seed: int) -> None:
    send_bad_requests(house, 2 * BY_HAND, seed)
    send_bad_requests(house_on_postgres, BY_HAND, seed)


def test_bad_deliveries_give_no_5xx(house: House) -> None:
    chance = random.Random(6)
    connection = http.client.HTTPConnection(*house.address("webhooks"), timeout=WAIT_LIMIT)
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


def hold_to_the_document(house: House, endpoint: Endpoint, examples: int) -> None:
    """Requests that the document allows, and others; every answer must be one that it promises."""
    host, port = house.address("api")
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
                assert mode is GenerationMode.NEGATIVE  # Nothing that it is sent can be wrong.


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
def test_every_answer_is_one_that_the_document_promises(house: House, endpoint: Endpoint) -> None:
    hold_to_the_document(house, endpoint, GENERATED)


@pytest.mark.torture
@each_route
def test_many_answers_are_such_that_the_document_promises(house: House, endpoint: Endpoint) -> None:
    hold_to_the_document(house, endpoint, GENERATED * IN_TORTURE)
