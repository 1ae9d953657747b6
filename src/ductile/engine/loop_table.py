"""The loops of a gateway: one thread each, which calls its tick again and again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ductile.engine.alerts.dead_man import DeadManPinger
from ductile.engine.loop import Tick
from ductile.engine.recovery.node_requests import NodeRequestHandler
from ductile.engine.recovery.orphans import OrphanSweeper
from ductile.engine.scheduling.clock_monitor import ClockMonitor
from ductile.engine.scheduling.retention import RetentionCleaner
from ductile.engine.scheduling.retries import RetryPromoter
from ductile.engine.scheduling.waiting_runs import WaitingRuns
from ductile.engine.scheduling.waits import WaitTimer

if TYPE_CHECKING:
    from ductile.engine.gateway import Gateway


def local_ticks(gateway: Gateway) -> dict[str, Tick]:
    """The loops of every gateway, also of one that shares its ledger."""
    orphans = OrphanSweeper(
        gateway.ledger, gateway.boot, gateway.owned_jobs, lambda: gateway.compiled, gateway.entropy
    )
    assert gateway.health is not None
    assert gateway.alerts is not None
    assert gateway.flow_timer is not None
    waiting_runs = WaitingRuns(
        gateway.ledger, gateway.boot, lambda: gateway.compiled, gateway.entropy
    )
    return {
        "clock": ClockMonitor(
            gateway.ledger, gateway.clock, gateway.boot, gateway.wake_timers, gateway.last_time
        ).tick,
        "retries": RetryPromoter(gateway.ledger, gateway.work_signal, waiting_runs).tick,
        "flow": gateway.flow_timer.tick,
        "runs": waiting_runs.tick,
        "waits": WaitTimer(
            gateway.ledger, gateway.boot, lambda: gateway.compiled, gateway.entropy
        ).tick,
        "config": gateway.config.tick,
        "requests": _node_requests(gateway).tick,
        "scheduler": gateway.scheduler.tick,
        "retention": RetentionCleaner(gateway.ledger, lambda: gateway.compiled, gateway.clock).tick,
        "orphans": orphans.tick,
        "heartbeats": gateway.agents.heartbeats.tick,
        "reminders": gateway.agents.reminders.tick,
        "health": gateway.health.tick,
        "alerts": gateway.alerts.tick,
        "dead-man": DeadManPinger(gateway, gateway.send).tick,
        "lock": gateway.keep_lock,
        **({"tracing": gateway.tracer.tick} if gateway.tracer is not None else {}),
        **{name: worker.tick for name, worker in gateway.outbox_workers.items()},
    }


def _node_requests(gateway: Gateway) -> NodeRequestHandler:
    return NodeRequestHandler(
        gateway.ledger,
        gateway.boot,
        gateway.clock,
        gateway.owned_jobs,
        gateway.cancel_running,
        gateway.reload,
        gateway.wake_waits,
    )
