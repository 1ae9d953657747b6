"""What transactions need to know of the configuration: routes, attempts, hooks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from ductile.core.pipeline import Compiled
from ductile.core.router import Router, build
from ductile.model import DEFAULT_BREAKER, BreakerPolicy
from ductile.record import dataclass

INIT = "init"


def _no_routes() -> Router:
    return build((), Compiled({}))


@dataclass(frozen=True, slots=True)
class Chart:
    """One configuration, as the ledger's transactions see it."""

    router: Router = field(default_factory=_no_routes)
    attempts: Mapping[str, int] = field(default_factory=dict)
    """Attempts of each plugin's jobs; absent is the default of 4."""
    breakers: Mapping[str, BreakerPolicy] = field(default_factory=dict)
    notify: frozenset[str] = frozenset()
    """Plugins whose root jobs fire hooks."""
    dedupe_ttl: float = 86_400.0
    snapshot_id: str | None = None

    def max_attempts(self, plugin: str, command: str) -> int:
        """A failed `init` is not retried, but run again at the next start or reload."""
        return 1 if command == INIT else self.attempts.get(plugin, 4)

    def breaker(self, plugin: str) -> BreakerPolicy:
        return self.breakers.get(plugin, DEFAULT_BREAKER)
