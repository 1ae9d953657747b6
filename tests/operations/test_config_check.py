"""`config check` reports the problems of every part in one run, and none that only follows."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from copy import deepcopy
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from ductile.config import load
from ductile.errors import ConfigError, Problem, dotted
from ductile.operations.config.check import check
from ductile.operations.config.fixes import find_fix

NOW = datetime(2026, 2, 8, 10, 0, tzinfo=UTC)
SECRET = "a-secret-that-nobody-guesses-soon"
Document = dict[str, Any]
Mistake = Callable[[Document], str]
"""Puts one mistake into a configuration, and returns the path at which it is to be reported."""

VALID: Document = {
    "service": {"name": "home", "max_hops": 30, "allow_symlinks": False},
    "state": {"path": "./data/state.db"},
    "plugin_roots": ["./plugins"],
    "plugins": {
        "echo": {},
        "second": {
            "uses": "echo",
            "enabled": True,
            "schedules": [{"id": "nightly", "every": "1h"}],
            "rate": {"limit": 1, "per": "1s"},
        },
        "third": {"uses": "second", "schedules": [{"every": "1h"}]},
    },
    "routes": [
        {"from": "echo", "event_type": "done", "to": "third"},
        {"from": "start", "event_type": "webhook.start", "to": "second"},
    ],
    "tokens": [{"name": "shared", "key": SECRET}],
    "api": {"enabled": True, "auth": {"tokens": [{"token": SECRET, "scopes": ["*"]}]}},
    "webhooks": {
        "listen": "127.0.0.1:9000",
        "endpoints": [
            {"path": "/first", "name": "named", "plugin": "second", "secret_ref": "shared"},
            {"path": "/start", "pipeline": "called", "secret": SECRET},
        ],
    },
    "remote_ingress": {"peers": [{"name": "peer", "secret_ref": "shared"}]},
    "instances": [
        {
            "name": "lab",
            "base_url": "https://lab.example",
            "ingress_path": "/ingest/peer/home",
            "secret_ref": "shared",
            "allow": ["done"],
        }
    ],
    "pipelines": [
        {"name": "first", "on": "go", "from_plugin": "named", "steps": [{"uses": "echo"}]},
        {
            "name": "called",
            "debounce": {"wait": "5s"},
            "schedules": [{"id": "weekly", "every": "1w"}],
            "steps": [
                {"id": "begin", "uses": "second.poll", "on_events": {"done": ["third", "end"]}},
                {"id": "end", "relay": {"to": "lab", "event": "done"}},
            ],
        },
        {
            "name": "calling",
            "on": "done",
            "from_plugin": "relay:peer",
            "steps": [{"call": "called"}, {"split": [{"wait": "5s"}, {"call": "first"}]}],
            "on_failure": [{"uses": "third"}],
        },
    ],
    "alerts": [
        {"name": "runs", "on": ["run.failed"], "to": "called"},
        {
            "name": "jobs",
            "on": ["job.dead", "schedule.silent"],
            "for": "2h",
            "to": "third",
            "only": ["second/nightly", "called/weekly"],
        },
        {"name": "own", "on": ["run.failed"], "to": "first", "only": ["first", "calling"]},
    ],
    "dead_man": {"url": "https://monitor.example/x"},
}


def report(root: Path, text: str) -> list[Problem]:
    for name, mode in (("echo", 0o700), ("refused", 0o600)):
        directory = root / "plugins" / name
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "manifest.yaml").write_text(
            f"name: {name}\nversion: '1'\nprotocol: 1\nentrypoint: run.sh\n"
            "commands: [poll, handle]\n"
        )
        (directory / "run.sh").write_text("#!/bin/sh\n")
        (directory / "run.sh").chmod(mode)
    (root / "config.yaml").write_text(text)
    try:
        check(lambda: load(root, environ={}), environ={}, now=NOW)
    except ConfigError as error:
        return list(error.problems)
    return []


def report_document(root: Path, document: Document) -> list[str]:
    problems = report(root, json.dumps(document, indent=1))
    assert all(problem.file and problem.line for problem in problems)
    return sorted(dotted(problem.path) for problem in problems)


def append(document: Document, entry: Document, *path: str) -> str:
    """Append an entry to a list; return its path."""
    group: Any = document
    for key in path:
        group = group[key]
    group.append(entry)
    return f"{'.'.join(path)}[{len(group) - 1}]"


def pipeline(document: Document, name: str, step: Document | None, **keys: Any) -> str:
    steps = {} if step is None else {"steps": [step]}
    return append(document, {"name": name, "on": name, **steps, **keys}, "pipelines")


def unknown_key(document: Document) -> str:
    document["service"]["max_wrkers"] = 2
    return "service.max_wrkers"


def wrong_type(document: Document) -> str:
    document["api"]["max_concurrent_sync"] = "many"
    return "api.max_concurrent_sync"


def two_listeners_on_one_port(document: Document) -> str:
    document["api"]["listen"] = document["webhooks"]["listen"]
    return "webhooks.listen"


def bad_duration(document: Document) -> str:
    document["plugins"]["timed"] = {"uses": "echo", "timeouts": {"poll": "5x"}}
    append(document, {"from": "timed", "event_type": "done", "to": "timed"}, "routes")
    return "plugins.timed.timeouts.poll"


def rate_without_per(document: Document) -> str:
    document["plugins"]["limited"] = {"uses": "echo", "rate": {"limit": 1}}
    pipeline(document, "uses-limited", {"uses": "limited"})
    return "plugins.limited.rate"


def bad_cron(document: Document) -> str:
    schedules = [{"id": "nightly", "cron": "0 25 * * *"}]
    document["plugins"]["timetabled"] = {"uses": "echo", "schedules": schedules}
    rule = {"name": "nightly", "on": "job.dead", "to": "echo", "only": "timetabled/nightly"}
    append(document, rule, "alerts")
    return "plugins.timetabled.schedules[0].cron"


def refused_manifest_with_a_schedule(document: Document) -> str:
    document["plugins"]["refused"] = {"schedules": [{"every": "1h"}]}
    pipeline(document, "uses-refused", {"uses": "refused.any"})
    return "plugins.refused"


def unknown_plugin_in_a_route(document: Document) -> str:
    return append(document, {"from": "echo", "event_type": "x", "to": "ecko"}, "routes") + ".to"


def pipeline_without_steps(document: Document) -> str:
    at = pipeline(document, "stepless", None)
    pipeline(document, "caller", {"call": "stepless"})
    endpoint = {"path": "/stepless", "pipeline": "stepless", "secret": SECRET}
    append(document, endpoint, "webhooks", "endpoints")
    append(document, {"name": "stepless", "on": "run.failed", "to": "stepless"}, "alerts")
    return at


def unknown_step_target(document: Document) -> str:
    at = pipeline(document, "lost", {"uses": "nobody"})
    pipeline(document, "calls-lost", {"call": "lost"})
    return f"{at}.steps[0].uses"


def unknown_call(document: Document) -> str:
    return pipeline(document, "calls", {"call": "nobody"}) + ".steps[0].call"


def repeated_pipeline(document: Document) -> str:
    return pipeline(document, "first", {"uses": "echo"}) + ".name"


def unknown_instance(document: Document) -> str:
    relay = {"to": "nowhere", "event": "done"}
    return pipeline(document, "relays", {"relay": relay}) + ".steps[0].relay.to"


def event_that_the_instance_may_not_get(document: Document) -> str:
    relay = {"to": "lab", "event": "secret"}
    return pipeline(document, "leaks", {"relay": relay}) + ".steps[0].relay.event"


def alert_about_its_own_target(document: Document) -> str:
    rule = {"name": "itself", "on": "run.failed", "to": "first", "only": "first"}
    return append(document, rule, "alerts") + ".to"


def wrong_operator(document: Document) -> str:
    condition = {"path": "payload.x", "op": "equal", "value": 1}
    return pipeline(document, "conditional", {"uses": "echo"}, **{"if": condition}) + ".if.op"


def unknown_alert_target(document: Document) -> str:
    return append(document, {"name": "lost", "on": "job.dead", "to": "nobody"}, "alerts") + ".to"


def missing_variable(document: Document) -> str:
    at = append(document, {"name": "later", "key": "${NOWHERE}"}, "tokens")
    endpoint = {"path": "/later", "plugin": "echo", "secret_ref": "later"}
    append(document, endpoint, "webhooks", "endpoints")
    return f"{at}.key"


def unknown_token(document: Document) -> str:
    endpoint = {"path": "/lost", "plugin": "echo", "secret_ref": "nobody"}
    return append(document, endpoint, "webhooks", "endpoints") + ".secret_ref"


def endpoint_without_secret(document: Document) -> str:
    at = append(document, {"path": "/open", "plugin": "echo"}, "webhooks", "endpoints")
    pipeline(document, "after-open", {"uses": "echo"}, from_plugin="open")
    return at


def instance_with_a_bad_url(document: Document) -> str:
    entry = {**document["instances"][0], "name": "shed", "base_url": "shed.example"}
    at = append(document, entry, "instances")
    pipeline(document, "to-shed", {"relay": {"to": "shed", "event": "done"}})
    return f"{at}.base_url"


MISTAKES: tuple[Mistake, ...] = (
    unknown_key,
    wrong_type,
    two_listeners_on_one_port,
    bad_duration,
    rate_without_per,
    bad_cron,
    refused_manifest_with_a_schedule,
    unknown_plugin_in_a_route,
    pipeline_without_steps,
    unknown_step_target,
    unknown_call,
    repeated_pipeline,
    unknown_instance,
    event_that_the_instance_may_not_get,
    alert_about_its_own_target,
    wrong_operator,
    unknown_alert_target,
    missing_variable,
    unknown_token,
    endpoint_without_secret,
    instance_with_a_bad_url,
)


def test_one_mistake_of_each_kind_is_reported_once_in_one_run(tmp_path: Path) -> None:
    document = deepcopy(VALID)
    expected = sorted(mistake(document) for mistake in MISTAKES)
    assert report_document(tmp_path, document) == expected
    assert set(Counter(expected).values()) == {1}


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.__name__)
def test_each_mistake_alone_reports_only_itself(tmp_path: Path, mistake: Mistake) -> None:
    document = deepcopy(VALID)
    expected = mistake(document)
    assert report_document(tmp_path, document) == [expected]


def test_mistakes_of_a_pipeline_and_of_its_steps_are_reported_together(tmp_path: Path) -> None:
    document = deepcopy(VALID)
    at = pipeline(document, "both", {"uses": "nobody"}, timeout="soon", trigger="x")
    document["pipelines"][-1]["on_failure"] = [{"call": "nobody"}]
    paths = ["on_failure[0].call", "steps[0].uses", "timeout", "trigger"]
    assert report_document(tmp_path, document) == [f"{at}.{path}" for path in paths]


def list_scalars(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    match value:
        case dict():
            for key, item in value.items():
                yield from list_scalars(item, (*path, key))
        case list():
            for index, item in enumerate(value):
                yield from list_scalars(item, (*path, index))
        case _:
            yield path


def test_value_of_a_wrong_type_is_the_only_problem_wherever_it_is(tmp_path: Path) -> None:
    assert report_document(tmp_path, VALID) == []
    for path in list_scalars(VALID):
        document = deepcopy(VALID)
        group: Any = document
        for key in path[:-1]:
            group = group[key]
        group[path[-1]] = [[]]
        [problem] = report_document(tmp_path, document)
        assert problem.startswith(dotted(path)) or dotted(path).startswith(problem)


ALERT = "alerts: [{name: a, on: job.dead, to: first}]\n"
ROUTE = "routes: [{from: echo, event_type: x, to: second}]\n"
FIRST = "pipelines: [{name: first, on: go, steps: [{uses: second}]}]\n"
SCHEDULED = "plugins: {echo: {schedules: [{every: 1h}]}}\n"
PORT = "webhooks: {listen: '127.0.0.1:8080'}\n"
LONG = f"pipelines: [{{name: first, on: go, steps: [{'{uses: echo}, ' * 30}]}}]\n"
MONITOR = "dead_man: {url: 'http://10.0.0.1/'}\n"
LOST = "alerts: [{name: a, on: job.dead, to: nobody}]\n"


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("pipelines", "pipelines: 5\n" + ALERT),
        ("pipeline", "pipeline: []\n" + ALERT),
        ("pipelines[0]", "pipelines: [{on: go, steps: [{uses: echo}]}]\n" + ALERT),
        ("plugins", "plugins: 5\n" + ROUTE + FIRST + ALERT),
        ("plugins.second.uses", "plugins: {second: {uses: [echo]}}\n" + ROUTE + FIRST),
        ("plugin_roots[0]", "plugin_roots: [{}]\n" + SCHEDULED + ROUTE),
        ("state.path", "state: {path: ''}\n" + SCHEDULED),
        ("api.listen", "api: {enabled: true, listen: x, auth: {tokens: [{token: t}]}}\n" + PORT),
        ("api.auth", "api: {enabled: true, auth: 5}\n"),
        ("tokens[0]", "tokens: [{key: k}]\napi: {enabled: true}\n"),
        ("webhooks.endpoint", "webhooks: {endpoint: []}\n" + ROUTE.replace("echo", "hook")),
        ("dead_man.url", "dead_man: {url: x}\n"),
        ("", "include: [gone.yaml]\n" + ROUTE + FIRST + LOST),
        ("service", "service: 5\n" + LONG),
        ("servise", "servise: {max_hops: 50}\n" + LONG),
        ("service.max_hops", "service: {max_hops: many}\n" + LONG),
        ("api", "api: 5\n" + PORT),
        ("gateway.allowed_networks[0]", "gateway: {allowed_networks: [x]}\n" + MONITOR),
        ("", "include: [gone.yaml]\n" + LONG + MONITOR + PORT + "api: {enabled: true}\n"),
        ("includ", "includ: [gone.yaml]\n" + ROUTE + FIRST + LOST),
    ],
)
def test_consequences_of_an_unknown_part_are_not_reported(
    tmp_path: Path, path: str, text: str
) -> None:
    if "plugins:" not in text:
        text += "plugins: {echo: {}, second: {}}\n" if "second" in text else "plugins: {echo: {}}\n"
    if text.startswith("includ"):
        text = text.replace("plugins: {echo: {}, second: {}}\n", "")
    assert [dotted(problem.path) for problem in report(tmp_path, text)] == [path]


def test_file_that_cannot_be_read_does_not_hide_the_problems_of_others(tmp_path: Path) -> None:
    text = "include: [gone.yaml]\n" + LOST + "pipelines:\n"
    text += "  - {name: a, on: x, if: {path: payload.x, op: is}, steps: [{uses: nobody}]}\n"
    text += "  - {name: a, on: x, steps: [{wait: 5s}]}\n"
    paths = [dotted(problem.path) for problem in report(tmp_path, text)]
    assert paths == ["", "pipelines[0].if.op", "pipelines[1].name"]


@pytest.mark.parametrize(
    ("change", "fix"),
    [
        (lambda d: d["service"].update(log_level="inf"), "config set service.log_level info"),
        (lambda d: d["routes"][0].update(to="thrd"), "config set 'routes[0].to' third"),
        (lambda d: d["service"].update(max_wrkers=2), None),
    ],
)
def test_one_wrong_value_has_the_command_that_corrects_it(
    tmp_path: Path, change: Callable[[Document], object], fix: str | None
) -> None:
    document = deepcopy(VALID)
    change(document)
    [problem] = report(tmp_path, json.dumps(document, indent=1))
    assert find_fix(problem) == fix


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d["pipelines"][1]["steps"][0].update(on_events={"done": ["thrd", "end"]}),
        lambda d: d["alerts"][1].update(only=["secnd/nightly", "caled/weekly"]),
        lambda d: d["pipelines"][1]["steps"][0].update(uses="second.pol"),
    ],
)
def test_part_of_a_value_has_no_command_that_would_replace_the_rest(
    tmp_path: Path, change: Callable[[Document], object]
) -> None:
    document = deepcopy(VALID)
    change(document)
    [problem] = report(tmp_path, json.dumps(document, indent=1))
    assert problem.nearest
    assert find_fix(problem) is None


@pytest.mark.parametrize("text", ["{paylod.name} is done", "{paylod.name}"])
def test_misspelled_template_has_no_command_that_would_replace_it(
    tmp_path: Path, text: str
) -> None:
    document = deepcopy(VALID)
    document["pipelines"][0]["steps"][0]["with"] = {"text": text}
    assert report(tmp_path, json.dumps(document, indent=1)) == []
    found = check(lambda: load(tmp_path, environ={}), environ={}, now=NOW).warnings
    [warning] = [each for each in found if each.nearest == "payload"]
    assert find_fix(warning) is None
