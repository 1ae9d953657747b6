"""Repeats attempts in the sandbox of comparisons, one after the other; nothing is committed."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson

from ductile import files
from ductile.clock import Entropy
from ductile.core.jobs.judge import judge
from ductile.core.jobs.prepare import PluginPlan, Unrunnable, prepare
from ductile.core.pipelines.graph import Node
from ductile.core.values.redact import Redactor, hide_secret_keys
from ductile.engine.config.compiled import CompiledConfig
from ductile.engine.workspaces import remove_tree
from ductile.errors import DuctileError
from ductile.model import Job, Json, Launch, Settlement
from ductile.operations.compare.recorded import NotRecorded
from ductile.runner.pool import RunnerPool
from ductile.store.jobs.settle import attempt_status

Document = dict[str, Any]
GRACE = 1.0
"""Seconds between SIGTERM and SIGKILL."""


class Interrupted(DuctileError):
    """The caller has gone, or the gateway stops."""

    code = "interrupted"
    http_status = 503

    def __init__(self) -> None:
        super().__init__("the comparison was interrupted")


class TemporarySlot:
    """A process that runs one plugin at a time, apart from the gateway's workers."""

    def __init__(self) -> None:
        self._pool = RunnerPool(1, owns_children_after_loss=True)
        self._interrupted = threading.Event()

    @contextmanager
    def open(self, directory: Path) -> Iterator[TemporarySlot]:
        """`directory`, for temporary files, is created, and removed at the end."""
        files.create(directory)
        try:
            self._pool.start()
            yield self
        finally:
            self._pool.stop()
            remove_tree(directory)
            with contextlib.suppress(OSError):
                directory.parent.rmdir()

    def interrupt(self) -> None:
        """End what runs, and run nothing more. For any thread."""
        self._interrupted.set()
        self._pool.slot(0).cancel(0.0)

    def check(self) -> None:
        if self._interrupted.is_set():
            raise Interrupted

    def repeat(
        self,
        compiled: CompiledConfig,
        plan: PluginPlan,
        job: Job,
        node: Node | None,
        *,
        state: Mapping[str, Json],
        context: Mapping[str, Json],
        workspace: Path | None,
        now: datetime,
        entropy: Entropy,
    ) -> Settlement:
        """What a gateway would make of the attempt. Raises `NotRecorded` if it cannot be begun."""
        directory = None if workspace is None else str(workspace)
        text = orjson.dumps(dict(state)).decode()
        ready = prepare(job, text, context, plan, node, now, directory)
        if isinstance(ready, Unrunnable):
            raise NotRecorded(ready.reason)
        return self.run(compiled, plan, job, ready.launch, now, entropy.uniform())

    def run(
        self,
        compiled: CompiledConfig,
        plan: PluginPlan,
        job: Job,
        launch: Launch,
        now: datetime,
        chance: float,
    ) -> Settlement:
        """What a gateway would make of this launch, but for what follows from it."""
        self.check()
        outcome = self._pool.slot(0).run(replace(launch, grace=GRACE))
        self.check()
        rules = replace(
            compiled.rules(job.plugin, job.command),
            sandbox=None,
            timeout=plan.timeout(job.command),
            router=None,
        )
        return judge(job, outcome, rules, now, chance)


def describe_settled(settlement: Settlement, redactor: Redactor) -> Document:
    """The parts of a repeated attempt that are compared, as the ledger would store them."""
    response = orjson.loads(settlement.result) if settlement.result else None
    status = attempt_status(settlement).value
    return describe_attempt(status, settlement.error, response, redactor)


def describe_attempt(
    status: str, error: str | None, response: Document | None, redactor: Redactor
) -> Document:
    """The parts of an attempt that are compared, with every known secret removed."""
    answer = response or {}
    updates = answer.get("state_updates")
    shown: Document = redactor.document(
        {
            "status": status,
            "error": error,
            "result": answer.get("result"),
            "events": _describe_events(answer.get("events")),
            "state": hide_secret_keys(updates) if isinstance(updates, dict) else {},
        }
    )
    return shown


def _describe_events(events: Json) -> list[Document]:
    if not isinstance(events, list):
        return []
    return [
        {
            "type": event.get("type"),
            "payload": {} if event.get("payload") is None else event["payload"],
            "dedupe_key": event.get("dedupe_key") or None,
        }
        for event in events
        if isinstance(event, dict)
    ]
