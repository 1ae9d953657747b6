"""Where two documents differ."""

from __future__ import annotations

import pytest

from ductile.core.values.differences import ABSENT, Difference, IgnoredPaths, find_differences
from ductile.errors import UsageError


def test_smallest_parts_that_differ_are_found_by_path() -> None:
    before = {"a": {"b": 1, "c": [1, {"d": 2}]}, "same": None, "flag": True}
    after = {"a": {"b": 1.0, "c": [1, {"d": 3}, 4]}, "same": None, "flag": 1, "new": None}
    assert list(find_differences(before, after)) == [
        Difference("a.c.1.d", 2, 3),
        Difference("a.c.2", ABSENT, 4),
        Difference("flag", True, 1),
        Difference("new", ABSENT, None),
    ]
    assert list(find_differences({"a": {}}, {"a": []})) == [Difference("a", {}, [])]


def test_ignored_path_covers_what_is_below_it_and_nothing_next_to_it() -> None:
    ignored = IgnoredPaths(["result.at", "events.*.payload.id"])
    assert ignored.matches("result.at")
    assert ignored.matches("result.at.seconds\n.x")
    assert ignored.matches("events.10.payload.id")
    assert not ignored.matches("result.attempt")
    assert not ignored.matches("events.1.2.payload.id")
    assert not ignored.matches("result")
    assert not IgnoredPaths().matches("")
    for wrong in ([""], ["x" * 201], [str(number) for number in range(51)]):
        with pytest.raises(UsageError):
            IgnoredPaths(wrong)
