"""Retrying many webhook deliveries at once."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from ductile._fast_dataclass import dataclass
from ductile.core.delivery.retry_policy import DeliveryStatus
from ductile.engine.services import Services
from ductile.errors import DuctileError
from ductile.operations.bulk import check_count
from ductile.store.engines.api import Tx, Work
from ductile.store.outbox import deliveries
from ductile.store.outbox.webhooks import find_webhook

DELIVERIES_PER_COMMIT = 200
"""So that other writers do not wait for all of them."""


@dataclass(frozen=True, slots=True)
class Redelivered:
    ids: list[int]
    more: bool
    """Whether more deliveries match than the limit allows."""


def redeliver(
    gateway: Services,
    status: DeliveryStatus,
    since: str | None,
    limit: int,
    *,
    dry: bool,
    expected: int | None = None,
    webhook: int | None = None,
    around: Callable[[Work[list[int]]], Work[list[int]]] = lambda work: work,
) -> Redelivered:
    """Retry the deliveries in this status that were tried or created since then, of one webhook
    if given.

    With `dry`, only return which they are. `around` adds to each of the transactions. Raises
    `CountChanged` if there are not as many as expected.
    """

    def read(tx: Tx) -> list[int]:
        ids = deliveries.list_ids(tx, status, since, limit + 1, webhook)
        if webhook is not None and not ids:
            find_webhook(tx, webhook)  # Raises `NotFound`.
        return ids

    found = gateway.ledger.read(read)
    ids, more = found[:limit], len(found) > limit
    check_count(len(ids), expected)
    if dry:
        return Redelivered(ids, more)
    now, done = gateway.clock.now(), []
    for start in range(0, len(ids), DELIVERIES_PER_COMMIT):
        batch = _RetryDeliveries(ids[start : start + DELIVERIES_PER_COMMIT], now)
        done += gateway.ledger.write(around(batch))
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
