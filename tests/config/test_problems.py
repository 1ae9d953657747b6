"""What a wrong key or value is told: where, what, what else, and what was meant."""

from __future__ import annotations

import pytest

from tests.config.conftest import Home, only, place


def test_an_unknown_key_names_the_nearest(home: Home) -> None:
    problem = only(home.refused("service:\n  max_worker: 4\n"))
    assert place(problem) == ("config.yaml", 2, 3)
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
def test_the_nearest_key_at_every_depth(home: Home, text: str, nearest: str) -> None:
    assert only(home.refused(text)).nearest == nearest


def test_a_plugins_own_config_takes_any_key(home: Home) -> None:
    home.load("plugins: {p: {config: {anything: {goes: [here]}}}}")


def test_a_wrong_word_names_the_nearest(home: Home) -> None:
    problem = only(home.refused("service: {log_level: wran}"))
    assert (problem.found, problem.nearest) == ("'wran'", "warn")
    assert problem.allowed == "debug, info, warn, error"


def test_a_missing_key_is_told_at_its_mapping(home: Home) -> None:
    problem = only(home.refused("routes:\n  - from: a\n    to: b\n"))
    assert problem.message == "missing key 'event_type'"
    assert place(problem) == ("config.yaml", 2, 5)


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
        ("plugins: {p: {config: {n: .inf}}}", "JSON cannot carry"),
        ("plugins: {p: {config: {n: 99999999999999999999}}}", "JSON cannot carry"),
        ("plugins: {p: {config: {n: !!int x}}}", "not a value of the tag"),
    ],
)
def test_a_wrong_value(home: Home, text: str, message: str) -> None:
    assert message in only(home.refused(text)).message


def test_a_number_that_json_cannot_carry_has_its_own_place(home: Home) -> None:
    problem = only(home.refused("plugins:\n  p:\n    config:\n      a: 1\n      b: .nan\n"))
    assert place(problem) == ("config.yaml", 5, 10)


def test_digits_beyond_any_number_are_fine_as_text(home: Home) -> None:
    digits = "9" * 40
    assert home.load(f"tokens: [{{name: t, key: {digits}}}]").settings.tokens[0].key == digits


def test_all_problems_come_at_once_and_in_order(home: Home) -> None:
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
    problems = home.refused(text)
    assert [problem.line for problem in problems] == [2, 2, 5, 6, 7, 7, 8, 8, 9, 9]


def test_a_complaint_about_a_mapping_does_not_hide_its_fields(home: Home) -> None:
    problems = home.refused("pipelines: [{name: a, on: e, steps: [{uses: a, call: b, oops: 1}]}]")
    assert [problem.path[-1] for problem in problems] == [0, "oops"]


def test_a_secret_is_never_quoted(home: Home) -> None:
    problem = only(home.refused("tokens: [{name: a, key: [x, hunter2hunter2]}]"))
    assert "hunter2" not in str(problem)


def test_a_value_from_a_secret_variable_is_never_quoted(home: Home) -> None:
    problem = only(home.refused("service: {log_level: ${MY_TOKEN}}", MY_TOKEN="hunter2hunter2"))
    assert problem.found == "[REDACTED]"


def test_a_long_value_is_cut(home: Home) -> None:
    problem = only(home.refused(f"service: {{log_level: {'x' * 500}}}"))
    assert len(problem.found or "") < 70


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("plugins: {p: {max_attempts: 3}}", "retry.max_attempts"),
        ("plugins: {p: {threshold: 3}}", "circuit_breaker.threshold"),
        ("max_workers: 3", "service.max_workers"),
    ],
)
def test_a_key_that_belongs_one_section_deeper_is_named(home: Home, text: str, key: str) -> None:
    assert only(home.refused(text)).nearest == key


def test_a_key_that_several_sections_have_is_left_to_its_writer(home: Home) -> None:
    assert only(home.refused("listen: 127.0.0.1:1")).nearest is None


def test_config_dir_is_nobodys_key(home: Home) -> None:
    assert "unknown key" in only(home.refused("config_dir: /x")).message


@pytest.mark.parametrize(
    "text",
    [
        "plugins: {p: {schedules: [{every: 5m, window: 08:00-22:00}]}}",
        "pipelines: [{name: a, on: e, steps: [{uses: p, with_: {}}]}]",
        "routes: [{from: a, from_: a, event_type: e, to: b}]",
    ],
)
def test_python_names_are_no_keys(home: Home, text: str) -> None:
    assert "unknown key" in only(home.refused(text)).message
