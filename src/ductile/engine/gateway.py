"""The gateway: one state directory, one ledger, its workers and loops."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from pathlib import Path

import ductile
from ductile.agents.agents import Agents
from ductile.clock import Clock, Entropy, SystemClock, SystemEntropy
from ductile.config import Loaded, load
from ductile.config.redact import hidden
from ductile.core.jobs.commands import INIT
from ductile.engine.config.compiled import CompiledConfig, build
from ductile.engine.config.manager import ConfigManager
from ductile.engine.config.plugin_init import Unready
from ductile.engine.config.restart_required import unreloadable
from ductile.engine.control import Request, Requests
from ductile.engine.dispatch.dispatcher import Dispatcher
from ductile.engine.dispatch.started_log import StartedLog, unbegun
from ductile.engine.dispatch.wakeup import WorkSignal
from ductile.engine.ingress import enqueue as intake
from ductile.engine.instance_lock import InstanceLock, state_dir_id
from ductile.engine.loop import Loop
from ductile.engine.notices.bus import NoticeBus
from ductile.engine.notices.tailer import NoticeTailer
from ductile.engine.observability import job_logging
from ductile.engine.observability.counters import Counters
from ductile.engine.observability.retention import RetentionLoop
from ductile.engine.outbox.http_client import Sender
from ductile.engine.outbox.queue import Outbox
from ductile.engine.outbox.relay import RelayOutbox
from ductile.engine.outbox.webhooks import WebhookOutbox
from ductile.engine.outbox.worker import OutboxWorker
from ductile.engine.recovery import last_boot, startup
from ductile.engine.recovery.cancel_requests import CancelRequests
from ductile.engine.recovery.cluster import Nodes
from ductile.engine.recovery.orphans import OrphanSweeper
from ductile.engine.scheduling.retries import Retries
from ductile.engine.scheduling.scheduler import Scheduler
from ductile.engine.socket_path import SOCKET
from ductile.errors import (
    ConfigError,
    DuctileError,
    LedgerBroken,
    LedgerError,
    Problem,
)
from ductile.failpoint import failpoint
from ductile.log import configure, logger
from ductile.model import Cancellation, NewJob, Settlement
from ductile.runner.client import LINE
from ductile.runner.pool import RunnerPool
from ductile.runner.process_scan import sweep
from ductile.store import boots, notices
from ductile.store.engines.api import Effects, Ledger, Tx
from ductile.store.engines.open import open_ledger
from ductile.store.jobs import enqueue as jobs
from ductile.store.jobs.cancel_requests import REQUESTED
from ductile.store.jobs.claim import ClaimPolicy

LEDGER_PATIENCE = 10.0
"""Seconds that a stop waits for what the ledger is being told."""
LETTING_GO_GRACE = 2.0
"""Shorter than other cancels': another node may be about to begin the job anew."""


