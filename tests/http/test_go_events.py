"""Events in the form of the Go program."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from ductile.http.go_events import encode_go_event
from ductile.store.engines.api import Position, StoredNotice

JOB = {"job_id": "j", "plugin": "echo", "command": "poll", "attempt": 1}
AT = "2026-02-08T10:00:00.000000Z"


def encoded(type: str, payload: Any, topic: str = "jobs") -> tuple[str, dict[str, Any]]:
    text = orjson.dumps(payload).decode()
    notice = StoredNotice(7, topic, type, None, text, AT)
    id, event, data, *rest = encode_go_event(notice).split("\n")
    assert (id, rest) == (f"id: {Position(0, 7)}", ["", ""])
    return event.removeprefix("event: "), orjson.loads(data.removeprefix("data: "))


@pytest.mark.parametrize(
    ("type", "more", "name"),
    [
        ("job.queued", {}, "job.enqueued"),
        ("job.queued", {"parent_job_id": "p"}, "router.enqueued"),
        ("job.queued", {"pipeline": "flow", "parent_job_id": None}, "router.enqueued"),
        ("job.started", {}, "job.started"),
        ("job.succeeded", {}, "job.completed"),
        ("job.failed", {}, "job.failed"),
        ("job.dead", {}, "job.failed"),
        ("job.timed_out", {}, "job.timed_out"),
        ("job.retrying", {}, "job.retry_scheduled"),
        ("job.skipped", {}, "job.skipped"),
        ("breaker.open", {}, "breaker.open"),
    ],
)
def test_names(type: str, more: dict[str, Any], name: str) -> None:
    assert encoded(type, {**JOB, **more})[0] == name


def test_data_is_flat_and_has_its_time() -> None:
    ended = {**JOB, "status": "succeeded", "error": None, "duration_ms": 12.5}
    assert encoded("job.succeeded", ended)[1] == {
        "at": AT,
        **JOB,
        "status": "succeeded",
        "duration_ms": 12,
    }


def test_failure_has_a_message() -> None:
    _, data = encoded("job.dead", {**JOB, "status": "dead", "error": "no network"})
    assert data["message"] == data["text"] == "Job failed [echo]: no network"
    _, data = encoded("job.timed_out", {**JOB, "error": "timed out after 2 s"})
    assert data["message"] == "Job timed out [echo]"


def test_routed_job_has_its_step_id() -> None:
    _, data = encoded("job.queued", {**JOB, "pipeline": "flow", "step": "two"})
    assert (data["pipeline"], data["step_id"]) == ("flow", "two")


def test_data_that_is_not_an_object_is_kept() -> None:
    assert encoded("agent.message", [1])[1] == {"at": AT, "data": [1]}


@pytest.mark.parametrize("topic", ["jobs", "session:one"])
def test_fields_may_have_any_type(topic: str) -> None:
    fields = {"step": 3, "plugin": [1], "error": {"a": 1}, "duration_ms": "long"}
    assert fields.items() <= encoded("job.failed", fields, topic)[1].items()


def test_events_of_agents_are_not_translated() -> None:
    fields = {"step": "a.b", "duration_ms": 1.5}
    assert encoded("job.queued", fields, "gateway:messages") == ("job.queued", {"at": AT, **fields})
