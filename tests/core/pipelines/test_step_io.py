from __future__ import annotations

from datetime import UTC, datetime

import pytest

from ductile.core.jobs.plugin_protocol import EmittedEvent
from ductile.core.pipelines.baggage import root_context
from ductile.core.pipelines.graph import Node
from ductile.core.pipelines.step_io import (
    MAX_COPIED,
    Prepared,
    RelayMessage,
    Switched,
    entered_dedupe_key,
    entered_payload,
    judge_switch,
    outgoing,
    payload_column,
    prepare_relay,
    prepare_step,
    switch_event,
    too_much_copied,
)
from ductile.core.values.json_values import Failure
from ductile.model import Event
from tests.core.pipelines.compiler.test_compile import one

NOW = datetime(2026, 2, 8, 10, tzinfo=UTC)
ENTERING = root_context(instance_id="i", max_depth=5, origin={"plugin": "x"}, baggage={"user": "m"})


def node(step, path="s") -> Node:
    return one({"id": "s", **step}).nodes[path]


def prepared(step, payload, config=None) -> Prepared:
    result = prepare_step(node(step), payload, ENTERING, config or {}, hops=0)
    assert isinstance(result, Prepared), result
    return result


def test_with_adds_to_the_payload_and_replaces_in_it():
    step = {"uses": "a", "with": {"n": "{payload.n}", "text": "n={payload.n}", "old": "new"}}
    payload = {"n": 3, "old": "x", "kept": True}
    got = prepared(step, payload).payload
    assert {k: got[k] for k in ("n", "text", "old", "kept")} == {
        "n": 3,
        "text": "n=3",
        "old": "new",
        "kept": True,
    }
    assert payload == {"n": 3, "old": "x", "kept": True}


def test_context_keys_that_the_payload_lacks_are_added_before_with():
    step = {"uses": "a", "with": {"who": "{payload.user}"}}
    got = prepared(step, {}).payload
    assert (got["user"], got["who"], got["ductile_step_id"]) == ("m", "m", "s")
    assert prepared(step, {"user": "eve"}).payload["who"] == "eve"


def test_a_command_without_an_event_gets_the_payload_alone():
    assert prepared({"uses": "a.poll"}, {"x": 1}).payload == {"x": 1}


def test_the_request_context_names_the_place_of_the_job():
    context = prepared({"uses": "a"}, {}).context
    assert context["user"] == "m"
    assert (context["ductile_plugin"], context["ductile_pipeline"], context["ductile_step_id"]) == (
        "a",
        "p",
        "s",
    )


def test_step_id_is_the_one_that_is_written():
    split = {"id": "s", "split": [{"id": "left.one", "uses": "a"}, {"uses": "b"}]}
    for path, written in (("s.0.left.one", "left.one"), ("s.1.step_1", "step_1")):
        result = prepare_step(one(split).nodes[path], {}, ENTERING, {}, hops=0)
        assert isinstance(result, Prepared)
        assert result.context["ductile_step_id"] == written


def test_with_sees_what_the_step_itself_claims_and_its_plugins_config():
    step = {
        "uses": "a",
        "baggage": {"web.url": "payload.url"},
        "with": {"target": "{context.web.url}", "key": "{config.key}"},
    }
    got = prepared(step, {"url": "http://x"}, {"key": "k"})
    assert (got.payload["target"], got.payload["key"]) == ("http://x", "k")
    assert got.accumulated["web"] == {"url": "http://x"}
    assert got.accumulated["ductile"]["route_depth"] == 1


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        ({"uses": "a", "with": {"x": "{payload.gone}"}}, "with: payload.gone does not exist"),
        ({"uses": "a", "baggage": {"x": "payload.gone"}}, "baggage x: payload.gone does not exist"),
    ],
)
def test_a_with_or_baggage_that_fails_is_a_value(step, reason):
    assert prepare_step(node(step), {}, ENTERING, {}, hops=0) == Failure(reason)


def test_a_payload_without_keys_is_replaced_by_with():
    assert prepared({"uses": "a", "with": {"items": "{payload}"}}, [1, 2]).payload == {
        "items": [1, 2]
    }


IF = {"path": "payload.n", "op": "gt", "value": 2}


@pytest.mark.parametrize(("n", "verdict"), [(3, "true"), (2, "false")])
def test_switch_is_judged_without_a_process_and_passes_its_payload_on(n, verdict):
    switch = node({"uses": "a", "if": IF}, "s__switch")
    switched = judge_switch(switch, {"n": n}, ENTERING, {}, hops=0)
    assert isinstance(switched, Switched)
    assert switched.result == {
        "matched": n > 2,
        "event": f"ductile.switch.{verdict}",
        "because": f"payload.n is {n}, a number",
    }
    assert switched.accumulated["ductile"]["route_depth"] == 1
    event = switch_event(switched, {"n": n}, NOW, "e1")
    assert event == Event(f"ductile.switch.{verdict}", {"n": n}, None, "core.switch", NOW, "e1")


def test_switch_reads_context_and_config():
    condition = {
        "all": [
            {"path": "context.user", "op": "eq", "value": "m"},
            {"path": "config.on", "op": "eq", "value": True},
            {"not": {"path": "payload.user", "op": "exists"}},
        ]
    }
    switch = node({"uses": "a", "if": condition}, "s__switch")
    switched = judge_switch(switch, {}, ENTERING, {"on": True}, hops=0)
    assert isinstance(switched, Switched)
    assert switched.matched


