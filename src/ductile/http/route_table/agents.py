"""Agents, webhooks, deliveries and relays."""

from __future__ import annotations

from ductile.core.agents.reminder import LARGEST_PAYLOAD
from ductile.http.requests import InvalidJson
from ductile.http.route_table.rows import KEY, action, change, delete, get, post

# fmt: off
RELAYS = (
    get("/relays", "jobs:ro", "relays.list_relays", "Relays", "RelayQuery"),
    change("/relays", "system:rw", "relays.send_relay", action("RelaySent"), "relay.send",
        "RelayBody", headers=KEY),
    change("/relays/retry", "jobs:rw", "relays.retry_dead_relays", action("RelaysRetry"),
        "relay.retry_many"),
    change("/relays/discard", "jobs:rw", "relays.discard_dead_relays", action("RelaysDiscard"),
        "relay.discard_many", "DiscardBody"),
    change("/relay/{relay_id}/discard", "jobs:rw", "relays.discard_relay", action("RelayDiscard"),
        "relay.discard"),
    change("/relay/{relay_id}/retry", "jobs:rw", "relays.retry_relay", action("RelayRetry"),
        "relay.retry"),
)

AGENTS = (
    post("/gateway/heartbeat", "agents:rw", "agents.heartbeats.record_heartbeat",
        "HeartbeatAccepted", raw_body="Heartbeat",
        is_public=lambda settings: settings.gateway.open),
    post("/gateway/messages", "agents:rw", "agents.heartbeats.publish_message",
        {202: "MessageAccepted"}, raw_body="DecisionLog",
        is_public=lambda settings: settings.gateway.open),
    get("/gateway/heartbeats", "agents:ro", "agents.heartbeats.list_agents", "Agents",
        "AgentQuery"),
    get("/gateway/capabilities", "agents:ro", "agents.heartbeats.list_capabilities",
        "Capabilities", "CapabilityQuery"),
    get("/gateway/cron", "agents:ro", "agents.reminders.list_reminders", "Reminders",
        "ReminderQuery"),
    post("/gateway/cron", "agents:rw", "agents.reminders.create_reminder",
        {201: "Reminder", 200: "Reminder"}, body="NewReminderBody", max_body=2 * LARGEST_PAYLOAD,
        json_error=InvalidJson),
    post("/gateway/cron/{reminder_id}/forget", "agents:rw", "agents.reminders.forget_reminder",
        "Reminder", body="ActionBody", max_body=2 * LARGEST_PAYLOAD, json_error=InvalidJson),
    get("/gateway/deliveries", "agents:ro", "agents.deliveries.list_deliveries", "Deliveries",
        "DeliveryQuery"),
    get("/gateway/deliveries/{delivery_id}", "agents:ro", "agents.deliveries.show_delivery",
        "DeliveryDetail"),
    post("/gateway/deliveries", "agents:rw", "agents.deliveries.send_delivery",
        {202: "DeliverySent", 200: "DeliveryPlan"}, body="DeliveryBody", headers=KEY),
    change("/gateway/deliveries/retry", "agents:rw", "agents.deliveries.retry_deliveries",
        action("DeliveriesRetry"), "delivery.retry_many", "RedeliveryBody"),
    change("/gateway/deliveries/discard", "agents:rw", "agents.deliveries.discard_deliveries",
        action("DeliveriesDiscard"), "delivery.discard_many", "DiscardBody"),
    change("/gateway/deliveries/{delivery_id}/discard", "agents:rw",
        "agents.deliveries.discard_delivery", action("DeliveryDiscard"), "delivery.discard"),
    change("/gateway/deliveries/{delivery_id}/retry", "agents:rw",
        "agents.deliveries.retry_delivery", action("DeliveryRetry"), "delivery.retry"),
    get("/gateway/webhook-configs", "agents:ro", "agents.webhooks.list_webhooks", "Webhooks"),
    change("/gateway/webhook-configs", "agents:rw", "agents.webhooks.create_webhook",
        {201: "WebhookCreated", 200: "WebhookPlan"}, "webhook.create", "NewWebhookBody"),
    delete("/gateway/webhook-configs/{webhook_id}", "agents:rw", "agents.webhooks.remove_webhook",
        "WebhookRemoved", query="WebhookRemovalQuery", audit="webhook.remove"),
    post("/gateway/webhooks/{webhook_id}", None, "agents.webhooks.receive_event",
        {202: "EventAccepted"}, raw_body=""),
)
