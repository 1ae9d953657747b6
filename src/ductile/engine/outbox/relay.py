"""Relays: the policy of the outbox of events for other gateways."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from urllib.parse import unquote

from ductile.config.models.relay import InstanceSettings
from ductile.core.delivery.relay import (
    ANYWHERE,
    RETRY_SECONDS,
    Peer,
    is_permanent_rejection,
    is_receipt,
    judge_send,
    rename_sender,
    sign_request,
)
from ductile.core.delivery.retry_policy import DeliveryUpdate
from ductile.core.jobs.trace import TraceContext, span_of_job
from ductile.engine.config.compiled import CompiledConfig
from ductile.engine.outbox.policy import (
    UNREADABLE,
    OutboundRequest,
    OutboxPolicy,
    SendResult,
    trace_header,
)
from ductile.store.engines.api import Tx
from ductile.store.jobs import traces
from ductile.store.outbox import relays
from ductile.store.outbox.relays import ClaimedRelay

NOT_ALLOWED = "not sent: the instance no longer allows this event type"
REJECTED = "the gateway rejects this event permanently"


class RelayPolicy(OutboxPolicy[ClaimedRelay]):
    """Rows of `relay_deliveries`. The store limits the concurrent sends per instance."""

    name, noun = "relay", "relay"
    retry_seconds = RETRY_SECONDS
    poll_seconds, full_seconds = 5.0, 1.0
    store = relays

    def next_due(self, tx: Tx, config: CompiledConfig, _now: datetime) -> datetime | None:
        return min(relays.next_due_by_instance(tx, tuple(_enabled(config))).values(), default=None)

    def find_odd_times(self, tx: Tx, config: CompiledConfig) -> list[str]:
        return relays.list_foreign_times(tx, tuple(_enabled(config)))

    def claim(
        self, tx: Tx, config: CompiledConfig, owner: str, now: datetime
    ) -> list[ClaimedRelay]:
        due = relays.next_due_by_instance(tx, tuple(_enabled(config)))
        ready = [name for name, at in due.items() if at <= now]
        claimed = relays.claim(tx, ready, owner, now)
        if not claimed or config.tracing is None:
            return claimed
        found = traces.load_contexts(tx, [row.job_id for row in claimed if row.job_id])
        return [replace(row, trace=_trace_of(row, found)) for row in claimed]

    def build_request(
        self, row: ClaimedRelay, config: CompiledConfig, now: datetime
    ) -> OutboundRequest | SendResult:
        sender, instance = config.settings.service.name, _enabled(config)[row.instance]
        body = rename_sender(row.body, sender)
        if body is None:
            return SendResult(None, UNREADABLE)
        if instance.allow and row.event_type not in instance.allow:
            return SendResult(None, NOT_ALLOWED)
        path = instance.url.partition("://")[2].partition("/")[2]
        peer = Peer(instance.name, instance.secret or "", instance.key_id)
        signed = sign_request(sender, peer, unquote(f"/{path}"), body, now)
        return OutboundRequest(
            instance.url,
            body,
            {**signed, **trace_header(row.trace, config)},
            instance.timeout,
            networks=ANYWHERE,
            plain_http=instance.url.startswith("http://"),
        )

    def judge(self, row: ClaimedRelay, result: SendResult, now: datetime) -> DeliveryUpdate:
        final = is_permanent_rejection(result.status, result.body)
        return judge_send(row.attempts, _describe_error(result, final), final=final, now=now)

    def log_fields(self, row: ClaimedRelay) -> dict[str, int | str]:
        return {**super().log_fields(row), "instance": row.instance}


def _trace_of(row: ClaimedRelay, found: Mapping[str, TraceContext]) -> TraceContext | None:
    """The trace of what the relaying job causes."""
    context = found.get(row.job_id or "")
    return None if context is None or row.job_id is None else context.below(span_of_job(row.job_id))


def _enabled(config: CompiledConfig) -> dict[str, InstanceSettings]:
    return {item.name: item for item in config.settings.instances if item.enabled}


def _describe_error(result: SendResult, final: bool) -> str | None:
    """Why the event is not delivered, without any text of the response; None if it is."""
    if is_receipt(result.status, result.body):
        return None
    if result.is_success:
        return f"HTTP {result.status}, but not a gateway's receipt"
    error = result.error or f"HTTP {result.status}"
    return f"{error}: {REJECTED}" if final else error
