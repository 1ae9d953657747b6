"""What an alert rule can watch."""

from __future__ import annotations

from enum import StrEnum


class Condition(StrEnum):
    """A problem that an alert rule may name in `on`."""

    JOB_DEAD = "job.dead"
    RUN_FAILED = "run.failed"
    BREAKER_OPEN = "breaker.open"
    SCHEDULE_MISSED = "schedule.missed"
    SCHEDULE_SILENT = "schedule.silent"
    PLUGIN_SILENT = "plugin.silent"
    AGENT_SILENT = "agent.silent"
    WEBHOOK_SILENT = "webhook.silent"
    DELIVERY_DEAD = "delivery.dead"
    AUTHORIZATION_ENDED = "authorization.ended"
    QUEUE_AGE = "queue.age"
    DISK_FREE = "disk.free"
    HEALTH = "health"

    @property
    def is_silence(self) -> bool:
        """Whether the rule's `for` says how long the subject may be silent."""
        return self in _SILENCES

    @property
    def is_counted(self) -> bool:
        """Whether its failures are counted, so that `after` applies."""
        return self in _COUNTED


_SILENCES = frozenset(
    {
        Condition.SCHEDULE_SILENT,
        Condition.PLUGIN_SILENT,
        Condition.AGENT_SILENT,
        Condition.WEBHOOK_SILENT,
    }
)
_COUNTED = frozenset(
    {
        Condition.JOB_DEAD,
        Condition.RUN_FAILED,
        Condition.SCHEDULE_MISSED,
        Condition.DELIVERY_DEAD,
    }
)
OF_PLUGINS = frozenset({Condition.JOB_DEAD, Condition.BREAKER_OPEN, Condition.PLUGIN_SILENT})
"""Conditions whose subject is always a plugin."""
OF_CONFIGURATION = OF_PLUGINS | {
    Condition.RUN_FAILED,
    Condition.SCHEDULE_MISSED,
    Condition.SCHEDULE_SILENT,
    Condition.AUTHORIZATION_ENDED,
    Condition.QUEUE_AGE,
}
"""Conditions whose subjects are all named in the configuration."""
OF_AGENTS = frozenset({Condition.AGENT_SILENT, Condition.WEBHOOK_SILENT, Condition.DELIVERY_DEAD})
"""Conditions whose subjects may be agents or webhooks of agents, which only the ledger knows."""
MEANINGS = {
    Condition.JOB_DEAD: "a job has failed, and is not tried again",
    Condition.RUN_FAILED: "a pipeline run has failed",
    Condition.BREAKER_OPEN: "a circuit breaker is open, so its schedules do not fire",
    Condition.SCHEDULE_MISSED: "an occurrence of a schedule was missed and has not run since",
    Condition.SCHEDULE_SILENT: "a schedule has had no success for too long",
    Condition.PLUGIN_SILENT: "a plugin has had no success for too long",
    Condition.AGENT_SILENT: "an agent has sent no heartbeat for too long",
    Condition.WEBHOOK_SILENT: "a webhook has received nothing for too long",
    Condition.DELIVERY_DEAD: "a delivery or relayed event is dead: no attempt was accepted",
    Condition.AUTHORIZATION_ENDED: "a provider has rejected the tokens of a plugin",
    Condition.QUEUE_AGE: "a job or a run has waited for its turn for too long",
    Condition.DISK_FREE: "the disk of the state directory is almost full",
    Condition.HEALTH: "a part of the gateway fails, so that jobs cannot be accepted or settled",
}
