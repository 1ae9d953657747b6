"""What agents post and operators read (004), over real HTTP."""

from __future__ import annotations

import hashlib
import http.client
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
from ductile.errors import LedgerFull
from ductile.http.middleware import heartbeat_batch
from ductile.store import agents, notices, reminders
from ductile.store.engines.api import BEGINNING
from tests.core.agents.test_decision_log import LOG
from tests.http.doors import ADMIN, CONFIG, NOTHING, Answer, House, opened
from tests.http.following import following
from tests.waiting import WAIT_LIMIT

TIMESTAMP = "2026-02-22T12:00:00Z"
AGENT, WATCHER = "agent-token-0123456789", "watcher-token-0123456789"
TOKENS = f"""\
      - {{token: {AGENT}, scopes: ["agents:rw"], name: agent}}
      - {{token: {WATCHER}, scopes: ["agents:ro"], name: watcher}}
"""


@pytest.fixture(scope="module")
def house() -> Iterator[House]:
    with opened(CONFIG + TOKENS) as house:
        yield house


@pytest.fixture
def own() -> Iterator[House]:
    """A gateway of the test's own, whose loops it may stop."""
    with opened() as house:
        yield house


def deep(levels: int) -> bytes:
    return b'{"a":' * (levels - 1) + b"{}" + b"}" * (levels - 1)


def heartbeat(agent_id: Any = "agent-42", cluster_id: Any = "cluster-west", **more: Any) -> Any:
    body = {"type": "heartbeat", "agent_id": agent_id, "cluster_id": cluster_id}
    return {**body, "timestamp": TIMESTAMP, **more}


def beat(house: House, *given: Any, **more: Any) -> Answer:
    return house.ask("POST", "/gateway/heartbeat", heartbeat(*given, **more))


def row(house: House, agent_id: str) -> dict[str, Any] | None:
    return house.gateway.ledger.read(lambda tx: agents.find_agent(tx, agent_id))


def log_of(agent_id: str, **action: Any) -> dict[str, Any]:
    document = deepcopy(LOG)
    document["identity"]["agent_id"] = agent_id
    document["action"] |= action
    return document


def told(house: House, topic: str) -> list[Any]:
    found = house.gateway.ledger.read(lambda tx: notices.list_after(tx, BEGINNING, 10_000))
    return [json.loads(notice.payload) for notice in found if notice.topic == topic]


# Heartbeats


def test_fr_10_3_positive_a_heartbeat_is_a_row_and_an_entry(house: House) -> None:
    answer = beat(house)
    assert (answer.status, answer.json) == (200, {"status": "ok"})
    found = row(house, "agent-42")
    assert found is not None
    assert (found["cluster_id"], found["last_seen_at"]) == (
        "cluster-west",
        "2026-02-22T12:00:00.000000Z",
    )
    assert house.gateway.agents.heartbeats.state["agent-42"].cluster_id == "cluster-west"


def test_fr_10_3_negative_another_type_touches_nothing(house: House) -> None:
    answer = beat(house, "agent-43", type="status_update")
    assert (answer.status, answer.json) == (
        422,
        {"status": "error", "reason": "invalid_heartbeat_type"},
    )
    assert row(house, "agent-43") is None
    assert "agent-43" not in house.gateway.agents.heartbeats.state


def test_fr_10_1_positive_the_route_records_the_heartbeat(house: House) -> None:
    before = house.gateway.clock.now()
    beat(house, "agent-10", "cluster-east")
    seen = house.gateway.agents.heartbeats.state["agent-10"]
    assert seen.cluster_id == "cluster-east"
    assert before <= seen.last_seen <= house.gateway.clock.now()


def test_fr_10_1_negative_a_manager_that_is_down_is_a_503(own: House) -> None:
    own.gateway.agents.heartbeats.stop()
    answer = beat(own, "agent-down")
    assert (answer.status, answer.json) == (
        503,
        {"status": "error", "reason": "heartbeat_manager_unavailable"},
    )
    message = own.ask("POST", "/gateway/messages", log_of("agent-down"))
    assert (message.status, message.json) == (answer.status, answer.json)


def test_reading_order_no_upsert_when_the_manager_is_down(own: House) -> None:
    own.gateway.agents.heartbeats.stop()
    beat(own, "agent-down")
    assert row(own, "agent-down") is None


