"""Keys of limits: what they render to, and which are refused."""

from __future__ import annotations

import pytest

from ductile.core.flow.keys import LONGEST_KEY, FlowKey, compile_key
from ductile.core.values.json_values import Failure
from ductile.model import Json


def key(text: str) -> FlowKey:
    found = compile_key(text)
    assert isinstance(found, FlowKey), found
    return found


@pytest.mark.parametrize(
    ("text", "payload", "expected"),
    [
        ("{payload.account}", {"account": "a1"}, "a1"),
        ("{payload.account}", {"account": 7}, "7"),
        ("{payload.account}", {}, ""),
        ("{payload.account}", {"account": None}, ""),
        ("{payload.account}", "not an object", ""),
        ("eu-{payload.user.id}-{payload.tags.0}", {"user": {"id": 1}, "tags": ["x"]}, "eu-1-x"),
        ("everything", {}, "everything"),
        ("{payload}", {"a": 1}, '{"a":1}'),
        ("{payload.x}", {"x": "a\x1fb\0c"}, "abc"),
    ],
)
def test_key_is_rendered_from_the_payload(text: str, payload: Json, expected: str) -> None:
    assert key(text).render(payload) == expected


def test_long_keys_are_replaced_by_distinct_hashes() -> None:
    one, other = (key("{payload.x}").render({"x": "ü" * 500 + end}) for end in "ab")
    assert one != other
    assert len(one.encode()) <= LONGEST_KEY


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "must not be empty"),
        ("{payloads.account}", "{payloads.account} is not a reference"),
        ("{account}", "{account} is not a reference"),
        ("{context.account}", "context.account is not known"),
        ("{config.account}", "config.account is not known"),
        ("{payload.account", "a reference is not closed"),
    ],
)
def test_key_that_can_never_resolve_is_refused(text: str, reason: str) -> None:
    found = compile_key(text)
    assert isinstance(found, Failure), found
    assert reason in found.reason
