"""A short way to write JSON Schemas: a line a field, `name: kind - what it is`.

job_id: text - Names the job.
result?: any                 the key may be absent
error: text?                 the value may be null
attempts: [Attempt]          a list of what `#/components/schemas/Attempt` describes
total: {int}                 an object of numbers by any key
state: ready|refused         one of these words
"""

from __future__ import annotations

import re
from typing import Any

Schema = dict[str, Any]

_LINE = re.compile(r"(?P<key>[\w.-]+)(?P<absent>\??): (?P<kind>\S+)(?: - (?P<text>.+))?")
_PLAIN: dict[str, Schema] = {
    "text": {"type": "string"},
    "int": {"type": "integer"},
    "number": {"type": "number"},
    "flag": {"type": "boolean"},
    "time": {"type": "string", "format": "date-time"},
    "object": {"type": "object"},
    "any": {},
}


def kind(text: str) -> Schema:
    """The schema of one value."""
    if text.endswith("?"):
        return {"anyOf": [kind(text[:-1]), {"type": "null"}]}
    if text.startswith("["):
        return {"type": "array", "items": kind(text[1:-1])}
    if text.startswith("{"):
        return {"type": "object", "additionalProperties": kind(text[1:-1])}
    if "|" in text:
        return {"type": "string", "enum": text.strip("|").split("|")}
    if text[0].isupper():
        return {"$ref": f"#/components/schemas/{text}"}
    return dict(_PLAIN[text])


def fields(lines: str) -> Schema:
    """The schema of an object with these fields; others may stand beside them."""
    properties: dict[str, Schema] = {}
    required = []
    for line in filter(None, map(str.strip, lines.strip().splitlines())):
        match = _LINE.fullmatch(line)
        if match is None:
            raise ValueError(f"no field of a schema: {line!r}")
        schema = kind(match["kind"])
        properties[match["key"]] = schema | (
            {"description": match["text"]} if match["text"] else {}
        )
        if not match["absent"]:
            required.append(match["key"])
    return {"type": "object", "properties": properties} | (
        {"required": required} if required else {}
    )
