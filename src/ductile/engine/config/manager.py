"""The configuration in force, and its replacement as a whole."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from datetime import datetime

from ductile._fast_dataclass import dataclass
from ductile.clock import Clock, Entropy
from ductile.config import Loaded
from ductile.config.load import hash_shared_settings
from ductile.config.redact import fingerprint_secrets, redact_settings
from ductile.config.versions.changeset import Changeset, load_changed
from ductile.config.versions.copies import keep_copy
from ductile.engine.config import plugin_init
from ductile.engine.config.compiled import INIT_PENDING, CompiledConfig, build
from ductile.engine.config.fingerprint_key import fingerprint_key
from ductile.engine.config.plugin_init import Unready
from ductile.engine.config.restart_required import build_reloadable
from ductile.engine.instance_lock import compute_state_dir_id
from ductile.engine.recovery import removed_plugins
from ductile.engine.scheduling.scheduler import Scheduler
from ductile.errors import LedgerError, Refused
from ductile.log import configure, logger
from ductile.model import JobStatus, Settlement
from ductile.store import snapshots
from ductile.store.engines.api import Ledger, Tx
from ductile.store.jobs.claim import ClaimPolicy
from ductile.store.waits import awaited_events

Approval = Callable[[CompiledConfig], None]
AroundAdoption = Callable[[CompiledConfig], AbstractContextManager[None]]
CHECK_INTERVAL, INIT_INTERVAL = 60.0, 2.0
"""Seconds between two checks; the shorter one while a plugin waits for its `init`."""


@dataclass(frozen=True, slots=True)
class ConfigInForce:
    """One value, so that plugins and rules always belong to the same configuration."""

    compiled: CompiledConfig
    unready: Unready
    """Plugins whose `init` has not succeeded, and why."""
    policy: ClaimPolicy


class ConfigManager:
    """Thread-safe. `tick`, called by a loop, completes what the ledger refused before."""

    def __init__(
        self,
        loaded: Loaded,
        environ: Mapping[str, str],
        ledger: Ledger,
        boot: str,
        clock: Clock,
        entropy: Entropy,
        changed: Callable[[], None],
        register: Callable[[Tx, CompiledConfig], None],
        around_adoption: AroundAdoption = lambda _: nullcontext(),
    ) -> None:
        """`changed` is called when jobs may be claimable that were not before; `register` records
        this node's plugins in the transaction that records a configuration; a reload puts its
        configuration in force inside of `around_adoption`, which may refuse it."""
        self._register, self._around_adoption = register, around_adoption
        self._loaded, self._environ = loaded, environ
        self._ledger, self._boot = ledger, boot
        self._clock, self._entropy, self._changed = clock, entropy, changed
        self._state_dir = loaded.settings.state_dir
        self._log = logger("gateway")
        self.scheduler: Scheduler
        self._guard = threading.Lock()
        self._now: ConfigInForce | None = None
        self._settled: CompiledConfig | None = None
        self._queued: dict[str, str] = {}
        """The `init` job that was queued for each plugin under this configuration: one each."""

    @property
    def now(self) -> ConfigInForce:
        assert self._now is not None
        return self._now

    def start(self) -> None:
        """Put the configuration that was loaded at start in force."""
        self._adopt(self._build(self._loaded))

    def inspect(self) -> None:
        """As `start`, without a trace in the ledger."""
        compiled = self._with_open_waits(self._build(self._loaded))
        self._set(compiled, plugin_init.uninitialised(self._ledger, compiled))

    def reload(
        self, approve: Approval | None = None, changeset: Changeset | None = None
    ) -> CompiledConfig:
        """Load the files again and put them in force, as a whole.

        With a changeset, they are loaded as it makes them, and written when nothing can refuse
        them any more. `approve` may raise to refuse exactly the configuration that would be put in
        force. Raises `ConfigError` with every problem, and changes nothing, where it cannot. One
        call at a time.
        """
        fresh = load_changed(self._loaded.path, self._environ, changeset)
        compiled = build_reloadable(self._loaded.settings, fresh, lambda: self._build(fresh))
        if approve is not None:
            approve(compiled)
        with self._around_adoption(compiled):
            if changeset is not None:
                changeset.write()
            try:
                self._adopt(compiled)
            except LedgerError:
                if changeset is not None:
                    self._log.error("the files are replaced, but not applied; reload again")
                raise
        self._loaded = fresh
        try:
            self.settle()
        except LedgerError as error:
            self._log.warning("the reload is completed later", error=error.message)
        return compiled

    def _build(self, loaded: Loaded) -> CompiledConfig:
        marker = f"{compute_state_dir_id(self._state_dir)}:{self._boot}"
        return build(loaded, boot_marker=marker, environ=self._environ)

    def _adopt(self, compiled: CompiledConfig) -> None:
        self.adopt(compiled)
        service = compiled.settings.service
        configure(service.log_level, service.log_format, compiled.redactor)
        for refusal in compiled.registry.refused:
            self._log.error("plugin refused", plugin=refusal.name, reason=refusal.reason)
        for problem in compiled.warnings:
            self._log.warning(str(problem))

    def adopt(self, compiled: CompiledConfig) -> None:
        """Put this configuration in force; if it raises, the one before stays in force."""
        snapshot_id = self._record(compiled)
        self._keep_files(compiled, snapshot_id)
        tx_config = replace(compiled.tx_config, snapshot_id=snapshot_id)
        compiled = self._with_open_waits(replace(compiled, tx_config=tx_config))
        # An `init` that ends meanwhile waits: it counts for this configuration.
        with self._guard:
            self._queued = {}
            self._set(compiled, plugin_init.uninitialised(self._ledger, compiled))
        self._changed()

    def _with_open_waits(self, compiled: CompiledConfig) -> CompiledConfig:
        """The same, where events also end the waits that began under another configuration."""
        awaited = self._ledger.read(awaited_events.list_awaited_types)
        if self._now is not None:
            # A job that was claimed before may still begin a wait of its configuration.
            awaited |= self.now.compiled.tx_config.router.awaited
        router = compiled.tx_config.router
        router = replace(router, awaited=router.awaited | awaited)
        return replace(compiled, tx_config=replace(compiled.tx_config, router=router))

    def _keep_files(self, compiled: CompiledConfig, snapshot_id: str) -> None:
        """A configuration without a copy of its files runs as any other, but cannot return."""
        try:
            keep_copy(self._state_dir, snapshot_id, compiled.loaded.files)
        except (OSError, Refused) as error:
            self._log.warning("no copy of the configuration's files is kept", reason=str(error))

    def _record(self, compiled: CompiledConfig) -> str:
        now, id = self._clock.now(), self._entropy.uuid()
        prints = fingerprint_secrets(compiled.settings, fingerprint_key(self._state_dir))

        def work(tx: Tx) -> str:
            self._register(tx, compiled)
            return snapshots.record_snapshot(
                tx,
                id=id,
                config_hash=compiled.loaded.config_hash,
                config=redact_settings(compiled.settings),
                fingerprints=prints,
                now=now,
            )

        return self._ledger.write(work)

    def _set(self, compiled: CompiledConfig, unready: Unready) -> None:
        shared = self._ledger.engine != "sqlite"
        policy = ClaimPolicy(
            owner=self._boot,
            snapshot_id=compiled.snapshot_id,
            caps=compiled.caps,
            init_only=frozenset(unready),
            held=compiled.held(),
            serial=compiled.serial_schedules,
            known=compiled.known() if shared else compiled.claimable(),
            pipelines=compiled.tx_config.router.pipelines.keys(),
            config_hash=hash_shared_settings(compiled.settings) if shared else "",
            shared=shared,
            tx_config=compiled.tx_config,
        )
        self._now = ConfigInForce(compiled, unready, policy)

    def init_ended(self, settlement: Settlement) -> None:
        """Record that an `init` was settled: its plugin is ready, failed, or needs another one."""
        with self._guard:
            before = self.now
            unready = plugin_init.after_init(before.unready, before.compiled, settlement)
            if unready is None:
                return
            if unready is not before.unready:
                self._set(before.compiled, unready)
        if unready is before.unready:
            self._queue_init(self.now.compiled, settlement.plugin)
        else:
            self._readied()

    def _readied(self) -> None:
        self._changed()
        self.scheduler.release_waiting()

    def settle(self) -> None:
        """Apply the configuration to the ledger. If it raises, `tick` repeats it."""
        compiled = self.now.compiled
        self._end_jobs_of_removed_plugins(compiled)
        absent = removed_plugins.count_jobs_of_absent_plugins(self._ledger, compiled)
        for plugin, jobs in absent.items():
            reason = compiled.absence(plugin)
            self._log.warning(
                "queued jobs wait for their plugin", plugin=plugin, jobs=jobs, reason=reason
            )
        self._queue_inits()
        self.scheduler.adopt(compiled)
        self._settled = compiled

    def tick(self, now: datetime) -> float:  # noqa: ARG002
        """Apply what is not applied yet; the seconds until the next check."""
        if self._settled is not self.now.compiled:
            self.settle()
        if self.now.unready:
            self._check_again()
        self._learn_awaited_types()
        self._queue_inits()
        if INIT_PENDING in self.now.unready.values():
            return INIT_INTERVAL
        self._end_jobs_of_removed_plugins(self.now.compiled)
        return CHECK_INTERVAL

    def _check_again(self) -> None:
        """Another node may have run an `init` that a plugin waits for."""
        with self._guard:
            before = self.now
            missing = plugin_init.uninitialised(self._ledger, before.compiled)
            unready = {
                name: self._failure_elsewhere(name, why)
                for name, why in before.unready.items()
                if name in missing
            }
            if unready == before.unready:
                return
            self._set(before.compiled, unready)
        self._readied()

    def _failure_elsewhere(self, plugin: str, why: str) -> str:
        """Why a plugin is not ready, also where another node has run the `init` that is queued."""
        id = self._queued.get(plugin)
        end = None if id is None or why != INIT_PENDING else plugin_init.find_end(self._ledger, id)
        if end is None:
            return why
        status, error = end
        if status is JobStatus.SUCCEEDED:
            # With the configuration of that node.
            del self._queued[plugin]
            return why
        return f"its init failed on another node: {error}"

    def _learn_awaited_types(self) -> None:
        """Another node may have begun waits of a pipeline that this one does not know."""
        if self._ledger.engine == "sqlite":
            return
        with self._guard:
            before = self.now
            compiled = self._with_open_waits(before.compiled)
            if compiled.tx_config.router.awaited == before.compiled.tx_config.router.awaited:
                return
            self._set(compiled, before.unready)
            if self._settled is before.compiled:
                self._settled = compiled

    def _end_jobs_of_removed_plugins(self, compiled: CompiledConfig) -> None:
        removed_plugins.end_jobs_of_removed_plugins(
            self._ledger, compiled, self._clock, self._entropy, self._boot
        )

    def _queue_inits(self) -> None:
        current = self.now
        for plugin, why in current.unready.items():
            if why == INIT_PENDING and plugin not in self._queued:
                self._queue_init(current.compiled, plugin)

    def _queue_init(self, compiled: CompiledConfig, plugin: str) -> None:
        id, now = self._entropy.uuid(), self._clock.now()
        if self._ledger.write(lambda tx: plugin_init.queue_init(tx, compiled, plugin, id, now)):
            self._queued[plugin] = id
