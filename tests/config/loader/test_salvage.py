"""An invalid section does not hide problems in other sections."""

from __future__ import annotations

import pytest

from ductile.config import InvalidConfig, find_state
from tests.config.conftest import ConfigDir, only

REPEATED = (
    "pipelines: [{name: a, on: x, steps: [{uses: p}]}, {name: a, on: y, steps: [{uses: p}]}]\n"
)
WEBHOOK = "webhooks: {endpoints: [{path: /a, plugin: p, secret_ref: shared}]}\n"


def load_invalid(config_dir: ConfigDir, text: str) -> InvalidConfig:
    with pytest.raises(InvalidConfig) as caught:
        config_dir.load(text)
    return caught.value


def messages(config_dir: ConfigDir, text: str) -> list[str]:
    return [problem.message for problem in load_invalid(config_dir, text).problems]


def test_schema_errors_and_repeated_names_are_reported_together(config_dir: ConfigDir) -> None:
    first, second = messages(config_dir, "api: {max_sync: 1}\n" + REPEATED)
    assert first == "unknown key 'max_sync'"
    assert second.startswith("'a' is already used")


def test_unset_variable_does_not_hide_other_problems(config_dir: ConfigDir) -> None:
    first, second = messages(config_dir, "api: {listen: '${NOWHERE}'}\n" + REPEATED)
    assert "NOWHERE" in first
    assert second.startswith("'a' is already used")


def test_sections_that_depend_on_an_invalid_one_are_not_reported(config_dir: ConfigDir) -> None:
    tokens = "tokens: [{name: shared, key: a-key-of-ours, scope: x}]\n"
    assert messages(config_dir, tokens + WEBHOOK) == ["unknown key 'scope'"]
    assert "there is no token" in only(config_dir.load_errors(WEBHOOK)).message


def test_sections_that_depend_on_a_misspelt_one_are_not_reported(config_dir: ConfigDir) -> None:
    tokens = "token: [{name: shared, key: a-key-of-ours}]\n"
    assert messages(config_dir, tokens + WEBHOOK) == ["unknown key 'token'"]


def test_invalid_plugin_is_kept_with_its_defaults(config_dir: ConfigDir) -> None:
    text = (
        "plugins: {p: {retri: 1, parallelism: 2}, q: {parallelism: 3}}\nservice: {max_workers: x}\n"
    )
    rest = load_invalid(config_dir, text).rest
    assert rest is not None
    assert [entry.parallelism for entry in rest.settings.plugins.values()] == [None, 3]


@pytest.mark.parametrize("text", ["include: [gone.yaml]\n", "includ: [x]\n", "]\n"])
def test_every_section_is_unknown_if_a_file_cannot_be_read(
    config_dir: ConfigDir, text: str
) -> None:
    invalid = load_invalid(config_dir, text + WEBHOOK)
    assert len(invalid.problems) == 1
    assert invalid.salvage.is_unknown("state")
    assert find_state(config_dir.path, environ={}) is None


def test_variables_of_a_lost_environment_file_are_not_reported(config_dir: ConfigDir) -> None:
    text = "environment_vars: {include: [gone.env]}\n"
    problem = only(config_dir.load_errors(text + "service: {name: '${LOST}', log_level: '${L}'}\n"))
    assert "gone.env" in problem.message
