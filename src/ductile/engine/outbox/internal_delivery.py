"""WebhookOutbox that stay in the house: events of webhooks for sessions of this gateway's (004)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import orjson

from ductile.clock import Ids
from ductile.core.delivery.payload import read_json
from ductile.core.jobs.commands import HANDLE
from ductile.core.pipelines.intents import Intent, SpawnJob
from ductile.engine.config.compiled import CompiledConfig
from ductile.errors import Refused
from ductile.model import Event, Notice, SubmittedBy
from ductile.store import notices
from ductile.store.engines.api import Tx
from ductile.store.jobs import close
from ductile.store.jobs.spawn import SpawnPoint
from ductile.store.outbox.deliveries import Delivery, Webhook

LARGEST_PUBLISHED = 64 * 1024
"""A larger payload is not in the stream: it stands in the delivery."""


class InternalDelivery:
    """Part of the transaction that settles it: the event is published, and becomes a job.

    Nobody gets it but the plugin or pipeline that the webhook names: whoever may make webhooks
    may not set off whatever listens. `Refused` where there is nobody of that name, or nothing
    to hand over.
    """

    def __init__(
        self,
        compiled: CompiledConfig,
        webhook: Webhook,
        row: Delivery,
        text: str,
        base_id: str,
        now: datetime,
    ) -> None:
        try:
            payload = read_json(text.encode())
        except orjson.JSONDecodeError:
            raise Refused("its payload is not JSON") from None
        self._tx_config, self._base_id, self._now = compiled.tx_config, base_id, now
        event = Event(
            webhook.event_type, payload, None, webhook.source_identifier, now, row.message_id
        )
        self._intents = tuple(_intents(compiled, webhook, event, row))
        told: dict[str, Any] = {
            "delivery_id": row.id,
            "webhook_id": webhook.id,
            "event_id": row.message_id,
            "source": webhook.source_identifier,
            "event_type": webhook.event_type,
            "agent_intent": webhook.agent_intent,
            "payload": None,
        }
        if len(text) <= LARGEST_PUBLISHED:
            told["payload"] = compiled.redactor.document(payload)
        else:
            told["payload_omitted"] = True
        self._topic, self._told = f"session:{row.session_id}", told

    def __call__(self, tx: Tx) -> None:
        spawned = close.write_intents(
            tx, self._intents, SpawnPoint(), self._tx_config, Ids(self._base_id), self._now
        )
        told = {**self._told, "job_ids": spawned.job_ids}
        notices.post(tx, Notice(self._topic, "WebhookEvent", told), self._now)


def _intents(
    compiled: CompiledConfig, webhook: Webhook, event: Event, row: Delivery
) -> Iterator[Intent]:
    if webhook.plugin is not None:
        gone = compiled.gone(webhook.plugin)
        if gone is not None:
            raise Refused(f"{webhook.plugin}: {gone}")
        yield SpawnJob(webhook.plugin, HANDLE, event, SubmittedBy.WEBHOOK, None, 0)
    if webhook.pipeline is not None:
        told = {
            "name": webhook.source_identifier,
            "event": webhook.event_type,
            "delivery_id": row.message_id,
            "session": row.session_id,
            "intent": webhook.agent_intent,
        }
        started = compiled.tx_config.router.start(
            webhook.pipeline, event, submitted_by=SubmittedBy.WEBHOOK, baggage={"webhook": told}
        )
        if started is None:
            raise Refused(f"there is no pipeline {webhook.pipeline!r}")
        yield started
