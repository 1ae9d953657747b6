"""Inputs of the router: a finished job, the entry into a step, the cause of a pipeline run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ductile._fast_dataclass import dataclass
from ductile.core.pipelines.baggage import Origin, control, depth_at
from ductile.core.pipelines.hooks import RootEnd, RunEnd
from ductile.core.pipelines.intents import JoinStep
from ductile.model import Event, Json, SubmittedBy


@dataclass(frozen=True, slots=True)
class Done:
    """A job that succeeded, as routing sees it."""

    job_id: str
    plugin: str
    submitted_by: str
    hops: int
    context: Mapping[str, Json]
    """`accumulated_json` of its own row; empty if it has none."""
    pipeline: str = ""
    step_path: str = ""
    branch: str = ""


@dataclass(frozen=True, slots=True)
class SplitScope:
    """The scope of a split that has ended: the stored fields of `OpenScope`, and its context."""

    pipeline: str
    split: str
    branch: str
    parent_job_id: str | None
    hops: int
    context: Mapping[str, Json]
    join: JoinStep | None
    """None if it was not stored: then the step that follows the split now."""


@dataclass(frozen=True, slots=True)
class Entry:
    """How a job reaches a node."""

    event: Event
    parent_job_id: str | None = None
    hops: int = 0
    depth: int = 1
    max_depth: int = 0
    branch: str = ""
    submitted_by: SubmittedBy = SubmittedBy.ROUTE
    dedupe_key: str | None = None
    dedupe_ttl: float | None = None

    def inside_split(self) -> Entry:
        """How the first jobs of a split are reached that is reached this way."""
        return replace(self, hops=self.hops + 1, depth=self.depth + 1)

    @classmethod
    def after(cls, done: Done, event: Event, max_depth: int) -> Entry:
        return cls(
            event,
            done.job_id,
            done.hops + 1,
            depth_at(done.context, done.hops + 1),
            max_depth,
            done.branch,
        )

    @classmethod
    def joining(cls, scope: SplitScope, event: Event, max_depth: int) -> Entry:
        return cls(
            event,
            scope.parent_job_id,
            scope.hops,
            depth_at(scope.context, scope.hops),
            max_depth,
            scope.branch,
        )


@dataclass(frozen=True, slots=True)
class InstanceCause:
    """The cause of a new instance."""

    plugin: str | None
    origin: Mapping[str, Json]
    context: Mapping[str, Json]
    """What the pipelines' own conditions see as `context`."""
    baggage: Mapping[str, Json] | None = None

    @classmethod
    def outside(
        cls, event: Event, submitted_by: SubmittedBy, baggage: Mapping[str, Json] | None
    ) -> InstanceCause:
        origin = Origin(event.source or None, event.type, event.event_id, None, submitted_by.value)
        return cls(event.source, origin.as_json(), baggage or {}, baggage)

    @classmethod
    def job(cls, done: Done, event: Event) -> InstanceCause:
        """The origin of that job's chain, or the job itself if the chain has none."""
        origin = Origin(done.plugin, event.type, event.event_id, done.job_id, done.submitted_by)
        inherited = control(done.context).get("origin") or origin.as_json()
        return cls(done.plugin, inherited, done.context)

    @classmethod
    def hook(cls, end: RootEnd, event: Event) -> InstanceCause:
        origin = Origin(end.plugin, event.type, event.event_id, end.job_id, SubmittedBy.HOOK)
        return cls(end.plugin, origin.as_json(), {})

    @classmethod
    def run(cls, end: RunEnd, event: Event) -> InstanceCause:
        """The origin of that run's chain, or the run's end if the chain has none."""
        job_id = end.last_job_id
        origin = Origin(None, event.type, event.event_id, job_id, SubmittedBy.HOOK.value)
        return cls(None, end.origin or origin.as_json(), {})
