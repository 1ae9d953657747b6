"""The outbox worker: claim due rows, build a request for each, send it, settle the row.

`OutboxWorker.tick` claims; `OutboxWorker._deliver` takes one claimed row through the rest, in a
thread of its own. What differs between webhook deliveries and relays is in their `OutboxPolicy`.
"""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Generic

from ductile.clock import Clock
from ductile.core.delivery.retry_policy import DeliveryStatus, DeliveryUpdate, mark_failed
from ductile.engine.config.compiled import CompiledConfig
from ductile.engine.observability.db_outage import OutageLog
from ductile.engine.outbox.abandoned_claims import AbandonedClaims
from ductile.engine.outbox.policy import (
    UNREADABLE,
    OutboundRequest,
    OutboxPolicy,
    RowT,
    SendResult,
)
from ductile.errors import LedgerBroken, LedgerError
from ductile.failpoint import failpoint
from ductile.log import logger
from ductile.store.engines.api import Ledger, Tx

START_WITHIN = 1.0
"""Seconds. A claimed row whose send has not started by then is returned: the rate limit counts
from the claim."""
MAX_IN_FLIGHT = 64
"""Concurrent sends of one worker; at the limit nothing more is claimed."""
RECHECK_SECONDS = 0.05
LEDGER_RETRY_SECONDS = 1.0
NO_THREAD_SECONDS = 1.0
NORMALIZE_EVERY = timedelta(seconds=4)
"""Shorter than every `poll_seconds`, so that an idle worker normalizes at every look."""

Send = Callable[[OutboundRequest], SendResult]


