"""The gateway: one state directory, one ledger, its workers and loops."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import Enum, auto
from pathlib import Path

import ductile
from ductile.clock import Clock, Entropy, SystemClock, SystemEntropy
from ductile.config import Loaded, load
from ductile.config.redact import fingerprints, show
from ductile.core.entering import payload_column
from ductile.errors import (
    ConfigError,
    DuctileError,
    LedgerBroken,
    LedgerError,
    Problem,
    UsageError,
)
from ductile.failpoint import failpoint
from ductile.log import configure, logger
from ductile.model import Cancellation, Event, JobStatus, NewJob, Settlement, SubmittedBy
from ductile.runner.pool import RunnerPool
from ductile.runner.sweep import sweep
from ductile.runtime import recovery
from ductile.runtime.bell import Bell
from ductile.runtime.blueprint import Blueprint, build
from ductile.runtime.bridge import Bridge
from ductile.runtime.janitor import Janitor
from ductile.runtime.keys import fingerprint_key
from ductile.runtime.lock import InstanceLock, state_dir_id
from ductile.runtime.loop import Loop
from ductile.runtime.reload import unreloadable
from ductile.runtime.retries import Retries
from ductile.runtime.scheduler import Scheduler
from ductile.runtime.worker import Worker, describe
from ductile.store import boots, jobs, snapshots
from ductile.store.claim import ClaimPolicy
from ductile.store.ledger import Effects, Ledger, Tx
from ductile.store.open import open_ledger

INIT = "init"
HANDLE = "handle"
CLAIMED_BUT_NOT_RUNNING = 1.0


class Request(Enum):
    """What a signal or an operator may ask of a running gateway."""

    STOP = auto()
    RELOAD = auto()


class Gateway:
    """Owns its state directory from `open` to `close`; works between `start` and `stop`."""

    ledger: Ledger
    pool: RunnerPool
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
        self.unready: Mapping[str, str] = {}
        """Plugins whose `init` has not succeeded, and why."""
        self.bridge = Bridge()
        self._environ = environ
        self._loaded = loaded
        settings = loaded.settings
        self._workers_wanted = settings.service.max_workers
        self.bell = Bell(self._workers_wanted)
        self.state_dir = settings.state_dir
        self._lock = InstanceLock(self.state_dir)
        self._marker = state_dir_id(self.state_dir)
        self._workers: list[Worker] = []
        self._threads: list[threading.Thread] = []
        self._policy: ClaimPolicy | None = None
        self._blueprint: Blueprint | None = None
        self._requests: queue.SimpleQueue[Request] = queue.SimpleQueue()
        self._log = logger("gateway")
        self.loops: dict[str, Loop] = {}
        self._reloading = threading.Lock()

    @property
    def blueprint(self) -> Blueprint:
        assert self._blueprint is not None
        return self._blueprint

    def open(self, *, slots: int | None = None) -> None:
        """Take the state directory, open its ledger, and bring it into order."""
        settings = self._loaded.settings
        self._lock.acquire()
        failpoint("locked")
        self.pool = RunnerPool(slots or self._workers_wanted, lock_fd=self._lock.fd)
        swept = sweep(self._marker)
        if swept:
            self._log.warning("ended processes of a gateway that died", count=swept)
        self.pool.start()
        self.ledger = open_ledger(
            path=settings.state.path,
            url=settings.state.url,
            connections=self._workers_wanted + 4,
        )
        self.ledger.listen(self._committed)
        self.ledger.claim_boot(self.boot)
        now = self.clock.now()
        self.ledger.write(
            lambda tx: boots.begin(
                tx, id=self.boot, pid=os.getpid(), version=ductile.__version__, now=now
            )
        )
        self.scheduler = Scheduler(
            self.ledger,
            self.clock,
            self.entropy,
            unready=lambda: self.unready,
            kill=self._supersede,
        )
        self._adopt(build(self._loaded, boot_marker=self._boot_marker, environ=self._environ))
        recovery.recover(self.ledger, self.blueprint, self.clock, self.entropy)
        failpoint("recovered")
        gone = recovery.end_jobs_of_gone_plugins(
            self.ledger, self.blueprint, self.clock, self.entropy
        )
        if gone:
            self._log.warning("ended queued jobs of plugins that are gone", count=gone)
        self._queue_inits()

    @property
    def workers(self) -> int:
        return self._workers_wanted

    @property
    def socket_path(self) -> Path:
        return self.state_dir / "ductile.sock"

    @property
    def _boot_marker(self) -> str:
        return f"{self._marker}:{self.boot}"

    def _adopt(self, blueprint: Blueprint) -> None:
        service = blueprint.settings.service
        configure(service.log_level, service.log_format, blueprint.redactor)
        now, id = self.clock.now(), self.entropy.uuid()
        prints = fingerprints(blueprint.settings, fingerprint_key(self.state_dir))
        snapshot_id = self.ledger.write(
            lambda tx: snapshots.record(
                tx,
                id=id,
                config_hash=blueprint.loaded.config_hash,
                config=show(blueprint.settings),
                fingerprints=prints,
                now=now,
            )
        )
        chart = replace(blueprint.chart, snapshot_id=snapshot_id)
        # What must wait for its `init` is known before anything of the new plan can be claimed.
        self.unready = {**self._uninitialised(blueprint)}
        self._blueprint = replace(blueprint, snapshot_id=snapshot_id, chart=chart)
        self._policy = None
        self.bell.ring_all()
        for refusal in blueprint.registry.refused:
            self._log.error("plugin refused", plugin=refusal.name, reason=refusal.reason)
        for problem in blueprint.warnings:
            self._log.warning(str(problem))

    def _uninitialised(self, blueprint: Blueprint) -> dict[str, str]:
        """Plugins that the ledger has not seen initialised as they are."""
        return {
            plugin.name: "its init has not run yet"
            for plugin in blueprint.needs_init()
            if not self.ledger.read(_init_done(plugin.name, plugin.init_key))
        }

    def _queue_inits(self) -> None:
        for name in self.unready:
            self._queue_init(name)

    def _set_unready(self, unready: Mapping[str, str]) -> None:
        self.unready = unready
        self._policy = None
        self.bell.ring_all()

    def claim_policy(self) -> ClaimPolicy:
        policy = self._policy
        if policy is None:
            policy = self._policy = ClaimPolicy(
                owner=self.boot,
                snapshot_id=self.blueprint.snapshot_id,
                caps=self.blueprint.caps,
                init_only=frozenset(self.unready),
                held=self.blueprint.held(),
            )
        return policy

    def start(self) -> None:
        """Set the workers and loops going."""
        self.scheduler.adopt(self.blueprint)
        ticks = {
            "retries": Retries(self.ledger, self.bell).tick,
            "scheduler": self.scheduler.tick,
            "janitor": Janitor(self.ledger, lambda: self.blueprint).tick,
        }
        for name, tick in ticks.items():
            self.loops[name] = Loop(name, tick, self.clock, self.broken)
            self.loops[name].start()
        for index in range(self._workers_wanted):
            worker = Worker(self, self.pool.slot(index))
            thread = threading.Thread(target=worker.loop, name=f"worker-{index}", daemon=True)
            self._workers.append(worker)
            self._threads.append(thread)
            thread.start()

    def stop(self) -> None:
        """No new claims; running jobs get their grace, then go back to the queue."""
        self.stopping.set()
        self.bell.ring_all()
        for loop in self.loops.values():
            loop.stop()
        deadline = self.clock.monotonic() + self.blueprint.settings.service.shutdown_grace
        for thread in self._threads:
            thread.join(max(0.0, deadline - self.clock.monotonic()))
        for worker in self._workers:
            worker.cancel(Cancellation.STOP, grace=0.0)
        for thread in self._threads:
            thread.join()
        self._workers, self._threads = [], []

    def _supersede(self, job_id: str) -> None:
        """End a job that a newer slot replaces; one just claimed has no process for a moment."""
        give_up = self.clock.monotonic() + CLAIMED_BUT_NOT_RUNNING
        while not self.cancel_running(job_id, Cancellation.SUPERSEDED):
            if self.clock.monotonic() >= give_up or self.clock.wait(self.stopping, 0.01):
                return

    def cancel_running(self, job_id: str, why: Cancellation) -> bool:
        """End the process of a job that runs here; False where none does."""
        return any(worker.cancel(why, job_id=job_id) for worker in self._workers)

    def reload(self) -> tuple[Problem, ...]:
        """Adopt the configuration as it stands on disk, whole; its warnings.

        Raises `ConfigError` with every problem and changes nothing where it cannot.
        """
        with self._reloading:
            fresh = load(self._loaded.path, environ=self._environ)
            problems = unreloadable(self._loaded.settings, fresh.settings)
            if problems:
                raise ConfigError(problems)
            built = build(fresh, boot_marker=self._boot_marker, environ=self._environ)
            self._adopt(built)
            self._loaded = fresh
            recovery.end_jobs_of_gone_plugins(self.ledger, self.blueprint, self.clock, self.entropy)
            self._queue_inits()
            self.scheduler.adopt(self.blueprint)
            self.loops["scheduler"].wake()
        self._log.info("reloaded", plugins=len(built.plans), schedules=len(built.schedules))
        return fresh.warnings

    def close(self) -> None:
        """Give the state directory back. No process of a plugin remains."""
        if hasattr(self, "ledger"):
            if self.failure is None:
                self._end_boot()
            self.ledger.close()
        if hasattr(self, "pool"):
            self.pool.stop()
        self._lock.release()

    def _end_boot(self) -> None:
        now = self.clock.now()
        try:
            self.ledger.write(lambda tx: boots.end(tx, self.boot, now))
        except LedgerError as error:
            self._log.error("the end of this boot is not recorded", error=error.message)

    def run(self) -> None:
        """Serve requests to reload, until one to stop comes."""
        while self._requests.get() is not Request.STOP:
            try:
                self.reload()
            except ConfigError as error:
                for problem in error.problems:
                    self._log.error("reload refused", problem=str(problem))
            except DuctileError as error:
                self._log.error("reload refused", problem=error.message)

    def ask(self, request: Request) -> None:
        """From any thread, or from a signal handler."""
        self._requests.put(request)

    def broken(self, error: LedgerBroken) -> None:
        """The fate of a commit is unknown: stop at once, and let the next start look."""
        self.failure = error
        self._log.error("the ledger is broken; stopping", error=error.message)
        self.stopping.set()
        self.bell.ring_all()
        self.ask(Request.STOP)

    def check(self, plugin: str, command: str) -> None:
        """Refuse what no loaded plugin can do."""
        plan = self.blueprint.plans.get(plugin)
        if plan is None:
            refusal = next((r for r in self.blueprint.registry.refused if r.name == plugin), None)
            why = f" (refused: {refusal.reason})" if refusal else ""
            raise UsageError(f"unknown plugin {plugin!r}{why}", plugin=plugin)
        if command not in plan.commands:
            known = ", ".join(sorted(plan.commands))
            raise UsageError(f"plugin {plugin} has no command {command!r}; it has: {known}")

    def enqueue(self, new: NewJob) -> jobs.Enqueued:
        """Queue a job durably, or answer with the one that makes it needless."""
        answer = self.ledger.write(self.enqueueing(new))
        self.told(new, answer)
        return answer

    def enqueueing(self, new: NewJob) -> Callable[[Tx], jobs.Enqueued]:
        """The transaction of `enqueue`, for those who do not wait for it."""
        id, now = self.entropy.uuid(), self.clock.now()
        ttl = self.blueprint.settings.service.dedupe_ttl
        snapshot_id = self.blueprint.snapshot_id
        if new.command != INIT:
            attempts = self.blueprint.retry_policy(new.plugin).max_attempts
            new = replace(new, max_attempts=attempts)
        if new.command == HANDLE:
            source = new.submitted_by.value
            event = Event(f"{source}.trigger", new.payload, new.dedupe_key, source, now, id)
            new = replace(new, payload=payload_column(HANDLE, event))
        return lambda tx: jobs.enqueue(
            tx, new, id=id, now=now, dedupe_ttl=ttl, snapshot_id=snapshot_id
        )

    def told(self, new: NewJob, answer: jobs.Enqueued) -> None:
        if answer.deduplicated:
            self._log.info(
                "deduplicated",
                plugin=new.plugin,
                dedupe_key=new.dedupe_key,
                job_id=answer.job_id,
            )

    def settled(self, settlement: Settlement) -> None:
        """After an attempt's end is durable."""
        level, message = describe(settlement)
        self._log.log(
            level,
            message,
            plugin=settlement.plugin,
            job_id=settlement.job_id,
            command=settlement.command,
            attempt=settlement.attempt,
            duration_ms=round(settlement.duration * 1000, 1),
            error=settlement.error,
        )
        if settlement.stderr:
            self._log.warning(
                "stderr",
                plugin=settlement.plugin,
                job_id=settlement.job_id,
                stderr=settlement.stderr[:STDERR_LOGGED],
            )
        if settlement.command == INIT:
            self._init_ended(settlement)

    def _init_ended(self, settlement: Settlement) -> None:
        name = settlement.plugin
        plugin = self.blueprint.registry.plugins.get(name)
        if plugin is None or name not in self.unready:
            return
        unready = dict(self.unready)
        if settlement.init_key != plugin.init_key:
            # It was run for a configuration that has been replaced meanwhile.
            self._queue_init(name)
        elif settlement.status is JobStatus.SUCCEEDED:
            unready.pop(name, None)
        else:
            unready[name] = f"its init failed: {settlement.error}"
        self._set_unready(unready)

    def _queue_init(self, plugin: str) -> None:
        if not self.ledger.read(_init_outstanding(plugin)):
            self.enqueue(NewJob(plugin, INIT, SubmittedBy.SCHEDULER, max_attempts=1))

    def _committed(self, effects: Effects) -> None:
        if effects.ready:
            self.bell.ring(effects.ready)
        if effects.retry_at is not None and "retries" in self.loops:
            self.loops["retries"].wake()
        if effects.notices:
            self.bridge.publish(effects.notices)


STDERR_LOGGED = 4096
"""The whole of it stands in `job_log`."""


def _init_done(plugin: str, key: str) -> Callable[[Tx], bool]:
    return lambda tx: tx.one("init_done", plugin=plugin, init_key=key) is not None


def _init_outstanding(plugin: str) -> Callable[[Tx], bool]:
    return lambda tx: tx.one("init_outstanding", plugin=plugin) is not None
