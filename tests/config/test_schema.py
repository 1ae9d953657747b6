"""The exported JSON Schemas are complete and have descriptions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from ductile.config.problems import known_keys
from ductile.config.schema import KINDS, json_schema


def properties(schema: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(schema, dict):
        for key, value in schema.items():
            if key == "properties":
                yield from value.items()
            yield from properties(value)
    elif isinstance(schema, list):
        for item in schema:
            yield from properties(item)


@pytest.mark.parametrize("kind", KINDS)
def test_every_key_has_a_description(kind: str) -> None:
    schema = json_schema(kind)
    json.dumps(schema)
    assert [key for key, value in properties(schema) if not value.get("description")] == []


@pytest.mark.parametrize("kind", KINDS)
def test_every_reference_is_defined(kind: str) -> None:
    schema = json_schema(kind)
    text = json.dumps(schema)
    for name in {part.split('"')[0] for part in text.split("#/$defs/")[1:]}:
        assert name in schema["$defs"]


def test_schema_has_every_key() -> None:
    schema = json_schema("config")
    assert set(schema["properties"]) == known_keys(())
    assert set(schema["$defs"]["PluginSettings"]["properties"]) == known_keys(("plugins", "p"))
    schedule = known_keys(("plugins", "p", "schedules", 0))
    assert set(schema["$defs"]["ScheduleSettings"]["properties"]) == schedule


def test_default_of_a_duration_is_readable() -> None:
    tick = json_schema("config")["$defs"]["ServiceSettings"]["properties"]["tick_interval"]
    assert tick["default"] == "60s"
    assert tick["anyOf"][0]["type"] == "string"


def test_variable_is_allowed_for_a_number() -> None:
    workers = json_schema("config")["$defs"]["ServiceSettings"]["properties"]["max_workers"]
    assert {"$ref": "#/$defs/Variable"} in workers["anyOf"]


def test_both_forms_of_webhooks_are_allowed() -> None:
    kinds = json_schema("webhooks")["properties"]["webhooks"]["anyOf"]
    assert [kind.get("type", "object") for kind in kinds] == ["object", "array"]