class OutboxWorker(Generic[RowT]):
    """Sends the rows of one outbox. `tick` is called by one loop; the rest is thread-safe.

    A row that the ledger shows as claimed by this boot, but that is not in flight here, is made
    due again: its claim was committed without this process learning of it.
    """

    def __init__(
        self,
        policy: OutboxPolicy[RowT],
        ledger: Ledger,
        config: Callable[[], CompiledConfig],
        owner: str,
        *,
        send: Send,
        clock: Clock,
        on_broken: Callable[[LedgerBroken], None],
    ) -> None:
        self._policy, self._ledger, self._config, self._owner = policy, ledger, config, owner
        self._send_request, self._clock, self._on_broken = send, clock, on_broken
        self._abandoned = AbandonedClaims(ledger, owner, policy.store.release)
        self._log = logger(policy.name)
        self._changed = threading.Condition()
        self._in_flight: Counter[str] = Counter()
        """Ids of the rows that have a thread. One id can occur twice after it was taken over."""
        self._outcomes: Counter[str] = Counter()
        self._stopping = threading.Event()
        self._normalized_at: datetime | None = None

    def recover(self) -> None:
        """Make rows due again that a dead gateway was sending; called once, before the loop.

        It is not known whether they arrived. Receivers recognize a repetition by its id.
        """
        self._abandoned.recover(self._ledger.read(self._policy.store.list_claimed))

    def tick(self, now: datetime) -> float:
        """Claim the due rows and start a send for each; returns the seconds until the next call."""
        if self._stopping.is_set() or self._count_in_flight() >= MAX_IN_FLIGHT:
            return RECHECK_SECONDS
        start_by, config = self._clock.monotonic() + START_WITHIN, self._config()
        self._normalize_due_times(config, now)
        due, claimed = self._ledger.read(
            lambda tx: (
                self._policy.next_due(tx, config, now),
                self._policy.store.list_claimed(tx),
            )
        )
        if released := self._abandoned.release(claimed, self._in_flight, now):
            self._log.warning("requeued abandoned rows", count=released)
            return 0.0
        if due is None:
            return self._policy.poll_seconds
        if due > now:
            return min(self._policy.poll_seconds, (due - now).total_seconds())
        rows = self._ledger.write(lambda tx: self._policy.claim(tx, config, self._owner, now))
        failpoint(f"{self._policy.noun}.claimed")
        if not rows:
            return self._policy.full_seconds
        started = [self._start(row, config, now, start_by) for row in rows]
        return 0.0 if all(started) else NO_THREAD_SECONDS

    def _start(self, row: RowT, config: CompiledConfig, now: datetime, start_by: float) -> bool:
        """Deliver in a new thread; if there is none, return the claim and report False."""
        self._add_in_flight(row, 1)
        thread = threading.Thread(
            target=self._deliver,
            args=(row, config, now, start_by),
            name=self._policy.name,
            daemon=True,
        )
        try:
            thread.start()
        except RuntimeError:
            self._deliver(row, config, now, start_by=-math.inf)
            return False
        return True

    def _deliver(self, row: RowT, config: CompiledConfig, now: datetime, start_by: float) -> None:
        """Take one claimed row from request to settlement."""
        try:
            if self._stopping.is_set() or self._clock.monotonic() > start_by:
                self._return_claim(row)
                return
            result = self._send(row, self._build_request(row, config, now))
            failpoint(f"{self._policy.noun}.sent")
            self._write_until_recorded(lambda: self._settle(row, result))
        except LedgerBroken as error:
            self._on_broken(error)
        except Exception as error:  # noqa: BLE001 - affects only this row; `tick` requeues it
            self._log.crash("delivery raised an error", error, **self._policy.log_fields(row))
        finally:
            self._add_in_flight(row, -1)

    def _build_request(
        self, row: RowT, config: CompiledConfig, now: datetime
    ) -> OutboundRequest | SendResult:
        try:
            return self._policy.build_request(row, config, now)
        except Exception as error:  # noqa: BLE001 - affects only this row
            self._log.crash("row cannot be read", error, **self._policy.log_fields(row))
            return SendResult(None, UNREADABLE)

    def _send(self, row: RowT, request: OutboundRequest | SendResult) -> SendResult:
        if isinstance(request, SendResult):
            self._count("in_house")
            return request
        try:
            result = self._send_request(request)
        except Exception as error:  # noqa: BLE001 - affects only this row
            self._log.crash("send raised an error", error, **self._policy.log_fields(row))
            result = SendResult(None, "internal error")
        self._count(f"{result.status // 100}xx" if result.status else "unanswered")
        return result

    def _settle(self, row: RowT, result: SendResult) -> None:
        now = self._clock.now()
        try:
            self._record(row, self._policy.judge(row, result, now), result.local_write, now)
        except LedgerError:
            raise
        except Exception as error:  # noqa: BLE001 - affects only this row
            self._log.crash("row could not be settled", error, **self._policy.log_fields(row))
            failure = mark_failed(row.attempts, "internal error", now, self._policy.retry_seconds)
            self._record(row, failure, None, now)

    def _record(
        self,
        row: RowT,
        update: DeliveryUpdate,
        local_write: Callable[[Tx], None] | None,
        now: datetime,
    ) -> None:
        update = replace(update, error=self._config().redactor.optional_text(update.error))

        def work(tx: Tx) -> bool:
            recorded = self._policy.store.settle(tx, row, self._owner, update, now)
            if recorded and local_write is not None:
                local_write(tx)
            return recorded

        recorded = self._ledger.write(work)
        failpoint(f"{self._policy.noun}.settled")
        if recorded and update.error is not None:
            fields = {**self._policy.log_fields(row), "error": update.error}
            if update.status is DeliveryStatus.DEAD:
                self._log.error(f"{self._policy.noun} is dead", **fields)
            else:
                self._log.warning(f"{self._policy.noun} failed", **fields)

    def _return_claim(self, row: RowT) -> None:
        self._count("given_back")
        store = self._policy.store
        self._write_until_recorded(
            lambda: self._ledger.write(lambda tx: store.undo_claim(tx, row, self._owner))
        )

    def _write_until_recorded(self, write: Callable[[], None]) -> None:
        """Repeat until the ledger is available; after a stop, the next start recovers the row."""
        outage = OutageLog(self._log)
        while True:
            try:
                write()
                outage.report_end()
                return
            except LedgerBroken:
                raise
            except LedgerError as error:
                outage.report(error)
                if self._clock.wait(self._stopping, LEDGER_RETRY_SECONDS):
                    return

    def _normalize_due_times(self, config: CompiledConfig, now: datetime) -> None:
        """Rewrite `next_retry_at` values that scripts have written in another format.

        Finding them reads all outstanding rows, so it is done every few seconds only.
        """
        if self._normalized_at is not None and abs(now - self._normalized_at) < NORMALIZE_EVERY:
            return
        self._normalized_at = now
        while self._normalize_batch(config, now):
            pass

    def _normalize_batch(self, config: CompiledConfig, now: datetime) -> bool:
        """Whether there may be more."""
        ids = self._ledger.read(lambda tx: self._policy.find_odd_times(tx, config))
        if not ids:
            return False
        normalized = self._ledger.write(
            lambda tx: self._policy.store.normalize_due_times(tx, ids, now)
        )
        for id, due in normalized.items():
            if due is None:
                self._log.warning("next_retry_at is not a time; due now", **{self._policy.noun: id})
        return bool(normalized)

    def wait_until_idle(self, seconds: float) -> bool:
        """Wait until nothing is in flight; False if that takes longer."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._in_flight, seconds)

    def count_outcomes(self) -> Counter[str]:
        """Number of sends by result: `2xx` to `5xx`, `unanswered`, `given_back`, `in_house`."""
        with self._changed:
            return self._outcomes.copy()

    def stop(self, seconds: float) -> None:
        """Start nothing more, and wait at most this long for the sends in flight.

        A row that is still in flight then stays claimed by this boot; the next start sends it
        again.
        """
        self._stopping.set()
        self.wait_until_idle(seconds)

    def _count_in_flight(self) -> int:
        with self._changed:
            return self._in_flight.total()

    def _add_in_flight(self, row: RowT, change: int) -> None:
        id = str(row.id)
        with self._changed:
            self._in_flight[id] += change
            if not self._in_flight[id]:
                del self._in_flight[id]
            self._changed.notify_all()

    def _count(self, outcome: str) -> None:
        with self._changed:
            self._outcomes[outcome] += 1
