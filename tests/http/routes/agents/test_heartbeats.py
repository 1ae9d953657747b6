"""Heartbeats, decision logs and reminders of agents."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Iterator
from copy import deepcopy
from datetime import timedelta
from typing import Any
from urllib.parse import quote

import pytest

from ductile.clock import to_text
from ductile.core.agents.reminder import NewReminder
from ductile.http.middleware import heartbeat_batch
from ductile.store import agents, notices, reminders
from ductile.store.engines.api import BEGINNING
from tests.core.agents.test_decision_log import LOG
from tests.http.harness import ADMIN, CONFIG, NOTHING, Answer, ApiHarness, running_api
from tests.http.subscriber import subscribed

TIMESTAMP = "2026-02-22T12:00:00Z"
AGENT, WATCHER = "agent-token-0123456789", "watcher-token-0123456789"
TOKENS = f"""\
      - {{token: {AGENT}, scopes: ["agents:rw"], name: agent}}
      - {{token: {WATCHER}, scopes: ["agents:ro"], name: watcher}}
"""


@pytest.fixture(scope="module")
def api() -> Iterator[ApiHarness]:
    with running_api(CONFIG + TOKENS) as api:
        yield api


@pytest.fixture
def own() -> Iterator[ApiHarness]:
    """A gateway of the test's own, whose loops it may stop."""
    with running_api() as api:
        yield api


def deep(levels: int) -> bytes:
    return b'{"a":' * (levels - 1) + b"{}" + b"}" * (levels - 1)


def heartbeat(agent_id: Any = "agent-42", cluster_id: Any = "cluster-west", **more: Any) -> Any:
    body = {"type": "heartbeat", "agent_id": agent_id, "cluster_id": cluster_id}
    return {**body, "timestamp": TIMESTAMP, **more}


def beat(api: ApiHarness, *given: Any, **more: Any) -> Answer:
    return api.ask("POST", "/gateway/heartbeat", heartbeat(*given, **more))


def row(api: ApiHarness, agent_id: str) -> dict[str, Any] | None:
    return api.gateway.ledger.read(lambda tx: agents.find_agent(tx, agent_id))


def log_of(agent_id: str, **action: Any) -> dict[str, Any]:
    document = deepcopy(LOG)
    document["identity"]["agent_id"] = agent_id
    document["action"] |= action
    return document


def published(api: ApiHarness, topic: str) -> list[Any]:
    found = api.gateway.ledger.read(lambda tx: notices.list_after(tx, BEGINNING, 10_000))
    return [json.loads(notice.payload) for notice in found if notice.topic == topic]


# Heartbeats


def test_heartbeat_is_stored_and_kept_in_memory(api: ApiHarness) -> None:
    answer = beat(api)
    assert (answer.status, answer.json) == (200, {"status": "ok"})
    found = row(api, "agent-42")
    assert found is not None
    assert (found["cluster_id"], found["last_seen_at"]) == (
        "cluster-west",
        "2026-02-22T12:00:00.000000Z",
    )
    assert api.gateway.agents.heartbeats.state["agent-42"].cluster_id == "cluster-west"


def test_heartbeat_of_another_type_returns_422(api: ApiHarness) -> None:
    answer = beat(api, "agent-43", type="status_update")
    assert (answer.status, answer.json) == (
        422,
        {"status": "error", "reason": "invalid_heartbeat_type"},
    )
    assert row(api, "agent-43") is None
    assert "agent-43" not in api.gateway.agents.heartbeats.state


def test_stopped_heartbeat_manager_returns_503_and_stores_nothing(own: ApiHarness) -> None:
    own.gateway.agents.heartbeats.stop()
    answer = beat(own, "agent-down")
    assert (answer.status, answer.json) == (
        503,
        {"status": "error", "reason": "heartbeat_manager_unavailable"},
    )
    message = own.ask("POST", "/gateway/messages", log_of("agent-down"))
    assert (message.status, message.json) == (answer.status, answer.json)
    assert row(own, "agent-down") is None


