"""How long a text may be that rows are found by, in bytes, and how deep JSON may nest."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from ductile.core.jobs.limits import (
    DEEPEST,
    DEEPEST_KEPT,
    LONGEST_DEDUPE_KEY,
    dedupe_key_flaw,
    document,
    fits,
    size,
    too_deep,
)
from ductile.core.jobs.plugin_protocol import encode_request, event_of
from ductile.core.values.redact import Redactor, hide_secret_keys


@pytest.mark.parametrize("sign", ["k", "é", "€", "😀"])
def test_a_dedupe_key_is_measured_in_bytes(sign: str) -> None:
    most = LONGEST_DEDUPE_KEY // len(sign.encode())
    assert dedupe_key_flaw(sign * most) is None
    flaw = dedupe_key_flaw(sign * (most + 1))
    assert flaw == f"is {size(sign * (most + 1))} bytes long; the maximum is 1024"


def test_no_key_has_no_flaw() -> None:
    assert dedupe_key_flaw(None) is None


def test_half_a_character_can_be_measured_too() -> None:
    assert fits("\ud800" * 3, 9)
    assert not fits("\ud800" * 3, 8)


def lists(levels: int, inside: str = "") -> str:
    return "[" * levels + inside + "]" * levels


def objects(levels: int) -> str:
    return '{"a":' * (levels - 1) + "{}" + "}" * (levels - 1)


@pytest.mark.parametrize("inside", ["", "1", '"x"', "null"])
@pytest.mark.parametrize(("levels", "is_so"), [(DEEPEST, False), (DEEPEST + 1, True)])
def test_every_object_and_list_is_a_level(levels: int, is_so: bool, inside: str) -> None:
    for text in (lists(levels, inside), objects(levels)):
        value = orjson.loads(text)
        assert too_deep(value) is is_so
        assert too_deep(value, text.encode()) is is_so
        assert too_deep({"wide": [1, 2], "deep": [value]}) is (levels + 2 > DEEPEST)


@pytest.mark.parametrize("value", [None, 1, "[[[", [], {}, [[], {}, "{"] * 500])
def test_wide_value_is_not_too_deep(value: Any) -> None:
    assert not too_deep(value)
    assert not too_deep(value, orjson.dumps(value))


def test_a_bound_may_be_another() -> None:
    value = orjson.loads(lists(3))
    assert not too_deep(value, most=3)
    assert too_deep(value, most=2)


@pytest.mark.parametrize("text", [lists(DEEPEST), objects(DEEPEST)])
def test_accepted_payload_can_be_sent_to_a_plugin(text: str) -> None:
    fields = {"type": "a", "source": "s", "timestamp": "t", "event_id": "e"}
    value = orjson.loads(text)
    event = event_of({"payload": value}, **fields)
    given: dict[str, Any] = {"protocol": 2, "job_id": "j", "command": "handle", "deadline_at": "t"}
    assert encode_request(**given, config=value, state=value, context={"b": value}, event=event)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": 1}', {"a": 1}),
        ("[1]", [1]),
        (b"[1]", [1]),
        ("not json", "not json"),
        (b"\xff", b"\xff"),
        ("\ud800", "\ud800"),
        ("", ""),
        (lists(DEEPEST_KEPT), orjson.loads(lists(DEEPEST_KEPT))),
        *((lists(levels), lists(levels)) for levels in (DEEPEST_KEPT + 1, 254, 255, 1024, 1025)),
    ],
)
def test_any_stored_text_can_be_shown(text: str | bytes, value: Any) -> None:
    assert document(text) == value


@pytest.mark.parametrize("text", [lists(DEEPEST_KEPT), objects(DEEPEST_KEPT)])
def test_deepest_stored_value_can_be_redacted_and_returned(text: str) -> None:
    shown = Redactor(["a secret of ours"]).document(hide_secret_keys(document(text)))
    assert orjson.dumps({"jobs": [{"attempts": [{"result": shown}]}]})
