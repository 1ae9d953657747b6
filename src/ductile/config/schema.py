"""JSON Schema for every kind of file, for editors and for the reference.

It describes what may be written, not what the gateway makes of it: both shapes of a thing,
durations as text, and `${VAR}` wherever a number or a word is wanted.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ductile.config import shapes
from ductile.config.settings import Settings

Schema = dict[str, Any]

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_VARIABLE = {"type": "string", "pattern": r"\$\{[A-Za-z_][A-Za-z0-9_]*(:-[^}]*)?\}"}
_ROOTS = {
    "plugins": ("plugins", "plugins_dir", "plugin_roots"),
    "pipelines": ("pipelines",),
    "routes": ("routes",),
    "webhooks": ("webhooks",),
    "tokens": ("tokens",),
    "instances": ("instances",),
    "remote_ingress": ("remote_ingress",),
}
_SCOPES: Schema = {"type": "array", "items": {"type": "string"}, "description": "What it may do."}


def json_schema(kind: str) -> Schema:
    """The schema of a kind of file: one of `KINDS`."""
    return KINDS[kind]()


def _config() -> Schema:
    schema: Schema = _writable(Settings.model_json_schema(by_alias=True))
    schema["$schema"] = DIALECT
    schema["title"] = "Ductile configuration"
    schema.pop("required", None)
    properties = schema["properties"]
    root = {
        shapes.INCLUDE: _paths(),
        shapes.ENVIRONMENT: {
            "type": "object",
            "additionalProperties": False,
            "properties": {shapes.INCLUDE: {**_paths(), "description": "The .env files."}},
        },
        "plugins_dir": {"type": "string"},
        "database": {"$ref": "#/$defs/StateSettings"},
        "log_level": schema["$defs"]["ServiceSettings"]["properties"]["log_level"],
        "tcc_paths": _paths(),
    }
    for key, description in shapes.ROOT_ALSO.items():
        properties[key] = {**root[key], "description": description}
    plugin, schedule = (schema["$defs"][f"{name}Settings"] for name in ("Plugin", "Schedule"))
    plugin["properties"]["schedule"] = {
        "$ref": "#/$defs/ScheduleSettings",
        "description": shapes.PLUGIN_ALSO["schedule"],
    }
    schedule["properties"]["preferred_window"] = {
        "$ref": "#/$defs/Window",
        "description": shapes.SCHEDULE_ALSO["preferred_window"],
    }
    window = schedule["properties"]["only_between"]
    window["anyOf"] = [
        {"type": "string", "pattern": r"^\s*\d\d?:\d\d\s*-\s*\d\d?:\d\d\s*$"},
        *window["anyOf"],
    ]
    webhooks = properties["webhooks"]
    endpoints = {"type": "array", "items": {"$ref": "#/$defs/EndpointSettings"}}
    properties["webhooks"] = {
        "anyOf": [{"$ref": webhooks["$ref"]}, endpoints],
        "description": webhooks["description"],
    }
    return schema


def _part(kind: str) -> Schema:
    """The schema of a file that holds one part; as it may hold others, they stay known."""
    schema = _config()
    schema["title"] = f"Ductile {kind}"
    schema["required"] = list(_ROOTS[kind][:1])
    return schema


def _scopes() -> Schema:
    return {
        "$schema": DIALECT,
        "title": "Ductile scopes",
        "anyOf": [
            {"type": "object", "properties": {"scopes": _SCOPES}, "required": ["scopes"]},
            _SCOPES,
        ],
    }


def _checksums() -> Schema:
    return {
        "$schema": DIALECT,
        "title": "Ductile seal",
        "type": "object",
        "required": ["version", "hashes"],
        "properties": {
            "version": {"const": 2, "description": "The form of this file."},
            "generated_at": {"type": "string", "description": "When it was sealed."},
            "hashes": {
                "type": "object",
                "additionalProperties": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
                "description": "Absolute path to BLAKE3 hash.",
            },
            "plugin_fingerprints": {
                "type": "array",
                "items": {"type": "object"},
                "description": "Plugins as they were when it was sealed.",
            },
        },
    }


KINDS: dict[str, Callable[[], Schema]] = {
    "config": _config,
    **{kind: partial(_part, kind) for kind in _ROOTS},
    "scopes": _scopes,
    "checksums": _checksums,
}


def _paths() -> Schema:
    return {"type": "array", "items": {"type": "string"}}


def _writable(schema: Any) -> Any:
    """`schema` with empty keys and `${VAR}` allowed where they are."""
    if isinstance(schema, list):
        return [_writable(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    schema = {
        key: value if key in ("examples", "default") else _writable(value)
        for key, value in schema.items()
    }
    schema.pop("title", None)
    if (
        "enum" in schema
        or "const" in schema
        or schema.get("type") in ("integer", "boolean", "number")
        or "pattern" in schema
    ):
        kept = {
            key: schema.pop(key) for key in ("description", "default", "examples") if key in schema
        }
        return {"anyOf": [schema, _VARIABLE], **kept}
    return schema
