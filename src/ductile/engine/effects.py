"""What follows from a commit: wake the loops that have work, log, publish notices."""

from __future__ import annotations

from ductile.engine.alerts import evaluator
from ductile.engine.observability import job_logging
from ductile.engine.outbox.relay import RelayPolicy
from ductile.engine.outbox.webhooks import WebhookPolicy
from ductile.engine.services import Services
from ductile.log import logger
from ductile.store.engines.api import Effects


class EffectHandler:
    """Called after each commit, on the thread that committed."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._log = logger("gateway")

    def __call__(self, effects: Effects) -> None:
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
        for drop in effects.drops:
            job_logging.log_deduplicated(self._log, drop)
        if effects.notices:
            job_logging.log_breakers(self._log, effects.notices)
            if evaluator.are_watched(effects.notices) and services.compiled.alert_rules:
                services.loops.wake(evaluator.LOOP)
            services.notice_bus.publish_commit(effects.notices)
            if services.is_only_writer:
                services.notice_bus.append(effects.notices)