def test_reading_order_in_memory_before_the_upsert(
    own: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    known: list[bool] = []
    record = agents.record_heartbeats

    def spying(tx: Any, gathered: Any, now: Any) -> None:
        known.append("agent-1" in own.gateway.agents.heartbeats.state)
        record(tx, gathered, now)

    monkeypatch.setattr(agents, "record_heartbeats", spying)
    assert beat(own, "agent-1").status == 200
    assert known == [True]


def test_fr_10_4_positive_a_hundred_heartbeats_are_one_row(
    own: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeat_batch, "BATCH_INTERVAL", 0.0)
    for second in range(100):
        moment = f"2026-02-22T12:{second // 60:02}:{second % 60:02}Z"
        assert beat(own, timestamp=moment).status == 200
    rows = own.gateway.ledger.read(agents.list_agents)
    assert [(r["agent_id"], r["last_seen_at"]) for r in rows] == [
        ("agent-42", "2026-02-22T12:01:39.000000Z")
    ]


def test_fr_10_4_negative_the_table_is_there_before_the_first_heartbeat(own: House) -> None:
    assert own.gateway.ledger.read(agents.list_agents) == []


def test_fr_10_2_positive_the_loop_evicts(own: House) -> None:
    beat(own, "agent-99")
    later = own.gateway.clock.now() + timedelta(seconds=91)
    own.gateway.agents.heartbeats.tick(later)
    assert "agent-99" not in own.gateway.agents.heartbeats.state
    assert told(own, "gateway:capabilities")[-1]["agent_id"] == "agent-99"
    assert {"heartbeats", "reminders"} <= own.gateway.loops.keys()


@pytest.mark.parametrize("field", ["agent_id", "cluster_id"])
@pytest.mark.parametrize("value", ["", " ", None, 1, []])
def test_reading_empty_ids_are_a_422(house: House, field: str, value: Any) -> None:
    answer = beat(house, **{field: value})
    assert (answer.status, answer.json) == (
        422,
        {"status": "error", "reason": "missing_required_field", "field": field},
    )


@pytest.mark.parametrize("path", ["/gateway/heartbeat", "/gateway/messages"])
@pytest.mark.parametrize(
    "raw", [b"", b"{", b"nonsense", b"\xff", b'{"a": NaN}', b'{"a": "\\ud800"}', b"{} {}", b"[" * 9]
)
def test_reading_broken_json_is_a_400(house: House, path: str, raw: bytes) -> None:
    answer = house.ask("POST", path, raw)
    assert (answer.status, answer.json) == (400, {"status": "error", "reason": "invalid_json"})


@pytest.mark.parametrize("stamp", ["yesterday", "", None, 17, "9999-12-31T23:59:59-23:00"])
def test_a_timestamp_that_cannot_be_read_is_the_gateways_time(house: House, stamp: Any) -> None:
    before = to_text(house.gateway.clock.now())
    assert beat(house, "agent-clock", timestamp=stamp).status == 200
    found = row(house, "agent-clock")
    assert found is not None
    assert before <= found["last_seen_at"] <= to_text(house.gateway.clock.now())


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (("x" * 201, "c"), "invalid_agent_id"),
        (("a\nb", "c"), "invalid_agent_id"),
        (("a", "c\x1b[2J"), "invalid_cluster_id"),
    ],
)
def test_an_id_that_cannot_name_anything(house: House, given: Any, reason: str) -> None:
    answer = beat(house, *given)
    assert (answer.status, answer.json["reason"]) == (422, reason)


def test_a_body_too_large_keeps_the_shape(house: House) -> None:
    for path, size in (("/gateway/heartbeat", 17_000), ("/gateway/messages", 66_000)):
        answer = house.ask("POST", path, b"x" * size)
        assert answer.status == 413
        assert (answer.json["status"], answer.json["reason"]) == ("error", "body_too_large")