def test_heartbeat_is_in_memory_before_it_is_stored(
    own: ApiHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    known: list[bool] = []
    record = agents.record_heartbeats

    def spying(tx: Any, gathered: Any, now: Any) -> None:
        known.append("agent-1" in own.gateway.agents.heartbeats.state)
        record(tx, gathered, now)

    monkeypatch.setattr(agents, "record_heartbeats", spying)
    assert beat(own, "agent-1").status == 200
    assert known == [True]


def test_heartbeats_of_an_agent_are_one_row(
    own: ApiHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeat_batch, "BATCH_INTERVAL", 0.0)
    for second in range(100):
        moment = f"2026-02-22T12:{second // 60:02}:{second % 60:02}Z"
        assert beat(own, timestamp=moment).status == 200
    rows = own.gateway.ledger.read(agents.list_agents)
    assert [(r["agent_id"], r["last_seen_at"]) for r in rows] == [
        ("agent-42", "2026-02-22T12:01:39.000000Z")
    ]


def test_silent_agent_is_evicted(own: ApiHarness) -> None:
    beat(own, "agent-99")
    later = own.gateway.clock.now() + timedelta(seconds=91)
    own.gateway.agents.heartbeats.tick(later)
    assert "agent-99" not in own.gateway.agents.heartbeats.state
    assert published(own, "gateway:capabilities")[-1]["agent_id"] == "agent-99"
    assert {"heartbeats", "reminders"} <= own.gateway.loops.keys()


@pytest.mark.parametrize("field", ["agent_id", "cluster_id"])
@pytest.mark.parametrize("value", ["", " ", None, 1, []])
def test_missing_id_returns_422(api: ApiHarness, field: str, value: Any) -> None:
    answer = beat(api, **{field: value})
    assert (answer.status, answer.json) == (
        422,
        {"status": "error", "reason": "missing_required_field", "field": field},
    )


@pytest.mark.parametrize("path", ["/gateway/heartbeat", "/gateway/messages"])
@pytest.mark.parametrize(
    "raw", [b"", b"{", b"nonsense", b"\xff", b'{"a": NaN}', b'{"a": "\\ud800"}', b"{} {}", b"[" * 9]
)
def test_invalid_json_returns_400(api: ApiHarness, path: str, raw: bytes) -> None:
    answer = api.ask("POST", path, raw)
    assert (answer.status, answer.json) == (400, {"status": "error", "reason": "invalid_json"})


@pytest.mark.parametrize("stamp", ["yesterday", "", None, 17, "9999-12-31T23:59:59-23:00"])
def test_unreadable_timestamp_is_replaced_by_the_gateways_time(api: ApiHarness, stamp: Any) -> None:
    before = to_text(api.gateway.clock.now())
    assert beat(api, "agent-clock", timestamp=stamp).status == 200
    found = row(api, "agent-clock")
    assert found is not None
    assert before <= found["last_seen_at"] <= to_text(api.gateway.clock.now())


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (("x" * 201, "c"), "invalid_agent_id"),
        (("a\nb", "c"), "invalid_agent_id"),
        (("a", "c\x1b[2J"), "invalid_cluster_id"),
    ],
)
def test_invalid_id_returns_422(api: ApiHarness, given: Any, reason: str) -> None:
    answer = beat(api, *given)
    assert (answer.status, answer.json["reason"]) == (422, reason)


def test_too_large_body_returns_413_in_the_agent_shape(api: ApiHarness) -> None:
    for path, size in (("/gateway/heartbeat", 17_000), ("/gateway/messages", 66_000)):
        answer = api.ask("POST", path, b"x" * size)
        assert answer.status == 413
        assert (answer.json["status"], answer.json["reason"]) == ("error", "body_too_large")