def test_a_switch_whose_regex_gives_up_fails():
    condition = {"path": "payload.x", "op": "regex", "value": "a*"}
    switch = node({"uses": "a", "if": condition}, "s__switch")
    answer = judge_switch(switch, {"x": "a" * 2_000_000}, ENTERING, {}, hops=0)
    assert isinstance(answer, Failure)
    assert answer.reason.startswith("if: ")


def relayed(relay, payload, key=None) -> RelayMessage:
    step = {"relay": {"to": "lab", "event": "ready", **relay}}
    message = prepare_relay(node(step), payload, key, ENTERING, hops=0)
    assert isinstance(message, RelayMessage), message
    return message


def test_a_relay_sends_its_input_unless_with_replaces_it():
    assert relayed({}, {"x": 1}, "k") == RelayMessage(
        "lab", "ready", {"x": 1}, "k", {}, relayed({}, {}).accumulated
    )
    message = relayed(
        {
            "with": {"path": "payload.x", "text": "x={payload.x}", "who": "{context.user}"},
            "dedupe_key": "ready:{payload.x}",
            "baggage": {"trace.user": "context.user"},
        },
        {"x": 1},
        "k",
    )
    assert message.payload == {"path": 1, "text": "x=1", "who": "m"}
    assert (message.dedupe_key, message.baggage) == ("ready:1", {"trace": {"user": "m"}})
    assert "trace" not in message.accumulated


@pytest.mark.parametrize(
    ("relay", "name"),
    [
        ({"with": {"x": "payload.gone"}}, "with"),
        ({"dedupe_key": "{payload.gone}"}, "dedupe_key"),
        ({"baggage": {"x": "payload.gone"}}, "baggage"),
    ],
)
def test_a_relay_that_cannot_be_filled_in_fails(relay, name):
    step = {"relay": {"to": "lab", "event": "ready", **relay}}
    answer = prepare_relay(node(step), {}, None, ENTERING, hops=0)
    assert isinstance(answer, Failure)
    assert answer.reason.startswith(f"relay.{name}: ")


def passed_on(*emitted, in_pipeline=True, entered=None, result="ok"):
    return outgoing(
        [EmittedEvent(*event) for event in emitted],
        source="a",
        in_pipeline=in_pipeline,
        entered={"in": 1} if entered is None else entered,
        result=result,
        now=NOW,
        event_ids=["e1", "e2", "e3"],
    )


def test_total_size_of_copied_results_is_limited():
    lacking, own = {"a": 1}, {"result": "own"}
    result = "x" * (MAX_COPIED // 4 - 2)
    assert too_much_copied([lacking] * 4, result) is None
    assert too_much_copied([None, lacking, None, lacking, own, own, [1]], result) is None
    flaw = too_much_copied([None, lacking, None, lacking, lacking], result)
    assert flaw is not None
    assert flaw.reason.startswith(f"a result of {MAX_COPIED // 4} bytes would be copied into 5")


def test_one_copy_or_no_result_is_within_the_limit_of_copies():
    assert too_much_copied([{}], "x" * (MAX_COPIED + 1)) is None
    assert too_much_copied([{}] * 1000, None) is None


def test_an_emitted_event_without_a_result_gets_that_of_the_job():
    events = passed_on(("x", {"a": 1}, "k"), ("y", {"result": "own"}, None), ("z", [1], None))
    assert events == (
        Event("x", {"a": 1, "result": "ok"}, "k", "a", NOW, "e1"),
        Event("y", {"result": "own"}, None, "a", NOW, "e2"),
        Event("z", [1], None, "a", NOW, "e3"),
    )


def test_a_silent_step_passes_on_what_entered_it_plus_the_result():
    (event,) = passed_on()
    assert (event.type, event.payload) == ("ductile.step.succeeded", {"in": 1, "result": "ok"})
    (event,) = passed_on(entered={"result": "old"})
    assert event.payload == {"result": "ok"}
    (event,) = passed_on(result=None)
    assert event.payload == {"in": 1}
    (event,) = passed_on(entered=[1])
    assert event.payload == {"payload": [1], "result": "ok"}


def test_a_silent_job_outside_any_pipeline_passes_on_nothing():
    assert passed_on(in_pipeline=False) == ()
    assert len(passed_on(("x", None, None), in_pipeline=False)) == 1


def test_payload_column_of_a_handle_job_is_its_envelope():
    event = Event("x", {"a": 1}, "k", "src", NOW, "e1")
    assert payload_column("handle", event) == {
        "type": "x",
        "payload": {"a": 1},
        "dedupe_key": "k",
        "source": "src",
        "timestamp": "2026-02-08T10:00:00.000000Z",
        "event_id": "e1",
    }
    assert payload_column("poll", event) == {"a": 1}
    for command in ("handle", "poll"):
        assert entered_payload(command, payload_column(command, event)) == {"a": 1}


def test_column_that_is_not_an_envelope_is_the_payload():
    assert entered_payload("handle", {"a": 1}) == {"a": 1}
    assert entered_payload("handle", {"type": "x"}) == {}
    assert entered_payload("handle", None) == {}
    assert entered_payload("poll", {"type": "x"}) == {"type": "x"}


def test_dedupe_key_is_the_envelopes_and_no_key_of_a_bare_payload():
    assert entered_dedupe_key({"type": "x", "dedupe_key": "k"}) == "k"
    assert entered_dedupe_key({"dedupe_key": "k"}) is None
    assert entered_dedupe_key(None) is None
