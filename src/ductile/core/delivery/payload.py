"""The body of a webhook request as the payload of an event.

The sender has signed the body and cannot change it, so a value that cannot be stored unchanged is
passed on as text, and a text that cannot be stored unchanged also as bytes.
"""

from __future__ import annotations

from base64 import b64encode
from contextlib import suppress
from urllib.parse import parse_qs

import orjson

from ductile.core.jobs.limits import too_deep
from ductile.core.values.json_integers import has_integer_altered_by_parsing
from ductile.model import Json

FORM = "application/x-www-form-urlencoded"


def parse_payload(body: bytes, content_type: str) -> Json:
    """The JSON value, the fields of a form, or else `body`, the text.

    Of a body that is not UTF-8, or that contains U+0000, `body_base64` has the exact bytes.
    """
    with suppress(orjson.JSONDecodeError):
        return read_json(body)
    if content_type.partition(";")[0].strip().lower() != FORM:
        return _keep_text(body)
    try:
        text = body.decode()
        fields = parse_qs(text, keep_blank_values=True, max_num_fields=1000, errors="strict")
    except ValueError:
        return _keep_text(body)
    if any("\0" in value for name, values in fields.items() for value in (name, *values)):
        return _keep_text(body)
    form = {name: values[0] if len(values) == 1 else values for name, values in fields.items()}
    if list(form) == ["payload"] and isinstance(form["payload"], str):
        # GitHub and Slack put JSON into a form this way.
        return parse_payload(form["payload"].encode(), "")
    return form


def read_json(body: bytes) -> Json:
    """The value, or its text if reading would change it; raises `JSONDecodeError`."""
    value: Json = orjson.loads(body)
    return (
        _keep_text(body) if too_deep(value, body) or has_integer_altered_by_parsing(body) else value
    )


def _keep_text(body: bytes) -> Json:
    text = body.decode("utf-8", "replace")
    # U+0000 cannot be stored in text.
    is_exact = b"\0" not in body and text.encode() == body
    return {"body": text} if is_exact else {"body": text, "body_base64": b64encode(body).decode()}


def find_field(payload: Json, name: str) -> Json:
    """The field of an object, or of one that `read_json` kept as text; None if there is none."""
    if isinstance(payload, dict) and list(payload) == ["body"]:
        with suppress(orjson.JSONDecodeError):
            payload = orjson.loads(payload["body"])
    return payload.get(name) if isinstance(payload, dict) else None


def to_json_text(body: bytes, content_type: str) -> str:
    """JSON text to send on: the same bytes if the body is JSON, else its `parse_payload`."""
    with suppress(orjson.JSONDecodeError):
        if not too_deep(orjson.loads(body), body):
            return body.decode()
    return orjson.dumps(parse_payload(body, content_type)).decode()
