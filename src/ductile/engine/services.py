"""What operations, HTTP handlers and loops need of a gateway; `Gateway` builds and runs it."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ductile.agents.agents import Agents
from ductile.clock import Clock, Entropy, SystemClock, SystemEntropy
from ductile.config import Loaded
from ductile.config.versions.changeset import Changeset
from ductile.engine.config.compiled import CompiledConfig
from ductile.engine.config.manager import Approval, AroundAdoption, ConfigManager
from ductile.engine.config.plugin_init import Unready
from ductile.engine.control import ControlQueue
from ductile.engine.dispatch.dispatcher import Dispatcher
from ductile.engine.dispatch.live_attempts import RunningLog
from ductile.engine.dispatch.work_signal import WorkSignal
from ductile.engine.ingress import enqueue
from ductile.engine.instance_lock import compute_state_dir_id
from ductile.engine.loop import Loops
from ductile.engine.notices.bus import NoticeBus
from ductile.engine.observability.counters import Counters
from ductile.engine.outbox.relay import RelayPolicy
from ductile.engine.outbox.worker import OutboxWorker
from ductile.engine.recovery.node_record import make_registration, name_node
from ductile.engine.scheduling.flow_timer import FlowTimer
from ductile.engine.scheduling.scheduler import Scheduler
from ductile.engine.socket_path import SOCKET
from ductile.errors import LedgerBroken, Problem
from ductile.log import logger
from ductile.model import Cancellation, NewJob
from ductile.runner.warm.slots import WarmSlots
from ductile.store.engines.api import Ledger, Tx
from ductile.store.jobs.claim import ClaimPolicy
from ductile.store.jobs.enqueue import Enqueued

if TYPE_CHECKING:
    from ductile.engine.alerts.alert_loop import AlertLoop
    from ductile.engine.observability.health import HealthMonitor
    from ductile.engine.observability.tracing import SpanExporter


class Services:
    """Complete once a ledger is open and a configuration is in force.

    A process that only reads goes no further than `open_read_only`.
    """

    ledger: Ledger
    config: ConfigManager
    scheduler: Scheduler
    failure: LedgerBroken | None = None
    is_drained = False
    """Whether an operator has drained this node: it claims no jobs."""
    drain_changes = 0
    """How often `is_drained` has changed."""
    is_only_writer = True
    """Whether no other node writes to the ledger, so that every commit is seen here."""
    shared_workspaces: str | None = None
    """The id of the directory for workspaces that all nodes see."""

    # None in a process that only reads
    flow_timer: FlowTimer | None = None
    dispatcher: Dispatcher | None = None
    warm_slots: WarmSlots | None = None
    health: HealthMonitor | None = None
    alerts: AlertLoop | None = None
    tracer: SpanExporter | None = None
    """None also if tracing is off."""

    def __init__(
        self,
        loaded: Loaded,
        *,
        environ: Mapping[str, str],
        clock: Clock | None = None,
        entropy: Entropy | None = None,
    ) -> None:
        settings = loaded.settings
        self._loaded = loaded
        self.environ = environ
        """The variables that the configuration may refer to."""
        self._log = logger("gateway")
        self.clock = clock or SystemClock()
        self.entropy = entropy or SystemEntropy()
        self.boot = self.entropy.uuid()
        self.started_at = self.clock.now()
        self._started = self.clock.monotonic()
        self.state_dir = settings.state_dir
        self.state_dir_id = compute_state_dir_id(self.state_dir)
        self.node = name_node(settings.service.node, self.state_dir)
        """The name of this node among those that share the ledger."""
        self.workers = settings.service.max_workers
        self.stopping = threading.Event()
        self.requests = ControlQueue()
        self.notice_bus = NoticeBus()
        self.counters = Counters()
        self.agent_contacts = 0
        """The number of contacts of agents that this process has committed, for comparison only."""
        self.work_signal = WorkSignal(self.workers)
        self.loops = Loops(self.clock)
        self.outbox_workers: dict[str, OutboxWorker[Any]] = {}
        self._reloading = threading.Lock()
        self._draining, self._drain_decided_at = threading.Lock(), -math.inf
        self.on_stop: list[Callable[[], None]] = []
        """Called when a stop begins, before the loops end."""
        self.around_reload: Callable[[], AbstractContextManager[None]] = nullcontext
        """Entered before a reload and left after it, whether it was adopted or refused."""
        self.around_adoption: AroundAdoption = lambda _: nullcontext()
        """Entered when nothing else can refuse the reload; it may, and changes nothing then."""

    def open_read_only(self, ledger: Ledger) -> None:
        """Answer reads from this ledger; nothing is owned, written or run."""
        self.ledger = ledger
        self.config = self._config_manager()
        self.config.inspect()

    def _config_manager(self) -> ConfigManager:
        return ConfigManager(
            self._loaded,
            self.environ,
            self.ledger,
            self.boot,
            self.clock,
            self.entropy,
            self.work_signal.notify_all,
            self.register_node,
            lambda compiled: self.around_adoption(compiled),
        )

    @cached_property
    def register_node(self) -> Callable[[Tx, CompiledConfig], None]:
        """The part of a transaction that registers this node with a configuration."""
        is_only_node = self.ledger.engine == "sqlite"
        shared = self.shared_workspaces
        return make_registration(self.node, self.boot, is_only_node=is_only_node, workspaces=shared)

    # The configuration

    @property
    def compiled(self) -> CompiledConfig:
        """The configuration in force."""
        return self.config.now.compiled

    @property
    def unready(self) -> Unready:
        """Plugins whose `init` has not succeeded, and why."""
        return self.config.now.unready

    def claim_policy(self) -> ClaimPolicy:
        return self.config.now.policy

    def reload(
        self, approve: Approval | None = None, changeset: Changeset | None = None
    ) -> tuple[Problem, ...]:
        """Put the configuration on disk in force, as a whole, and return its warnings.

        Raises `ConfigError` with every problem, and changes nothing, where it cannot. See
        `ConfigManager.reload` for the arguments.
        """
        with self._reloading, self.around_reload():
            compiled = self.config.reload(approve, changeset)
            self.resize(compiled.settings.service.max_workers)
            self.loops.wake("config")
            self.loops.wake("scheduler")
            self.loops.wake("runs")
            # Events for an instance that was disabled may be sendable now.
            self.loops.wake(RelayPolicy.name)
            self.loops.wake("alerts")
            self.loops.wake("dead-man")
        self._log.info("reloaded", plugins=len(compiled.plans), schedules=len(compiled.schedules))
        return compiled.warnings

    @property
    def uptime(self) -> float:
        """Seconds since the start, whatever the wall clock was set to."""
        return self.clock.monotonic() - self._started

    def resize(self, workers: int) -> None:
        """Run up to this number of jobs at once from now on."""
        self.workers = workers

    # Jobs

    def check(self, plugin: str, command: str) -> None:
        """Raise `UsageError` unless a loaded plugin has this command."""
        enqueue.check_command(self.compiled, plugin, command)

    def enqueue(self, new: NewJob) -> Enqueued:
        """Queue a job durably, or return the job that it duplicates."""
        return self.ledger.write(self.enqueueing(new))

    def enqueueing(self, new: NewJob) -> Callable[[Tx], Enqueued]:
        """The transaction of `enqueue`, for callers that submit it without waiting."""
        return enqueue.build_enqueue(
            self.compiled, new, id=self.entropy.uuid(), now=self.clock.now()
        )

    def cancel_running(self, job_id: str, why: Cancellation) -> bool:
        """End the process of a job that runs here; False if none does."""
        dispatcher = self.dispatcher
        return dispatcher is not None and dispatcher.cancel(why, job_id=job_id)

    def running_log(self, job_id: str) -> RunningLog | None:
        """The log of a job whose process runs here, so far; None if none does."""
        dispatcher = self.dispatcher
        return None if dispatcher is None else dispatcher.running_log(job_id)

    def running_ids(self) -> list[str]:
        """The ids of the jobs whose processes run here."""
        dispatcher = self.dispatcher
        return [] if dispatcher is None else dispatcher.running_ids()

    def owned_jobs(self) -> frozenset[str]:
        """The ids of jobs that this process has claimed and not settled."""
        dispatcher = self.dispatcher
        return frozenset() if dispatcher is None else dispatcher.owned_jobs()

    @property
    def busy(self) -> int:
        """The number of workers that run a job."""
        return 0 if self.dispatcher is None else self.dispatcher.busy

    def may_claim(self) -> bool:
        """Whether this node may start jobs now."""
        return not self.is_drained

    def has_other_nodes(self) -> bool:
        """Whether another node may have an idle worker for a job of this ledger."""
        return False

    def known_nodes(self) -> list[dict[str, Any]]:
        """The registered nodes as last read; empty where no other node can share the ledger."""
        return []

    def set_drained(self, drained: bool, read_at: float | None = None) -> None:
        """Claim no more jobs, or claim them again.

        With `read_at`, a heartbeat read it in the ledger: it had begun then, by the monotonic
        clock, and a decision made here since is newer.
        """
        with self._draining:
            if read_at is None:
                self._drain_decided_at = self.clock.monotonic()
            elif read_at < self._drain_decided_at:
                return
            was_drained, self.is_drained = self.is_drained, drained
            self.drain_changes += was_drained != drained
        if was_drained and not drained:
            self.claim_again()

    def claim_again(self) -> None:
        """Wake the dispatcher after a time in which it could not claim."""
        self.work_signal.notify_all()
        self.work_signal.wake()

    def ask_dispatcher(self, answered: Callable[[], None]) -> None:
        """Have the dispatcher call `answered`; at once if there is no dispatcher."""
        if self.dispatcher is None:
            answered()
        else:
            self.dispatcher.call_soon(answered)

    # The rest

    @cached_property
    def agents(self) -> Agents:
        return Agents(
            self.ledger,
            self.clock,
            redact=lambda document: self.compiled.redactor.document(document),
            wake=lambda: self.loops.wake("reminders"),
        )

    @property
    def socket_path(self) -> Path:
        return self.state_dir / SOCKET
