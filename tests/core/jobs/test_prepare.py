"""From a claimed job to the request that its plugin reads."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ductile.core.jobs.prepare import PluginPlan, Ready, Unrunnable, prepare
from ductile.model import Launch
from tests.core.jobs.test_judge import JOB, NOW

PLAN = PluginPlan(
    name="echo",
    protocol=2,
    argv=("/plugins/echo/run.sh",),
    env={"PATH": "/bin"},
    commands=frozenset({"poll", "handle", "health", "init", "sync"}),
    config=b'{"url":"https://example.org"}',
    timeouts={},
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


def launched(job=JOB, state="{}", plan=PLAN, context=None) -> Launch:
    """The launch of a job outside of pipelines."""
    ready = prepare(job, state, context or {}, plan, None, NOW)
    assert isinstance(ready, Ready)
    return ready.launch


def request(job=JOB, state="{}", plan=PLAN, context=None):
    return json.loads(launched(job, state, plan, context).request)


def test_a_request_carries_what_a_plugin_needs():
    job = replace(JOB, payload={"n": 1})
    assert request(job, '{"cursor": 7}') == {
        "protocol": 2,
        "job_id": "job-1",
        "command": "poll",
        "config": {"url": "https://example.org"},
        "state": {"cursor": 7},
        "context": {"ductile_plugin": "echo"},
        "payload": {"n": 1},
        "deadline_at": "2026-02-08T10:01:00.000000Z",
    }


def test_protocol_1_knows_no_context():
    found = request(plan=replace(PLAN, protocol=1))
    assert found["protocol"] == 1
    assert "context" not in found


def test_a_request_is_one_line():
    launch = launched(replace(JOB, payload={"text": "a\nb"}), plan=PLAN)
    assert launch.request.count(b"\n") == 1
    assert launch.request.endswith(b"\n")


@pytest.mark.parametrize(
    ("command", "seconds"),
    [("poll", 60), ("handle", 120), ("health", 10), ("init", 30), ("sync", 60)],
)
def test_a_command_has_its_own_deadline(command, seconds):
    launch = launched(replace(JOB, command=command), plan=PLAN)
    assert launch.timeout == seconds


@pytest.mark.parametrize("command", ["poll", "sync"])
def test_the_config_sets_a_commands_deadline(command):
    plan = replace(PLAN, timeouts={command: 7.5})
    job = replace(JOB, command=command)
    launch = launched(job, plan=plan)
    assert launch.timeout == 7.5
    assert request(job, plan=plan)["deadline_at"] == "2026-02-08T10:00:07.500000Z"


def test_deadline_counts_from_the_start_and_not_from_the_enqueue():
    job = replace(JOB, created_at=NOW - timedelta(days=3))
    assert request(job)["deadline_at"] == "2026-02-08T10:01:00.000000Z"


def test_command_that_the_plugin_lacks_is_refused_naming_those_it_has():
    refused = prepare(replace(JOB, command="nosuch"), "{}", {}, PLAN, None, NOW)
    assert isinstance(refused, Unrunnable)
    assert "'nosuch'" in refused.reason
    assert "handle, health, init, poll, sync" in refused.reason


def test_launch_has_command_and_environment_of_the_plan():
    launch = launched(JOB, plan=PLAN)
    assert (launch.argv, launch.env) == (PLAN.argv, PLAN.env)


def test_the_baggage_that_a_job_entered_with_is_its_context():
    found = request(context={"user": {"id": 7}})
    assert found["context"] == {"user": {"id": 7}, "ductile_plugin": "echo"}


def test_a_workspace_is_named_where_there_is_one():
    ready = prepare(JOB, "{}", {}, PLAN, None, NOW, "/state/workspaces/job-1")
    assert isinstance(ready, Ready)
    assert json.loads(ready.launch.request)["workspace_dir"] == "/state/workspaces/job-1"
    assert "workspace_dir" not in request()


def test_only_handle_gets_an_event():
    assert "event" not in request()
    assert "event" in request(replace(JOB, command="handle"))


def test_a_handle_jobs_column_holds_the_events_envelope():
    envelope = {
        "type": "mail.new",
        "payload": {"subject": "hi"},
        "dedupe_key": "m1",
        "source": "mail",
        "timestamp": "2026-01-01T00:00:00.000000Z",
        "event_id": "e1",
    }
    found = request(replace(JOB, command="handle", payload=envelope))
    event = found["event"]
    assert event["payload"]["subject"] == "hi"
    assert {k: v for k, v in event.items() if k != "payload"} == {
        k: v for k, v in envelope.items() if k != "payload"
    }
    assert found["payload"]["subject"] == "hi"


@pytest.mark.parametrize("producer", ["api", "cli"])
def test_a_bare_object_is_the_payload_of_a_trigger(producer):
    job = replace(JOB, command="handle", payload={"n": 1}, submitted_by=producer, dedupe_key="k")
    event = request(job)["event"]
    assert (event["type"], event["source"]) == (f"{producer}.trigger", producer)
    assert event["payload"]["n"] == 1
    assert (event["event_id"], event["dedupe_key"]) == ("job-1", "k")


def test_context_keys_that_the_payload_lacks_are_added_and_others_left():
    job = replace(JOB, command="handle", payload={"payload": {"ductile_plugin": "mine"}})
    assert request(job)["event"]["payload"] == {"ductile_plugin": "mine"}
    job = replace(JOB, command="handle", payload={"payload": {"n": 1}})
    assert request(job)["event"]["payload"] == {"n": 1, "ductile_plugin": "echo"}


@given(VALUES, st.sampled_from(sorted(PLAN.commands)), st.sampled_from([1, 2]))
def test_any_payload_makes_a_request(payload, command, protocol):
    """The rows that scripts write hold whatever they hold."""
    job = replace(JOB, payload=payload, command=command)
    found = request(job, plan=replace(PLAN, protocol=protocol))
    if command != "handle":
        assert found["payload"] == ({} if payload is None else payload)
