"""Requests to this node, which may come from another one: end a job, reload, look at the waits."""

from __future__ import annotations

import threading
from collections.abc import Callable, Container
from datetime import datetime

import orjson

from ductile.clock import Clock
from ductile.errors import ConfigError, DuctileError, Problem
from ductile.log import logger
from ductile.model import Cancellation
from ductile.store import nodes
from ductile.store.engines.api import Ledger
from ductile.store.nodes import NodeRequest, RequestKind

RETRY_SECONDS = 0.01
IDLE_SECONDS = 60.0
POLL_SECONDS = 10.0
"""Where other nodes write requests. A node that has lost its wake-ups is woken when it has its
connection again."""
UNKNOWN_JOB_SECONDS = 1.0
"""How long a request waits for an unknown job, whose claim may just be committed."""


class NodeRequestHandler:
    """A loop, which commits and other nodes wake, calls `tick`."""

    def __init__(
        self,
        ledger: Ledger,
        boot: str,
        clock: Clock,
        owned_jobs: Callable[[], Container[str]],
        cancel: Callable[[str, Cancellation], bool],
        reload: Callable[[], tuple[Problem, ...]],
        wake_waits: Callable[[], None],
    ) -> None:
        """`owned_jobs` returns the ids of this process; `cancel` ends a process if there is one."""
        self._ledger, self._boot, self._clock = ledger, boot, clock
        self._owned_jobs, self._cancel = owned_jobs, cancel
        self._reload, self._wake_waits = reload, wake_waits
        self._first_seen: dict[str, float] = {}
        """When this process has first read each open request."""
        self._reloading: set[str] = set()

    def tick(self, _now: datetime) -> float:
        """Do what is requested; a job that is owned but has no process yet is tried again."""
        ledger, at = self._ledger, self._clock.monotonic()
        requests = ledger.read(lambda tx: nodes.list_requests(tx, self._boot))
        self._first_seen = {one.id: self._first_seen.get(one.id, at) for one in requests}
        done = [one.id for one in requests if self._is_done(one, at)]
        if done:
            ledger.write(lambda tx: nodes.delete_requests(tx, done))
        if any(one.kind is RequestKind.CANCEL and one.id not in done for one in requests):
            return RETRY_SECONDS
        return IDLE_SECONDS if ledger.engine == "sqlite" else POLL_SECONDS

    def _is_done(self, request: NodeRequest, at: float) -> bool:
        match request.kind:
            case RequestKind.CANCEL:
                return self._is_cancelled(request, at)
            case RequestKind.WAITS:
                self._wake_waits()
                return True
            case RequestKind.RELOAD:
                self._start_reload(request.id)
                return False

    def _is_cancelled(self, request: NodeRequest, at: float) -> bool:
        job_id, why = request.job_id, request.why
        if job_id is None or why is None or self._cancel(job_id, why):
            return True
        give_up = self._first_seen[request.id] + UNKNOWN_JOB_SECONDS
        return job_id not in self._owned_jobs() and at >= give_up

    def _start_reload(self, request_id: str) -> None:
        """In a thread of its own: a cancel does not wait until the files are read."""
        if request_id not in self._reloading:
            self._reloading.add(request_id)
            threading.Thread(
                target=self._answer_reload, args=(request_id,), name="reload", daemon=True
            ).start()

    def _answer_reload(self, request_id: str) -> None:
        answer: dict[str, object] = {"status": "reloaded", "problems": []}
        try:
            answer["warnings"] = [str(warning) for warning in self._reload()]
        except ConfigError as error:
            answer = {"status": "refused", "problems": [str(one) for one in error.problems]}
        except DuctileError as error:
            answer = {"status": "refused", "problems": [error.message]}
        except Exception as error:  # noqa: BLE001 - the requesting node waits for an answer
            logger("reload").crash("reload failed with an internal error", error)
            answer = {"status": "failed", "problems": [f"internal error: {type(error).__name__}"]}
        text, now = orjson.dumps(answer).decode(), self._clock.now()
        try:
            self._ledger.write(lambda tx: nodes.answer_request(tx, request_id, text, now))
        except DuctileError as error:
            logger("reload").error("the outcome of a reload is not stored", error=error.message)
        finally:
            self._reloading.discard(request_id)
