"""A flaw in one part does not hide those of the others."""

from __future__ import annotations

import pytest

from ductile.config import Flawed
from tests.config.conftest import Home, only

TWICE = "pipelines: [{name: a, on: x, steps: [{uses: p}]}, {name: a, on: y, steps: [{uses: p}]}]\n"
DOOR = "webhooks: {endpoints: [{path: /a, plugin: p, secret_ref: shared}]}\n"


def flawed(home: Home, text: str) -> Flawed:
    with pytest.raises(Flawed) as caught:
        home.load(text)
    return caught.value


def messages(home: Home, text: str) -> list[str]:
    return [problem.message for problem in flawed(home, text).problems]


def test_what_the_schema_refuses_is_told_with_names_taken_twice(home: Home) -> None:
    first, second = messages(home, "api: {max_sync: 1}\n" + TWICE)
    assert first == "unknown key 'max_sync'"
    assert second.startswith("'a' is already taken")


def test_a_variable_that_is_not_set_hides_nothing_else(home: Home) -> None:
    first, second = messages(home, "api: {listen: '${NOWHERE}'}\n" + TWICE)
    assert "NOWHERE" in first
    assert second.startswith("'a' is already taken")


def test_what_relies_on_a_flawed_part_is_not_blamed(home: Home) -> None:
    tokens = "tokens: [{name: shared, key: a-key-of-ours, scope: x}]\n"
    assert messages(home, tokens + DOOR) == ["unknown key 'scope'"]
    assert "no entry of tokens" in only(home.refused(DOOR)).message


def test_nor_what_relies_on_a_misspelt_one(home: Home) -> None:
    tokens = "token: [{name: shared, key: a-key-of-ours}]\n"
    assert messages(home, tokens + DOOR) == ["unknown key 'token'"]


def test_the_rest_has_the_flawed_plugin_by_its_name(home: Home) -> None:
    text = (
        "plugins: {p: {retri: 1, parallelism: 2}, q: {parallelism: 3}}\nservice: {max_workers: x}\n"
    )
    rest = flawed(home, text).rest
    assert rest is not None
    assert [entry.parallelism for entry in rest.settings.plugins.values()] == [None, 3]


@pytest.mark.parametrize("text", ["include: [gone.yaml]\n", "includ: [x]\n", "]\n"])
def test_where_a_file_cannot_be_read_nothing_more_is_said(home: Home, text: str) -> None:
    assert flawed(home, text + DOOR).rest is None
