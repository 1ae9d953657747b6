"""An outbox worker over a real ledger, driven tick by tick on a fake clock."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import orjson
import pytest

from ductile.core.delivery.retry_policy import INBOUND_DELAY
from ductile.core.pipelines.intents import SendRelay
from ductile.engine.config.compiled import build
from ductile.engine.outbox.policy import OutboundRequest, OutboxPolicy, SendResult
from ductile.engine.outbox.relay import RelayPolicy
from ductile.engine.outbox.webhooks import EnqueueDelivery, WebhookPolicy
from ductile.engine.outbox.worker import OutboxWorker
from ductile.errors import LedgerBroken
from ductile.store import notices
from ductile.store.engines.api import BEGINNING, Ledger, T, Work
from ductile.store.outbox import deliveries, relays, webhooks
from ductile.store.outbox.webhooks import NewWebhook
from tests.conftest import CountingEntropy, FakeClock
from tests.engine.site import OK, Site
from tests.store.conftest import execute
from tests.waiting import WAIT_LIMIT

HOUR = 3600.0
OWNER = "boot-of-the-test"
WEBHOOK_SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
RELAY_SECRET = "a-shared-secret-of-two"
INSTANCE = {
    "name": "lab",
    "base_url": "https://lab.example/behind/",
    "ingress_path": "/ingest/peer/home",
    "secret": RELAY_SECRET,
}
RELAY_BODY = (
    '{"event":{"type":"made","payload":{"n":1.50}},"origin":{"instance":"home"},"baggage":{}}'
)
RECEIPT = SendResult(202, None, b'{"status": "accepted", "receiver_event_id": "e"}')
"""A success for webhook deliveries and for relays."""
FAILURE = SendResult(503, "HTTP 503 Service Unavailable")

on_postgres = pytest.mark.parametrize("ledger", ["postgres"], indirect=True)
on_both = pytest.mark.parametrize("ledger", ["sqlite", "postgres"], indirect=True)

Send = Callable[[OutboundRequest], SendResult]


class UnreliableLedger:
    """A ledger whose next writes raise the given errors, after or without committing."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.failures: list[tuple[bool, Exception]] = []
        """For each write, whether it is committed, and the error that it raises."""
        self.before_write: Callable[[], None] = lambda: None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ledger, name)

    def write(self, work: Work[T]) -> T:
        self.before_write()
        if not self.failures:
            return self._ledger.write(work)
        committed, error = self.failures.pop(0)
        if committed:
            self._ledger.write(work)
        raise error


class OutboxHarness(ABC):
    table: str
    noun: str

    def __init__(
        self,
        site: Site,
        ledger: Ledger,
        clock: FakeClock,
        send: Send = lambda _request: RECEIPT,
        *,
        owner: str = OWNER,
        poll_seconds: float | None = None,
    ) -> None:
        self._site, self._plain_ledger, self._respond = site, ledger, send
        self.clock, self.owner = clock, owner
        self.ledger: Any = UnreliableLedger(ledger)
        self.entropy = CountingEntropy()
        self.sent: list[tuple[datetime, OutboundRequest]] = []
        self.broken: list[LedgerBroken] = []
        self.write_config()
        self.reload()
        self.policy = self.make_policy()
        if poll_seconds is not None:
            self.policy.poll_seconds = poll_seconds
        self.worker = OutboxWorker(
            self.policy,
            self.ledger,
            lambda: self.config,
            owner,
            send=self._send,
            clock=clock,
            on_broken=self.broken.append,
        )

    @abstractmethod
    def write_config(self) -> None: ...

    @abstractmethod
    def make_policy(self) -> OutboxPolicy[Any]: ...

    @abstractmethod
    def put(self) -> Any:
        """Enqueue a row that is due now; returns its id."""

    @abstractmethod
    def row(self, id: Any) -> dict[str, Any]: ...

    def _send(self, request: OutboundRequest) -> SendResult:
        self.sent.append((self.clock.now(), request))
        return self._respond(request)

    @property
    def requests(self) -> list[OutboundRequest]:
        return [request for _, request in self.sent]

    def reload(self) -> None:
        self.config = build(self._site.load(), boot_marker="m:b", environ=self._site.environ)

    def claim(self) -> list[Any]:
        """Claim the due rows without sending them, like a gateway that dies right then."""
        now = self.clock.now()
        rows: list[Any] = self.ledger.write(
            lambda tx: self.policy.claim(tx, self.config, self.owner, now)
        )
        return rows

    def settle(self, row: Any, result: SendResult) -> None:
        """Settle a row of `claim`."""
        self.worker._settle(row, result)

    def tick(self) -> float:
        """One turn of the loop, until all of its sends are settled."""
        wait = self.worker.tick(self.clock.now())
        assert self.worker.wait_until_idle(WAIT_LIMIT)
        return wait

    def run(self, seconds: float) -> None:
        """Run the loop for this long on the fake clock."""
        end = self.clock.now() + timedelta(seconds=seconds)
        while self.clock.now() < end:
            wait = self.tick()
            self.clock.advance(min(wait, (end - self.clock.now()).total_seconds()))

    def execute(self, sql: str) -> None:
        """Run SQL on a separate connection, as an operator's script would."""
        execute(self._plain_ledger, sql)

    def set_due(self, id: Any, text: str | None, status: str = "pending") -> None:
        """Write a due time as a script does."""
        value = "NULL" if text is None else f"'{text}'"
        changed = f"next_retry_at = {value}, status = '{status}'"
        self.execute(f"UPDATE {self.table} SET {changed} WHERE id = '{id}'")

    def status(self, id: Any) -> str:
        return str(self.row(id)["status"])

    def claimed(self) -> dict[str, list[Any]]:
        found: dict[str, list[Any]] = self.ledger.read(self.policy.store.list_claimed)
        return found

    def notices(self, type: str) -> list[dict[str, Any]]:
        stored = self._plain_ledger.read(lambda tx: notices.list_after(tx, BEGINNING))
        return [orjson.loads(notice.payload) for notice in stored if notice.type == type]


