"""The part of the configuration that transactions need: routes, attempts, breakers, hooks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from ductile._fast_dataclass import dataclass
from ductile.core.flow.limits import Concurrency, PluginLimits
from ductile.core.jobs.commands import INIT
from ductile.core.jobs.retry import DEFAULT_RETRY
from ductile.core.pipelines.build_router import build_router
from ductile.core.pipelines.pipeline import Compiled
from ductile.core.pipelines.router import Router
from ductile.core.pipelines.step_io import entered_payload
from ductile.core.schedules.breaker import DEFAULT_BREAKER, BreakerPolicy
from ductile.model import Json


def _no_routes() -> Router:
    return build_router((), Compiled({}))


@dataclass(frozen=True, slots=True)
class TxConfig:
    """One configuration, for the ledger's transactions."""

    dedupe_ttl: float
    router: Router = field(default_factory=_no_routes)
    attempts: Mapping[str, int] = field(default_factory=dict)
    """Maximum number of attempts per plugin; absent means the default."""
    breakers: Mapping[str, BreakerPolicy] = field(default_factory=dict)
    notify: frozenset[str] = frozenset()
    """Plugins whose root jobs fire hooks."""
    snapshot_id: str | None = None
    traced: bool = False
    """Whether new jobs are stored with their trace."""
    limits: Mapping[str, PluginLimits] = field(default_factory=dict)
    """The limits per key and the rate limits of the plugins that have any."""
    run_limits: Mapping[str, Concurrency] = field(default_factory=dict)
    """How many runs of a pipeline are open per key."""
    priorities: Mapping[str, float] = field(default_factory=dict)
    """Seconds by which the jobs of a plugin start as if they had been enqueued earlier."""
    pipeline_priorities: Mapping[str, float] = field(default_factory=dict)

    def priority(self, plugin: str, pipeline: str = "") -> float:
        """The larger of the priorities of a job's plugin and pipeline, in seconds."""
        own = self.priorities.get(plugin, 0.0)
        return max(own, self.pipeline_priorities.get(pipeline, 0.0)) if pipeline else own

    def limit_key(self, plugin: str, command: str, column: Json) -> str:
        """The limit key of a new job, from its payload column."""
        limits = self.limits.get(plugin)
        return "" if limits is None else str(limits.limit_keys(entered_payload(command, column)))

    def max_attempts(self, plugin: str, command: str) -> int:
        """One for `init`: it is not retried, but runs again at the next start or reload."""
        return 1 if command == INIT else self.attempts.get(plugin, DEFAULT_RETRY.max_attempts)

    def breaker(self, plugin: str) -> BreakerPolicy:
        return self.breakers.get(plugin, DEFAULT_BREAKER)
