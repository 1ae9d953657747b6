"""What a webhook has brought, as the payload of an event.

Whoever sent it cannot mend it, and has signed it: what cannot be kept as it is goes on as the text
that it came as.
"""

from __future__ import annotations

from contextlib import suppress
from urllib.parse import parse_qs

import orjson

from ductile.core.jobs.limits import too_deep
from ductile.core.values.json_integers import has_integer_altered_by_parsing
from ductile.model import Json

FORM = "application/x-www-form-urlencoded"


def payload_of(body: bytes, content_type: str) -> Json:
    """JSON, a form's fields, else its text."""
    with suppress(orjson.JSONDecodeError):
        return read_json(body)
    if content_type.partition(";")[0].strip().lower() != FORM:
        return _text(body)
    try:
        fields = parse_qs(body.decode(), keep_blank_values=True, max_num_fields=1000)
    except ValueError:
        return _text(body)
    form = {name: values[0] if len(values) == 1 else values for name, values in fields.items()}
    if list(form) == ["payload"] and isinstance(form["payload"], str):
        # How GitHub and Slack put JSON into a form.
        return payload_of(form["payload"].encode(), "")
    return form


def read_json(body: bytes) -> Json:
    """The value, or the text of one that would not stay what it is; raises where it is no JSON."""
    value: Json = orjson.loads(body)
    return _text(body) if too_deep(value, body) or has_integer_altered_by_parsing(body) else value


def _text(body: bytes) -> Json:
    return {"body": body.decode("utf-8", "replace")}


def field_of(payload: Json, name: str) -> Json:
    """What an object has under this name, also one that had to stay a text; None without it."""
    if isinstance(payload, dict) and list(payload) == ["body"]:
        with suppress(orjson.JSONDecodeError):
            payload = orjson.loads(payload["body"])
    return payload.get(name) if isinstance(payload, dict) else None


def json_text(body: bytes, content_type: str) -> str:
    """As JSON text, to be sent on: byte for byte where it is JSON, else as `payload_of` has it."""
    with suppress(orjson.JSONDecodeError):
        if not too_deep(orjson.loads(body), body):
            return body.decode()
    return orjson.dumps(payload_of(body, content_type)).decode()
