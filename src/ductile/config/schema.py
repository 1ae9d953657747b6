"""JSON Schema for every kind of file, for editors and for the reference.

It describes the notation of the files: alternative forms, durations as text, and `${VAR}` where
a number or a word is expected.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ductile.config.loader import normalize
from ductile.config.models.settings import Settings

Schema = dict[str, Any]

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_VARIABLE = {
    "type": "string",
    "pattern": r"\$\{[A-Za-z_][A-Za-z0-9_]*(:-.*)?\}",
    "description": "An environment variable: ${NAME} or ${NAME:-default}.",
}
_SECTIONS = (
    "plugins",
    "pipelines",
    "routes",
    "webhooks",
    "tokens",
    "instances",
    "remote_ingress",
)
_FIXED = frozenset({"enum", "const", "pattern"})
_TYPED = ("integer", "number", "boolean")
_NOT_SCHEMAS = ("description", "default", "examples")
_SCOPES: Schema = {
    "type": "array",
    "items": {"type": "string"},
    "description": "Scopes of the token.",
}


def json_schema(kind: str) -> Schema:
    """The schema of a kind of file, one of `KINDS`."""
    return KINDS[kind]()


def _config_schema() -> Schema:
    schema: Schema = _allow_variables(Settings.model_json_schema(by_alias=True))
    schema["$defs"]["Variable"] = _VARIABLE
    schema["$schema"] = DIALECT
    schema["title"] = "Ductile configuration"
    schema.pop("required", None)
    properties = schema["properties"]
    root = {
        normalize.INCLUDE: _paths(),
        normalize.ENVIRONMENT: {
            "type": "object",
            "additionalProperties": False,
            "properties": {normalize.INCLUDE: {**_paths(), "description": "Paths of .env files."}},
        },
        "plugins_dir": {"type": "string"},
        "database": {"$ref": "#/$defs/StateSettings"},
        "log_level": schema["$defs"]["ServiceSettings"]["properties"]["log_level"],
        "tcc_paths": _paths(),
    }
    for key, description in normalize.ROOT_ALSO.items():
        properties[key] = {**root[key], "description": description}
    plugin, schedule = (schema["$defs"][f"{name}Settings"] for name in ("Plugin", "Schedule"))
    plugin["properties"]["schedule"] = {
        "$ref": "#/$defs/ScheduleSettings",
        "description": normalize.PLUGIN_ALSO["schedule"],
    }
    clock = {"type": "string", "pattern": r"^\d\d?:\d\d$"}
    window = {
        "type": "object",
        "properties": {
            "start": {**clock, "description": "Start of the window."},
            "end": {**clock, "description": "End of the window."},
        },
        "required": ["start", "end"],
        "additionalProperties": False,
        "description": normalize.SCHEDULE_ALSO["preferred_window"],
    }
    schedule["properties"]["preferred_window"] = window
    webhooks = properties["webhooks"]
    endpoints = {"type": "array", "items": {"$ref": "#/$defs/EndpointSettings"}}
    properties["webhooks"] = {
        "anyOf": [{"$ref": webhooks["$ref"]}, endpoints],
        "description": webhooks["description"],
    }
    return schema


def _section_schema(kind: str) -> Schema:
    """The schema of a file for one section; the other sections are allowed in it."""
    schema = _config_schema()
    schema["title"] = f"Ductile {kind}"
    schema["required"] = [kind]
    return schema


def _scopes_schema() -> Schema:
    return {
        "$schema": DIALECT,
        "title": "Ductile scopes",
        "anyOf": [
            {"type": "object", "properties": {"scopes": _SCOPES}, "required": ["scopes"]},
            _SCOPES,
        ],
    }


def _checksums_schema() -> Schema:
    return {
        "$schema": DIALECT,
        "title": "Ductile seal",
        "type": "object",
        "required": ["version", "hashes"],
        "properties": {
            "version": {"const": 2, "description": "Version of the format."},
            "generated_at": {"type": "string", "description": "Time of sealing."},
            "hashes": {
                "type": "object",
                "additionalProperties": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
                "description": "BLAKE3 hashes by absolute path.",
            },
            "plugin_fingerprints": {
                "type": "array",
                "items": {"type": "object"},
                "description": "Fingerprints of the sealed plugins.",
            },
        },
    }


KINDS: dict[str, Callable[[], Schema]] = {
    "config": _config_schema,
    **{kind: partial(_section_schema, kind) for kind in _SECTIONS},
    "scopes": _scopes_schema,
    "checksums": _checksums_schema,
}


def _paths() -> Schema:
    return {"type": "array", "items": {"type": "string"}}


def _allow_variables(schema: Any) -> Any:
    """`schema` with `${VAR}` allowed instead of a number, a word or text of a fixed form."""
    if isinstance(schema, list):
        return [_allow_variables(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    written = {
        key: value if key in _NOT_SCHEMAS else _allow_variables(value)
        for key, value in schema.items()
        if not (key == "title" and isinstance(value, str))
    }
    if not (_FIXED & written.keys() or written.get("type") in _TYPED):
        return written
    notes = {key: written.pop(key) for key in _NOT_SCHEMAS if key in written}
    return {"anyOf": [written, {"$ref": "#/$defs/Variable"}], **notes}
