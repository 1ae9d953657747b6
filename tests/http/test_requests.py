"""What a request asks: read as it is meant, or refused by its name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ductile.errors import UsageError
from ductile.http import requests as ask

Reader = Callable[[dict[str, Any]], object]


@pytest.mark.parametrize(
    ("read", "given", "found"),
    [
        (lambda q: ask.whole(q, "n"), {}, None),
        (lambda q: ask.whole(q, "n"), {"n": "007"}, 7),
        (lambda q: ask.whole(q, "n"), {"n": str(ask.LARGEST_NUMBER)}, ask.LARGEST_NUMBER),
        (ask.limit_of, {}, ask.PAGE),
        (lambda q: ask.limit_of(q, 7), {}, 7),
        (lambda q: ask.limit_of(q, 7), {"limit": "1000"}, 1000),
        (ask.before, {}, None),
        (ask.before, {"before": "0"}, None),
        (ask.before, {"before": "8"}, 8),
        (lambda q: ask.seconds(q, "wait", 60), {}, 0.0),
        (lambda q: ask.seconds(q, "wait", 60), {"wait": "0.5"}, 0.5),
        (lambda q: ask.seconds(q, "wait", 60), {"wait": "999999999"}, 60),
        (lambda q: ask.flag(q, "live"), {}, False),
        (lambda q: ask.flag(q, "live"), {"live": "true"}, True),
        (lambda q: ask.word(q, "w", ("a", "b")), {}, None),
        (lambda q: ask.word(q, "w", ("a", "b")), {"w": "b"}, "b"),
        (lambda q: ask.moment(q, "at"), {}, None),
        (lambda q: ask.moment(q, "at"), {"at": "2026-02-08"}, "2026-02-08T00:00:00.000000Z"),
        (lambda b: ask.text_of(b, "t"), {"t": "x"}, "x"),
        (lambda b: ask.flag_of(b, "f"), {"f": None}, False),
        (lambda b: ask.flag_of(b, "f"), {"f": True}, True),
        (lambda b: ask.number_of(b, "n", 5, most=9), {}, 5),
        (lambda b: ask.number_of(b, "n", 5, most=9), {"n": 9}, 9),
        (lambda b: ask.duration_of(b, "ttl"), {"ttl": "1h"}, 3600.0),
        (lambda b: ask.duration_of(b, "ttl"), {"ttl": 1.5}, 1.5),
        (ask.payload_in, {}, {}),
        (ask.payload_in, {"payload": None}, {}),
        (ask.payload_in, {"payload": 0}, 0),
    ],
)
def test_what_is_read(read: Reader, given: dict[str, Any], found: object) -> None:
    assert read(given) == found


@pytest.mark.parametrize(
    ("read", "values"),
    [
        (lambda q: ask.whole(q, "x"), ["", "-1", "1.0", "\u0661", "x", str(2**62 + 1), "9" * 30]),
        (lambda q: ask.whole(q, "x", least=1, most=2), ["0", "3"]),
        (lambda q: ask.seconds(q, "x", 60), ["", "-1", "1e3", "nan", "9" * 12]),
        (lambda q: ask.flag(q, "x"), ["", "1", "True", "yes"]),
        (lambda q: ask.word(q, "x", ("a", "b")), ["", "c", ["a"], 1]),
        (lambda q: ask.moment(q, "x"), ["", "soon", "9999-12-31T23:59:59-14:00", 20260208, ["x"]]),
        (lambda b: ask.text_of(b, "x"), ["", 1, ["x"]]),
        (lambda b: ask.flag_of(b, "x"), ["true", 1, 0]),
        (lambda b: ask.number_of(b, "x", 5, most=9), [0, 10, "5", 5.0, True, None]),
        (lambda b: ask.duration_of(b, "x"), ["x", -1, True, 1e308, "9999w"]),
    ],
)
def test_what_is_malformed_is_refused_by_its_name(read: Reader, values: list[Any]) -> None:
    for value in values:
        with pytest.raises(UsageError, match=r"^x\b"):
            read({"x": value})


@pytest.mark.parametrize(
    ("text", "id"),
    [("0", 0), ("12", 12), ("9" * 18, 10**18 - 1), ("9" * 19, None), ("", None), ("-1", None)],
)
def test_the_id_of_a_row(text: str, id: int | None) -> None:
    assert ask.row_id(text) == id
