"""What attempts, workers and the dispatcher need of the gateway around them."""

from __future__ import annotations

import threading
from typing import Protocol

from ductile.clock import Clock, Entropy
from ductile.engine.config.compiled import CompiledConfig
from ductile.engine.dispatch.started_log import StartedLog
from ductile.engine.dispatch.work_signal import WorkSignal
from ductile.errors import LedgerBroken
from ductile.model import Settlement
from ductile.runner.warm.slots import WarmSlots
from ductile.store.engines.api import Ledger
from ductile.store.jobs.claim import ClaimPolicy


class AttemptContext(Protocol):
    """What an attempt needs of the gateway."""

    clock: Clock
    entropy: Entropy

    @property
    def compiled(self) -> CompiledConfig: ...

    def claim_policy(self) -> ClaimPolicy: ...


class WorkerContext(AttemptContext, Protocol):
    """What the workers need of the gateway."""

    stopping: threading.Event
    started_log: StartedLog

    warm_slots: WarmSlots | None
    """None if no job is started warm."""

    def has_other_nodes(self) -> bool: ...

    def lease_term(self) -> int | None: ...


class DispatcherHost(WorkerContext, Protocol):
    """What a dispatcher needs of the gateway around it."""

    ledger: Ledger
    work_signal: WorkSignal

    def may_claim(self) -> bool: ...

    def settled(self, settlement: Settlement, trace_id: str | None) -> None: ...

    def broken(self, error: LedgerBroken) -> None: ...
