"""Scopes: denied by default, `rw` implies `ro`, scopes of a plugin apply to it alone."""

from __future__ import annotations

import pytest

from ductile.core.values.scopes import allows, allows_command, is_scope, normalize

NOUNS = ("plugin", "jobs", "events", "system", "agents")


@pytest.mark.parametrize("noun", NOUNS)
def test_rw_implies_ro_and_nothing_else(noun: str) -> None:
    granted = normalize([f"{noun}:rw"])
    assert allows(granted, f"{noun}:ro")
    assert allows(granted, f"{noun}:rw")
    for other in set(NOUNS) - {noun}:
        assert not allows(granted, f"{other}:ro")
    assert not allows(normalize([f"{noun}:ro"]), f"{noun}:rw")


def test_star_allows_everything() -> None:
    assert all(allows(normalize(["*"]), f"{noun}:rw") for noun in NOUNS)
    assert allows(normalize(["*"]), "*")
    assert not allows(normalize([f"{noun}:rw" for noun in NOUNS]), "*")


def test_token_without_scopes_is_allowed_any() -> None:
    assert allows(frozenset(), "any")
    assert not allows(frozenset(), "jobs:ro")


def test_aliases_are_resolved() -> None:
    assert normalize(["read:jobs", "read:events"]) == {"jobs:ro", "events:ro"}


def test_scopes_of_a_plugin_are_enforced() -> None:
    granted = normalize(["withings:ro", "github:rw"])
    assert allows_command(granted, "withings", reads=True)
    assert not allows_command(granted, "withings", reads=False)
    assert allows_command(granted, "github", reads=True)
    assert allows_command(granted, "github", reads=False)
    assert not allows_command(granted, "other", reads=True)
    assert not allows(granted, "plugin:ro")


def test_plugin_scopes_apply_to_all_plugins() -> None:
    assert allows_command(normalize(["plugin:ro"]), "x", reads=True)
    assert not allows_command(normalize(["plugin:ro"]), "x", reads=False)
    assert allows_command(normalize(["plugin:rw"]), "x", reads=False)


@pytest.mark.parametrize("noun", ["jobs", "events", "system", "agents"])
def test_plugin_with_the_name_of_a_noun_has_no_scopes_of_its_own(noun: str) -> None:
    assert not allows_command(normalize([f"{noun}:rw"]), noun, reads=True)


@pytest.mark.parametrize(
    ("text", "good"),
    [
        ("*", True),
        ("jobs:ro", True),
        ("my-plugin:rw", True),
        ("read:jobs", True),
        ("jobs", False),
        ("jobs:rx", False),
        (":ro", False),
        ("a b:ro", False),
        ("a:b:ro", False),
        ("", False),
    ],
)
def test_valid_scopes(text: str, good: bool) -> None:
    assert is_scope(text) is good
