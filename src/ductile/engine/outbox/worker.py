"""The courier: one loop a lane that claims, sends side by side, and settles each by itself."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from datetime import datetime

from ductile.clock import Clock
from ductile.engine.observability.db_outage import Outage
from ductile.engine.outbox.queue import OutboundRequest, Outbox, SendResult
from ductile.errors import LedgerBroken, LedgerError
from ductile.log import logger

START_WITHIN = 1.0
"""Seconds. What is claimed and cannot be sent by then is given back: lanes count on it."""
MOST_AT_ONCE = 64
"""Sends of a lane that are under way; beyond it nothing more is claimed."""
LOOK_AGAIN = 0.05
SETTLE_AGAIN = 1.0

Send = Callable[[OutboundRequest], SendResult]


class OutboxWorker:
    """Carries one lane's parcels. `tick` is for a loop; each send has a thread of its own."""

    def __init__(
        self, lane: Outbox, send: Send, clock: Clock, broken: Callable[[LedgerBroken], None]
    ) -> None:
        self._lane, self._send, self._clock, self._broken = lane, send, clock, broken
        self._log = logger(lane.name)
        self._changed = threading.Condition()
        self._under_way = 0
        self._stopping = threading.Event()
        self._outcomes: Counter[str] = Counter()

    def tick(self, now: datetime) -> float:
        """Claim what is due and set it going; the seconds until this is worth calling again."""
        if self._stopping.is_set() or self._under_way >= MOST_AT_ONCE:
            return LOOK_AGAIN
        claiming = self._clock.monotonic()
        parcels, wait = self._lane.claim(now)
        for parcel in parcels:
            with self._changed:
                self._under_way += 1
            thread = threading.Thread(
                target=self._carry, args=(parcel, claiming), name=self._lane.name, daemon=True
            )
            try:
                thread.start()
            except RuntimeError:
                # No thread is to be had: given back here, to be claimed again a little later.
                self._carry(parcel, claiming - 2 * START_WITHIN)
                wait = max(wait, SETTLE_AGAIN)
        return wait

    def idle(self, seconds: float) -> bool:
        """Wait until nothing is under way; whether that came true in time."""
        with self._changed:
            return self._changed.wait_for(lambda: self._under_way == 0, seconds)

    def outcomes(self) -> Counter[str]:
        """How sends ended so far: `2xx` to `5xx`, `unanswered`, `given_back`, `in_house`."""
        with self._changed:
            return self._outcomes.copy()

    def stop(self, seconds: float) -> None:
        """Start nothing more, and wait so long for what is under way.

        What then still is stays claimed by this boot: it is sent again once that has ended.
        """
        self._stopping.set()
        self.idle(seconds)

    def _carry(self, parcel: OutboundRequest, claiming: float) -> None:
        try:
            late = self._clock.monotonic() - claiming > START_WITHIN
            if late or self._stopping.is_set():
                self._note("given_back")
                self._until_recorded(lambda: self._lane.give_back(parcel))
                return
            answer = self._sent(parcel) if parcel.url else SendResult(None, parcel.refusal)
            self._note(_outcome(parcel, answer))
            self._until_recorded(lambda: self._lane.settle(parcel, answer, self._clock.now()))
        except LedgerBroken as error:
            self._broken(error)
        except Exception as error:  # noqa: BLE001 - it is this parcel's alone
            self._log.crash("a parcel could not be settled", error, parcel=parcel.id)
        finally:
            with self._changed:
                self._under_way -= 1
                self._changed.notify_all()

    def _sent(self, parcel: OutboundRequest) -> SendResult:
        try:
            return self._send(parcel)
        except Exception as error:  # noqa: BLE001 - it is this parcel's alone
            self._log.crash("a parcel could not be sent", error, parcel=parcel.id)
            return SendResult(None, "internal error")

    def _until_recorded(self, record: Callable[[], None]) -> None:
        """Until the ledger takes it; at a stop the next start finds it unrecorded."""
        outage = Outage(self._log)
        while True:
            try:
                record()
                outage.over()
                return
            except LedgerBroken:
                raise
            except LedgerError as error:
                outage.met(error)
                if self._clock.wait(self._stopping, SETTLE_AGAIN):
                    return

    def _note(self, outcome: str) -> None:
        with self._changed:
            self._outcomes[outcome] += 1


def _outcome(parcel: OutboundRequest, answer: SendResult) -> str:
    if not parcel.url:
        return "in_house"
    return f"{answer.status // 100}xx" if answer.status else "unanswered"
