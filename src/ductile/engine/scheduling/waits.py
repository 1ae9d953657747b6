"""Ends the waits of pipeline steps whose time has come."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import partial

from ductile.clock import Entropy, Ids
from ductile.core.waits.decision import WaitEnd
from ductile.core.waits.end import time_is_up
from ductile.engine.config.compiled import CompiledConfig
from ductile.failpoint import failpoint
from ductile.log import logger
from ductile.model import JobStatus
from ductile.store import nodes
from ductile.store.engines.api import Ledger, Tx
from ductile.store.jobs import close
from ductile.store.waits import awaited_events, parked_jobs, wait_rows
from ductile.store.waits.wait_rows import WaitRow

BATCH = 100
LONGEST_SLEEP = 60.0
"""Seconds. A commit that begins a wait wakes the loop; waits that another node began, and a clock
that was set, are noticed after this time at the latest."""


class WaitTimer:
    """A loop calls `tick`."""

    def __init__(
        self, ledger: Ledger, boot: str, compiled: Callable[[], CompiledConfig], entropy: Entropy
    ) -> None:
        self._ledger, self._boot = ledger, boot
        self._compiled, self._entropy = compiled, entropy
        self._log = logger("waits")

    def tick(self, now: datetime) -> float:
        """End the due waits; returns the seconds until the next one is due."""
        # First: an event that came before a timeout ends the wait.
        self._continue_events(now)
        foreign = self._list_foreign_pipelines()
        due = self._ledger.read(partial(wait_rows.list_due, now=now, limit=BATCH, foreign=foreign))
        for row in due:
            # One transaction each: the steps that follow may be many.
            base_id = self._entropy.uuid()
            status = self._ledger.write(partial(self._end, row=row, now=now, base_id=base_id))
            failpoint("wait_ended")
            if status is not None:
                fields = {"job_id": row.job_id, "pipeline": row.pipeline, "step": row.step_path}
                self._log.info("wait ended by time", **fields, kind=row.kind, status=status.value)
        if len(due) == BATCH:
            return 0.0
        next_due = self._ledger.read(partial(wait_rows.next_due_at, foreign=foreign))
        if next_due is None:
            return LONGEST_SLEEP
        return min(max((next_due - now).total_seconds(), 0.0), LONGEST_SLEEP)

    def _continue_events(self, now: datetime) -> None:
        """End the waits that an event matches beyond those that its own transaction has ended."""
        while (event_id := self._ledger.read(awaited_events.next_event_id)) is not None:
            base_id = self._entropy.uuid()
            work = partial(self._continue_event, event_id=event_id, now=now, base_id=base_id)
            if not self._ledger.write(work):
                break
            failpoint("waits_ended")

    def _continue_event(self, tx: Tx, event_id: str, now: datetime, base_id: str) -> bool:
        config = self._compiled().tx_config
        return close.continue_event(tx, event_id, config, Ids(base_id), now)

    def _list_foreign_pipelines(self) -> frozenset[str]:
        """The pipelines that only other nodes know."""
        if self._ledger.engine == "sqlite":
            return frozenset()
        others = self._ledger.read(partial(nodes.list_pipelines_of_others, boot=self._boot))
        return frozenset(others.difference(self._compiled().tx_config.router.pipelines))

    def _end(self, tx: Tx, row: WaitRow, now: datetime, base_id: str) -> JobStatus | None:
        end = WaitEnd(time_is_up(row.kind), now)
        if row.decided is not None:
            end = parked_jobs.decode_end(row.decided)
        status = close.end_wait(tx, row, end, self._compiled().tx_config, Ids(base_id), now)
        if status is None:
            # Usually another end came first. A wait without its job would be due again and again.
            parked_jobs.close_stray(tx, row, now)
        return status
