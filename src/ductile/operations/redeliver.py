"""Retrying many webhook deliveries at once."""

from __future__ import annotations

from datetime import datetime

from ductile._fast_dataclass import dataclass
from ductile.core.delivery.retry_policy import DeliveryStatus
from ductile.engine.services import Services
from ductile.errors import DuctileError
from ductile.store.engines.api import Tx
from ductile.store.outbox import deliveries

DELIVERIES_PER_COMMIT = 200
"""So that other writers do not wait for all of them."""


@dataclass(frozen=True, slots=True)
class Redelivered:
    ids: list[int]
    more: bool
    """Whether more deliveries match than the limit allows."""


def redeliver(
    gateway: Services, status: DeliveryStatus, since: str | None, limit: int, *, dry: bool
) -> Redelivered:
    """Retry the deliveries in this status that were tried or created since then.

    With `dry`, only return which they are.
    """
    found = gateway.ledger.read(lambda tx: deliveries.list_ids(tx, status, since, limit + 1))
    ids, more = found[:limit], len(found) > limit
    if dry:
        return Redelivered(ids, more)
    now, done = gateway.clock.now(), []
    for start in range(0, len(ids), DELIVERIES_PER_COMMIT):
        done += gateway.ledger.write(
            _RetryDeliveries(ids[start : start + DELIVERIES_PER_COMMIT], now)
        )
    return Redelivered(done, more)


@dataclass(frozen=True, slots=True)
class _RetryDeliveries:
    ids: list[int]
    now: datetime

    def __call__(self, tx: Tx) -> list[int]:
        return [id for id in self.ids if self._retry(tx, id)]

    def _retry(self, tx: Tx, id: int) -> bool:
        """False if the delivery was claimed or pruned since it was listed."""
        try:
            deliveries.retry_delivery(tx, id, self.now)
        except DuctileError:
            return False
        return True
