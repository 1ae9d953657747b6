"""The decisions of routing, as frozen values that `settle` writes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from ductile._fast_dataclass import dataclass
from ductile.core.flow.debounce import Debounce, Series
from ductile.core.pipelines.baggage import root_context
from ductile.model import Event, Json, SubmittedBy


@dataclass(frozen=True, slots=True)
class SpawnJob:
    """A job to enqueue.

    Inside an intent below it belongs to that scope and enters with that instance's context.
    On its own it continues from the job that ended: with its context and, if `pipeline` is set,
    in its scope; a routed job (no `pipeline`) belongs to no scope.
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
    """See `join_payload.EndedJob.branch`; empty outside every split."""
    dead: str | None = None
    """If set, the job exceeds a limit: it is recorded and ends as `dead` with this reason."""
    series: Series | None = None
    """If set, the job waits, and replaces the job of this series that has not started."""
    priority: float = 0.0
    """Seconds by which the job starts as if it had been enqueued earlier."""

    @property
    def identity(self) -> tuple[str, str, str, str, str, str]:
        """Identifies a redelivery as the same job; an absent value is the empty string."""
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
    """The step that follows a split, as configured when the split was entered."""

    path: str = ""
    """Empty if nothing follows."""
    plugin: str = ""
    """Empty if it is a split, which has no job."""
    command: str = ""


@dataclass(frozen=True, slots=True)
class OpenScope:
    """A split that was entered: a scope inside the one around it.

    All fields but `children` are stored with the scope: `SplitScope` needs them when it ends. A
    scope without children ends at once.
    """

    pipeline: str
    split: str
    branch: str
    parent_job_id: str | None
    """The job whose event entered the split; also the parent of the join."""
    hops: int
    """For its first jobs and the join: the split itself is a hop."""
    join_always: bool
    join: JoinStep
    children: tuple[SpawnJob | OpenScope, ...]


@dataclass(frozen=True, slots=True)
class StartPipeline:
    """A new instance: an outermost scope, a root context if it has one, and the first jobs."""

    pipeline: str
    max_depth: int
    origin: Mapping[str, Json]
    children: tuple[SpawnJob | OpenScope, ...]
    baggage: Mapping[str, Json] | None = None
    first_hop: int = 0
    """The number of hops from the root of the chain to its first node."""
    has_context: bool = True
    """False for an instance that a hook starts: its first jobs enter without a context."""
    depth_is_computed: bool = False
    """Whether `max_depth` was computed from the longest path instead of set by the author."""

    def context(self, instance_id: str) -> dict[str, Json]:
        """`accumulated_json` of the root row; `instance_id` is the scope's id."""
        return root_context(
            instance_id=instance_id,
            max_depth=self.max_depth,
            depth_is_computed=self.depth_is_computed,
            origin=self.origin,
            first_hop=self.first_hop,
            baggage=self.baggage,
        )


@dataclass(frozen=True, slots=True)
class SendRelay:
    """An event for another gateway, to be added to the outbox."""

    job_id: str | None
    """None if an operator sends it."""
    instance: str
    event_id: str
    event_type: str
    body: str


@dataclass(frozen=True, slots=True)
class MatchWaits:
    """An event that may end waiting steps."""

    event: Event


Intent = SpawnJob | OpenScope | StartPipeline | SendRelay | MatchWaits


@dataclass(frozen=True, slots=True)
class Unrouted:
    """Why an event did not start a pipeline; for `job why`."""

    event_id: str
    pipeline: str
    reason: str


@dataclass(frozen=True, slots=True)
class Routing:
    intents: tuple[Intent, ...] = ()
    unrouted: tuple[Unrouted, ...] = ()

    def jobs(self) -> Iterator[SpawnJob]:
        """Every job in it, at any depth."""
        return _jobs(self.intents)


def _jobs(intents: tuple[Intent, ...]) -> Iterator[SpawnJob]:
    for intent in intents:
        if isinstance(intent, SpawnJob):
            yield intent
        elif isinstance(intent, OpenScope | StartPipeline):
            yield from _jobs(intent.children)


def gather(items: Iterable[Intent | Unrouted]) -> Routing:
    """The items by kind; of two identical jobs the first."""
    intents: list[Intent] = []
    unrouted: list[Unrouted] = []
    seen: set[tuple[str, ...]] = set()
    for item in items:
        if isinstance(item, Unrouted):
            unrouted.append(item)
        elif not isinstance(item, SpawnJob) or item.identity not in seen:
            intents.append(item)
            if isinstance(item, SpawnJob):
                seen.add(item.identity)
    return Routing(tuple(intents), tuple(unrouted))


def with_series(start: StartPipeline, debounce: Debounce | None) -> StartPipeline:
    """The instance, whose first job waits as the last of its series.

    `config check` refuses a debounced pipeline that starts with a split, which has several.
    """
    if debounce is None or len(start.children) != 1:
        return start
    first = start.children[0]
    if not isinstance(first, SpawnJob):
        return start
    series = debounce.series(first.event.payload)
    return replace(start, children=(replace(first, series=series),))


def with_priority(child: SpawnJob | OpenScope, priority: float) -> SpawnJob | OpenScope:
    if isinstance(child, SpawnJob):
        return replace(child, priority=priority)
    return replace(child, children=tuple(with_priority(one, priority) for one in child.children))
