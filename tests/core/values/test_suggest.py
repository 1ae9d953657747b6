"""Suggestions for unknown words."""

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
def test_nearest_word_ignores_case(word: str, meant: str | None) -> None:
    assert nearest(word, ["service", "state", "MyPlugin"]) == meant


@pytest.mark.parametrize(
    ("word", "meant"),
    [("schedulez", "schedules"), ("schedul", "schedule"), ("shcedule", "schedule")],
)
def test_fewest_edits_win_and_then_the_same_length(word: str, meant: str) -> None:
    assert nearest(word, ["schedule", "schedules", "scheduler"]) == meant
    assert nearest(word, ["scheduler", "schedules", "schedule"]) == meant


def test_no_known_words_give_no_suggestion() -> None:
    assert nearest("service", []) is None


def test_did_you_mean() -> None:
    assert did_you_mean("ehco", {"echo": 1}) == "; did you mean 'echo'?"
    assert did_you_mean("zzz", {"echo": 1}) == ""
