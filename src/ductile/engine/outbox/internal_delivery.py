"""Webhook deliveries to a session of this gateway: no request is sent."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import orjson

from ductile.clock import Ids
from ductile.core.delivery.payload import read_json
from ductile.core.jobs.commands import HANDLE
from ductile.core.jobs.trace import TraceContext
from ductile.core.pipelines.intents import Intent, SpawnJob
from ductile.engine.config.compiled import CompiledConfig
from ductile.errors import Refused
from ductile.model import Event, Notice, SubmittedBy
from ductile.store import notices
from ductile.store.engines.api import Tx
from ductile.store.jobs import close
from ductile.store.jobs.spawn import SpawnPoint
from ductile.store.outbox.deliveries import Delivery
from ductile.store.outbox.webhooks import Webhook

MAX_PUBLISHED = 64 * 1024
"""A larger payload is omitted from the notice; the delivery contains it."""


class InternalDelivery:
    """The part of the settling transaction that publishes the event and creates its jobs.

    Only the plugin or pipeline of the webhook gets the event, not every listener: the permission
    to create webhooks is not the permission to trigger all of them. Raises `Refused` if the plugin
    or pipeline does not exist, or the payload is not JSON.
    """

    def __init__(
        self,
        compiled: CompiledConfig,
        webhook: Webhook,
        row: Delivery,
        text: str,
        base_id: str,
        now: datetime,
        trace: TraceContext | None = None,
    ) -> None:
        self._point = SpawnPoint(trace=trace)
        try:
            payload = read_json(text.encode())
        except orjson.JSONDecodeError:
            raise Refused("the payload is not JSON") from None
        self._tx_config, self._base_id, self._now = compiled.tx_config, base_id, now
        event = Event(
            webhook.event_type, payload, None, webhook.source_identifier, now, row.message_id
        )
        self._intents = tuple(_build_intents(compiled, webhook, event, row))
        details: dict[str, Any] = {
            "delivery_id": row.id,
            "webhook_id": webhook.id,
            "event_id": row.message_id,
            "source": webhook.source_identifier,
            "event_type": webhook.event_type,
            "agent_intent": webhook.agent_intent,
            "payload": None,
        }
        if len(text) <= MAX_PUBLISHED:
            details["payload"] = compiled.redactor.document(payload)
        else:
            details["payload_omitted"] = True
        self._topic, self._details = f"session:{row.session_id}", details

    def __call__(self, tx: Tx) -> None:
        spawned = close.write_intents(
            tx, self._intents, self._point, self._tx_config, Ids(self._base_id), self._now
        )
        details = {**self._details, "job_ids": spawned.job_ids}
        notices.post(tx, Notice(self._topic, "WebhookEvent", details), self._now)


def _build_intents(
    compiled: CompiledConfig, webhook: Webhook, event: Event, row: Delivery
) -> Iterator[Intent]:
    if webhook.plugin is not None:
        gone = compiled.gone(webhook.plugin) or compiled.absence(webhook.plugin)
        if gone is not None:
            raise Refused(f"{webhook.plugin}: {gone}")
        yield SpawnJob(webhook.plugin, HANDLE, event, SubmittedBy.WEBHOOK, None, 0)
    if webhook.pipeline is not None:
        baggage = {
            "name": webhook.source_identifier,
            "event": webhook.event_type,
            "delivery_id": row.message_id,
            "session": row.session_id,
            "intent": webhook.agent_intent,
        }
        started = compiled.tx_config.router.start(
            webhook.pipeline, event, submitted_by=SubmittedBy.WEBHOOK, baggage={"webhook": baggage}
        )
        if started is None:
            raise Refused(f"there is no pipeline {webhook.pipeline!r}")
        yield started