class WebhookHarness(OutboxHarness):
    table, noun = "webhook_deliveries", "delivery"

    def write_config(self) -> None:
        settings = self._site.settings
        self._site.plugin("echo", OK)
        settings["gateway"] = {"allowed_networks": ["127.0.0.0/8"]}
        settings["pipelines"] = [{"name": "flow", "on": "never", "steps": [{"uses": "echo"}]}]

    def make_policy(self) -> WebhookPolicy:
        return WebhookPolicy(self.entropy)

    def add_webhook(self, event: str = "push", **more: Any) -> int:
        given = {"target_url": "https://example.com/hook", **more}
        new = NewWebhook("github", event, "review", "s-1", **given)
        now = self.clock.now()
        id: int = self.ledger.write(lambda tx: webhooks.add_webhook(tx, new, WEBHOOK_SECRET, now))
        return id

    def put(
        self,
        webhook_id: int | None = None,
        payload: str = '{"a":1}',
        *,
        inbound: bool = False,
    ) -> int:
        if webhook_id is None:
            webhook_id = self.add_webhook(f"event-{self.owner}-{self.entropy.uuid()}")
        delay = INBOUND_DELAY if inbound else timedelta(0)
        now, message_id = self.clock.now(), self.entropy.uuid()
        id: int = self.ledger.write(
            EnqueueDelivery(webhook_id, payload, message_id, now, delay)
        ).delivery_id
        return id

    def row(self, id: int) -> dict[str, Any]:
        found: dict[str, Any] = self.ledger.read(lambda tx: deliveries.find_delivery(tx, id))
        return found


class RelayHarness(OutboxHarness):
    table, noun = "relay_deliveries", "relay"

    def write_config(self) -> None:
        self._site.settings["service"]["name"] = "home"
        self.set_instances(INSTANCE)

    def set_instances(self, *instances: dict[str, Any]) -> None:
        """Takes effect with `reload`."""
        self._site.settings["instances"] = list(instances)

    def make_policy(self) -> RelayPolicy:
        return RelayPolicy()

    def put(self, id: str | None = None, *, instance: str = "lab", event_type: str = "made") -> str:
        id = id or f"{self.owner}-{self.entropy.uuid()}"
        given = SendRelay("j-1", instance, f"e-{id}", event_type, RELAY_BODY)
        now = self.clock.now()
        self.ledger.write(lambda tx: relays.enqueue_relay(tx, given, id=id, now=now))
        return id

    def row(self, id: str) -> dict[str, Any]:
        rows: list[dict[str, Any]] = self.ledger.read(
            lambda tx: tx.dicts("relays", status=None, instance=None, limit=100)
        )
        return next(row for row in rows if row["id"] == id)
