"""The items of the work list, and the transaction that they belong to."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from ductile._fast_dataclass import dataclass
from ductile.clock import Ids
from ductile.core.pipelines.intents import Intent
from ductile.model import Event, Job, JobStatus
from ductile.store import nodes
from ductile.store.engines.api import Tx
from ductile.store.jobs.spawn import Spawned, SpawnPoint
from ductile.store.tx_config import TxConfig


@dataclass(frozen=True, slots=True)
class JobEnd:
    """A job whose row has its final status."""

    job: Job
    status: JobStatus
    error: str | None = None
    duration: float = 0.0
    cancelled: bool = False
    timed_out: bool = False


@dataclass(frozen=True, slots=True)
class OverLimit:
    """A queued job that must not run, because it exceeds a limit."""

    job_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class Superseded:
    """A queued job that the job of a newer event replaces."""

    job_id: str
    newer_job_id: str


@dataclass(frozen=True, slots=True)
class SkippedInstance:
    """A pipeline instance whose first jobs were all deduplicated."""

    scope_id: str
    existing_job_id: str


@dataclass(frozen=True, slots=True)
class TakeTurn:
    """A held run of a pipeline with a limit, which may begin."""

    run_id: str
    must_wait: bool = False
    """It waits if its key is full, whatever `on_full` says."""


@dataclass(frozen=True, slots=True)
class OpenKey:
    """A run of a pipeline with a limit has ended."""

    pipeline: str
    limit_key: str


@dataclass(frozen=True, slots=True)
class ScopeCheck:
    """A scope that may have nothing left to wait for."""

    scope_id: str


@dataclass(frozen=True, slots=True)
class Spawn:
    """Intents to write."""

    intents: Sequence[Intent]
    point: SpawnPoint


@dataclass(frozen=True, slots=True)
class ArrivedEvent:
    """An event that may end waits."""

    event: Event


Work = (
    JobEnd
    | OverLimit
    | Superseded
    | SkippedInstance
    | TakeTurn
    | OpenKey
    | ScopeCheck
    | Spawn
    | ArrivedEvent
)


@dataclass(frozen=True, slots=True)
class Closing:
    """The transaction in which jobs end, and what their ends depend on."""

    tx: Tx
    tx_config: TxConfig
    ids: Ids
    now: datetime

    def is_left_to_others(self, pipeline: str) -> bool:
        """Whether this configuration does not have the pipeline, and that of another node does."""
        is_known = pipeline in self.tx_config.router.pipelines
        return not is_known and pipeline in nodes.list_pipelines_of_others(self.tx, "")


def work_after(spawned: Spawned) -> list[Work]:
    """What of it ends at once. Inner scopes come before the scopes around them."""
    return [
        *map(ArrivedEvent, spawned.awaited),
        *(OverLimit(job_id, reason) for job_id, reason in spawned.over_limit),
        *(Superseded(job_id, newer) for job_id, newer in spawned.superseded),
        *(SkippedInstance(scope_id, job_id) for scope_id, job_id in spawned.skipped),
        *map(TakeTurn, spawned.held),
        *(ScopeCheck(scope_id) for scope_id in reversed(spawned.scope_ids)),
    ]