def test_concurrent_heartbeats_are_all_stored(api: ApiHarness) -> None:
    names = [f"many-{number:03}" for number in range(60)]
    answers: list[int] = []
    threads = [
        threading.Thread(target=lambda name=name: answers.append(beat(api, name).status))
        for name in names
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [200] * len(names)
    assert all(row(api, name) for name in names)


# Decision logs


def test_decision_log_is_published(api: ApiHarness) -> None:
    answer = api.ask("POST", "/gateway/messages", log_of("agent-log"))
    assert (answer.status, answer.json) == (202, {"status": "accepted", "trace_id": "t-1"})
    assert published(api, "gateway:messages")[-1] == log_of("agent-log")


def test_invalid_decision_log_returns_422_and_is_recorded(api: ApiHarness) -> None:
    raw = json.dumps(log_of("agent-bad", status="canary-0123456789")).encode()
    answer = api.ask("POST", "/gateway/messages", raw, token=AGENT)
    assert (answer.status, answer.json) == (
        422,
        {
            "status": "rejected",
            "reason": "schema_violation",
            "detail": "action.status must be one of success, failure, pending, skipped",
            "trace_id": None,
        },
    )
    violation = published(api, "gateway:violations")[-1]
    assert violation["sha256"] == hashlib.sha256(raw).hexdigest()
    assert violation["sender"] == "agent"
    assert "canary" not in json.dumps(violation)
    assert row(api, "agent-bad") is None


def test_too_deep_decision_log_returns_422(api: ApiHarness) -> None:
    deep = json.dumps(log_of("agent-deep")).encode()[:-1] + b',"x":' + b"[" * 120 + b"]" * 120
    answer = api.ask("POST", "/gateway/messages", deep + b"}")
    assert (answer.status, answer.json["reason"]) == (422, "schema_violation")
    assert "100 levels" in answer.json["detail"]


def test_decision_log_with_an_integer_beyond_64_bits_returns_422(api: ApiHarness) -> None:
    raw = json.dumps(log_of("agent-large")).encode()[:-1] + b',"x":18446744073709551616}'
    answer = api.ask("POST", "/gateway/messages", raw)
    assert (answer.status, answer.json["reason"]) == (422, "schema_violation")
    assert "64 bits" in answer.json["detail"]


def test_reminder_is_published_on_the_agents_topic(api: ApiHarness) -> None:
    agent_id = 'agent "7", of: team/é'
    tool_input = {"delay_ms": 50, "payload": {"task": "check_quota"}}
    document = log_of(agent_id, tool_call="schedule_reminder", tool_input=tool_input)
    topic = f"agent:{agent_id}:scheduled"
    with subscribed(api, f"?topic={quote(topic, safe='')}") as subscriber:
        assert api.ask("POST", "/gateway/messages", document).status == 202
        event = subscriber.next()
    assert event["event"] == "reminder"
    assert event["data"]["topic"] == topic
    assert event["data"]["data"] == {"task": "check_quota"}


def test_decision_log_with_an_invalid_delay_is_accepted_without_a_reminder(api: ApiHarness) -> None:
    document = log_of("agent-8", tool_call="schedule_reminder", tool_input={"delay_ms": -500})
    assert api.ask("POST", "/gateway/messages", document).status == 202
    kept = api.gateway.ledger.read(lambda tx: reminders.list_reminders(tx, agent_id="agent-8"))
    assert kept == []
    assert published(api, "gateway:messages")[-1] == document


@pytest.mark.parametrize(
    ("topic", "cause"),
    [
        ("gateway:messages", lambda api: log_of("agent-topic")),
        ("gateway:violations", lambda api: {}),
        ("gateway:capabilities", lambda api: log_of("agent-fresh")),
    ],
)
def test_agent_topics_are_streamed(
    api: ApiHarness, topic: str, cause: Callable[[ApiHarness], dict[str, Any]]
) -> None:
    with subscribed(api, f"?topic={topic}") as subscriber:
        api.ask("POST", "/gateway/messages", cause(api))
        assert subscriber.next()["data"]["topic"] == topic


def test_published_log_is_redacted(api: ApiHarness) -> None:
    document = log_of("agent-leak", tool_output_summary=f"token {ADMIN}")
    api.ask("POST", "/gateway/messages", document)
    shown = published(api, "gateway:messages")[-1]
    assert shown["action"]["tool_output_summary"] == "token [REDACTED]"


# Operators


def test_agents_are_listed_in_pages(own: ApiHarness) -> None:
    for name in ("c", "a", "b"):
        beat(own, name)
    page = own.ask("GET", "/gateway/heartbeats?limit=2").json
    assert [(r["agent_id"], r["state"]) for r in page["agents"]] == [("a", "live"), ("b", "live")]
    assert page["cursor"] == "b"
    assert own.ask("GET", "/gateway/heartbeats?limit=3").json["cursor"] is None
    rest = own.ask("GET", "/gateway/heartbeats?after=b").json
    assert ([r["agent_id"] for r in rest["agents"]], rest["cursor"]) == (["c"], None)
    own.gateway.agents.heartbeats.tick(own.gateway.clock.now() + timedelta(seconds=91))
    assert {r["state"] for r in own.ask("GET", "/gateway/heartbeats").json["agents"]} == {"gone"}
    assert own.ask("GET", "/gateway/heartbeats?live=true").json["agents"] == []
    (one,) = own.ask("GET", "/gateway/heartbeats?agent_id=b").json["agents"]
    assert one["agent_id"] == "b"


def test_capabilities_are_listed(own: ApiHarness) -> None:
    beat(own, "mute")
    own.ask("POST", "/gateway/messages", log_of("able"))
    assert own.ask("GET", "/gateway/capabilities").json == {
        "agents": [
            {
                "agent_id": "able",
                "cluster_id": "west",
                "capabilities": {
                    "agent_type": "planner",
                    "capability_version": "1.2",
                    "capabilities": ["search"],
                },
            }
        ],
        "cursor": None,
    }


def test_reminder_is_created_listed_and_removed(api: ApiHarness) -> None:
    body = {"agent_id": "agent-r", "delay_ms": 3_600_000, "payload": {"a": 1}}
    planned = api.ask("POST", "/gateway/cron", {**body, "dry_run": True}).json
    assert planned["dry_run"] is True
    assert api.ask("GET", "/gateway/cron?agent_id=agent-r").json["reminders"] == []
    made = api.ask("POST", "/gateway/cron", body)
    assert made.status == 201
    (listed,) = api.ask("GET", "/gateway/cron?agent_id=agent-r").json["reminders"]
    assert listed == made.json
    path = f"/gateway/cron/{made.json['id']}/forget"
    assert api.ask("POST", path, {"dry_run": True}).json["dry_run"] is True
    assert api.ask("POST", path).json == listed
    assert api.ask("POST", path).status == 404
    assert api.ask("GET", "/gateway/cron?agent_id=agent-r").json["reminders"] == []


def test_recurring_reminder_is_listed_with_the_schedules(api: ApiHarness) -> None:
    body = {"agent_id": "agent-c", "schedule": "0 3 * * *", "payload": {"secret": "s"}}
    made = api.ask("POST", "/gateway/cron", body).json
    listed = api.ask("GET", "/scheduler/jobs").json["reminders"]
    (found,) = [one for one in listed if one["id"] == made["id"]]
    assert (found["schedule"], found["is_one_time"]) == ("0 3 * * *", False)
    assert "payload" not in found


@pytest.mark.parametrize(
    ("body", "status", "reason"),
    [
        ({"agent_id": "a", "delay_ms": 0}, 422, "invalid_delay"),
        ({"agent_id": "a", "delay_ms": True}, 422, "invalid_delay"),
        ({"agent_id": "a", "delay_ms": "5"}, 422, "invalid_delay"),
        ({"agent_id": "", "delay_ms": 5}, 422, "invalid_agent_id"),
        ({"delay_ms": 5}, 422, "invalid_agent_id"),
        ({"agent_id": "a", "delay_ms": 5, "payload": []}, 422, "invalid_payload"),
        ({"agent_id": "a", "schedule": "x"}, 422, "invalid_schedule"),
        ({"agent_id": "a", "schedule": 5}, 422, "invalid_schedule"),
        ({"agent_id": "a"}, 400, "usage"),
        ({"agent_id": "a", "delay_ms": 5, "payloda": {}}, 400, "usage"),
        ({"agent_id": "a", "delay_ms": 5, "schedule": "* * * * *"}, 400, "usage"),
        (b"{", 400, "invalid_json"),
        (b"[]", 400, "usage"),
        (b'{"agent_id": "a", "delay_ms": 5, "payload": ' + deep(100) + b"}", 400, "usage"),
        (b'{"agent_id": "a", "delay_ms": 5, "x": ' + deep(1000) + b"}", 400, "usage"),
    ],
)
def test_invalid_reminder_is_refused(api: ApiHarness, body: Any, status: int, reason: str) -> None:
    answer = api.ask("POST", "/gateway/cron", body)
    assert (answer.status, answer.json["status"], answer.json["reason"]) == (
        status,
        "error",
        reason,
    )
    assert answer.json["detail"]


def test_payload_at_the_nesting_limit_is_listed(api: ApiHarness) -> None:
    body = b'{"agent_id": "agent-d", "delay_ms": 3600000, "payload": ' + deep(99) + b"}"
    assert api.ask("POST", "/gateway/cron", body).status == 201
    (listed,) = api.ask("GET", "/gateway/cron?agent_id=agent-d").json["reminders"]
    assert listed["payload"] == json.loads(deep(99))


@pytest.mark.parametrize("levels", [253, 254, 600, 1000])
def test_too_deep_payload_in_the_ledger_is_listed_as_text(api: ApiHarness, levels: int) -> None:
    at, agent_id = api.gateway.clock.now() + timedelta(hours=1), f"agent-{levels}"
    new = NewReminder(agent_id, at, deep(levels).decode(), None)
    api.gateway.ledger.write(lambda tx: reminders.add_reminder(tx, new))
    answer = api.ask("GET", f"/gateway/cron?agent_id={agent_id}")
    assert answer.status == 200
    assert answer.json["reminders"][0]["payload"] == deep(levels).decode()


@pytest.mark.parametrize("id", ["0", "x", "-1", "9" * 30, "²", "1.5"])
def test_unknown_reminder_returns_404(api: ApiHarness, id: str) -> None:
    answer = api.ask("POST", f"/gateway/cron/{quote(id)}/forget")
    assert (answer.status, answer.json["reason"]) == (404, "not_found")


@pytest.mark.parametrize("query", ["limit=0", "limit=1001", "limit=x", "limit=%C2%B2"])
def test_invalid_page_is_refused(api: ApiHarness, query: str) -> None:
    for path in ("/gateway/heartbeats", "/gateway/cron", "/gateway/capabilities"):
        assert api.ask("GET", f"{path}?{query}").status == 400
    assert api.ask("GET", "/gateway/cron?after=x").status == 400


def test_number_of_reminders_is_limited(own: ApiHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reminders, "MAX_REMINDERS", 1)
    body = {"agent_id": "a", "delay_ms": 3_600_000}
    assert own.ask("POST", "/gateway/cron", body).status == 201
    answer = own.ask("POST", "/gateway/cron", body)
    assert (answer.status, answer.json["reason"]) == (409, "too_many_reminders")


# Access


def test_agent_routes_require_agent_scopes(api: ApiHarness) -> None:
    assert api.ask("POST", "/gateway/heartbeat", heartbeat(), token=AGENT).status == 200
    assert api.ask("GET", "/gateway/heartbeats", token=AGENT).status == 200
    assert api.ask("GET", "/gateway/heartbeats", token=WATCHER).status == 200
    for path in ("/gateway/heartbeat", "/gateway/messages", "/gateway/cron"):
        answer = api.ask("POST", path, heartbeat(), token=WATCHER)
        assert (answer.status, answer.json["status"]) == (403, "error")
        assert answer.json["reason"] == "forbidden"
    assert api.ask("GET", "/jobs", token=AGENT).status == 403


@pytest.mark.parametrize("token", [None, "wrong", "dtk_wrong"])
def test_errors_have_the_agent_shape(api: ApiHarness, token: str | None) -> None:
    answer = api.ask("POST", "/gateway/heartbeat", heartbeat(), token=token)
    assert (answer.status, answer.json["status"]) == (401, "error")
    assert answer.json["reason"] == "unauthorized"
    missing = api.ask("GET", "/gateway/nowhere")
    assert (missing.status, missing.json["reason"]) == (404, "not_found")
    wrong = api.ask("GET", "/gateway/heartbeat")
    assert (wrong.status, wrong.json["reason"]) == (405, "method_not_allowed")


def test_open_gateway_accepts_heartbeats_and_logs_without_a_token() -> None:
    with running_api(CONFIG + "gateway: {open: true}\n") as api:
        for token in (None, NOTHING):
            assert api.ask("POST", "/gateway/heartbeat", heartbeat(), token=token).status == 200
            assert api.ask("POST", "/gateway/messages", LOG, token=token).status == 202
        assert api.ask("POST", "/gateway/messages", {}, token=None).status == 422
        assert published(api, "gateway:violations")[-1]["sender"] is None
        assert api.ask("GET", "/gateway/heartbeats", token=None).status == 401
        assert api.ask("POST", "/gateway/cron", {}, token=None).status == 401
