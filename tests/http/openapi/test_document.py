"""The OpenAPI document: valid, whole, and true of every route."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator, validate

from ductile.http.app import ENDPOINTS, Endpoint
from ductile.http.openapi.bodies import BODIES, REQUIRED
from ductile.http.openapi.document import described, of_table
from ductile.http.openapi.parameters import HEADERS, IDEMPOTENCY_KEY, NAMES
from ductile.http.openapi.results import RESULTS, TEXTS
from tests.http.doors import CONFIG, House, opened

DOCUMENT = of_table(ENDPOINTS)
ROUTES = {(endpoint.method, endpoint.path): endpoint for endpoint in ENDPOINTS}
every = pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda e: f"{e.method} {e.path}")


@pytest.fixture(scope="module")
def house() -> Iterator[House]:
    with opened(CONFIG, working=False) as house:
        yield house


def operation(endpoint: Endpoint) -> dict[str, Any]:
    found: dict[str, Any] = DOCUMENT["paths"][endpoint.path][endpoint.method.lower()]
    return found


def test_the_document_is_valid() -> None:
    validate(DOCUMENT, cls=OpenAPIV31SpecValidator)


def test_a_plugins_own_document_is_valid(house: House) -> None:
    document = house.ask("GET", "/plugin/echo/openapi.json").json
    validate(document, cls=OpenAPIV31SpecValidator)
    body = document["paths"]["/plugin/echo/peek"]["post"]["requestBody"]
    payload = body["content"]["application/json"]["schema"]["properties"]["payload"]
    assert payload == {"type": "object", "properties": {"url": {"type": "string"}}}


def test_it_is_what_the_gateway_serves(house: House) -> None:
    assert house.ask("GET", "/openapi.json").json == DOCUMENT


@every
def test_every_route_says_what_it_does(endpoint: Endpoint) -> None:
    """The handler's docstring is the source: `METHOD /path`: what it does."""
    said = inspect.getdoc(endpoint.handler) or ""
    assert said.startswith(f"`{endpoint.method} {endpoint.path.split('{')[0]}"), said
    assert described(endpoint.handler)
    assert re.search(r"\w", operation(endpoint)["summary"])


@every
def test_every_route_has_its_scope_tag_and_refusals(endpoint: Endpoint) -> None:
    found = operation(endpoint)
    assert found.get("x-scope") == endpoint.token_scope
    assert ("security" in found) is (endpoint.token_scope is not None)
    assert set(found["tags"]) <= {tag["name"] for tag in DOCUMENT["tags"]}
    assert min(found["responses"]) < "300"
    assert "400" in found["responses"]
    if endpoint.token_scope is not None:
        assert {"401", "403"} <= found["responses"].keys()
    for status, answer in found["responses"].items():
        assert answer["description"], status
        assert answer["content"]


@every
def test_every_parameter_is_described(endpoint: Endpoint) -> None:
    found = operation(endpoint)["parameters"]
    in_path = {p["name"] for p in found if p["in"] == "path"}
    assert in_path == set(re.findall(r"\{(\w+)\}", endpoint.path))
    assert {p["name"] for p in found if p["in"] == "query"} == set(endpoint.query)
    for parameter in found:
        assert parameter["description"], parameter["name"]


def test_no_description_is_of_a_route_that_is_gone() -> None:
    assert RESULTS.keys() | TEXTS.keys() | HEADERS.keys() <= ROUTES.keys()
    posts = {path for method, path in ROUTES if method == "POST"}
    assert BODIES.keys() | REQUIRED <= posts
    paths = {path for _, path in ROUTES}
    assert {name.split()[0] for name in NAMES if " " in name} <= paths


def test_every_reference_leads_somewhere() -> None:
    text = str(DOCUMENT)
    wanted = set(re.findall(r"#/components/schemas/(\w+)", text))
    assert wanted == DOCUMENT["components"]["schemas"].keys()


@pytest.mark.parametrize("route", ROUTES, ids=" ".join)
def test_routes_that_take_a_key_are_those_that_say_so(house: House, route: tuple[str, str]) -> None:
    """A key that is none is refused by those that take one, and by no other."""
    method, path = route
    if method != "POST" or path.startswith(("/system/", "/gateway/webhooks/")):
        return
    bodies = {"/jobs/retry": '{"filter": {"plugin": "none"}}'}
    if path == "/gateway/deliveries":
        bodies[path] = '{"webhook_id": 1, "payload": {}}'
    known = path.replace("{plugin}", "echo").replace("{command}", "poll")
    headers = {"Idempotency-Key": "x" * 300}
    body = bodies.get(path, "{}")
    if "{name}" in path:
        return
    answer = house.ask("POST", known, body, headers=headers)
    refused = b"Idempotency-Key" in answer.raw
    assert refused is (IDEMPOTENCY_KEY in HEADERS.get(route, ())), answer.raw
