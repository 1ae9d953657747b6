"""The plugins `switch` and `echo`."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ductile.core.pipelines.conditions import compile_condition, evaluate
from ductile.core.values.json_values import StepValues
from tests.bundled.bundled_site import BundledSite, job_logs, list_events
from tests.bundled.load_module import load_module
from tests.waiting import until

HIGH = {"when": {"path": "payload.level", "op": "gte", "value": 7}, "emit": "level.high"}
ANY = {"when": {"path": "payload.level", "op": "exists"}, "emit": "level.any"}

LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 3), st.sampled_from([0.5, 1.0, -2.0, "a", "AB", "1"])
)
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.just("k"), inner)
)
PATHS = st.sampled_from(["payload.x", "payload.x.k", "payload.x.0", "payload.gone", "context.c"])


@st.composite
def conditions(draw: st.DrawFn, depth: int = 2) -> dict[str, Any]:
    if depth and draw(st.booleans()):
        word = draw(st.sampled_from(["all", "any", "not"]))
        if word == "not":
            return {"not": draw(conditions(depth - 1))}
        return {word: draw(st.lists(conditions(depth - 1), min_size=1, max_size=2))}
    op = draw(st.sampled_from(["exists", "eq", "neq", "in", "gt", "lte", "contains", "endswith"]))
    value = {
        "exists": st.booleans(),
        "in": st.lists(VALUES, max_size=3),
        "gt": st.sampled_from([0, 1, 0.5]),
        "lte": st.sampled_from([0, 1, 0.5]),
        "contains": st.sampled_from(["a", "b", ""]),
        "endswith": st.sampled_from(["B", "1"]),
    }.get(op, VALUES)
    return {"path": draw(PATHS), "op": op, "value": draw(value)}


@settings(deadline=None, max_examples=150)
@given(condition=conditions(), x=VALUES)
def test_conditions_have_the_semantics_of_the_gateway(condition: dict[str, Any], x: Any) -> None:
    compiled = compile_condition(condition, ())
    assert not isinstance(compiled, list)
    switch = load_module("switch", "run")
    switch.check_condition(condition, "rule 1", 1)
    scope = {"payload": {"x": x}, "context": {"c": "ab"}}
    expected = evaluate(compiled, StepValues(scope["payload"], scope["context"]))
    assert switch.evaluate(condition, scope) is expected


def test_first_matching_rule_is_used(site: BundledSite) -> None:
    site.use("switch", {"rules": [HIGH, ANY], "else": "level.none"})
    types = []
    for payload in ({"level": 9}, {"level": 3}, {"other": 1}):
        done = site.direct("switch", "handle", payload=payload, event={"dedupe_key": "k"})
        [event] = done.response["events"]
        types.append(event["type"])
        assert event["payload"] == payload
        assert event["dedupe_key"] == "k"
    assert types == ["level.high", "level.any", "level.none"]


def test_unmatched_event_without_else_emits_nothing(site: BundledSite) -> None:
    site.use("switch", {"rules": [HIGH]})
    response = site.direct("switch", "handle", payload={"level": 1}).response
    assert response == {"status": "ok", "result": {"rule": None, "event": None}}


@pytest.mark.parametrize(
    "config",
    [
        {"rules": []},
        {"rules": "all"},
        {"rules": [{"when": {}, "emit": "x"}]},
        {"rules": [{"emit": "x"}]},
        {"rules": [{**HIGH, "emit": ""}]},
        {"rules": [{**HIGH, "emmit": "x"}]},
        {"rules": [HIGH], "else": 5},
        {"rules": [{"when": {"path": "config.x", "op": "eq", "value": 1}, "emit": "x"}]},
        {"rules": [{"when": {"path": "payload.x", "op": "like", "value": 1}, "emit": "x"}]},
        {"rules": [{"when": {"path": "payload.x", "op": "eq"}, "emit": "x"}]},
        {"rules": [{"when": {"path": "payload.x", "op": "gt", "value": "1"}, "emit": "x"}]},
        {"rules": [{"when": {"path": "payload.x", "op": "in", "value": 1}, "emit": "x"}]},
        {"rules": [{"when": {"all": []}, "emit": "x"}]},
        {"rules": [{"when": {"not": {"not": {"not": HIGH["when"]}}}, "emit": "x"}]},
        {"rules": [HIGH, {"when": {"path": "payload.x", "op": "zz", "value": 1}, "emit": "x"}]},
    ],
    ids=json.dumps,
)
def test_invalid_rules_are_rejected(config: dict[str, Any]) -> None:
    switch = load_module("switch", "run")
    with pytest.raises(switch.ConfigError):
        switch.read_rules(config)


def test_invalid_rule_fails_every_event(site: BundledSite) -> None:
    site.use("switch", {"rules": [HIGH, {"emit": "x"}]})
    for command in ("handle", "health"):
        done = site.direct("switch", command, payload={"level": 9})
        assert (done.code, done.response["retry"]) == (78, False)


def test_routed_events_reach_their_plugins(site: BundledSite) -> None:
    """Events of `echo` are routed to `switch`, and from there to one of two instances."""
    site.use("echo", {"message": 8})
    site.use("loud", uses="echo")
    site.use("quiet", uses="echo")
    when = {"path": "payload.message", "op": "gt", "value": 5}
    site.use("switch", {"rules": [{"when": when, "emit": "loud"}], "else": "quiet"})
    site.settings["routes"] = [
        {"from": "echo", "event_type": "echo.done", "to": "switch"},
        {"from": "switch", "event_type": "loud", "to": "loud"},
        {"from": "switch", "event_type": "quiet", "to": "quiet"},
    ]
    with site.running() as running:
        running.run("echo")
        running.run("echo", "poll", {"message": 2})
        until(lambda: len(job_logs(running, "loud") + job_logs(running, "quiet")) == 2)
        [loud], [quiet] = job_logs(running, "loud"), job_logs(running, "quiet")
        assert len(list_events(running, "echo")) == 2
    results = [json.loads(row["result"])["result"] for row in (loud, quiet)]
    assert [one["type"] for one in results] == ["loud", "quiet"]
    assert [one["message"] for one in results] == [8, 2]


def test_echo_fails_and_sleeps_if_configured(site: BundledSite) -> None:
    site.use("echo", {"fail": "no luck", "retry": False})
    with site.running() as running:
        job = running.run("echo")
    assert (job["status"], job["last_error"]) == ("failed", "no luck")
    site.use("echo", {"sleep": 60})
    site.settings["plugins"]["echo"]["timeouts"] = {"poll": "200ms"}
    with site.running() as running:
        assert running.run("echo")["last_error"].startswith("timed out")
    site.use("echo", {"sleep": "long"})
    assert site.direct("echo", "poll").code == 78
