"""Start a pipeline by name, in one transaction."""

from __future__ import annotations

from ductile._fast_dataclass import dataclass
from ductile.clock import Ids
from ductile.core.jobs.limits import dedupe_key_flaw
from ductile.core.jobs.plugin_protocol import without_nul
from ductile.core.pipelines.compile import Pipeline
from ductile.core.pipelines.intents import SpawnJob, StartPipeline
from ductile.core.pipelines.router import Router
from ductile.engine.services import Services
from ductile.errors import NotFound, UsageError
from ductile.model import Event, Json, SubmittedBy
from ductile.store.engines.api import Tx
from ductile.store.jobs import close, spawn
from ductile.store.jobs.spawn import SpawnPoint


@dataclass(frozen=True, slots=True)
class StartedPipeline:
    """A pipeline instance and its first jobs."""

    instance_id: str
    job_ids: tuple[str, ...]
    existing_job_id: str | None = None
    """Set if the first step was deduplicated: the instance ended as `skipped`."""


class PipelineStart:
    """The transaction that starts a pipeline by name."""

    def __init__(
        self,
        gateway: Services,
        name: str,
        payload: Json,
        submitted_by: SubmittedBy,
        dedupe_key: str | None = None,
        dedupe_ttl: float | None = None,
    ) -> None:
        self._tx_config = gateway.compiled.tx_config
        self.pipeline = find_pipeline(self._tx_config.router, name)
        if flaw := dedupe_key_flaw(dedupe_key):
            raise UsageError(f"dedupe_key {flaw}")
        self._now, self._base_id = gateway.clock.now(), gateway.entropy.uuid()
        event = Event(
            self.pipeline.on or f"{submitted_by}.trigger",
            payload,
            without_nul(dedupe_key),
            submitted_by.value,
            self._now,
            gateway.entropy.uuid(),
        )
        intent = self._tx_config.router.start(
            name, event, submitted_by=submitted_by, dedupe_ttl=dedupe_ttl
        )
        assert isinstance(intent, StartPipeline)
        self._intent = intent

    def __call__(self, tx: Tx) -> StartedPipeline:
        ids = Ids(self._base_id)
        spawned = close.write_intents(
            tx, (self._intent,), SpawnPoint(), self._tx_config, ids, self._now
        )
        existing = spawned.skipped[0][1] if spawned.skipped else None
        return StartedPipeline(spawned.scope_ids[0], tuple(spawned.job_ids), existing)

    def existing(self, tx: Tx) -> str | None:
        """The job of which a first job would be a duplicate; nothing is written."""
        for child in self._intent.children:
            if isinstance(child, SpawnJob):
                found = spawn.find_existing(tx, child, self._tx_config, self._now)
                if found is not None:
                    return found.job_id
        return None


def find_pipeline(router: Router, name: str) -> Pipeline:
    pipeline = router.pipelines.get(name)
    if pipeline is None:
        known = ", ".join(sorted(router.pipelines)) or "none"
        raise NotFound(f"there is no pipeline {name!r}; there are: {known}")
    return pipeline