def test_many_agents_at_once_are_all_durable(house: House) -> None:
    names = [f"many-{number:03}" for number in range(60)]
    answers: list[int] = []
    threads = [
        threading.Thread(target=lambda name=name: answers.append(beat(house, name).status))
        for name in names
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [200] * len(names)
    assert all(row(house, name) for name in names)


def test_a_ledger_that_takes_nothing_is_told_to_every_caller(
    own: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise LedgerFull("no space")

    monkeypatch.setattr(agents, "record_heartbeats", full)
    answer = beat(own, "agent-full")
    assert (answer.status, answer.json["reason"]) == (507, "ledger_full")
    monkeypatch.undo()
    assert beat(own, "agent-full").status == 200


def test_a_caller_that_leaves_takes_nobody_with_it(house: House) -> None:
    body = json.dumps(heartbeat("left")).encode()
    head = f"POST /gateway/heartbeat HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {ADMIN}"
    with house.connect() as gone:
        gone.sendall(f"{head}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
    assert beat(house, "stayed").status == 200
    assert row(house, "stayed") is not None


# Decision logs


def test_an_accepted_log(house: House) -> None:
    answer = house.ask("POST", "/gateway/messages", log_of("agent-log"))
    assert (answer.status, answer.json) == (202, {"status": "accepted", "trace_id": "t-1"})
    assert told(house, "gateway:messages")[-1] == log_of("agent-log")


def test_a_log_that_breaks_the_rules(house: House) -> None:
    raw = json.dumps(log_of("agent-bad", status="canary-0123456789")).encode()
    answer = house.ask("POST", "/gateway/messages", raw, token=AGENT)
    assert (answer.status, answer.json) == (
        422,
        {
            "status": "rejected",
            "reason": "schema_violation",
            "detail": "action.status must be one of success, failure, pending, skipped",
            "trace_id": None,
        },
    )
    violation = told(house, "gateway:violations")[-1]
    assert violation["sha256"] == hashlib.sha256(raw).hexdigest()
    assert violation["sender"] == "agent"
    assert "canary" not in json.dumps(violation)
    assert row(house, "agent-bad") is None


def test_a_log_that_is_too_deep_breaks_the_rules(house: House) -> None:
    deep = json.dumps(log_of("agent-deep")).encode()[:-1] + b',"x":' + b"[" * 120 + b"]" * 120
    answer = house.ask("POST", "/gateway/messages", deep + b"}")
    assert (answer.status, answer.json["reason"]) == (422, "schema_violation")
    assert "100 levels" in answer.json["detail"]


def test_a_log_with_an_integer_that_would_be_altered_breaks_the_rules(house: House) -> None:
    raw = json.dumps(log_of("agent-large")).encode()[:-1] + b',"x":18446744073709551616}'
    answer = house.ask("POST", "/gateway/messages", raw)
    assert (answer.status, answer.json["reason"]) == (422, "schema_violation")
    assert "64 bits" in answer.json["detail"]


def test_fr_10_7_positive_a_reminder_comes_on_the_agents_topic(house: House) -> None:
    agent_id = 'agent "7", of: team/é'
    tool_input = {"delay_ms": 50, "payload": {"task": "check_quota"}}
    document = log_of(agent_id, tool_call="schedule_reminder", tool_input=tool_input)
    topic = f"agent:{agent_id}:scheduled"
    with following(house, f"?topic={quote(topic, safe='')}") as follower:
        assert house.ask("POST", "/gateway/messages", document).status == 202
        event = follower.next()
    assert event["event"] == "reminder"
    assert event["data"]["topic"] == topic
    assert event["data"]["data"] == {"task": "check_quota"}


def test_fr_10_7_negative_a_bad_delay_is_no_error_to_the_agent(house: House) -> None:
    document = log_of("agent-8", tool_call="schedule_reminder", tool_input={"delay_ms": -500})
    assert house.ask("POST", "/gateway/messages", document).status == 202
    kept = house.gateway.ledger.read(lambda tx: reminders.list_reminders(tx, agent_id="agent-8"))
    assert kept == []
    assert told(house, "gateway:messages")[-1] == document


@pytest.mark.parametrize(
    ("topic", "cause"),
    [
        ("gateway:messages", lambda house: log_of("agent-topic")),
        ("gateway:violations", lambda house: {}),
        ("gateway:capabilities", lambda house: log_of("agent-fresh")),
    ],
)
def test_topics_can_be_followed(
    house: House, topic: str, cause: Callable[[House], dict[str, Any]]
) -> None:
    with following(house, f"?topic={topic}") as follower:
        house.ask("POST", "/gateway/messages", cause(house))
        assert follower.next()["data"]["topic"] == topic


def test_secrets_of_the_config_are_not_published(house: House) -> None:
    document = log_of("agent-leak", tool_output_summary=f"token {ADMIN}")
    house.ask("POST", "/gateway/messages", document)
    published = told(house, "gateway:messages")[-1]
    assert published["action"]["tool_output_summary"] == "token [REDACTED]"


# Operators


def test_agents_are_listed_in_pages(own: House) -> None:
    for name in ("c", "a", "b"):
        beat(own, name)
    page = own.ask("GET", "/gateway/heartbeats?limit=2").json
    assert [(r["agent_id"], r["state"]) for r in page["agents"]] == [("a", "live"), ("b", "live")]
    assert page["cursor"] == "b"
    rest = own.ask("GET", "/gateway/heartbeats?after=b").json
    assert ([r["agent_id"] for r in rest["agents"]], rest["cursor"]) == (["c"], None)
    own.gateway.agents.heartbeats.tick(own.gateway.clock.now() + timedelta(seconds=91))
    assert {r["state"] for r in own.ask("GET", "/gateway/heartbeats").json["agents"]} == {"gone"}
    assert own.ask("GET", "/gateway/heartbeats?live=true").json["agents"] == []
    (one,) = own.ask("GET", "/gateway/heartbeats?agent_id=b").json["agents"]
    assert one["agent_id"] == "b"


def test_capabilities_are_listed(own: House) -> None:
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


def test_a_reminder_is_made_listed_and_forgotten(house: House) -> None:
    body = {"agent_id": "agent-r", "delay_ms": 3_600_000, "payload": {"a": 1}}
    planned = house.ask("POST", "/gateway/cron", {**body, "dry_run": True}).json
    assert planned["dry_run"] is True
    assert house.ask("GET", "/gateway/cron?agent_id=agent-r").json["reminders"] == []
    made = house.ask("POST", "/gateway/cron", body)
    assert made.status == 201
    (listed,) = house.ask("GET", "/gateway/cron?agent_id=agent-r").json["reminders"]
    assert listed == made.json
    path = f"/gateway/cron/{made.json['id']}/forget"
    assert house.ask("POST", path, {"dry_run": True}).json["dry_run"] is True
    assert house.ask("POST", path).json == listed
    assert house.ask("POST", path).status == 404
    assert house.ask("GET", "/gateway/cron?agent_id=agent-r").json["reminders"] == []


def test_a_recurring_reminder_stands_beside_the_schedules(house: House) -> None:
    body = {"agent_id": "agent-c", "schedule": "0 3 * * *", "payload": {"secret": "s"}}
    made = house.ask("POST", "/gateway/cron", body).json
    listed = house.ask("GET", "/scheduler/jobs").json["reminders"]
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
        ({"agent_id": "a", "delay_ms": 5, "schedule": "* * * * *"}, 400, "usage"),
        (b"{", 400, "invalid_json"),
        (b"[]", 400, "usage"),
        (b'{"agent_id": "a", "delay_ms": 5, "payload": ' + deep(100) + b"}", 400, "usage"),
        (b'{"agent_id": "a", "delay_ms": 5, "x": ' + deep(1000) + b"}", 400, "usage"),
    ],
)
def test_a_reminder_that_is_none(house: House, body: Any, status: int, reason: str) -> None:
    answer = house.ask("POST", "/gateway/cron", body)
    assert (answer.status, answer.json["status"], answer.json["reason"]) == (
        status,
        "error",
        reason,
    )
    assert answer.json["detail"]


def test_the_deepest_reminder_is_listed(house: House) -> None:
    body = b'{"agent_id": "agent-d", "delay_ms": 3600000, "payload": ' + deep(99) + b"}"
    assert house.ask("POST", "/gateway/cron", body).status == 201
    (listed,) = house.ask("GET", "/gateway/cron?agent_id=agent-d").json["reminders"]
    assert listed["payload"] == json.loads(deep(99))


@pytest.mark.parametrize("levels", [253, 254, 600, 1000])
def test_a_deep_reminder_that_stands_in_the_ledger_is_listed_as_text(
    house: House, levels: int
) -> None:
    at, agent_id = house.gateway.clock.now() + timedelta(hours=1), f"agent-{levels}"
    new = NewReminder(agent_id, at, deep(levels).decode(), None)
    house.gateway.ledger.write(lambda tx: reminders.add_reminder(tx, new))
    answer = house.ask("GET", f"/gateway/cron?agent_id={agent_id}")
    assert answer.status == 200
    assert answer.json["reminders"][0]["payload"] == deep(levels).decode()


@pytest.mark.parametrize("id", ["0", "x", "-1", "9" * 30, "²", "1.5"])
def test_a_reminder_that_is_not_there(house: House, id: str) -> None:
    answer = house.ask("POST", f"/gateway/cron/{quote(id)}/forget")
    assert (answer.status, answer.json["reason"]) == (404, "not_found")


@pytest.mark.parametrize("query", ["limit=0", "limit=1001", "limit=x", "limit=%C2%B2"])
def test_a_bad_page(house: House, query: str) -> None:
    for path in ("/gateway/heartbeats", "/gateway/cron", "/gateway/capabilities"):
        assert house.ask("GET", f"{path}?{query}").status == 400
    assert house.ask("GET", "/gateway/cron?after=x").status == 400


def test_there_is_an_end_to_reminders(own: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reminders, "MAX_REMINDERS", 1)
    body = {"agent_id": "a", "delay_ms": 3_600_000}
    assert own.ask("POST", "/gateway/cron", body).status == 201
    answer = own.ask("POST", "/gateway/cron", body)
    assert (answer.status, answer.json["reason"]) == (409, "too_many_reminders")


# Who may


def test_reading_scopes(house: House) -> None:
    assert house.ask("POST", "/gateway/heartbeat", heartbeat(), token=AGENT).status == 200
    assert house.ask("GET", "/gateway/heartbeats", token=AGENT).status == 200
    assert house.ask("GET", "/gateway/heartbeats", token=WATCHER).status == 200
    for path in ("/gateway/heartbeat", "/gateway/messages", "/gateway/cron"):
        answer = house.ask("POST", path, heartbeat(), token=WATCHER)
        assert (answer.status, answer.json["status"]) == (403, "error")
        assert answer.json["reason"] == "forbidden"
    assert house.ask("GET", "/jobs", token=AGENT).status == 403


@pytest.mark.parametrize("token", [None, "wrong", "dtk_wrong"])
def test_errors_below_gateway_keep_their_shape(house: House, token: str | None) -> None:
    answer = house.ask("POST", "/gateway/heartbeat", heartbeat(), token=token)
    assert (answer.status, answer.json["status"]) == (401, "error")
    assert answer.json["reason"] == "unauthorized"
    missing = house.ask("GET", "/gateway/nowhere")
    assert (missing.status, missing.json["reason"]) == (404, "not_found")
    wrong = house.ask("GET", "/gateway/heartbeat")
    assert (wrong.status, wrong.json["reason"]) == (405, "method_not_allowed")


def test_reading_open_takes_heartbeats_and_messages_without_a_token() -> None:
    with opened(CONFIG + "gateway: {open: true}\n") as house:
        for token in (None, NOTHING):
            assert house.ask("POST", "/gateway/heartbeat", heartbeat(), token=token).status == 200
            assert house.ask("POST", "/gateway/messages", LOG, token=token).status == 202
        assert house.ask("POST", "/gateway/messages", {}, token=None).status == 422
        assert told(house, "gateway:violations")[-1]["sender"] is None
        assert house.ask("GET", "/gateway/heartbeats", token=None).status == 401
        assert house.ask("POST", "/gateway/cron", {}, token=None).status == 401


def test_a_heartbeat_on_a_connection_that_is_kept(house: House) -> None:
    connection = http.client.HTTPConnection(*house.address("api"), timeout=WAIT_LIMIT)
    for _ in range(5):
        connection.request(
            "POST",
            "/gateway/heartbeat",
            json.dumps(heartbeat("kept")),
            {"Authorization": f"Bearer {ADMIN}"},
        )
        response = connection.getresponse()
        assert (response.status, response.read()) == (200, b'{"status":"ok"}\n')
    connection.close()
