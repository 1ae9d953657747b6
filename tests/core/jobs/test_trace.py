"""Trace contexts: headers, the stored form, and which traces are recorded."""

from __future__ import annotations

import pytest

from ductile.core.jobs.trace import (
    Sampler,
    TraceContext,
    context_of,
    parse_column,
    parse_traceparent,
)

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


def test_traceparent_of_a_request_is_parsed() -> None:
    assert parse_traceparent(f"00-{TRACE}-{SPAN}-01") == TraceContext(TRACE, SPAN, True)
    assert parse_traceparent(f"00-{TRACE}-{SPAN}-00") == TraceContext(TRACE, SPAN, False)
    assert parse_traceparent(f"cc-{TRACE}-{SPAN}-01-later") == TraceContext(TRACE, SPAN, True)


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "x",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE}-{SPAN}-01-more",
        f"00-{TRACE}-{SPAN}-01\n",
        f"cc-{TRACE}-{SPAN}-01-{'x' * 1000}",
    ],
)
def test_invalid_traceparent_is_ignored(text: str | None) -> None:
    assert parse_traceparent(text) is None


@pytest.mark.parametrize("sampled", [None, True, False])
@pytest.mark.parametrize("span", [None, SPAN])
def test_stored_context_is_read_back(span: str | None, sampled: bool | None) -> None:
    context = TraceContext(TRACE, span, sampled)
    assert parse_column(context.to_column()) == context


def test_jobs_of_one_event_belong_to_one_trace() -> None:
    assert context_of(None, "a", "event") == context_of(None, "b", "event")
    assert context_of(None, "a", None) != context_of(None, "b", None)


def test_ratio_is_decided_by_the_trace_id() -> None:
    contexts = [context_of(None, f"job {number}", None) for number in range(2000)]
    half = Sampler(0.5)
    assert 800 < sum(map(half.records, contexts)) < 1200
    assert all(half.records(c) == half.records(c.below(SPAN)) for c in contexts)
    assert not any(map(Sampler(0.0).records, contexts))


def test_decision_of_the_sender_counts_unless_the_sampler_ignores_it() -> None:
    asked, refused = TraceContext(TRACE, SPAN, True), TraceContext(TRACE, SPAN, False)
    assert Sampler(0.0).records(asked)
    assert not Sampler(1.0).records(refused)
    assert Sampler(1.0, follows_parent=False).records(refused)
