"""WebhookOutbox of webhooks that an operator has tried again, many at once."""

from __future__ import annotations

from datetime import datetime

from ductile.core.delivery.retry_policy import DeliveryStatus
from ductile.engine.services import Services
from ductile.errors import DuctileError
from ductile.record import dataclass
from ductile.store.engines.api import Tx
from ductile.store.outbox import deliveries

IN_ONE_COMMIT = 200
"""So that nobody waits for all of them."""


@dataclass(frozen=True, slots=True)
class Redelivered:
    ids: list[int]
    more: bool
    """Whether some are left."""


def redeliver(
    gateway: Services, status: DeliveryStatus, since: str | None, limit: int, *, dry: bool
) -> Redelivered:
    """Those in this status, tried or made since then; with `dry` only which they are."""
    found = gateway.ledger.read(lambda tx: deliveries.to_retry(tx, status, since, limit + 1))
    ids, more = found[:limit], len(found) > limit
    if dry:
        return Redelivered(ids, more)
    now, done = gateway.clock.now(), []
    for start in range(0, len(ids), IN_ONE_COMMIT):
        done += gateway.ledger.write(_Retrying(ids[start : start + IN_ONE_COMMIT], now))
    return Redelivered(done, more)


@dataclass(frozen=True, slots=True)
class _Retrying:
    ids: list[int]
    now: datetime

    def __call__(self, tx: Tx) -> list[int]:
        return [id for id in self.ids if self._retried(tx, id)]

    def _retried(self, tx: Tx, id: int) -> bool:
        """False where it was taken up, or pruned, since it was listed."""
        try:
            deliveries.retry(tx, id, self.now)
        except DuctileError:
            return False
        return True
