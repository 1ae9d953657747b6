"""Trace and span ids, derived from the ids of jobs: equal on every node and after a restart.

A job without a parent starts a trace, unless its request carried a `traceparent`. The jobs of one
event belong to one trace, and so does everything that follows from them.
"""

from __future__ import annotations

import hashlib
import re

from ductile._fast_dataclass import dataclass

_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?\Z")
_STORED = re.compile(r"([0-9a-f]{32})-([0-9a-f]{16})?-([01]?)\Z")
LONGEST_TRACEPARENT = 512


@dataclass(frozen=True, slots=True)
class TraceContext:
    """The trace that a job belongs to, and the span that caused it."""

    trace_id: str
    parent_span: str | None = None
    """None for the first span of a trace."""
    sampled: bool | None = None
    """Whether the sender of the request records this trace; None for a trace that started here."""

    def to_column(self) -> str:
        flag = "" if self.sampled is None else int(self.sampled)
        return f"{self.trace_id}-{self.parent_span or ''}-{flag}"

    def below(self, span: str) -> TraceContext:
        """The context of what this span causes."""
        return TraceContext(self.trace_id, span, self.sampled)

    def traceparent(self, span: str, *, recorded: bool) -> str:
        """The header, or the variable `TRACEPARENT`, of what this span causes."""
        return f"00-{self.trace_id}-{span}-{int(recorded):02}"


def parse_traceparent(text: str | None) -> TraceContext | None:
    """The context of a `traceparent` header; None if it is not valid, as W3C requires."""
    match = _TRACEPARENT.match(text) if text and len(text) <= LONGEST_TRACEPARENT else None
    if match is None or not match[1].strip("0") or not match[2].strip("0"):
        return None
    if match[4] and match[0].startswith("00"):
        return None
    return TraceContext(match[1], match[2], bool(int(match[3], 16) & 1))


def parse_column(text: str | None) -> TraceContext | None:
    match = _STORED.match(text) if text else None
    if match is None:
        return None
    return TraceContext(match[1], match[2], match[3] == "1" if match[3] else None)


def context_of(column: str | None, job_id: str, event_id: str | None) -> TraceContext:
    """The context of a job: what is stored, or a new trace of its event or of itself."""
    return parse_column(column) or TraceContext(_derive(event_id or job_id, 16))


def span_of_job(job_id: str) -> str:
    return _derive(f"job {job_id}", 8)


def span_of_wait(job_id: str) -> str:
    return _derive(f"wait {job_id}", 8)


def span_of_attempt(job_id: str, attempt: int) -> str:
    return _derive(f"attempt {job_id} {attempt}", 8)


def span_of_run(scope_id: str) -> str:
    return _derive(f"run {scope_id}", 8)


def _derive(text: str, size: int) -> str:
    return hashlib.blake2b(text.encode(), digest_size=size).hexdigest()


@dataclass(frozen=True, slots=True)
class Sampler:
    """Which traces are recorded: the same ones on every node, because the trace id decides."""

    ratio: float = 1.0
    follows_parent: bool = True
    """Whether the decision of the sender of a request counts."""

    def records(self, context: TraceContext) -> bool:
        if self.follows_parent and context.sampled is not None:
            return context.sampled
        return int(context.trace_id[16:], 16) < self.ratio * 2**64
