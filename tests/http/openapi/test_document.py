"""The OpenAPI document: valid, complete, and in agreement with the handlers."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator, validate

from ductile.http.endpoint import Endpoint
from ductile.http.openapi.document import PATH_PARAMETERS, describe_routes, summarize
from ductile.http.openapi.schema import response_models
from ductile.http.requests import request_model
from ductile.http.route_table import ENDPOINTS, PAGES
from tests.http.harness import CONFIG, ApiHarness, running_api

DOCUMENT = describe_routes(ENDPOINTS)


@pytest.fixture(scope="module")
def api() -> Iterator[ApiHarness]:
    with running_api(CONFIG, working=False) as api:
        yield api


def name_of(endpoint: Endpoint) -> str:
    return f"{endpoint.method} {endpoint.path}"


def operation(endpoint: Endpoint) -> dict[str, Any]:
    found: dict[str, Any] = DOCUMENT["paths"][endpoint.path][endpoint.method.lower()]
    return found


def test_document_is_valid() -> None:
    validate(DOCUMENT, cls=OpenAPIV31SpecValidator)


def test_document_of_a_plugin_is_valid_and_has_its_input_schema(api: ApiHarness) -> None:
    document = api.ask("GET", "/plugin/echo/openapi.json").json
    validate(document, cls=OpenAPIV31SpecValidator)
    body = document["paths"]["/plugin/echo/peek"]["post"]["requestBody"]
    payload = body["content"]["application/json"]["schema"]["properties"]["payload"]
    assert payload == {"type": "object", "properties": {"url": {"type": "string"}}}


def test_gateway_serves_the_document(api: ApiHarness) -> None:
    assert api.ask("GET", "/openapi.json").json == DOCUMENT


def test_every_page_has_a_handler() -> None:
    """A row names its handler, which is imported by the first request."""
    assert all(callable(page.handler) for page in PAGES)


def test_every_handler_describes_its_route() -> None:
    for endpoint in ENDPOINTS:
        text = inspect.getdoc(endpoint.handler) or ""
        assert text.startswith(f"`{name_of(endpoint)}`: "), text
        assert operation(endpoint)["summary"] == summarize(endpoint.handler).partition("\n")[0]
        assert re.match(r"[A-Z].*\.$", operation(endpoint)["summary"]), text


def test_every_handler_takes_the_models_of_its_row() -> None:
    for endpoint in ENDPOINTS:
        parameters = list(inspect.signature(endpoint.handler).parameters.values())[1:]
        named = [name for name in (endpoint.query, endpoint.body) if name is not None]
        assert [parameter.annotation for parameter in parameters] == named, name_of(endpoint)


def test_every_operation_has_its_scope_tags_and_refusals() -> None:
    tags = {tag["name"] for tag in DOCUMENT["tags"]}
    for endpoint in ENDPOINTS:
        found = operation(endpoint)
        assert found.get("x-scope") == endpoint.token_scope
        assert ("security" in found) is (endpoint.token_scope is not None)
        assert set(found["tags"]) <= tags
        assert min(found["responses"]) < "300"
        assert "400" in found["responses"]
        if endpoint.token_scope is not None:
            assert {"401", "403"} <= found["responses"].keys()
        for status, response in found["responses"].items():
            assert response["description"], (name_of(endpoint), status)
            assert response["content"]


def test_every_parameter_is_described() -> None:
    for endpoint in ENDPOINTS:
        found = operation(endpoint)["parameters"]
        in_path = {p["name"] for p in found if p["in"] == "path"}
        assert in_path == set(re.findall(r"\{(\w+)\}", endpoint.path))
        for parameter in found:
            assert parameter["description"], (name_of(endpoint), parameter["name"])
    assert {n for e in ENDPOINTS for n in re.findall(r"\{(\w+)\}", e.path)} == set(PATH_PARAMETERS)


def test_every_field_of_a_request_is_described() -> None:
    for name in {n for e in ENDPOINTS for n in (e.query, e.body) if n is not None}:
        for field, info in request_model(name).model_fields.items():
            assert info.description, f"{name}.{field}"


def test_every_response_model_is_used_and_described() -> None:
    schemas = DOCUMENT["components"]["schemas"]
    assert response_models().keys() <= schemas.keys()
    for name, model in response_models().items():
        if name != "DecisionLog":
            assert (model.__doc__ or "").partition("\n")[0].endswith("."), name


def test_every_reference_resolves_and_every_component_is_referenced() -> None:
    wanted = set(re.findall(r"#/components/schemas/(\w+)", str(DOCUMENT)))
    assert wanted == DOCUMENT["components"]["schemas"].keys()


def test_only_the_documented_routes_read_an_idempotency_key(api: ApiHarness) -> None:
    """An invalid key is refused by the routes that read one, and ignored by the others."""
    bodies = {
        "/jobs/retry": '{"filter": {"plugin": "none"}}',
        "/gateway/deliveries": '{"webhook_id": 1, "payload": {}}',
        "/relays": '{"to": "none", "event": "x.y"}',
    }
    for endpoint in ENDPOINTS:
        path = endpoint.path
        if endpoint.method != "POST" or path.startswith(("/system/", "/gateway/webhooks/")):
            continue
        if "{name}" in path:
            continue  # There is no pipeline to start.
        target = path.replace("{plugin}", "echo").replace("{command}", "poll")
        headers = {"Idempotency-Key": "x" * 300}
        answer = api.ask("POST", target, bodies.get(path, "{}"), headers=headers)
        refused = b"Idempotency-Key" in answer.raw
        assert refused is ("Idempotency-Key" in endpoint.headers), (path, answer.raw)
