"""Discovery: OpenAPI, skills, plugins and the configuration; bulk actions."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from ductile.http.route_table import ENDPOINTS
from tests.http.harness import ADMIN, CONFIG, NOTHING, ApiHarness, running_api

PIPELINES = """\
pipelines:
  - name: sum
    on: thing.made
    from_plugin: echo
    if: {path: payload.kind, op: eq, value: x}
    steps: [{uses: echo.peek}]
"""


@pytest.fixture(scope="module")
def api() -> Iterator[ApiHarness]:
    with running_api(CONFIG + PIPELINES, working=False) as api:
        yield api


def test_openapi_document_has_every_route(api: ApiHarness) -> None:
    document = api.ask("GET", "/openapi.json", token=NOTHING).json
    assert document["openapi"] == "3.1.0"
    for endpoint in ENDPOINTS:
        operation = document["paths"][endpoint.path][endpoint.method.lower()]
        named = {p["name"] for p in operation["parameters"] if p["in"] == "path"}
        assert named == set(re.findall(r"\{(\w+)\}", endpoint.path))
        assert bool(operation.get("security")) is (endpoint.token_scope is not None)
    ids = [o["operationId"] for path in document["paths"].values() for o in path.values()]
    assert len(ids) == len(set(ids))


def test_plugin_is_shown_with_its_document(api: ApiHarness) -> None:
    page = api.ask("GET", "/plugin/echo", token=NOTHING).json
    assert page["state"] == "ready"
    peek = next(c for c in page["commands"] if c["name"] == "peek")
    assert peek["type"] == "read"
    assert peek["input_schema"]["properties"] == {"url": {"type": "string"}}
    document = api.ask("GET", "/plugin/echo/openapi.json").json
    assert document["paths"]["/plugin/echo/peek"]["post"]["x-scope"] == "plugin:ro"
    assert api.ask("GET", "/plugin/none").status == 404
    assert api.ask("GET", "/plugin/none/openapi.json").status == 404


def test_skills_list_commands_and_pipelines(api: ApiHarness) -> None:
    skills = {s["name"]: s for s in api.ask("GET", "/skills", token=NOTHING).json["skills"]}
    assert set(skills) == {"echo.poll", "echo.peek", "echo.handle", "sum"}
    assert skills["sum"]["path"] == "/pipeline/sum"
    page = api.ask("GET", "/.well-known/ai-plugin.json", token=NOTHING).json
    assert page["api"]["url"] == "/openapi.json"


def test_configuration_is_shown_without_secrets(api: ApiHarness) -> None:
    answer = api.ask("GET", "/config/view")
    assert ADMIN.encode() not in answer.raw
    compiled = answer.json["compiled_routes"]["sum"]
    assert compiled["source"]["source_plugin"] == "echo"
    assert compiled["source"]["event_type"] == "thing.made"
    assert "payload.kind eq" in compiled["if"]
    assert answer.json["config"]["api"]["auth"]["tokens"][0]["token"] == "[REDACTED]"
    assert answer.json["plugins"] == answer.json["config"]["plugins"]


def test_bulk_retry_and_cancel() -> None:
    with running_api(working=False) as own:
        ids = [own.ask("POST", "/plugin/echo/poll", "{}").json["job_id"] for _ in range(3)]
        own.ask("POST", "/plugin/echo/peek", "{}")
        queue = own.ask("GET", "/analytics/queue").json
        assert (queue["queued"], queue["running"]) == (4, 0)
        assert queue["plugins"][0]["oldest_seconds"] >= 0
        which = {"filter": {"plugin": "echo", "command": "poll"}}
        planned = own.ask("POST", "/jobs/cancel", {**which, "dry_run": True}).json
        assert planned["jobs"] == ids
        for none in ({"pipeline": "p"}, {"until": "2026-01-01"}, {"before": "2026-01-01"}):
            nothing = {"filter": {**which["filter"], **none}, "dry_run": True}
            assert own.ask("POST", "/jobs/cancel", nothing).json["jobs"] == [], none
        since = {"filter": {**which["filter"], "since": "2026-01-01"}, "dry_run": True}
        assert own.ask("POST", "/jobs/cancel", since).json["jobs"] == ids
        assert own.ask("POST", "/jobs/cancel", {**which, "limit": 2}).json["more"] is True
        assert own.ask("POST", "/jobs/cancel", which).json["jobs"] == ids[2:]
        assert own.ask("GET", "/analytics/queue").json["queued"] == 1
        retried = own.ask(
            "POST", "/jobs/retry", {"filter": {"status": "dead", "acknowledged": True}}
        ).json
        assert retried["count"] == 3
        summary = own.ask("GET", "/analytics/summary?window=1h").json
        assert summary["plugins"][0]["plugin"] == "echo"


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"filter": {}},
        {"filter": {"plugins": "echo"}},
        {"filter": {"plugin": 1}},
        {"filter": {"before": "yesterday"}},
        {"filter": {"before": "2026-01-01", "until": "2026-01-01"}},
        {"filter": {"plugin": "echo"}, "limit": 0},
        {"filter": {"plugin": "echo"}, "limit": "1"},
    ],
)
def test_invalid_filter_is_refused(api: ApiHarness, body: dict[str, object]) -> None:
    assert api.ask("POST", "/jobs/cancel", body).status == 400
    assert api.ask("GET", "/analytics/summary?window=x").status == 400
    assert api.ask("GET", "/analytics/summary?window=99999999w").status == 400
