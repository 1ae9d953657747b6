"""What somebody probably meant."""

from __future__ import annotations

import pytest

from ductile.core.values.suggest import did_you_mean, nearest


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("servcie", "service"),
        ("SERVICE", "service"),
        ("myplugin", "MyPlugin"),
        ("MyPlugn", "MyPlugin"),
        ("zzz", None),
        ("", None),
    ],
)
def test_the_closest_is_meant_whatever_its_case(word: str, meant: str | None) -> None:
    assert nearest(word, ["service", "state", "MyPlugin"]) == meant


def test_where_nothing_is_known_nothing_is_meant() -> None:
    assert nearest("service", []) is None


def test_it_ends_a_message() -> None:
    assert did_you_mean("ehco", {"echo": 1}) == "; did you mean 'echo'?"
    assert did_you_mean("zzz", {"echo": 1}) == ""
