"""The lane of webhooks (004): what is claimed for the courier, and how it is settled."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from ductile.clock import Entropy, to_text
from ductile.core import delivery as rules
from ductile.core.delivery import INTERNAL, DeliveryStatus, Verdict
from ductile.errors import LedgerError, Refused
from ductile.failpoint import failpoint
from ductile.log import logger
from ductile.record import dataclass
from ductile.runtime.blueprint import Blueprint
from ductile.runtime.handover import HandOver
from ductile.runtime.held import Held
from ductile.runtime.lane import Answer, Parcel
from ductile.store import deliveries
from ductile.store.deliveries import Claimed, Delivery, Webhook
from ductile.store.ledger import Ledger, Tx

POLL_INTERVAL_MS = 5_000
SOON = 0.25
"""Seconds until the next look where another node was quicker."""
SEND_TIMEOUT = 15.0
MISMATCHES_A_MINUTE = 10
MINUTE = timedelta(minutes=1)


class Deliveries:
    """`webhook_deliveries` as a lane of the courier. Thread-safe."""

    name = "deliveries"

    def __init__(
        self,
        ledger: Ledger,
        blueprint: Callable[[], Blueprint],
        entropy: Entropy,
        owner: str,
    ) -> None:
        self._ledger, self._blueprint = ledger, blueprint
        self._entropy, self._owner = entropy, owner
        self._held: Held[int, Claimed] = Held(
            self.name, ledger, owner, deliveries.under_way, deliveries.release
        )
        self._log = logger(self.name)

    def claim(self, now: datetime) -> tuple[Sequence[Parcel], float]:
        at, under_way = self._ledger.read(
            lambda tx: (deliveries.next_at(tx, now), deliveries.under_way(tx))
        )
        poll = POLL_INTERVAL_MS / 1000
        if self._held.released(under_way, now):
            return (), 0.0
        if at is None:
            return (), poll
        if at > now:
            return (), min(poll, (at - now).total_seconds())
        found = self._ledger.write(lambda tx: deliveries.claim(tx, self._owner, now))
        failpoint("delivery.claimed")
        return [self._parcel(claimed, now) for claimed in found], 0.0 if found else SOON

    def recover(self) -> None:
        self._held.recover()

    def _parcel(self, claimed: Claimed, now: datetime) -> Parcel:
        id = str(claimed.delivery.id)
        self._held.hold(id, claimed)
        try:
            return self._addressed(claimed, now)
        except Exception as error:  # noqa: BLE001 - it is this delivery's alone
            self._log.crash("a delivery cannot be read", error, delivery=id)
            self._held.hold(id, replace(claimed, payload=None))
            return Parcel(id, "", b"", {}, SEND_TIMEOUT)

    def _addressed(self, claimed: Claimed, now: datetime) -> Parcel:
        row, webhook = claimed.delivery, claimed.webhook
        stays = row.target_url.startswith(INTERNAL)
        if stays or webhook is None or webhook.removed or claimed.payload is None:
            return Parcel(str(row.id), "", b"", {}, SEND_TIMEOUT)
        body = claimed.payload.encode()
        headers = rules.signed_headers(webhook.secret, row.message_id, body, now)
        return Parcel(
            str(row.id),
            row.target_url,
            body,
            {"Content-Type": "application/json", **headers},
            SEND_TIMEOUT,
            networks=self._blueprint().settings.gateway.allowed_networks,
        )

    def settle(self, parcel: Parcel, answer: Answer, now: datetime) -> None:
        failpoint("delivery.sent")
        with self._held.ending(parcel.id) as claimed:
            try:
                self._record(self._settling(claimed, answer, now))
            except LedgerError:
                raise
            except Exception as error:  # noqa: BLE001 - it is this delivery's alone
                row = claimed.delivery
                self._log.crash("a delivery could not be settled", error, delivery=row.id)
                verdict = rules.after_failure(row.attempt_count, now)
                self._record(Settling(row, self._owner, verdict, "internal error", now))

    def _record(self, settling: Settling) -> None:
        recorded = self._ledger.write(settling)
        failpoint("delivery.settled")
        if recorded and settling.error is not None:
            dead = settling.verdict.status is DeliveryStatus.DEAD
            level, what = ("error", "is dead") if dead else ("warn", "failed")
            id, error = settling.delivery.id, settling.error
            self._log.log(level, f"a delivery {what}", delivery=id, error=error)

    def _settling(self, claimed: Claimed, answer: Answer, now: datetime) -> Settling:
        row, webhook, attempts = claimed.delivery, claimed.webhook, claimed.delivery.attempt_count
        if webhook is None or webhook.removed:
            verdict = rules.given_up(attempts)
            return Settling(row, self._owner, verdict, "its webhook was removed", now)
        handover, error = self._outcome(webhook, claimed, answer, now)
        good = error is None
        verdict = rules.after_success(attempts) if good else rules.after_failure(attempts, now)
        shown = self._blueprint().redactor.maybe(error)
        return Settling(row, self._owner, verdict, shown, now, handover)

    def _outcome(
        self, webhook: Webhook, claimed: Claimed, answer: Answer, now: datetime
    ) -> tuple[HandOver | None, str | None]:
        """What is to be handed over, and what went wrong."""
        row, text = claimed.delivery, claimed.payload
        if text is None:
            return None, "its row cannot be read"
        if not row.target_url.startswith(INTERNAL):
            return None, None if answer.delivered else answer.error or f"HTTP {answer.status}"
        try:
            base_id = self._entropy.uuid()
            return HandOver(self._blueprint(), webhook, row, text, base_id, now), None
        except Refused as refusal:
            return None, refusal.message

    def give_back(self, parcel: Parcel) -> None:
        with self._held.ending(parcel.id) as claimed:
            row = claimed.delivery
            self._ledger.write(lambda tx: deliveries.give_back(tx, row, self._owner))


@dataclass(frozen=True, slots=True)
class Sent:
    """A delivery that is durably on its way."""

    delivery_id: int
    webhook_id: int
    message_id: str
    target_url: str
    next_retry_at: str


@dataclass(frozen=True, slots=True)
class Sending:
    """The transaction that makes a delivery: of a webhook by its id, or by source and event."""

    webhook: int | tuple[str, str]
    payload: str
    """As JSON text: these are the bytes that are signed and sent."""
    message_id: str
    now: datetime
    delay: timedelta = timedelta(0)

    def find(self, tx: Tx) -> Webhook:
        if isinstance(self.webhook, int):
            return deliveries.find_webhook(tx, self.webhook)
        return deliveries.webhook_of(tx, *self.webhook)

    def __call__(self, tx: Tx) -> Sent:
        webhook, due = self.find(tx), self.now + self.delay
        id = deliveries.enqueue(
            tx, webhook, self.payload, message_id=self.message_id, due=due, now=self.now
        )
        return Sent(id, webhook.id, self.message_id, webhook.target, to_text(due))


@dataclass(frozen=True, slots=True)
class Settling:
    """The transaction that ends a send; whether it was still ours to end."""

    delivery: Delivery
    owner: str
    verdict: Verdict
    error: str | None
    now: datetime
    handover: HandOver | None = None

    def __call__(self, tx: Tx) -> bool:
        row, verdict = self.delivery, self.verdict
        if not deliveries.settle(tx, row, self.owner, verdict, self.error, self.now):
            return False
        if self.handover is not None:
            self.handover(tx)
        return True


class Mismatches:
    """Which wrong signatures are recorded: a stranger must not fill the ledger. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._minutes: dict[int | str, tuple[datetime, int]] = {}
        self._untold: Counter[int | str] = Counter()

    def note(self, door: int | str, now: datetime) -> int | None:
        """How many went unrecorded before this one, where this one is recorded; else None."""
        with self._lock:
            since, count = self._minutes.get(door, (now, 0))
            if not timedelta(0) <= now - since < MINUTE:
                since, count = now, 0
            self._minutes[door] = since, count + 1
            if count >= MISMATCHES_A_MINUTE:
                self._untold[door] += 1
                return None
            return self._untold.pop(door, 0)
