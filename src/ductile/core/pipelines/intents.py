"""What routing decides, as frozen values for `settle` to write."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ductile.core.pipelines.baggage import root_context
from ductile.model import Event, Json, SubmittedBy
from ductile.record import dataclass


@dataclass(frozen=True, slots=True)
class SpawnJob:
    """A job to enqueue.

    Inside an intent below it belongs to that scope and enters with that instance's context.
    On its own it goes on from the job that ended: with its context, and, where `pipeline`
    is set, in its scope; a routed job (no `pipeline`) belongs to no scope.
    """

    plugin: str
    command: str
    event: Event
    submitted_by: SubmittedBy
    parent_job_id: str | None
    hops: int
    dedupe_key: str | None = None
    dedupe_ttl: float | None = None
    """As in `NewJob`."""
    pipeline: str = ""
    step_path: str = ""
    branch: str = ""
    """See `join.EndedJob.branch`; empty outside every split."""
    dead: str | None = None
    """Set, the job is over a limit: it is recorded and ends `dead` with this reason."""

    @property
    def identity(self) -> tuple[str, str, str, str, str, str]:
        """What makes a redelivery the same job; an absent value is the empty text."""
        return (
            self.parent_job_id or "",
            self.event.event_id,
            self.pipeline,
            self.step_path,
            self.plugin,
            self.command,
        )


@dataclass(frozen=True, slots=True)
class JoinStep:
    """The step that follows a split, as it was when the split was entered."""

    path: str = ""
    """Empty where nothing follows."""
    plugin: str = ""
    """Empty where it is a split itself, which is no job."""
    command: str = ""


@dataclass(frozen=True, slots=True)
class OpenScope:
    """A split that was entered: a scope inside the one around it.

    All fields but `children` are kept with the scope: `router.SplitScope` needs them when
    it ends. Opened with no child it ends at once.
    """

    pipeline: str
    split: str
    branch: str
    parent_job_id: str | None
    """The job whose event entered the split; the join's parent too."""
    hops: int
    """Of its first jobs, and of the join."""
    join_always: bool
    join: JoinStep
    children: tuple[SpawnJob | OpenScope, ...]


@dataclass(frozen=True, slots=True)
class StartPipeline:
    """A new instance: an outermost scope, a root context, and the first jobs."""

    pipeline: str
    max_depth: int
    origin: Mapping[str, Json]
    children: tuple[SpawnJob | OpenScope, ...]
    baggage: Mapping[str, Json] | None = None
    depth_is_computed: bool = False
    """Whether `max_depth` is but the length of its longest path, and no limit of its author's."""

    def context(self, instance_id: str) -> dict[str, Json]:
        """`accumulated_json` of the root row; `instance_id` is the scope's id."""
        return root_context(
            instance_id=instance_id,
            max_depth=self.max_depth,
            depth_is_computed=self.depth_is_computed,
            origin=self.origin,
            baggage=self.baggage,
        )


@dataclass(frozen=True, slots=True)
class SendRelay:
    """An event for another gateway, to be handed to the courier."""

    job_id: str
    instance: str
    event_id: str
    event_type: str
    body: str


Intent = SpawnJob | OpenScope | StartPipeline | SendRelay


@dataclass(frozen=True, slots=True)
class Unrouted:
    """Why an event did not go somewhere it might have; for `job why`."""

    event_id: str
    pipeline: str
    reason: str


@dataclass(frozen=True, slots=True)
class Routing:
    intents: tuple[Intent, ...] = ()
    unrouted: tuple[Unrouted, ...] = ()

    def jobs(self) -> Iterator[SpawnJob]:
        """Every job in it, however deep."""
        return _jobs(self.intents)


def _jobs(intents: tuple[Intent, ...]) -> Iterator[SpawnJob]:
    for intent in intents:
        if isinstance(intent, SpawnJob):
            yield intent
        elif not isinstance(intent, SendRelay):
            yield from _jobs(intent.children)
