"""The plugins `switch` and `echo`, alone and through a real gateway."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ductile.core.pipelines.conditions import compile_condition, evaluate
from ductile.core.values.json_values import StepValues
from tests.bundled.house import BundledSite, emitted, job_logs
from tests.bundled.inside import inside
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
def test_a_condition_means_what_the_gateways_own_means(condition: dict[str, Any], x: Any) -> None:
    compiled = compile_condition(condition, ())
    assert not isinstance(compiled, list)
    switch = inside("switch", "run")
    switch.check(condition, "rule 1", 1)
    scope = {"payload": {"x": x}, "context": {"c": "ab"}}
    theirs = evaluate(compiled, StepValues(scope["payload"], scope["context"]))
    assert switch.holds(condition, scope) is theirs


def test_the_first_rule_that_matches_counts(site: BundledSite) -> None:
    site.use("switch", {"rules": [HIGH, ANY], "else": "level.none"})
    told = []
    for payload in ({"level": 9}, {"level": 3}, {"other": 1}):
        done = site.direct("switch", "handle", payload=payload, event={"dedupe_key": "k"})
        [event] = done.answer["events"]
        told.append(event["type"])
        assert event["payload"] == payload
        assert event["dedupe_key"] == "k"
    assert told == ["level.high", "level.any", "level.none"]


def test_without_an_else_what_matches_nothing_ends_there(site: BundledSite) -> None:
    site.use("switch", {"rules": [HIGH]})
    answer = site.direct("switch", "handle", payload={"level": 1}).answer
    assert answer == {"status": "ok", "result": {"rule": None, "event": None}}


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
def test_a_bad_rule_fails_every_event(site: BundledSite, config: dict[str, Any]) -> None:
    site.use("switch", config)
    for command in ("handle", "health"):
        done = site.direct("switch", command, payload={"level": 9})
        assert (done.code, done.answer["retry"]) == (78, False)


def test_events_take_their_way_through_a_gateway(site: BundledSite) -> None:
    """A poll of echo is routed to the switch, and by it to one of two echoes."""
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
    with site.running() as house:
        house.run("echo")
        house.run("echo", "poll", {"message": 2})
        until(lambda: len(job_logs(house, "loud") + job_logs(house, "quiet")) == 2)
        [loud], [quiet] = job_logs(house, "loud"), job_logs(house, "quiet")
        assert len(emitted(house, "echo")) == 2
    said = [json.loads(row["result"])["result"] for row in (loud, quiet)]
    assert [one["type"] for one in said] == ["loud", "quiet"]
    assert [one["message"] for one in said] == [8, 2]


def test_echo_fails_and_is_slow_when_it_is_told_to(site: BundledSite) -> None:
    site.use("echo", {"fail": "no luck", "retry": False})
    with site.running() as house:
        job = house.run("echo")
    assert (job["status"], job["last_error"]) == ("failed", "no luck")
    site.use("echo", {"sleep": 60})
    site.settings["plugins"]["echo"]["timeouts"] = {"poll": "200ms"}
    with site.running() as house:
        assert house.run("echo")["last_error"].startswith("timed out")
    site.use("echo", {"sleep": "long"})
    assert site.direct("echo", "poll").code == 78
