"""Webhooks that agents have registered: where events of a source are delivered."""

from __future__ import annotations

from datetime import datetime

from ductile._fast_dataclass import dataclass
from ductile.clock import to_text
from ductile.core.delivery.retry_policy import INTERNAL
from ductile.errors import NotFound, Refused
from ductile.store.engines.api import Tx


class WebhookNotFound(NotFound):
    code = "webhook_not_found"


@dataclass(frozen=True, slots=True)
class Webhook:
    """A row of `webhook_configs`."""

    id: int
    source_identifier: str
    event_type: str
    agent_intent: str
    target_session: str
    secret: str
    target_url: str | None
    plugin: str | None
    pipeline: str | None
    removed: bool = False

    @property
    def target(self) -> str:
        """Where its deliveries go."""
        return self.target_url or INTERNAL + self.target_session

    def __repr__(self) -> str:
        return f"Webhook({self.id}, {self.source_identifier!r}, {self.event_type!r})"


@dataclass(frozen=True, slots=True)
class NewWebhook:
    source_identifier: str
    event_type: str
    agent_intent: str
    target_session: str
    target_url: str | None = None
    plugin: str | None = None
    pipeline: str | None = None


def add_webhook(tx: Tx, new: NewWebhook, secret: str, now: datetime) -> int:
    """Insert a webhook and return its id; `Refused` if this source and event have one."""
    row = tx.one(
        "insert_webhook_config",
        source_identifier=new.source_identifier,
        event_type=new.event_type,
        agent_intent=new.agent_intent,
        target_session=new.target_session,
        secret=secret,
        target_url=new.target_url,
        plugin=new.plugin,
        pipeline=new.pipeline,
        now=to_text(now),
    )
    if row is None:
        raise Refused(
            f"there is already a webhook for {new.source_identifier}/{new.event_type}",
            run="ductile webhook config list",
        )
    id: int = row[0]
    return id


def load_webhook(tx: Tx, webhook_id: int) -> Webhook | None:
    """The webhook with this id, even if it is removed."""
    row = tx.one("webhook_config", id=webhook_id)
    if row is None:
        return None
    id, source, event, intent, session, secret, url, plugin, pipeline, removed = row
    return Webhook(id, source, event, intent, session, secret, url, plugin, pipeline, bool(removed))


def find_webhook(tx: Tx, id: int) -> Webhook:
    """The webhook with this id; `WebhookNotFound` if there is none or it is removed."""
    found = load_webhook(tx, id)
    if found is None or found.removed:
        raise WebhookNotFound(f"there is no webhook {id}")
    return found


def find_webhook_of_event(tx: Tx, source_identifier: str, event_type: str) -> Webhook:
    """The webhook for this source and event type, or `WebhookNotFound`."""
    row = tx.one("webhook_config_of", source_identifier=source_identifier, event_type=event_type)
    if row is None:
        raise WebhookNotFound(f"there is no webhook for {source_identifier}/{event_type}")
    return find_webhook(tx, row[0])


def remove_webhook(tx: Tx, id: int, now: datetime) -> Webhook:
    """Remove a webhook: it takes no more events, and its outstanding deliveries end as dead."""
    found = find_webhook(tx, id)
    tx.run("remove_webhook_config", id=id, now=to_text(now))
    return found
