"""Deletes rows and workspaces past retention, in batches so small that no worker waits for them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from ductile.clock import Clock, TrustedTime
from ductile.engine.config.compiled import CompiledConfig
from ductile.log import logger
from ductile.store import retention as prune
from ductile.store.engines.api import Ledger

PAUSE = 0.02
"""Seconds between batches, so that other writers come first."""


class RetentionCleaner:
    """A loop calls `tick`. A clock that was set forward ages rows only a day later."""

    def __init__(
        self, ledger: Ledger, compiled: Callable[[], CompiledConfig], clock: Clock
    ) -> None:
        self._ledger, self._compiled = ledger, compiled
        self._time = TrustedTime(clock)
        self._ahead = 0.0
        self._deleted = 0
        self._log = logger("retention")

    def tick(self, now: datetime) -> float:
        """Delete one batch of each kind; returns a short pause if there is more."""
        now = self._time.read(now)
        self._log_ahead()
        settings = self._compiled().settings
        service, skew = settings.service, settings.remote_ingress.allowed_clock_skew
        retention = prune.Retention(
            jobs=service.job_queue_retention,
            logs=service.job_log_retention,
            transitions=service.job_transitions_retention,
            breaker_transitions=service.breaker_transitions_retention,
            facts=service.plugin_facts_retention,
            dedupe_ttl=service.dedupe_ttl,
            # A request dated ahead by the allowed skew is valid until it is that far behind.
            replays=max(prune.DAY, 2 * skew),
        )
        deleted = [self._ledger.write(batch) for batch in prune.prune_batches(retention, now)]
        fullest = max(deleted)
        freed = self._ledger.vacuum()
        self._log_deleted(sum(deleted), more=fullest == prune.BATCH)
        self._compiled().workspaces.sweep(now, service.workspace_retention, self._in_use)
        return PAUSE if fullest == prune.BATCH or freed else service.tick_interval

    def _log_deleted(self, rows: int, *, more: bool) -> None:
        """One line per sweep, whatever the number of its batches."""
        self._deleted += rows
        if self._deleted and not more:
            self._log.info("deleted rows past their retention", rows=self._deleted)
            self._deleted = 0

    def _log_ahead(self) -> None:
        ahead, before = round(self._time.ahead, 1), self._ahead
        self._ahead = ahead
        if ahead > before:
            self._log.warning(
                "the clock was set forward; rows are kept longer",
                seconds=ahead,
                longer_by_seconds=TrustedTime.DELAY,
            )
        elif ahead < before and not ahead:
            self._log.info("the clock is plausible again; retention resumes")

    def _in_use(self, job_id: str) -> bool:
        """Whether the job, or one that will clone its files, has not ended."""
        return self._ledger.read(lambda tx: tx.one("workspace_in_use", id=job_id)) is not None