class Gateway:
    """Owns its state directory from `open` to `close`; works between `start` and `stop`."""

    ledger: Ledger
    pool: RunnerPool
    started_log: StartedLog
    _dispatching: threading.Thread
    _adoption: ConfigManager
    scheduler: Scheduler

    def __init__(
        self,
        loaded: Loaded,
        *,
        environ: Mapping[str, str],
        clock: Clock | None = None,
        entropy: Entropy | None = None,
    ) -> None:
        self.clock = clock or SystemClock()
        self.entropy = entropy or SystemEntropy()
        self.boot = self.entropy.uuid()
        self.started_at = self.clock.now()
        self.stopping = threading.Event()
        self.failure: LedgerBroken | None = None
        self.notice_bus = NoticeBus()
        self.counters = Counters()
        self.alone = True
        """Whether nobody else writes to the ledger."""
        """Whether all that is committed is committed here."""
        self._environ = environ
        self._loaded = loaded
        settings = loaded.settings
        self._workers_wanted = settings.service.max_workers
        self.work_signal = WorkSignal(self._workers_wanted)
        self.state_dir = settings.state_dir
        self._lock = InstanceLock(self.state_dir)
        self._marker = state_dir_id(self.state_dir)
        self._dispatcher: Dispatcher | None = None
        self.requests = Requests()
        self._log = logger("gateway")
        self.loops: dict[str, Loop] = {}
        self.lanes: dict[str, Outbox] = {}
        """What is carried to others, by name; each has a courier and a loop of that name."""
        self.outbox_workers: dict[str, OutboxWorker] = {}
        self._reloading = threading.Lock()
        self.around_reload: Callable[[], AbstractContextManager[None]] = nullcontext
        """Entered before a reload and left after it, whether it was adopted or refused."""
        self.on_stop: list[Callable[[], None]] = []
        """Called when a stop begins, before the loops end."""
        self._cancels = CancelRequests(
            self.boot,
            self.clock,
            self._in_hand,
            self.cancel_running,
            lambda: self._wake("cancels"),
        )

    @property
    def threads(self) -> tuple[threading.Thread, ...]:
        """Those without which no job runs."""
        return () if self._dispatcher is None else (self._dispatching,)

    def ask_dispatcher(self, answered: Callable[[], None]) -> None:
        """Have `answered` called by the dispatcher; at once where there is none."""
        dispatcher = self._dispatcher
        if dispatcher is None:
            answered()
        else:
            dispatcher.ask(answered)

    @property
    def compiled(self) -> CompiledConfig:
        return self._adoption.now.compiled

    @property
    def unready(self) -> Unready:
        """Plugins whose `init` has not succeeded, and why."""
        return self._adoption.now.unready

    def claim_policy(self) -> ClaimPolicy:
        return self._adoption.now.policy

    @cached_property
    def agents(self) -> Agents:
        return Agents(
            self.ledger,
            self.clock,
            redact=lambda document: self.compiled.redactor.document(document),
            wake=lambda: self._wake("reminders"),
        )

    def _wake(self, loop: str) -> None:
        if loop in self.loops:
            self.loops[loop].wake()

    def open(self, *, slots: int | None = None) -> None:
        """Take the state directory, open its ledger, and bring it into order."""
        self._lock.acquire(to_stay=slots is None)
        failpoint("locked")
        wanted = slots or self._workers_wanted
        self.started_log = StartedLog(self.state_dir, self.boot, cells=2 * wanted * (LINE + 1))
        self.pool = RunnerPool(
            wanted,
            lock_fd=self._lock.fd,
            started_log_fd=self.started_log.fd,
            on_event=self._runner_event,
        )
        # The runner comes up, and what a dead gateway left is ended, beside all that does not
        # need it: nothing is recovered before.
        self.pool.launch()
        with ThreadPoolExecutor(1, "sweep") as aside:
            swept = aside.submit(sweep, self._marker)
            self._open_ledger()
        if count := swept.result():
            self._log.warning("ended processes of a gateway that died", count=count)
        self.pool.start()
        self._recover()

    def _open_ledger(self) -> None:
        settings = self._loaded.settings
        self.ledger = open_ledger(
            path=settings.state.path,
            url=settings.state.url,
            connections=self._workers_wanted + 4,
        )
        position = self.ledger.read(notices.last)
        self.notice_bus.start(position)
        self.notice_bus.heed(REQUESTED, self._cancels.heed)
        self.alone = not self.ledger.follow(
            NoticeTailer(self.ledger, self.notice_bus, position).look
        )
        self.ledger.listen(self._committed)
        self.ledger.claim_boot(self.boot)
        self._begin_boot()
        self._adoption = self._adopting()
        self.scheduler = self._adoption.scheduler = Scheduler(
            self.ledger,
            self.clock,
            self.entropy,
            unready=lambda: self.unready,
        )
        lanes: tuple[Outbox, ...] = (
            RelayOutbox(self.ledger, lambda: self.compiled, self.boot),
            WebhookOutbox(self.ledger, lambda: self.compiled, self.entropy, self.boot),
        )
        self.lanes = {lane.name: lane for lane in lanes}
        self._adopt(build(self._loaded, boot_marker=self._boot_marker, environ=self._environ))

    def _adopting(self) -> ConfigManager:
        return ConfigManager(
            self.ledger,
            self.boot,
            self.state_dir,
            self.clock,
            self.entropy,
            self.work_signal.ring_all,
        )

    def _recover(self) -> None:
        last = None if self.alone else last_boot.last(self.state_dir)
        evidence = unbegun(self.state_dir)
        startup.at_start(self.ledger, self.compiled, self.clock, self.entropy, last, evidence)
        failpoint("recovered")
        self.started_log.stand()
        if not self.alone:
            last_boot.remember(self.state_dir, self.boot)
        for lane in self.lanes.values():
            lane.recover()
        if gone := self._adoption.settle():
            self._log.warning("ended queued jobs of plugins that are gone", count=gone)

    @property
    def workers(self) -> int:
        return self._workers_wanted

    @property
    def busy(self) -> int:
        """How many of its workers run a job."""
        return 0 if self._dispatcher is None else self._dispatcher.busy

    @property
    def socket_path(self) -> Path:
        return self.state_dir / SOCKET

    @property
    def _boot_marker(self) -> str:
        return f"{self._marker}:{self.boot}"

    def _adopt(self, compiled: CompiledConfig) -> None:
        self._adoption.adopt(compiled)
        service = compiled.settings.service
        configure(service.log_level, service.log_format, compiled.redactor)
        for refusal in compiled.registry.refused:
            self._log.error("plugin refused", plugin=refusal.name, reason=refusal.reason)
        for problem in compiled.warnings:
            self._log.warning(str(problem))

    def start(self) -> None:
        """Set the workers and loops going."""
        self.agents.heartbeats.start()
        ticks = {
            "retries": Retries(self.ledger, self.work_signal).tick,
            "adoption": self._adoption.tick,
            "cancels": self._cancels.tick,
            "scheduler": self.scheduler.tick,
            "janitor": RetentionLoop(self.ledger, lambda: self.compiled).tick,
            "orphans": OrphanSweeper(
                self.ledger, self.boot, self._in_hand, lambda: self.compiled, self.entropy
            ).tick,
            "heartbeats": self.agents.heartbeats.tick,
            "reminders": self.agents.cron.tick,
        }
        if not self.alone:
            ticks["nodes"] = Nodes(
                self.ledger,
                self.boot,
                lambda: self.compiled,
                self.clock,
                self.entropy,
                self._let_go,
                self._begin_boot,
            ).tick
        send = Sender(self.clock)
        for name, lane in self.lanes.items():
            self.outbox_workers[name] = OutboxWorker(lane, send, self.clock, self.broken)
            ticks[name] = self.outbox_workers[name].tick
        for name, tick in ticks.items():
            self.loops[name] = Loop(name, tick, self.clock, self.broken)
            self.loops[name].start()
        slots = [self.pool.slot(index) for index in range(self._workers_wanted)]
        self._dispatcher = Dispatcher(self, slots)
        self._dispatching = threading.Thread(
            target=self._dispatcher.loop, name="dispatcher", daemon=True
        )
        self._dispatching.start()

    def stop(self) -> None:
        """No new claims; running jobs get their grace, then go back to the queue."""
        self.stopping.set()
        self.agents.heartbeats.stop()
        self.work_signal.knock()
        for end in self.on_stop:
            end()
        for loop in self.loops.values():
            loop.stop()
        deadline = self.clock.monotonic() + self.compiled.settings.service.shutdown_grace
        for courier in self.outbox_workers.values():
            courier.stop(max(0.0, deadline - self.clock.monotonic()))
        if self._dispatcher is not None:
            self._dispatching.join(max(0.0, deadline - self.clock.monotonic()))
            self._dispatcher.cancel(Cancellation.STOP, grace=0.0)
        self._join_threads()
        if self._dispatcher is not None:
            self._dispatcher.close()
            self._dispatcher = None

    def _join_threads(self) -> None:
        threads: list[Loop | threading.Thread] = [*self.loops.values(), *self.threads]
        give_up = self.clock.monotonic() + LEDGER_PATIENCE
        for thread in threads:
            thread.join(max(0.0, give_up - self.clock.monotonic()))
        if any(thread.is_alive() for thread in threads):
            # Most likely they wait for its answer. What it was not told is for recovery.
            self._log.error("no answer of the ledger is waited for any more")
            self.ledger.hang_up()
            for thread in threads:
                thread.join()

    def _in_hand(self) -> frozenset[str]:
        dispatcher = self._dispatcher
        return frozenset() if dispatcher is None else dispatcher.in_hand()

    def cancel_running(self, job_id: str, why: Cancellation) -> bool:
        """End the process of a job that runs here; False where none does."""
        dispatcher = self._dispatcher
        return dispatcher is not None and dispatcher.cancel(why, job_id=job_id)

    def reload(self) -> tuple[Problem, ...]:
        """Adopt the configuration as it stands on disk, whole; its warnings.

        Raises `ConfigError` with every problem and changes nothing where it cannot.
        """
        with self._reloading, self.around_reload():
            fresh = load(self._loaded.path, environ=self._environ)
            problems = unreloadable(self._loaded.settings, fresh)
            if problems:
                raise ConfigError(hidden(problems, fresh.secrets))
            built = build(fresh, boot_marker=self._boot_marker, environ=self._environ)
            self._adopt(built)
            self._loaded = fresh
            self._settle_adopted()
            self._wake("scheduler")
            # What waited for an instance that was disabled may leave now.
            self._wake(RelayOutbox.name)
        self._log.info("reloaded", plugins=len(built.plans), schedules=len(built.schedules))
        return built.warnings

    def _settle_adopted(self) -> None:
        try:
            self._adoption.settle()
        except LedgerError as error:
            self._log.warning("the rest of the reload waits for the ledger", error=error.message)
            self._wake("adoption")

    def close(self) -> None:
        """Give the state directory back. No process of a plugin remains."""
        if hasattr(self, "ledger"):
            if self.failure is None:
                self._end_boot()
            self.ledger.close()
        if hasattr(self, "pool"):
            self.pool.stop()
        if hasattr(self, "started_log"):
            self.started_log.close()
        self._lock.release()

    def _begin_boot(self) -> None:
        now, pid, version = self.clock.now(), os.getpid(), ductile.__version__
        self.ledger.write(
            lambda tx: boots.begin(tx, id=self.boot, pid=pid, version=version, now=now)
        )

    def _let_go(self) -> None:
        """What runs here goes back to the queue, where others may have put it already."""
        if self._dispatcher is not None:
            self._dispatcher.cancel(Cancellation.STOP, grace=LETTING_GO_GRACE)

    def _end_boot(self) -> None:
        now = self.clock.now()
        try:
            self.ledger.write(lambda tx: boots.end(tx, self.boot, now))
        except LedgerError as error:
            self._log.error("the end of this boot is not recorded", error=error.message)

    def run(self) -> None:
        """Serve requests to reload, until one to stop comes."""
        while self.requests.get() is not Request.STOP:
            try:
                self.reload()
            except ConfigError as error:
                for problem in error.problems:
                    self._log.error("reload refused", problem=str(problem))
            except DuctileError as error:
                self._log.error("reload refused", problem=error.message)

    def broken(self, error: LedgerBroken) -> None:
        """The fate of a commit is unknown: stop at once, and let the next start look."""
        self.failure = error
        self._log.error("the ledger is broken; stopping", error=error.message)
        self.stopping.set()
        self.work_signal.knock()
        self.requests.put(Request.STOP)

    def check(self, plugin: str, command: str) -> None:
        """Refuse what no loaded plugin can do."""
        intake.check(self.compiled, plugin, command)

    def enqueue(self, new: NewJob) -> jobs.Enqueued:
        """Queue a job durably, or answer with the one that makes it needless."""
        return self.ledger.write(self.enqueueing(new))

    def enqueueing(self, new: NewJob) -> Callable[[Tx], jobs.Enqueued]:
        """The transaction of `enqueue`, for those who do not wait for it."""
        return intake.enqueueing(self.compiled, new, id=self.entropy.uuid(), now=self.clock.now())

    def _runner_event(self, name: str, details: Mapping[str, object]) -> None:
        self.counters.runner_event(name)
        lost = name.endswith(".lost")
        self._log.log("warn" if lost else "debug", name.replace(".", " "), **details)

    def settled(self, settlement: Settlement) -> None:
        """After an attempt's end is durable."""
        self.counters.settled(settlement, self.compiled)
        job_logging.tell(self._log, settlement)
        if settlement.command == INIT:
            self._adoption.init_ended(settlement)
            self._wake("scheduler")

    def _committed(self, effects: Effects) -> None:
        if effects.ready:
            self.work_signal.ring(effects.ready)
        if effects.retry_at is not None and "retries" in self.loops:
            self.loops["retries"].wake()
        if effects.relays:
            self._wake(RelayOutbox.name)
        if effects.deliveries:
            self._wake(WebhookOutbox.name)
        for drop in effects.drops:
            job_logging.tell_drop(self._log, drop)
        if effects.notices:
            self.notice_bus.committed(effects.notices)
            if self.alone:
                self.notice_bus.append(effects.notices)
