"""The body of a webhook as a payload: parsed, or kept as text."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest

from ductile.core.delivery.payload import FORM, find_field, parse_payload, read_json, to_json_text
from ductile.core.jobs.limits import DEEPEST

LARGE = '{"id": 18446744073709551616}'
DEEP = "[" * (DEEPEST + 1) + "]" * (DEEPEST + 1)


@pytest.mark.parametrize(
    ("text", "payload"),
    [
        ('{"a": [1, 2.5]}', {"a": [1, 2.5]}),
        ('{"id": 18446744073709551615}', {"id": 2**64 - 1}),
        (LARGE, {"body": LARGE}),
        (DEEP, {"body": DEEP}),
        (f"[{LARGE}, {'[' * 900}{']' * 900}]", {"body": f"[{LARGE}, {'[' * 900}{']' * 900}]"}),
    ],
    ids=["plain", "64 bits", "more", "deep", "deep and more"],
)
def test_json_is_parsed_or_kept_as_text(text: str, payload: Any) -> None:
    assert read_json(text.encode()) == payload
    assert parse_payload(text.encode(), "") == payload


def test_invalid_json_raises() -> None:
    with pytest.raises(orjson.JSONDecodeError):
        read_json(b"a=1")
    assert parse_payload(b"a=1", "text/plain") == {"body": "a=1"}
    assert parse_payload(b"a=1", f"{FORM}; charset=utf-8") == {"a": "1"}


@pytest.mark.parametrize("text", [' {"a": 1}\n', LARGE])
def test_json_text_is_unchanged(text: str) -> None:
    assert to_json_text(text.encode(), "") == text


@pytest.mark.parametrize(
    ("body", "kind", "payload"),
    [
        (b"a=1", FORM, {"a": "1"}),
        (b"a\xff", "", {"body": "a\ufffd", "body_base64": "Yf8="}),
        (b"a\0", "text/plain", {"body": "a\0", "body_base64": "YQA="}),
        (b"a=\xff", FORM, {"body": "a=\ufffd", "body_base64": "YT3/"}),
        (b"a=%ff", FORM, {"body": "a=%ff"}),
        (b"a=%00", FORM, {"body": "a=%00"}),
        (DEEP.encode(), "", {"body": DEEP}),
    ],
)
def test_other_bodies_become_json_text(body: bytes, kind: str, payload: Any) -> None:
    assert json.loads(to_json_text(body, kind)) == payload


@pytest.mark.parametrize(
    "text",
    ['{"id": "e-1"}', '{"id": "e-1", "n": 18446744073709551616}', '{"body": 5, "id": "e-1"}'],
)
def test_field_is_found_in_json_kept_as_text(text: str) -> None:
    assert find_field(read_json(text.encode()), "id") == "e-1"


@pytest.mark.parametrize(
    "payload", [None, [], "id", {"body": 5}, {"body": "no json"}, {"body": "5"}]
)
def test_missing_field_is_none(payload: Any) -> None:
    assert find_field(payload, "id") is None
