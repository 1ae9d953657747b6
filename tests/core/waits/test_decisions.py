"""Begin and end of a wait, as pure decisions."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ductile.clock import Ids
from ductile.core.pipelines.build_router import build_router
from ductile.core.pipelines.compiler.compile import compile_pipelines
from ductile.core.pipelines.intents import MatchWaits, SpawnJob
from ductile.core.pipelines.pipeline import Compiled
from ductile.core.pipelines.router import Router
from ductile.core.values.json_values import Failure
from ductile.core.waits.begin import MAX_TITLE, NewWait, begin_wait, is_matched
from ductile.core.waits.decision import OpenWait, WaitEnd, WaitStatus
from ductile.core.waits.end import WAIT_EXPIRED, settle_wait, time_is_up
from ductile.core.waits.parse import OnTimeout, WaitKind
from ductile.model import Event, Job, JobStatus, SubmittedBy

NOW = datetime(2027, 1, 1, tzinfo=UTC)
BASE = "01930000-0000-7000-8000-000000000000"
PLUGINS = {"a": frozenset({"handle"})}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


def router_of(wait: Any, *more: dict[str, Any]) -> Router:
    steps = [{"id": "hold", "wait": wait}, {"id": "next", "uses": "a"}]
    found = compile_pipelines([{"name": "p", "on": "go", "steps": steps}, *more], PLUGINS)
    assert isinstance(found, Compiled), found
    return build_router((), found)


def begin(wait: Any, payload: Any, context: dict[str, Any] | None = None) -> NewWait | Failure:
    node = router_of(wait).node("p", "hold")
    assert node is not None
    return begin_wait(node, payload, context or {}, NOW, hops=1, wait_id="w", token_hash="h")


def must_begin(wait: Any, payload: Any = None) -> NewWait:
    begun = begin(wait, payload or {})
    assert isinstance(begun, NewWait), begun
    return begun


def waiting_job(payload: Any = None) -> Job:
    return Job(
        id="j",
        plugin="core.wait",
        command="handle",
        payload={"type": "go", "payload": {"n": 1} if payload is None else payload},
        status=JobStatus.QUEUED,
        attempt=1,
        max_attempts=1,
        submitted_by=SubmittedBy.API.value,
        dedupe_key=None,
        created_at=NOW,
        started_at=None,
        completed_at=None,
        next_retry_at=None,
        last_error=None,
        parent_job_id=None,
        source_event_id=None,
        owner=None,
        pipeline="p",
        step_path="hold",
        scope_id="s",
    )


def test_times_of_a_wait() -> None:
    assert must_begin(60.0).due_at == NOW + timedelta(minutes=1)
    assert must_begin({"approval": "x"}).due_at is None
    assert must_begin({"approval": "x", "timeout": 5}).due_at == NOW + timedelta(seconds=5)
    begun = must_begin({"until": "{payload.at}"}, {"at": "2027-02-03T04:00:00+02:00"})
    assert begun.due_at == datetime(2027, 2, 3, 2, tzinfo=UTC)


def test_only_an_approval_has_a_link() -> None:
    assert must_begin({"approval": "x"}).token_hash == "h"
    assert must_begin({"event": "x"}).token_hash is None


@pytest.mark.parametrize(
    ("wait", "reason"),
    [
        ({"approval": "{payload.missing}"}, "wait.approval.title: payload.missing does not exist"),
        ({"until": "{payload.n}"}, "wait.until: 1 is not a time"),
        (
            {"event": "x", "if": {"path": "payload.a", "op": "eq", "value": "{payload.b}"}},
            "wait.if: payload.b does not exist",
        ),
    ],
)
def test_wait_that_cannot_begin_fails_with_the_reason(wait: Any, reason: str) -> None:
    found = begin(wait, {"n": 1})
    assert isinstance(found, Failure)
    assert found.reason.startswith(reason)


@given(JSON)
def test_title_of_any_value_is_short_text_without_nul(value: Any) -> None:
    begun = must_begin({"approval": "{payload.v}"}, {"v": value})
    assert len(begun.title) <= MAX_TITLE
    assert "\0" not in begun.title


@given(JSON, JSON)
def test_rendered_condition_matches_exactly_the_equal_value(own: Any, other: Any) -> None:
    condition = {"path": "payload.id", "op": "eq", "value": "{payload.id}"}
    begun = must_begin({"event": "x", "if": condition}, {"id": own})
    assert is_matched(begun.condition, {"id": own}, {})
    if orjson.dumps(own) != orjson.dumps(other) and not isinstance(own, int | float | dict):
        assert not is_matched(begun.condition, {"id": other}, {})


def test_condition_whose_rendered_value_has_another_type_matches_nothing() -> None:
    condition = {"path": "payload.id", "op": "startswith", "value": "{payload.id}"}
    begun = must_begin({"event": "x", "if": condition}, {"id": 7})
    assert not is_matched(begun.condition, {"id": "7"}, {})
    assert is_matched(None, {}, {})


ENDS = [status for status in WaitStatus if status is not WaitStatus.CANCELLED]
KINDS = st.sampled_from(list(WaitKind))


@pytest.mark.parametrize("on_timeout", list(OnTimeout))
@pytest.mark.parametrize("status", ENDS)
@given(kind=KINDS, payload=JSON, comment=st.text(max_size=9) | st.none())
def test_every_end_has_one_status_and_continues_only_on_success(
    status: WaitStatus, kind: WaitKind, on_timeout: OnTimeout, payload: Any, comment: str | None
) -> None:
    router = router_of({"approval": "x"})
    wait = OpenWait("w", kind, NOW, "x", "paid", on_timeout)
    end = WaitEnd(status, NOW + timedelta(seconds=3), "token:ann", comment)
    settled = settle_wait(waiting_job(payload), wait, end, {}, router, Ids(BASE))
    follows = [intent for intent in settled.intents if isinstance(intent, SpawnJob)]
    assert settled.duration == 3.0
    if status is WaitStatus.REJECTED:
        expected = JobStatus.FAILED
    elif status is WaitStatus.EXPIRED:
        expected = {
            OnTimeout.FAIL: JobStatus.FAILED,
            OnTimeout.CONTINUE: JobStatus.SUCCEEDED,
            OnTimeout.SKIP: JobStatus.SKIPPED,
        }[on_timeout]
    else:
        expected = JobStatus.SUCCEEDED
    assert settled.path == (expected,)
    assert [job.step_path for job in follows] == (
        ["next"] if expected is JobStatus.SUCCEEDED else []
    )
    assert (settled.error is None) is (expected is JobStatus.SUCCEEDED)
    # A transaction that is run again writes the same.
    assert settle_wait(waiting_job(payload), wait, end, {}, router, Ids(BASE)) == settled


def test_end_of_its_time_means_success_for_a_time_and_expiry_for_others() -> None:
    assert [time_is_up(kind) for kind in WaitKind] == [
        WaitStatus.EXPIRED,
        WaitStatus.EXPIRED,
        WaitStatus.ELAPSED,
        WaitStatus.ELAPSED,
    ]


def test_expired_wait_continues_with_an_event_of_its_own() -> None:
    wait = OpenWait("w", WaitKind.APPROVAL, NOW, "x", None, OnTimeout.CONTINUE)
    end = WaitEnd(WaitStatus.EXPIRED, NOW)
    settled = settle_wait(waiting_job(), wait, end, {}, router_of({"approval": "x"}), Ids(BASE))
    [job] = settled.intents
    assert job.event.type == WAIT_EXPIRED
    assert job.event.payload["n"] == 1
    assert job.event.payload["result"]["wait"] == "expired"


def test_step_that_a_reload_removed_fails_with_the_reason() -> None:
    wait = OpenWait("w", WaitKind.APPROVAL, NOW, "x")
    job = replace(waiting_job(), step_path="gone")
    end = WaitEnd(WaitStatus.APPROVED, NOW, "token:ann")
    settled = settle_wait(job, wait, end, {}, router_of({"approval": "x"}), Ids(BASE))
    assert settled.path == (JobStatus.FAILED,)
    assert settled.error == "step gone no longer exists in pipeline p"


def test_only_awaited_events_are_compared_with_waits() -> None:
    router = router_of({"event": "paid"})
    assert router.awaited == {"paid"}
    events = [Event(kind, {}, None, "a", NOW, f"e-{kind}") for kind in ("paid", "other")]
    found = [
        router.arrive(event, plugin=None, submitted_by=SubmittedBy.API).intents for event in events
    ]
    assert found == [(MatchWaits(events[0]),), ()]
