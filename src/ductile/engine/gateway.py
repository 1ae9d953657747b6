"""The gateway: assembles the parts around one state directory, and bounds their lifetime."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any

from ductile.clock import Clock, Entropy
from ductile.config import Loaded
from ductile.core.jobs.commands import INIT
from ductile.engine.alerts.alert_loop import AlertLoop
from ductile.engine.control import ControlRequest, record_reload
from ductile.engine.dispatch.dispatcher import Dispatcher
from ductile.engine.dispatch.started_log import StartedLog, read_unstarted
from ductile.engine.effects import EffectHandler
from ductile.engine.instance_lock import InstanceLock
from ductile.engine.loop import Loop, Tick
from ductile.engine.loop_table import local_ticks
from ductile.engine.notices.tailer import NoticeTailer
from ductile.engine.observability import job_logging
from ductile.engine.observability.health import HealthMonitor
from ductile.engine.observability.trace_settings import find_flaw
from ductile.engine.outbox.http_client import HttpClient
from ductile.engine.outbox.policy import OutboxPolicy
from ductile.engine.outbox.relay import RelayPolicy
from ductile.engine.outbox.webhooks import WebhookPolicy
from ductile.engine.outbox.worker import OutboxWorker
from ductile.engine.recovery.boot_record import (
    begin_boot,
    end_boot,
    read_last_boot,
    write_last_boot,
)
from ductile.engine.recovery.lease import NodeLease
from ductile.engine.recovery.node_heartbeat import NodeHeartbeat
from ductile.engine.recovery.node_record import prove_shared_workspaces, refuse_taken_name
from ductile.engine.recovery.recover_jobs import recover_at_start
from ductile.engine.recovery.schema_check import SchemaCheck
from ductile.engine.recovery.takeover import TakeoverMonitor
from ductile.engine.scheduling.flow_timer import FlowTimer
from ductile.engine.scheduling.scheduler import Scheduler
from ductile.engine.services import Services
from ductile.errors import ConfigError, DuctileError, LedgerBroken
from ductile.failpoint import failpoint
from ductile.model import Cancellation, Settlement
from ductile.plugins.sandbox import TEMPORARY
from ductile.runner import cgroup
from ductile.runner.client import BUFFER_LIMIT
from ductile.runner.pool import RunnerPool
from ductile.runner.process_scan import kill_marked_processes
from ductile.runner.sandbox.temporary import remove_leftovers
from ductile.runner.warm.slots import WarmSlots
from ductile.store import nodes, notices
from ductile.store.engines.api import NodeNews
from ductile.store.engines.open import name_application, open_ledger

LEDGER_TIMEOUT = 10.0
"""Seconds that a stop waits for the ledger to answer the threads that write to it."""
LATER_WORKERS = 64
"""Number of workers for which the started log has room, although fewer run at the start."""
LOCK_CHECK_SECONDS = 2.0
LEASE_LOST_GRACE = 2.0
"""Shorter than other cancellations: another node may be about to start the same job."""
LEFTOVER_SECONDS = 3600.0
"""Age at which a temporary directory that a dead job has left is removed at the start."""


class Gateway(Services):
    """Owns its state directory from `open` to `close`; works between `start` and `stop`."""

    pool: RunnerPool
    started_log: StartedLog

    def __init__(
        self,
        loaded: Loaded,
        *,
        environ: Mapping[str, str],
        clock: Clock | None = None,
        entropy: Entropy | None = None,
        owns_process: bool = False,
        owns_children: bool = False,
    ) -> None:
        super().__init__(loaded, environ=environ, clock=clock, entropy=entropy)
        self._owns_process = owns_process
        """Whether this process is a gateway, and starts nothing but what a gateway starts."""
        self._owns_children = owns_process or owns_children
        """Whether this process starts nothing else while the gateway is open."""
        self._lock = InstanceLock(self.state_dir)
        self._dispatching: threading.Thread | None = None
        self.lease: NodeLease | None = None
        self._takeover: TakeoverMonitor | None = None
        """None if no other node can use the ledger."""

    # Open: from the lock to a ledger in order

    def open(self, *, slots: int | None = None) -> None:
        """Take the state directory, open its ledger, and recover what the last boot left."""
        self._lock.acquire(for_gateway=slots is None)
        failpoint("locked")
        self._launch_runner(slots or self.workers, room=slots or max(self.workers, LATER_WORKERS))
        if slots is None:
            self.warm_slots = WarmSlots(self.pool, self._log_runner_event)
        # The orphaned processes of a dead gateway are ended while the ledger opens; nothing is
        # recovered before both are done.
        with ThreadPoolExecutor(1, "kill-marked") as executor:
            swept = executor.submit(kill_marked_processes, self.state_dir_id)
            self._open_ledger()
        if count := swept.result():
            self._log.warning("ended orphaned processes of the last gateway", count=count)
        # The private directories of jobs whose slot was killed; not those of a test that runs now.
        old = self.clock.now().timestamp() - LEFTOVER_SECONDS
        remove_leftovers(str(self.state_dir / TEMPORARY), old)
        self.pool.start()
        self._recover()
        self.health = HealthMonitor(self)
        self.alerts = AlertLoop(self)

    def _launch_runner(self, slots: int, room: int) -> None:
        entries = 2 * room * (BUFFER_LIMIT + 1)
        self.started_log = StartedLog(self.state_dir, self.boot, entries)
        self.pool = RunnerPool(
            slots,
            lock_fd=self._lock.fd,
            started_log_fd=self.started_log.fd,
            on_event=self._log_runner_event,
            cgroup_name=f"{cgroup.PREFIX}{self.state_dir_id}" if self._owns_process else "",
            owns_all_children=self._owns_children,
        )
        self.pool.launch()

    def _open_ledger(self) -> None:
        state = self._loaded.settings.state
        self.ledger = open_ledger(
            path=state.path,
            url=state.url,
            connections=self.workers + 4,
            application=name_application(self.boot, self.node),
        )
        position = self.ledger.read(notices.last_position)
        self.notice_bus.start(position)
        self.notice_bus.on_followed = self.ledger.follow_notices
        self._tailer = NoticeTailer(self.ledger, self.notice_bus, position)
        self.is_only_writer = not self.ledger.watch_nodes(self)
        self.flow_timer = FlowTimer(self.ledger, self.work_signal)
        self.ledger.listen(EffectHandler(self))
        if not self.is_only_writer:
            refuse_taken_name(self.ledger, self.node, self.state_dir)
            self.shared_workspaces = prove_shared_workspaces(
                self.ledger, state.workspaces, self.boot
            )
        self.ledger.claim_boot(self.boot)
        self.last_time = self.ledger.read(notices.newest_time)
        begin_boot(self.ledger, self.boot, self.clock.now())
        self.config = self._config_manager()
        self.scheduler = self.config.scheduler = Scheduler(
            self.ledger, self.clock, self.entropy, unready=lambda: self.unready
        )
        self._build_outbox_workers()
        self.config.start()
        self._build_tracer()

    def _build_tracer(self) -> None:
        if flaw := find_flaw(self.environ):
            self._log.warning("tracing is off", reason=flaw)
        if self.compiled.tracing is not None:
            from ductile.engine.observability.tracing import SpanExporter

            self.tracer = SpanExporter(self.compiled.tracing, self.node, self.ledger, self.send)

    def _build_outbox_workers(self) -> None:
        self.send = HttpClient(self.clock)
        policies: tuple[OutboxPolicy[Any], ...] = (RelayPolicy(), WebhookPolicy(self.entropy))
        for policy in policies:
            self.outbox_workers[policy.name] = OutboxWorker(
                policy,
                self.ledger,
                lambda: self.compiled,
                self.boot,
                send=self.send,
                clock=self.clock,
                on_broken=self.broken,
            )

    def _recover(self) -> None:
        last = None if self.is_only_writer else read_last_boot(self.state_dir)
        unstarted = read_unstarted(self.state_dir)
        recover_at_start(self.ledger, self.compiled, self.clock, self.entropy, last, unstarted)
        failpoint("recovered")
        self.started_log.activate()
        if not self.is_only_writer:
            write_last_boot(self.state_dir, self.boot)
        for worker in self.outbox_workers.values():
            worker.recover()
        renewal = self.ledger.write(lambda tx: nodes.renew(tx, self.boot))
        # A node that was drained stays drained when it starts again.
        self.set_drained(renewal is not None and renewal.is_drained)
        self.config.settle()

    # Start: the loops and the dispatcher

    def start(self) -> None:
        """Start the loops and the workers."""
        self.agents.heartbeats.start()
        ticks = local_ticks(self)
        if not self.is_only_writer:
            ticks |= self._cluster_ticks()
        for name, tick in ticks.items():
            self.loops.start(name, tick, self.broken)
        self.dispatcher = Dispatcher(self, self.pool.provide(self.workers))
        self._dispatching = threading.Thread(
            target=self.dispatcher.loop, name="dispatcher", daemon=True
        )
        self._dispatching.start()

    def wake_waits(self) -> None:
        """Other nodes have decided or begun waits; the events of those are to be learned."""
        self.loops.wake("waits")
        self.loops.wake("config")

    # What other nodes wake (`NewsReader`)

    def is_followed(self) -> bool:
        return self.notice_bus.is_followed

    def read_notices(self) -> bool:
        return self._tailer.read_new()

    def on_ready(self) -> None:
        self.work_signal.notify_all()

    def on_requests(self) -> None:
        self.loops.wake("requests")

    def _cluster_ticks(self) -> dict[str, Tick]:
        """The loops of a node that shares its ledger."""
        self.lease = NodeLease(
            self.clock, self._terminate_local_jobs, self.claim_again, self.started_log.set_deadline
        )
        self._takeover = TakeoverMonitor(
            self.ledger, self.boot, lambda: self.compiled, self.clock, self.entropy
        )
        return {
            "lease": self.lease.tick,
            "nodes": NodeHeartbeat(
                self.ledger,
                self.boot,
                self.clock,
                self.lease,
                self._terminate_local_jobs,
                self._begin_again,
                self.set_drained,
            ).tick,
            "takeover": self._takeover.tick,
            "schema": SchemaCheck(self.ledger).tick,
        }

    def has_other_nodes(self) -> bool:
        return self._takeover is not None and self._takeover.has_others

    def known_nodes(self) -> list[dict[str, Any]]:
        return [] if self._takeover is None else self._takeover.rows

    def _begin_again(self) -> None:
        """Record this boot and node again, after other nodes have taken them for dead."""
        begin_boot(self.ledger, self.boot, self.clock.now())
        self.ledger.write(lambda tx: self.register_node(tx, self.compiled))

    def may_claim(self) -> bool:
        return super().may_claim() and self.lease_term() is not None

    def lease_term(self) -> int | None:
        """See `NodeLease.term`; one that never ends where no other node uses the ledger."""
        return 0 if self.lease is None else self.lease.term

    def wake_timers(self) -> None:
        for name in (*self.outbox_workers, "waits"):
            self.loops.wake(name)

    def keep_lock(self, _now: datetime) -> float:
        """Stop if the lock file was replaced by one that another process has locked."""
        if not self._lock.keep():
            # Before the stop with its grace: the other gateway may be about to start the same jobs.
            self.stopping.set()
            self._terminate_local_jobs()
            reason = f"another process has locked {self._lock.path}, which was removed"
            raise LedgerBroken(f"{reason}; two gateways must not use one ledger")
        return LOCK_CHECK_SECONDS

    @property
    def threads(self) -> tuple[threading.Thread, ...]:
        """The threads without which no job runs."""
        return () if self._dispatching is None else (self._dispatching,)

    # Work: requests, and what the parts report

    def resize(self, workers: int) -> None:
        """Run up to this number of jobs at once from now on; running jobs continue."""
        if workers == self.workers:
            return
        self._log.info("number of workers changed", workers=workers, before=self.workers)
        self.workers = workers
        slots = self.pool.provide(workers)
        if self.dispatcher is not None:
            self.dispatcher.resize(slots)
        self.work_signal.resize(workers)

    def run(self) -> None:
        """Serve reload requests until a stop is requested."""
        while self.requests.get() is not ControlRequest.STOP:
            try:
                self.reload()
            except ConfigError as error:
                for problem in error.problems:
                    self._log.error("reload refused", problem=str(problem))
            except DuctileError as error:
                self._log.error("reload refused", problem=error.message)
            else:
                record_reload(self.ledger, self.clock, self._log)

    def settled(self, settlement: Settlement, trace_id: str | None) -> None:
        """Called after an attempt's settlement is durable."""
        self.counters.count_settlement(settlement, self.compiled)
        job_logging.log_settlement(self._log, settlement, trace_id)
        if settlement.command == INIT:
            self.config.init_ended(settlement)
            self.loops.wake("scheduler")
        if self.has_other_nodes() and (self.stopping.is_set() or not self.may_claim()):
            # Its place under a limit is free, and this node does not fill it.
            self.ledger.tell_nodes(NodeNews.READY)

    def broken(self, error: LedgerBroken) -> None:
        """Stop at once: it is unknown whether a commit took effect; the next start finds out."""
        self.failure = error
        self._log.error("the ledger is broken; stopping", error=error.message)
        self.stopping.set()
        self.work_signal.wake()
        self.requests.put(ControlRequest.STOP)

    def _log_runner_event(self, name: str, details: Mapping[str, object]) -> None:
        self.counters.count_runner_event(name)
        is_bad = name.endswith(".lost") or name == "warm.refused"
        self._log.log("warn" if is_bad else "debug", name.replace(".", " "), **details)

    def _terminate_local_jobs(self) -> None:
        """End local processes; their jobs return to the queue, where another node may own them."""
        if self.dispatcher is not None:
            self.dispatcher.cancel(Cancellation.STOP, grace=LEASE_LOST_GRACE)

    # Stop and close

    def stop(self) -> None:
        """Claim nothing more; running jobs get their grace, then return to the queue."""
        self.stopping.set()
        self.agents.heartbeats.stop()
        self.work_signal.wake()
        for callback in self.on_stop:
            callback()
        self.loops.stop()
        deadline = self.clock.monotonic() + self.compiled.settings.service.shutdown_grace
        for worker in self.outbox_workers.values():
            worker.stop(max(0.0, deadline - self.clock.monotonic()))
        if self.dispatcher is not None and self._dispatching is not None:
            self._dispatching.join(max(0.0, deadline - self.clock.monotonic()))
            self.dispatcher.cancel(Cancellation.STOP, grace=0.0)
        self._join_threads()
        if self.dispatcher is not None:
            self.dispatcher.close()
            self.dispatcher = self._dispatching = None
        if self.tracer is not None and self.failure is None:
            self.tracer.flush()

    def _join_threads(self) -> None:
        threads: list[Loop | threading.Thread] = [*self.loops.values(), *self.threads]
        give_up = self.clock.monotonic() + LEDGER_TIMEOUT
        for thread in threads:
            thread.join(max(0.0, give_up - self.clock.monotonic()))
        if any(thread.is_alive() for thread in threads):
            # Most likely they wait for the ledger. Recovery handles what it has not received.
            self._log.error("the ledger does not answer; closing its connections")
            self.ledger.abort_connections()
            for thread in threads:
                thread.join()

    def close(self) -> None:
        """Release the state directory. No plugin process remains."""
        if hasattr(self, "ledger"):
            if self.failure is None:
                end_boot(self.ledger, self.boot, self.clock.now(), self._log)
            self.ledger.close()
        if self.warm_slots is not None:
            self.warm_slots.stop()
        if hasattr(self, "pool"):
            self.pool.stop()
        if hasattr(self, "started_log"):
            self.started_log.close()
        self._lock.release()
