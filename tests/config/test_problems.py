"""Problems of invalid keys and values: location, found value, allowed values, suggestion."""

from __future__ import annotations

import pytest

from tests.config.conftest import ConfigDir, location, only


def test_unknown_key_suggests_the_nearest(config_dir: ConfigDir) -> None:
    problem = only(config_dir.load_errors("service:\n  max_worker: 4\n"))
    assert location(problem) == ("config.yaml", 2, 3)
    assert problem.path == ("service", "max_worker")
    assert problem.nearest == "max_workers"
    assert "max_workers" in (problem.allowed or "")


@pytest.mark.parametrize(
    ("text", "nearest"),
    [
        ("servce: {}", "service"),
        ("includes: []", "include"),
        ("plugin_dir: x", "plugins_dir"),
        ("plugins: {p: {schedul: {}}}", "schedule"),
        ("plugins: {p: {schedules: [{every: 1m, prefered_window: {}}]}}", "preferred_window"),
        ("plugins: {p: {retry: {attempts: 3}}}", "max_attempts"),
        ("pipelines: [{name: a, on: e, steps: [{uses: p, on_event: {}}]}]", "on_events"),
        ("pipelines: [{name: a, onhook: job.failed, steps: [{uses: p}], on: x}]", "on-hook"),
        ("pipelines: [{name: a, on: x, steps: [{steps: [{uses: p, wiht: {}}]}]}]", "with"),
        ("remote_ingress: {peers: [{name: a, secret: b, bagage: {}}]}", "baggage"),
    ],
)
def test_nearest_key_is_suggested_at_every_depth(
    config_dir: ConfigDir, text: str, nearest: str
) -> None:
    assert only(config_dir.load_errors(text)).nearest == nearest


def test_config_of_a_plugin_accepts_any_key(config_dir: ConfigDir) -> None:
    config_dir.load("plugins: {p: {config: {anything: {goes: [here]}}}}")


def test_unknown_word_suggests_the_nearest(config_dir: ConfigDir) -> None:
    problem = only(config_dir.load_errors("service: {log_level: wran}"))
    assert (problem.found, problem.nearest) == ("'wran'", "warn")
    assert problem.allowed == "debug, info, warn, error"


def test_missing_key_is_located_at_its_mapping(config_dir: ConfigDir) -> None:
    problem = only(config_dir.load_errors("routes:\n  - from: a\n    to: b\n"))
    assert problem.message == "missing key 'event_type'"
    assert location(problem) == ("config.yaml", 2, 5)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("service: 5", "must be a mapping"),
        ("service: [a]", "must be a mapping"),
        ("plugins: [a]", "must be a mapping"),
        ("plugins: {p: x}", "must be a mapping"),
        ("plugins: {p: {config: x}}", "must be a mapping"),
        ("routes: {}", "must be a list"),
        ("routes: [x]", "must be a mapping"),
        ("service: {name: [a]}", "must be text"),
        ("service: {name: {a: b}}", "must be text"),
        ('service: {name: ""}', "must not be empty"),
        ("service: {max_workers: many}", "must be a whole number"),
        ('service: {max_workers: "4"}', "must be a whole number"),
        ("service: {max_workers: 1.5}", "must be a whole number"),
        ("service: {max_workers: true}", "must be a whole number"),
        ("service: {max_workers: 0}", "is too small"),
        ("service: {strict_mode: on}", "must be true or false"),
        ("service: {strict_mode: 1}", "must be true or false"),
        ('service: {strict_mode: "true"}', "must be true or false"),
        ("service: {tick_interval: 60}", "must be a duration"),
        ("service: {tick_interval: 0s}", "is too small"),
        ("service: {tick_interval: [1s]}", "must be a duration"),
        ("remote_ingress: {max_body_size: big}", "must be a size"),
        ("remote_ingress: {listen_path: ingest}", "must be the path of a URL"),
        ("plugin_roots: ['']", "must be a path"),
        ("plugins: {p: {config: {n: .inf}}}", "JSON cannot represent"),
        ("plugins: {p: {config: {n: 99999999999999999999}}}", "JSON cannot represent"),
        ("plugins: {p: {config: {n: !!int x}}}", "does not match its tag"),
    ],
)
def test_invalid_value_is_reported(config_dir: ConfigDir, text: str, message: str) -> None:
    assert message in only(config_dir.load_errors(text)).message


def test_number_that_json_cannot_represent_has_its_location(config_dir: ConfigDir) -> None:
    problem = only(
        config_dir.load_errors("plugins:\n  p:\n    config:\n      a: 1\n      b: .nan\n")
    )
    assert location(problem) == ("config.yaml", 5, 10)


def test_long_digits_are_valid_text(config_dir: ConfigDir) -> None:
    digits = "9" * 40
    assert config_dir.load(f"tokens: [{{name: t, key: {digits}}}]").settings.tokens[0].key == digits


def test_all_problems_are_reported_in_order(config_dir: ConfigDir) -> None:
    text = """
service: {log_level: loud, nam: x}
plugins:
  p:
    schedules: [{every: soon}]
    retry: {max_attempts: 0}
routes: [{from: a}]
api: {enabled: maybe, listen: here}
x: ${GONE}
"""
    problems = config_dir.load_errors(text)
    assert [problem.line for problem in problems] == [2, 2, 5, 6, 7, 7, 8, 8, 9, 9]


def test_conflict_of_keys_does_not_hide_errors_of_fields(config_dir: ConfigDir) -> None:
    problems = config_dir.load_errors(
        "pipelines: [{name: a, on: e, steps: [{uses: a, call: b, oops: 1}]}]"
    )
    assert [problem.path[-1] for problem in problems] == [0, "oops"]


def test_secret_is_not_quoted(config_dir: ConfigDir) -> None:
    problem = only(config_dir.load_errors("tokens: [{name: a, key: [x, hunter2hunter2]}]"))
    assert "hunter2" not in str(problem)


def test_value_of_a_secret_variable_is_not_quoted(config_dir: ConfigDir) -> None:
    problem = only(
        config_dir.load_errors("service: {log_level: ${MY_TOKEN}}", MY_TOKEN="hunter2hunter2")
    )
    assert problem.found == "[REDACTED]"


def test_long_value_is_shortened(config_dir: ConfigDir) -> None:
    problem = only(config_dir.load_errors(f"service: {{log_level: {'x' * 500}}}"))
    assert len(problem.found or "") < 70


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("plugins: {p: {max_attempts: 3}}", "retry.max_attempts"),
        ("plugins: {p: {threshold: 3}}", "circuit_breaker.threshold"),
        ("max_workers: 3", "service.max_workers"),
    ],
)
def test_key_of_a_subsection_is_suggested(config_dir: ConfigDir, text: str, key: str) -> None:
    assert only(config_dir.load_errors(text)).nearest == key


def test_key_of_several_subsections_is_not_suggested(config_dir: ConfigDir) -> None:
    assert only(config_dir.load_errors("listen: 127.0.0.1:1")).nearest is None


def test_config_dir_is_not_a_key(config_dir: ConfigDir) -> None:
    assert "unknown key" in only(config_dir.load_errors("config_dir: /x")).message


@pytest.mark.parametrize(
    "text",
    [
        "plugins: {p: {schedules: [{every: 5m, window: 08:00-22:00}]}}",
        "pipelines: [{name: a, on: e, steps: [{uses: p, with_: {}}]}]",
        "routes: [{from: a, from_: a, event_type: e, to: b}]",
    ],
)
def test_attribute_names_are_not_keys(config_dir: ConfigDir, text: str) -> None:
    assert "unknown key" in only(config_dir.load_errors(text)).message
