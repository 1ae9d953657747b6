"""Request models: values are parsed, and malformed or unknown ones are refused by name."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from starlette.requests import Request

from ductile.errors import DuctileError, UsageError
from ductile.http.models import bodies, fields, queries
from ductile.http.models.fields import FieldType
from ductile.http.requests import InvalidJson, parse_body, parse_query, refuse_query, row_id
from ductile.model import JobStatus


@pytest.mark.parametrize(
    ("field", "value", "parsed"),
    [
        (fields.QueryInteger(), "007", 7),
        (fields.QueryInteger(), str(fields.MAX_INTEGER), fields.MAX_INTEGER),
        (fields.QuerySeconds(60), "0.5", 0.5),
        (fields.QuerySeconds(60), "999999999", 60),
        (fields.QueryFlag(), "true", True),
        (fields.Timestamp(), "2026-02-08", datetime(2026, 2, 8, tzinfo=UTC)),
        (fields.Timestamp(), None, None),
        (fields.OneOf(JobStatus), "queued", JobStatus.QUEUED),
        (fields.OneOf(JobStatus), None, None),
        (fields.BodyText(), "x", "x"),
        (fields.BodyText(), None, None),
        (fields.BodyFlag(), False, False),
        (fields.BodyFlag(), True, True),
        (fields.BodyInteger(1, 9), 9, 9),
        (fields.BodyDuration(1e9), "1h", 3600.0),
        (fields.BodyDuration(1e9), 1.5, 1.5),
        (fields.Payload(), None, {}),
        (fields.Payload(), 0, 0),
    ],
)
def test_value_is_parsed(field: FieldType, value: Any, parsed: Any) -> None:
    assert field.parse(value) == parsed


@pytest.mark.parametrize(
    ("field", "values"),
    [
        (fields.QueryInteger(), ["", "-1", "1.0", "\u0661", "x", str(2**62 + 1), "9" * 30]),
        (fields.QueryInteger(1, 2), ["0", "3"]),
        (fields.QuerySeconds(60), ["", "-1", "1e3", "nan", "9" * 12]),
        (fields.QueryFlag(), ["", "1", "True", "yes"]),
        (fields.OneOf(JobStatus), ["", "c", ["queued"], 1]),
        (fields.OneOf(JobStatus, required=True), [None]),
        (fields.Timestamp(), ["", "soon", "9999-12-31T23:59:59-14:00", 20260208, ["x"]]),
        (fields.BodyText(), ["", 1, ["x"]]),
        (fields.BodyText(2, 3), ["x", "xxxx", "x\n", 12]),
        (fields.BodyText(required=True), [None]),
        (fields.BodyFlag(), ["true", 1, 0, None]),
        (fields.PresentJson(), [None]),
        (fields.BodyInteger(1, 9), [0, 10, "5", 5.0, True, None]),
        (fields.BodyDuration(1e9), ["x", -1, True, 1e308, "9999w"]),
        (bodies.ScopeList(), [None, [], "jobs:ro", [1], ["jobs"]]),
    ],
)
def test_malformed_value_is_refused(field: FieldType, values: list[Any]) -> None:
    for value in values:
        with pytest.raises(ValueError, match=r"must|is not a valid scope"):
            field.parse(value)


@pytest.mark.parametrize(
    ("model", "body", "message"),
    [
        ("TriggerBody", '{"dedupe_key": ""}', "dedupe_key must be a non-empty string"),
        ("TriggerBody", '{"dedupe_ttl": "soon"}', "dedupe_ttl must be a duration"),
        ("BulkBody", "{}", "filter is required"),
        ("BulkBody", '{"filter": {}}', "filter must name at least one of plugin, command"),
        ("BulkBody", '{"filter": {"plugin": 1}}', "filter.plugin must be a non-empty string"),
        ("BulkBody", '{"filter": {"plugin": "\\u0000"}}', "filter must not contain U+0000"),
        ("BulkBody", '{"filter": 1, "limit": 0}', "; limit must be a whole number from 1 to 1000"),
        ("NewTokenBody", '{"name": "a", "scopes": ["x"]}', "scopes: 'x' is not a valid scope"),
        ("NewReminderBody", "{}", "give either delay_ms or schedule"),
        ("DeliveryBody", '{"webhook_id": "1"}', "name webhook_id, or source_identifier and"),
        ("ActionBody", "[]", "the body must be a JSON object"),
        ("ActionBody", "{", "the body is not valid JSON"),
        ("ActionBody", "{} x", "the body is not valid JSON"),
        ("ActionBody", '{"dry_run": 1}', "dry_run must be true or false"),
    ],
)
def test_error_names_the_field_and_what_it_must_be(model: str, body: str, message: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_body(getattr(bodies, model), body.encode())
    assert message in refused.value.message


@pytest.mark.parametrize(
    ("model", "body", "key", "suggestion"),
    [
        ("TriggerBody", '{"payloda": {}}', "payloda", "payload"),
        ("BulkBody", '{"filter": {"plugin": "a"}, "dryrun": true}', "dryrun", "dry_run"),
        ("BulkBody", '{"dryrun": true}', "dryrun", "dry_run"),
        ("BulkBody", '{"filter": {"plugn": "a"}}', "plugn", "plugin"),
        ("ActionBody", '{"nothing": 1}', "nothing", None),
    ],
)
def test_unknown_key_is_refused_with_the_nearest_name(
    model: str, body: str, key: str, suggestion: str | None
) -> None:
    with pytest.raises(UsageError) as refused:
        parse_body(getattr(bodies, model), body.encode())
    assert repr(key) in refused.value.message
    assert refused.value.details.get("suggestion") == suggestion
    hint = f"did you mean {suggestion!r}?" if suggestion else "allowed: dry_run"
    assert refused.value.message.endswith(hint)


def test_unknown_key_of_any_length_is_refused_in_a_short_message() -> None:
    with pytest.raises(UsageError) as refused:
        parse_body(bodies.ActionBody, b'{"' + b"x" * 100_000 + b'": 1}')
    assert len(refused.value.message) < 200


def test_trailing_bytes_are_ignored_only_where_they_are_allowed() -> None:
    body = b'{"payload": 1} \xff and more'
    assert parse_body(bodies.TriggerBody, body, allow_trailing=True).payload == 1
    with pytest.raises(UsageError):
        parse_body(bodies.TriggerBody, body)


def test_invalid_json_raises_the_error_of_the_endpoint() -> None:
    with pytest.raises(InvalidJson):
        parse_body(bodies.ActionBody, b"{", json_error=InvalidJson)


def request(query: str) -> Request:
    return Request({"type": "http", "query_string": query.encode(), "headers": []})


def test_last_value_of_a_repeated_parameter_counts_unless_it_is_a_list() -> None:
    assert parse_query(queries.QueueQuery, request("limit=1&limit=2")).limit == 2
    assert parse_query(queries.EventQuery, request("topic=a&topic=b,c")).topic == ["a", "b,c"]


def test_parameter_with_the_name_of_a_keyword_is_parsed() -> None:
    assert parse_query(queries.PipelineStartQuery, request("async=true")).async_ is True


def test_unknown_parameter_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(UsageError, match=r"unknown query parameter 'limt'; did you mean 'limit'\?"):
        parse_query(queries.QueueQuery, request("limt=1"))


def test_route_without_parameters_refuses_every_parameter() -> None:
    refuse_query(request(""))
    with pytest.raises(DuctileError, match="unknown query parameter 'x'; allowed: none"):
        refuse_query(request("x=1"))


@pytest.mark.parametrize(
    ("text", "id"),
    [("0", 0), ("12", 12), ("9" * 18, 10**18 - 1), ("9" * 19, None), ("", None), ("-1", None)],
)
def test_row_id_is_a_number_that_every_engine_stores(text: str, id: int | None) -> None:
    assert row_id(text) == id
