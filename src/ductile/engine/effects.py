"""What follows from a commit: wake the loops that have work, log, publish notices."""

from __future__ import annotations

import orjson

from ductile.engine.alerts import alert_loop
from ductile.engine.observability import job_logging
from ductile.engine.outbox.relay import RelayPolicy
from ductile.engine.outbox.webhooks import WebhookPolicy
from ductile.engine.services import Services
from ductile.log import logger
from ductile.store.engines.api import Effects, NodeNews, StoredNotice


class EffectHandler:
    """Called after each commit, on the thread that committed."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._log = logger("gateway")

    def __call__(self, effects: Effects) -> None:
        self._wake_loops(effects)
        services = self._services
        services.agent_contacts += effects.contacts
        if (effects.ready or effects.ready_any) and self._needs_other_nodes(effects):
            services.ledger.tell_nodes(NodeNews.READY)
        for drop in effects.drops:
            job_logging.log_deduplicated(self._log, drop)
        if effects.notices:
            self._publish(effects.notices)

    def _wake_loops(self, effects: Effects) -> None:
        services = self._services
        if effects.ready:
            services.work_signal.notify(effects.ready)
        if effects.ready_any:
            services.work_signal.notify_all()
        if effects.opens_at is not None and services.flow_timer is not None:
            services.flow_timer.add_opening(effects.opens_at)
        if effects.pauses or effects.opens_at is not None:
            services.loops.wake("flow")
        if effects.retry_at is not None:
            services.loops.wake("retries")
        if effects.relays:
            services.loops.wake(RelayPolicy.name)
        if effects.deliveries:
            services.loops.wake(WebhookPolicy.name)
        if effects.waits:
            services.loops.wake("waits")
        if effects.requests:
            services.loops.wake("requests")

    def _publish(self, notices: list[StoredNotice]) -> None:
        services = self._services
        if services.tracer is not None:
            services.tracer.observe(notices)
        job_logging.log_breakers(self._log, notices)
        if alert_loop.are_watched(notices) and services.compiled.alert_rules:
            services.loops.wake(alert_loop.LOOP)
        services.notice_bus.publish_commit(notices)
        if services.is_only_writer:
            services.notice_bus.append(notices)

    def _needs_other_nodes(self, effects: Effects) -> bool:
        """Whether jobs became ready that another node would start sooner than this one."""
        services = self._services
        if not services.has_other_nodes():
            return False
        if effects.ready_any or not services.may_claim():
            return True
        if services.work_signal.pending > services.workers - services.busy:
            return True
        excludes = services.claim_policy().excludes
        queued = (notice for notice in effects.notices if notice.type == "job.queued")
        return any(excludes(orjson.loads(notice.payload)["plugin"]) for notice in queued)
